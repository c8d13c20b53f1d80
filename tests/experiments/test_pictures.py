"""All methods side by side, error maps, and Fourier lines: what is asked for, and small runs checked by hand."""

import shutil

import numpy as np
import pytest
import torch
from helpers import rand
from study_helpers import (
    NAMED,
    TOP,
    by_hand,
    figures,
    labels,
    line,
    note_asked,
    numbers,
    panel,
    scored,
    settings,
    shows,
)

from experiments import shared
from experiments.errors import study as errors
from experiments.figures import GAP, SIDE, TEXT
from experiments.fourier import study as fourier
from experiments.qualitative import study as qualitative
from experiments.shared import CELEBA
from firm._util.checks import generator_for
from firm.baselines.weights import Networks, baseline_methods
from firm.data import cat, portrait
from firm.tasks import Task, tables

DENOISING, DEBLURRING, SUPER, RANDOM, BOX = tables()
WHITE = (255, 255, 255)


def test_a_panel_has_the_scores_of_its_image(root):
    """Of the second test image, by FIRM N=1; ISTA-Net does not do denoising."""
    given = settings(root, "run")
    rows = shared.methods(given, CELEBA, ["ista-net"], (1,))
    images = shared.test_images(given, CELEBA, 2)
    truth, measured, absent, restored = shared.panels(given, images, Task(DENOISING), rows, 1)
    x_1, x = by_hand(root, Task(DENOISING), 1, 1)
    assert torch.equal(truth.image, x_1[0])
    assert torch.equal(measured.image, Task(DENOISING).measure(x_1, 42, 1)[1][0])
    torch.testing.assert_close(restored.image, x[0])
    assert restored.label == "{:.2f} / {:.3f} / {:.3f}".format(*scored(x_1, x))
    assert (absent.image, absent.label) == (None, "does not apply")
    assert shared.heads(rows) == ["truth", "measurement", "ISTA-Net", "FIRM N=1"]


def test_qualitative_asks_for_a_new_image_in_every_task(root, monkeypatch):
    _, drawn = note_asked(monkeypatch, qualitative)
    qualitative.study(settings(root, "asked"), "qualitative")
    with_prior = ["PnP-HQS", "DiffPIR", "OT-ODE", "D-Flow", "Flow-Priors", "PnP-Flow1", "PnP-Flow5", "Flower1-OT"]
    rows = ["degraded", *with_prior, "Flower5-OT", *labels(2, 10)]
    faces = [(Task(task, 128), rows, number) for number, task in enumerate(tables())]
    cats = [(Task(DENOISING, 256), rows, 0), (Task(DEBLURRING, 256), rows, 1)]
    assert drawn == [*faces, *cats, *((task, rows, 0) for task, _, _ in (*faces, *cats))]  # the last: portrait and cat
    drawn.clear()
    results = qualitative.study(settings(root, "asked", quick=True), "qualitative")
    assert {(task.shape[0], *rows) for task, rows, _ in drawn} == {
        (128, "degraded", "PnP-HQS", "PnP-Flow1", *labels(2, 10)), (256, "degraded", "PnP-HQS", *labels(2, 10)),
    }  # fmt: skip
    assert figures(results) == {"celeba.png": False, "afhq.png": False}
    assert any("no networks for CelebA here, so left out: ista-net" in note for note in results["notes"])


def test_qualitative_leaves_out_what_cats_have_no_networks_for(root, monkeypatch, tmp_path):
    """Asked for by name: it must be there for faces, and cats do without."""
    shutil.copy(root / "weights" / "face-denoiser.safetensors", tmp_path)
    _, drawn = note_asked(monkeypatch, qualitative)
    given = settings(root, "asked", methods="pnp-hqs", weights=tmp_path, steps=(1,), quick=True)
    results = qualitative.study(given, "qualitative")
    assert {(task.shape[0], *rows) for task, rows, _ in drawn} == {
        (128, "degraded", "PnP-HQS", "FIRM N=1"), (256, "degraded", "FIRM N=1"),
    }  # fmt: skip
    assert any("no networks for AFHQ-Cat here, so left out: pnp-hqs" in note for note in results["notes"])


def test_qualitative_draws_every_method(root, monkeypatch):
    """The third task shows the first of two images again; a method that does not do a task leaves a place empty."""
    (faces, _, quick), cats = qualitative.PARTS
    monkeypatch.setattr(qualitative, "PARTS", ((faces, (DENOISING, DEBLURRING, BOX), quick), cats))
    results = qualitative.study(settings(root, "run", methods="pnp-hqs", steps=(1,)), "qualitative")
    folder, free = root / "run" / "qualitative", ("portrait-qualitative.png", "cat-qualitative.png")
    assert figures(results) == {"celeba.png": False, "afhq.png": False, **dict.fromkeys(free, True)}
    tall = 2 * (SIDE + GAP) + TEXT + GAP  # a panel, its zoom, and the scores
    prior = Networks("cpu", "float32", root / "weights")
    for file, kind, row, index, first in (
        ("celeba.png", DEBLURRING, 1, 1, None), ("celeba.png", BOX, 2, 0, None), ("afhq.png", DEBLURRING, 1, 1, None),
        (free[0], DEBLURRING, 1, 0, portrait()), (free[1], DEBLURRING, 1, 0, cat()),
    ):  # fmt: skip
        task = Task(kind, 256 if file in ("afhq.png", free[1]) else 128)
        truth, x = by_hand(root, task, 1, index, first)
        op, y = task.measure(truth, 42, index)
        hqs = baseline_methods("pnp-hqs", prior)[0].on(task)
        theirs = None if hqs is None else hqs.run(op, y, task.sigma, [generator_for(42, index, "method")])
        for j, image in enumerate((truth, y, theirs, x)):
            if image is not None:
                assert shows(panel(folder / file, j, TOP + row * tall, NAMED), image[0]), (file, row, j)
    empty = panel(folder / "celeba.png", 2, TOP + 2 * tall, NAMED)  # PnP-HQS has no box inpainting
    assert (empty[: SIDE // 2 - GAP] == WHITE).all()


def test_errors_by_hand(root, monkeypatch):
    monkeypatch.setattr(errors, "tables", lambda: (SUPER, DEBLURRING, BOX))  # three are enough
    results = errors.study(settings(root, "run", methods="pnp-hqs", steps=(1,), limit=2), "errors")
    given = settings(root, "run")
    images, rows = shared.test_images(given, CELEBA, 1), shared.methods(given, CELEBA, [], (1,))
    (_, (_, maps)) = errors.absolute_errors(given, images, [Task(RANDOM)], rows)[1]
    truth, x = by_hand(root, Task(RANDOM), 1)
    assert maps[2].label == f"{float((x - truth).abs().mean()) / 2:.4f} / {scored(truth, x)[0]:.2f}"
    folder = root / "run" / "errors"
    assert figures(results) == {"errors.png": False, "portrait-errors.png": True}
    assert results["tables"][0]["title"] == "mean absolute error, pixels in [0, 1], 2 images of CelebA"
    for task in (Task(SUPER), Task(BOX)):
        pairs = [by_hand(root, task, 1, index) for index in range(2)]
        mean = np.mean([float((x - truth).abs().mean() / 2) for truth, x in pairs])
        assert line(results, 0, "FIRM N=1")["ours"][task.name] == pytest.approx(mean, abs=1e-6)
    assert list(line(results, 0, "PnP-HQS")["ours"]) == [SUPER, DEBLURRING]
    tall = SIDE + GAP + SIDE + GAP + TEXT + GAP  # restorations, and their errors with the numbers
    for file, first in (("errors.png", None), ("portrait-errors.png", portrait())):
        truth, x = by_hand(root, Task(DEBLURRING), 1, 0, first)
        _, y = Task(DEBLURRING).measure(truth, 42, 0)
        for j, image in ((0, truth), (1, y), (3, x)):
            assert shows(panel(folder / file, j, TOP + tall, NAMED), image[0])
        below = TOP + tall + SIDE + GAP
        assert (panel(folder / file, 0, below, NAMED) == WHITE).all()  # the truth has no error
        for j, image in ((1, y), (3, x)):
            assert shows(panel(folder / file, j, below, NAMED), (image - truth)[0].abs().mean(0) / 2)


def test_errors_count_the_tasks_that_firm_wins():
    best, beaten = {"Flower5-OT": 0.02, "FIRM N=2": 0.01}, {"Flower5-OT": 0.01, "FIRM N=2": 0.02}
    (note,) = errors.lowest({DENOISING: best, BOX: beaten, RANDOM: best})
    assert note.startswith("FIRM N=2 has the lowest mean absolute error in 2 of 3 tasks")
    assert errors.lowest({DENOISING: {"FIRM N=1": 0.1}}) == []
    columns = errors.table({DENOISING: best, BOX: {"degraded": 0.3}}, "t").columns
    assert {(column.digits, column.better) for column in columns} == {(4, "low")}


def test_fourier_asks_for_the_papers_setting(root, monkeypatch):
    evaluated, drawn = note_asked(monkeypatch, fourier)
    fourier.study(settings(root, "asked"), "fourier")
    (task,) = evaluated[0][3]
    assert drawn == [(task, ["degraded", "Flower1-OT", "FIRM N=2"], 0)] * 2  # the second: the cat
    assert (task.shape, task.sigma) == ((256, 256), 0.002)
    assert round(100 * float(task.operator().mask.mean()), 2) == 21.88


def test_fourier_by_hand(root):
    results = fourier.study(settings(root, "run", methods="", steps=(1, 2), limit=1), "fourier")
    task = Task("fourier", 256)
    truth, x = by_hand(root, task, 1)
    op, y = task.measure(truth, 42, 0)
    columns = (op.A(rand(1, 3, 256, 256)).abs() > 0)[0, 0, 0]  # measured
    zero_filled = torch.fft.ifft2(y * columns, norm="ortho").real
    assert numbers(results, 0, "Degraded", "fourier") == pytest.approx(scored(truth, zero_filled), abs=2e-3)
    assert numbers(results, 0, "FIRM N=1", "fourier") == pytest.approx(scored(truth, x), abs=2e-3)
    assert list(line(results, 0, "FIRM N=2")["paper"].values()) == [32.06, 0.892, 0.074]
    assert list(line(results, 0, "Degraded")["paper"].values()) == [25.62, 0.725, 0.343]
    assert figures(results) == {"fourier.png": False, "cat-fourier.png": True}
    path = root / "run" / "fourier" / "fourier.png"
    for j, image in enumerate((truth[0], zero_filled[0], x[0])):
        assert shows(panel(path, j), image)
    assert columns[0]
    mask = np.where(columns.roll(128), 255, 0)[None, :, None]  # the zero frequency in the middle
    assert (panel(path, 3) == mask).all()


def test_what_is_missing_is_said_before_any_work(root, tmp_path, monkeypatch):
    for module in (shared, errors):
        monkeypatch.setattr(module, "restore_chunk", lambda *_: pytest.fail("restored"))
    for module, name in ((qualitative, "qualitative"), (errors, "errors"), (fourier, "fourier")):
        given = settings(root, "nothing", methods="flower1", weights=tmp_path)
        with pytest.raises(FileNotFoundError, match=r"prior\.safetensors: no such weights"):
            module.study(given, name)
    assert not (root / "nothing").exists()
