"""Other noise and other masks: what is asked for, and a small run checked by hand."""

import numpy as np
import pytest
from study_helpers import METRICS, ROW, TOP, by_hand, figures, line, note_asked, numbers, panel, scored, settings, shows

import firm
from experiments import published
from experiments.mismatch import study as mismatch
from firm.tasks import Task

RANDOM = "random-inpainting"
SIX = {(0.7, 0.005), (0.7, 0.01), (0.7, 0.02), (0.5, 0.01), (0.6, 0.01), (0.8, 0.01)}


@pytest.fixture(scope="module")
def found(root):
    return mismatch.study(settings(root, "run", limit=2, steps=(1,), methods=""), "mismatch")


def test_it_asks_for_six_settings_with_the_papers_numbers_beside(root, monkeypatch):
    """That of Table 1 shares its rows, the others have folders of their own."""
    evaluated, drawn = note_asked(monkeypatch, mismatch)
    results = mismatch.study(settings(root, "asked"), "mismatch")
    variants = {(tasks[0].missing, tasks[0].sigma): variant for _, _, _, tasks, variant in evaluated}
    assert set(variants) == SIX
    assert len(evaluated) == len(set(variants.values())) == 6
    assert variants[0.7, 0.01] == ""
    assert all(entry[:3] == ("celeba", 100, ["Flower5-OT", "FIRM N=2"]) for entry in evaluated)
    shown = [(task.missing, task.sigma, rows, index) for task, rows, index in drawn]
    assert shown == [(p, 0.01, ["degraded", "FIRM N=2"], i) for i in range(3) for p in (0.5, 0.6, 0.7, 0.8)]
    titles = [f"100 images of CelebA, random inpainting, {what} at test" for what in ("noise", "pixels missing")]
    assert [table["title"] for table in results["tables"]] == titles
    values = {0.005: (34.02, 0.954, 0.019), 0.01: (33.92, 0.953, 0.020), 0.02: (33.65, 0.947, 0.024)}
    paper = {f"noise {s:g} {m}": v for s, row in values.items() for m, v in zip(METRICS, row, strict=True)}
    assert line(results, 0, "Flower5-OT")["paper"] == paper
    assert line(results, 0, "FIRM N=2")["paper"]["noise 0.02 psnr"] == 34.57
    theirs = line(results, 1, "FIRM N=2")["paper"]
    assert [theirs[f"{p} % missing psnr"] for p in (50, 60, 70, 80)] == [38.26, 36.95, 35.03, 32.10]
    assert theirs["80 % missing lpips"] == 0.034
    assert list(line(results, 1, "Flower5-OT")["paper"]) == [f"70 % missing {metric}" for metric in METRICS]
    assert line(results, 1, "FIRM N=2")["ours"]["50 % missing psnr"] == 30.0
    assert mismatch.in_paper("FIRM N=2", 0.7, 0.01) == published.MISSING[0.7]  # Table 1 and the table here agree
    assert mismatch.in_paper("FIRM N=4", 0.7, 0.01) == (34.67, 0.962, 0.016)
    assert mismatch.in_paper("FIRM N=4", 0.8, 0.01) == mismatch.in_paper("FIRM N=4", 0.7, 0.02) == ()


def test_it_asks_for_less_when_quick_and_does_as_told(root, monkeypatch):
    evaluated, drawn = note_asked(monkeypatch, mismatch)
    note = "Flower5-OT, 500 network calls an image, is left out with --quick"
    results = mismatch.study(settings(root, "asked", quick=True), "mismatch")
    assert {(count, *rows) for _, count, rows, _, _ in evaluated} == {(10, "FIRM N=2")}
    assert note in results["notes"]
    evaluated.clear(), drawn.clear()
    given = settings(root, "asked", quick=True, methods="flower1", steps=(4, 1), limit=2)
    results = mismatch.study(given, "mismatch")
    assert {(count, *rows) for _, count, rows, _, _ in evaluated} == {(2, "Flower1-OT", "FIRM N=4", "FIRM N=1")}
    assert {(rows[1], index) for _, rows, index in drawn} == {("FIRM N=4", 0), ("FIRM N=4", 1)}
    assert not any("left out" in note for note in results["notes"])


def test_every_setting_is_measured_and_drawn(found, root, tmp_path):
    assert found["images"] == 2
    for table, group, missing, sigma in (
        (0, "noise 0.005", 0.7, 0.005), (0, "noise 0.02", 0.7, 0.02), (0, "noise 0.01", 0.7, 0.01),
        (1, "50 % missing", 0.5, 0.01), (1, "80 % missing", 0.8, 0.01),
    ):  # fmt: skip
        task = Task(RANDOM, missing=missing, sigma=sigma)
        expected = np.mean([scored(*by_hand(root, task, 1, index)) for index in range(2)], axis=0)
        assert numbers(found, table, "FIRM N=1", group) == pytest.approx(expected, abs=2e-3)
    assert figures(found) == {"mismatch.png": False}
    task = Task(RANDOM, missing=0.8)
    truth, x = by_hand(root, task, 1, 1)
    for j, image in ((0, truth), (7, task.measure(truth, 42, 1)[1]), (8, x)):
        assert shows(panel(root / "run" / "mismatch" / "mismatch.png", j, TOP + ROW), image[0])
    note = "our model was trained on 25 to 85 % missing and noise 0.002 to 0.05, so for it this is no mismatch"
    assert any(said.startswith(note) for said in found["notes"])
    model = firm.load(root / "tiny.safetensors")
    model.card = {"trained_for": [{"name": RANDOM, "missing": 0.7, "sigma": 0.01}]}  # as the paper's
    model.save(tmp_path / "one.safetensors")
    assert mismatch.trained_on(settings(root, "asked", model=str(tmp_path / "one.safetensors"))) == []


def test_it_says_what_it_saw():
    psnr = {(0.5, 0.01): 38.0, (0.6, 0.01): 36.0, (0.7, 0.01): 34.0, (0.8, 0.01): 31.0}
    psnr |= {(0.7, 0.005): 34.25, (0.7, 0.02): 33.5}
    for value, falls in ((36.0, "falls"), (38.5, "does not fall")):
        values = psnr | {(0.6, 0.01): value}
        order, noise = mismatch.observed({at: {"mine": {"psnr": v}} for at, v in values.items()}, "mine")
        assert order.startswith(f"mine: PSNR {falls} with every further share of missing pixels")
        assert noise.startswith("mine: +0.25 dB with noise 0.005 and -0.50 dB with 0.02 beside 0.01")
