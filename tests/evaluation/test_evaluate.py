"""`firm evaluate` on generated pictures: batches, kills and continuations leave the numbers as they are."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import call, save_pictures, says, tiny_model
from PIL import Image

import firm
from evaluation_helpers import command, csv_rows, results
from firm.data import load_images
from firm.evaluation import Evaluation, NamedMethod, evaluate, plain_methods
from firm.evaluation import run as run_module
from firm.evaluation.report import summarize, tables
from firm.metrics import lpips, psnr, ssim
from firm.tasks import Task

SIZE = 32
TASK_NAMES = "denoising,deblurring,super-resolution,random-inpainting,box-inpainting,fourier"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 5, (40, 48))


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors", [])


def arguments(folder, method, out, *more):
    common = ["--data", str(folder), "--size", str(SIZE), "--tasks", TASK_NAMES, "--steps", "1,3", "--out", str(out)]
    return ["evaluate", str(method), *common, *more]


def run(*args):
    result = call(*arguments(*args))
    assert result.exit_code == 0, result.output
    return result.output


def numbers(out):
    """Everything in images.csv that must be reproducible, sorted."""
    keys = ("task", "method", "index", "file", "psnr", "ssim", "lpips", "nfe")
    return sorted(tuple(row[key] for key in keys) for row in csv_rows(out))


@pytest.fixture(scope="module")
def reference(folder, model_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("reference")
    return out, run(folder, model_file, out, "--batch-size", "100", "--images", "2")


def test_prints_and_writes_everything(reference, model_file):
    out, printed = reference
    assert "denoising (5 images, convention tables)" in printed
    assert len(numbers(out)) == 6 * 4 * 5
    found = json.loads((out / "results.json").read_text())
    assert found["config"]["files"] == [f"{i:03d}.png" for i in range(5)]
    assert found["config"]["seed"] == 42
    assert found["config"]["tasks"]["deblurring"]["kernel_size"] == 61
    assert found["methods"]["FIRM N=3"] == firm.fast(firm.load(model_file), "float32").fingerprint()
    assert found["machine"]["torch"] == torch.__version__
    row = found["summary"]["denoising"]["FIRM N=3"]
    assert (row["images"], row["nfe"]) == (5, 6)
    values = [float(n[4]) for n in numbers(out) if n[:2] == ("denoising", "FIRM N=3")]
    assert (row["psnr"], row["psnr_std"]) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
    for task in TASK_NAMES.split(","):
        with Image.open(out / f"{task}.png") as picture:
            assert picture.width > 300


def test_scores_of_many_images_at_once_are_those_of_each(folder, reference):
    """As a GPU computes them, in pieces of two of the five; super-resolution has the paper's own way for one row."""
    images = load_images("folder", folder, "test", size=SIZE)
    evaluation = Evaluation(images, [Task(name, SIZE) for name in TASK_NAMES.split(",")])
    for task in evaluation.tasks:
        for method in plain_methods():
            restored = run_module.restore_chunk(evaluation, task, method, range(5))
            pieces = [slice(0, 2), slice(2, 4), slice(4, 5)]
            found = [s for piece in pieces for s in run_module.score_images(evaluation, task, method, restored, piece)]
            stored = [row for row in numbers(reference[0]) if row[:2] == (task.name, method.label)]
            assert len(found) == len(stored) == 5
            for score, row in zip(found, stored, strict=True):
                expected = [float(value) for value in row[4:7]]
                assert [score[key] for key in ("psnr", "ssim", "lpips")] == pytest.approx(expected, abs=2e-5), row


def test_a_killed_run_continues_to_the_same_numbers(folder, model_file, reference, tmp_path):
    """SIGKILL at several moments, then a run to the end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "firm", *arguments(folder, model_file, tmp_path, "--batch-size", "2")]
    for lines in (5, 80):
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        table, deadline = tmp_path / "images.csv", time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if table.is_file() and table.read_bytes().count(b"\n") >= lines:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert table.read_bytes().count(b"\n") >= min(lines, 60)
    with open(tmp_path / "images.csv", "a") as file:
        file.write("fourier,FIRM N=3,4,004.png,12.3")  # a line that a crash cut short
    run(folder, model_file, tmp_path, "--batch-size", "3")
    assert numbers(tmp_path) == numbers(reference[0])
    before = (tmp_path / "images.csv").read_bytes()
    run(folder, model_file, tmp_path)
    assert (tmp_path / "images.csv").read_bytes() == before  # nothing was left to do


def test_torchrun_shares_the_images(folder, model_file, reference, tmp_path):
    """Two processes give the numbers of one, of which a part is there already; notes and tables come once."""
    run(folder, "degraded", tmp_path)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launch += ["--rdzv-endpoint", "localhost:0", "-m", "firm", *arguments(folder, model_file, tmp_path, "--limit", "5")]
    done = subprocess.run(launch, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert numbers(tmp_path) == numbers(reference[0])
    assert done.stdout.count("denoising (5 images, convention tables)") == 1
    assert done.stderr.count("note: denoising") <= 1


@pytest.mark.parametrize("convention", ["tables", "text"])
def test_numbers_are_the_metrics_of_the_images(convention, folder, tmp_path):
    """One row recomputed by hand, with the double mapping of degraded super-resolution."""
    images = load_images("folder", folder, size=SIZE, progress=False)
    truth = images.batch(range(4, 5))
    _, y = firm.Task("super-resolution", SIZE).measure(truth, index=4)
    filled, twice = torch.zeros_like(truth), torch.zeros_like(truth)
    filled[..., ::2, ::2], twice[..., ::2, ::2] = y, (y + 1) / 2
    expected = {
        "tables": (psnr(twice, truth), ssim(filled, truth), lpips(2 * twice - 1, 2 * truth - 1)),
        "text": (psnr(filled, truth), ssim(filled.clamp(-1, 1), truth), lpips(filled.clamp(-1, 1), truth)),
    }[convention]
    evaluation = Evaluation(images, [firm.Task("super-resolution", SIZE)], convention)
    row = evaluate(evaluation, plain_methods()[:1], tmp_path, progress=False)[4]
    assert [row["psnr"], row["ssim"], row["lpips"]] == pytest.approx([float(v) for v in expected], abs=2e-6)


# Any function is a method


def test_any_function_is_a_method(evaluation, tmp_path):
    """Its calls are a dash where they depend on the image; what is no image is refused."""
    seen = []

    def clean(op, y, sigma, generator):
        seen.append((sigma, len(generator), len(y)))
        return op.A_adjoint(y)

    evaluation = replace(evaluation, tasks=[firm.Task("denoising", 16, sigma=0.1)])
    for _ in range(2):
        rows = evaluate(evaluation, [NamedMethod("clean", clean, nfe=None)], tmp_path, batch_size=4, progress=False)
        assert summarize(rows)["denoising"]["clean"]["psnr"] == pytest.approx(26.02, abs=0.2)
        (table,) = tables(summarize(rows), "tables")
        assert list(table.columns[4].cells) == ["-"]
    assert seen == [(0.1, 1, 1)] * 3
    broken = NamedMethod("broken", lambda op, y, sigma, generator: y * float("nan"))
    with pytest.raises(ValueError, match=r"broken on denoising, images 0 to 0: .* NaN"):
        evaluate(evaluation, [broken], tmp_path, batch_size=4, progress=False)
    assert "broken" not in (tmp_path / "images.csv").read_text()


def test_one_measurement_serves_all_methods(evaluation, tmp_path):
    """A stopped run has all methods of the first images."""
    seen = []

    def method(name):
        def restore(op, y, sigma, generator):
            seen.append((name, y.data_ptr(), float(y.sum())))
            return op.A_adjoint(y)

        return NamedMethod(name, restore)

    evaluate(evaluation, [method("a"), method("b")], tmp_path, progress=False)
    assert [name for name, *_ in seen] == ["a", "b"] * 3
    assert [y for _, *y in seen[::2]] == [y for _, *y in seen[1::2]]


def test_seeds_and_conventions_change_the_numbers(evaluation, tmp_path):
    """Also the noise that methods draw: it belongs to seed and image."""
    drawn, found = [], []

    def method(op, y, sigma, generator):
        drawn.extend(float(torch.rand((), generator=one)) for one in generator)
        return op.A_adjoint(y) * 1.5  # beyond [-1, 1], where the conventions differ

    for seed, convention in ((42, "tables"), (1, "tables"), (42, "text")):
        changed = replace(evaluation, seed=seed, convention=convention)
        rows = evaluate(changed, [NamedMethod("m", method)], tmp_path / f"{seed}{convention}", progress=False)
        found.append([(row["psnr"], row["ssim"]) for row in rows])
    assert len({*drawn[:6]}) == 6
    assert drawn[6:] == drawn[:3]
    first, other, text = found
    assert all(a[0] != b[0] for a, b in zip(first, other, strict=True))
    assert all(a[0] == b[0] and a[1] != b[1] for a, b in zip(first, text, strict=True))


def test_an_exact_restoration_has_an_infinite_psnr_and_a_summary(evaluation, tmp_path):
    evaluation = replace(evaluation, tasks=[firm.Task("denoising", 16, sigma=0)])
    row = summarize(evaluate(evaluation, plain_methods()[:1], tmp_path, progress=False))["denoising"]["degraded"]
    assert (row["psnr"], row["psnr_std"], row["ssim"]) == (math.inf, 0.0, pytest.approx(1))


def test_the_measurements_are_on_the_evaluations_device(evaluation, tmp_path):
    assert evaluation.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ValueError, match="on meta"):  # which has no values that could be measured
        evaluate(replace(evaluation, device="meta"), plain_methods(), tmp_path, progress=False)


# The command


def test_the_command_passes_its_options_on(pictures, tmp_path, monkeypatch):
    seen = []

    def record(evaluation, methods, out, **_):
        seen.append((evaluation.seed, evaluation.convention, evaluation.device))
        raise ValueError("far enough")

    monkeypatch.setattr("firm.evaluation.evaluate", record)
    monkeypatch.setattr("firm._util.machine.choose_device", lambda name: torch.device(name or "cpu"))
    done = command(pictures, tmp_path, "degraded", seed=7, convention="text", device="meta")
    assert says(done.output, "far enough")
    assert seen == [(7, "text", torch.device("meta"))]


@pytest.mark.parametrize(("change", "message"), [
    (["--tasks", "debluring"], "no task 'debluring'"), (["--tasks", "all,denoising"], "twice"),
    (["--steps", "2,x"], "--steps takes"), (["--tasks", "fourier", "--set", "mask=new"], "shared"),
    (["--dataset", "celeba"], "img_align_celeba: no such folder"), (["--data", "no-such-folder"], "no such folder"),
    (["pnp-hsq"], "did you mean 'pnp-hqs'?"), (["fotos"], "did you mean 'photo'?"),
    (["degrade"], "did you mean 'degraded'?"),
])  # fmt: skip
def test_wrong_arguments_say_what_is_wrong(change, message, pictures, tmp_path):
    result = call("evaluate", "degraded", "--data", pictures, "--out", tmp_path, *change)
    assert (result.exit_code, says(result.output, message)) == (2, True), result.output
    assert not list(tmp_path.iterdir())


def test_broken_pictures_stop_the_run_or_are_left_out(pictures, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "000.png").write_bytes(b"broken")
    none = command(data, tmp_path / "a", "degraded", "--skip-broken")
    assert (none.exit_code, says(none.output, "none of the 1 files could be read")) == (2, True)
    assert not says(none.output, "leaves it out")
    for path in sorted(pictures.iterdir())[1:]:
        (data / path.name).write_bytes(path.read_bytes())
    told = command(data, tmp_path / "a", "degraded")
    assert (told.exit_code, says(told.output, "000.png: no picture")) == (2, True)
    assert says(told.output, "; --skip-broken leaves it out")
    assert command(data, tmp_path / "b", "degraded", "--skip-broken").exit_code == 0
    assert len(csv_rows(tmp_path / "b")) == 2 * 2


@pytest.mark.parametrize(("limit", "size", "notes"), [
    (0, 20, []), (3, 20, []), (2, 20, ["only the first 2 of 3 pictures are evaluated"]),
    (0, 24, ["2 of 3 pictures had to be enlarged to 24x24"]), (0, 64, ["3 of 3 pictures had to be enlarged"]),
    (1, 64, ["only the first 1 of 3", "1 of 1 picture had to be enlarged"]),
])  # fmt: skip
def test_pictures_that_are_left_out_or_enlarged_are_said_and_recorded(limit, size, notes, tmp_path):
    for i, sides in enumerate([(20, 30), (40, 20), (30, 30)]):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (*sides, 3), np.uint8)).save(tmp_path / f"{i}.png")
    done = command(tmp_path, tmp_path / "out", "degraded", limit=limit, size=size, steps=None)
    found = results(done, tmp_path / "out")["notes"]
    assert [line[: len(note)] for line, note in zip(found, notes, strict=True)] == notes
    assert done.stderr.count("note:") == len(notes)
    shown = call("info", tmp_path / "out").output
    assert all(says(done.stderr, note) and note in shown for note in notes)
