"""`firm evaluate` on generated pictures: batches, kills and continuations leave the numbers as they are."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from helpers import call, save_pictures, says
from PIL import Image
from typer.testing import CliRunner

import firm
from firm.cli import app
from firm.data import load_images
from firm.evaluation import Evaluation, NamedMethod, evaluate, firm_method, plain_methods
from firm.evaluation import run as run_module
from firm.evaluation.report import summarize
from firm.metrics import lpips, psnr, ssim
from firm.tasks import Task

SIZE = 32
TASK_NAMES = "denoising,deblurring,super-resolution,random-inpainting,box-inpainting,fourier"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 9, (40, 48))


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    torch.manual_seed(0)
    net = firm.UNet(3, side=SIZE, ch=8, mult=(1, 2), blocks=1, attention=(16,), groups=4)
    for p in net.parameters():
        p.data = 0.1 * torch.randn(p.shape)
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    firm.Firm(net, firm.Solver(K=2)).save(path)
    return path


def arguments(folder, method, out, *more):
    common = ["--data", str(folder), "--size", str(SIZE), "--tasks", TASK_NAMES, "--steps", "1,3", "--out", str(out)]
    return ["evaluate", str(method), *common, *more]


def run(*args):
    result = CliRunner().invoke(app, arguments(*args))
    assert result.exit_code == 0, result.output
    return result.output


def numbers(out):
    """Everything in images.csv that must be reproducible, sorted."""
    with open(out / "images.csv") as file:
        return sorted(
            tuple(row[key] for key in ("task", "method", "index", "file", "psnr", "ssim", "lpips", "nfe"))
            for row in csv.DictReader(file)
        )


@pytest.fixture(scope="module")
def reference(folder, model_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("reference")
    printed = run(folder, model_file, out, "--batch-size", "100", "--images", "2")
    return out, printed


def test_prints_and_writes_everything(reference, model_file):
    out, printed = reference
    for word in ("denoising (9 images, convention tables)", "fourier", "degraded", "data-consistency", "FIRM N=3", "±"):
        assert word in printed
    assert len(numbers(out)) == 6 * 4 * 9
    results = json.loads((out / "results.json").read_text())
    assert results["config"]["files"] == [f"{i:03d}.png" for i in range(9)]
    assert results["config"]["seed"] == 42
    assert results["config"]["tasks"]["deblurring"]["kernel_size"] == 61
    assert results["methods"]["FIRM N=3"] == firm.fast(firm.load(model_file), "float32").fingerprint()
    assert results["machine"]["torch"] == torch.__version__
    row = results["summary"]["denoising"]["FIRM N=3"]
    assert (row["images"], row["nfe"]) == (9, 6)
    values = [float(n[4]) for n in numbers(out) if n[:2] == ("denoising", "FIRM N=3")]
    assert row["psnr"] == pytest.approx(np.mean(values))
    assert row["psnr_std"] == pytest.approx(np.std(values, ddof=1))
    for task in TASK_NAMES.split(","):
        with Image.open(out / f"{task}.png") as picture:
            assert picture.width > 300


@pytest.mark.parametrize("batch", ["1", "7"])
def test_batches_do_not_matter(batch, folder, model_file, reference, tmp_path):
    run(folder, model_file, tmp_path, "--batch-size", batch)
    assert numbers(tmp_path) == numbers(reference[0])


def test_scores_of_many_images_at_once_are_those_of_each(folder, reference, monkeypatch):
    """As a GPU computes them, in pieces of four of the nine; super-resolution has the paper's own way for one row."""
    monkeypatch.setattr(run_module, "_scored_at_once", lambda x: 4)
    images = load_images("folder", folder, "test", size=SIZE)
    evaluation = Evaluation(images, [Task(name, SIZE) for name in TASK_NAMES.split(",")])
    for task in evaluation.tasks:
        for method in plain_methods():
            restored = run_module.restore_chunk(evaluation, task, method, range(9))
            found = run_module._score_images(evaluation, task, method, restored)
            stored = [row for row in numbers(reference[0]) if row[:2] == (task.name, method.label)]
            assert len(found) == len(stored) == 9
            for score, row in zip(found, sorted(stored, key=lambda row: int(row[2])), strict=True):
                assert [score[key] for key in ("psnr", "ssim", "lpips")] == pytest.approx(
                    [float(value) for value in row[4:7]], abs=2e-5
                ), (task.name, method.label, row[2])


def test_a_killed_run_continues_to_the_same_numbers(folder, model_file, reference, tmp_path):
    """SIGKILL at several moments, then a run to the end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "firm", *arguments(folder, model_file, tmp_path, "--batch-size", "2")]
    for lines in (5, 60, 150):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        table, deadline = tmp_path / "images.csv", time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if table.is_file() and table.read_bytes().count(b"\n") >= lines:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert table.read_bytes().count(b"\n") >= min(lines, 100)
    with open(tmp_path / "images.csv", "a") as file:
        file.write("fourier,FIRM N=3,8,008.png,12.3")  # a line that a crash cut short
    run(folder, model_file, tmp_path, "--batch-size", "3")
    assert numbers(tmp_path) == numbers(reference[0])


def test_torchrun_shares_the_images(folder, model_file, reference, tmp_path):
    """Two processes give the numbers of one, of which a part is there already; notes and tables come once."""
    run(folder, "degraded", tmp_path)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launch += ["--rdzv-endpoint", "localhost:0", "-m", "firm", *arguments(folder, model_file, tmp_path, "--limit", "9")]
    done = subprocess.run(launch, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert numbers(tmp_path) == numbers(reference[0])
    assert done.stdout.count("denoising (9 images, convention tables)") == 1
    assert done.stderr.count("note: denoising") <= 1


def test_a_finished_run_computes_nothing(folder, model_file, reference):
    before = (reference[0] / "images.csv").read_bytes()
    run(folder, model_file, reference[0])
    assert (reference[0] / "images.csv").read_bytes() == before


def test_more_steps_and_tasks_extend_a_run_but_other_data_do_not(folder, tmp_path):
    common = ["evaluate", "degraded", "--data", str(folder), "--size", str(SIZE), "--out", str(tmp_path)]
    assert CliRunner().invoke(app, [*common, "--tasks", "denoising"]).exit_code == 0
    assert CliRunner().invoke(app, [*common, "--tasks", "denoising,fourier"]).exit_code == 0
    assert len(numbers(tmp_path)) == 2 * 2 * 9
    for change in (["--seed", "1"], ["--convention", "text"], ["--limit", "3"]):
        result = CliRunner().invoke(app, [*common, "--tasks", "denoising", *change])
        assert result.exit_code == 2
        assert says(result.output, "another evaluation")
    assert len(numbers(tmp_path)) == 2 * 2 * 9


def test_numbers_are_the_metrics_of_the_images(folder):
    """One row recomputed by hand, in both conventions, and the double mapping of degraded super-resolution."""
    from firm.data import Images, folder_files, resident
    from firm.data.picture import to_tensor

    pixels, _ = resident(folder_files(folder), SIZE, progress=False)
    truth = to_tensor(pixels)[4:5]
    _, y = firm.Task("super-resolution", SIZE).measure(truth, index=4)
    filled = torch.zeros_like(truth)
    filled[..., ::2, ::2] = y
    twice = torch.zeros_like(truth)
    twice[..., ::2, ::2] = (y + 1) / 2
    expected = {
        "tables": (psnr(twice, truth), ssim(filled, truth), lpips(2 * twice - 1, 2 * truth - 1)),
        "text": (psnr(filled, truth), ssim(filled.clamp(-1, 1), truth), lpips(filled.clamp(-1, 1), truth)),
    }
    for convention, values in expected.items():
        task = [firm.Task("super-resolution", SIZE)]
        evaluation = Evaluation(Images(pixels, [f"{i:03d}.png" for i in range(9)]), task, convention)
        out = folder.parent / f"by-hand-{convention}"
        row = evaluate(evaluation, plain_methods()[:1], out, progress=False)[4]
        assert [row["psnr"], row["ssim"], row["lpips"]] == pytest.approx([float(v) for v in values], abs=2e-6)


def test_any_function_is_a_method(folder, tmp_path):
    """The interface later baselines share: method(op, y, sigma, generator) -> image."""
    from firm.data import Images, folder_files, resident

    pixels, _ = resident(folder_files(folder), SIZE, progress=False)
    seen = []

    def clean(op, y, sigma, generator):
        seen.append((sigma, len(generator), len(y)))
        return op.A_adjoint(y)

    evaluation = Evaluation(Images(pixels, [str(i) for i in range(9)]), [firm.Task("denoising", SIZE, sigma=0.1)])
    rows = evaluate(evaluation, [NamedMethod("clean", clean, nfe=3)], tmp_path, batch_size=4, progress=False)
    assert {sigma for sigma, *_ in seen} == {0.1}
    assert all(generators == images for _, generators, images in seen)
    assert sum(images for *_, images in seen) == 9
    assert summarize(rows)["denoising"]["clean"]["psnr"] == pytest.approx(26.02, abs=0.2)

    def broken(op, y, sigma, generator):
        return y * float("nan")

    with pytest.raises(ValueError, match=r"broken on denoising, images 0 to 0: .* NaN"):
        evaluate(evaluation, [NamedMethod("broken", broken)], tmp_path, batch_size=4, progress=False)
    assert "broken" not in (tmp_path / "images.csv").read_text()


def test_firm_draws_per_image_noise(folder, model_file):
    method = firm_method(firm.load(model_file), 2)
    task = firm.Task("denoising", SIZE)
    x = torch.rand(3, 3, SIZE, SIZE) * 2 - 1
    op, y = task.measure(x)
    generators = [torch.Generator().manual_seed(i) for i in range(3)]
    together = method.run(op, y, 0.2, generators)
    alone = method.run(op, y[2:], 0.2, [torch.Generator().manual_seed(2)])
    torch.testing.assert_close(together[2:], alone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--tasks", "debluring"], "no task 'debluring'"),
        (["--tasks", "all,denoising"], "twice"),
        (["--steps", "2,x"], "--steps takes"),
        (["--steps", "0"], "--steps takes"),
        (["--dataset", "celeba"], "img_align_celeba: no such folder"),
        (["--dataset", "afhq"], "laid out as"),
        (["--dataset", "imagenet"], "imagenet"),
        (["--tasks", "fourier", "--set", "mask=new"], "shared"),
    ],
)
def test_wrong_arguments_say_what_is_wrong(change, message, folder, tmp_path):
    result = CliRunner().invoke(app, ["evaluate", "degraded", "--data", str(folder), "--out", str(tmp_path), *change])
    assert result.exit_code == 2
    assert says(result.output, message)
    assert not list(tmp_path.iterdir())


def test_tasks_may_be_listed_with_spaces(folder, tmp_path):
    command = ["evaluate", "degraded", "--data", folder, "--size", 16, "--limit", 1, "--out", tmp_path]
    result = call(*command, "--tasks", "fourier, all")
    assert result.exit_code == 0, result.output
    assert len(json.loads((tmp_path / "results.json").read_text())["summary"]) == 6


def test_missing_model_and_data(folder, tmp_path):
    for args in (
        ["evaluate", "face-9", "--data", str(folder)],
        ["evaluate", "degraded", "--data", str(tmp_path / "no")],
    ):
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 2
        assert says(result.output, "no model 'face-9'") or says(result.output, "no such folder")


@pytest.mark.parametrize(("wrong", "meant"), [("pnp-hsq", "pnp-hqs"), ("fotos", "photo"), ("degrade", "degraded")])
def test_a_method_misspelled(folder, tmp_path, wrong, meant):
    result = CliRunner().invoke(app, ["evaluate", wrong, "--data", str(folder), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert says(result.output, f"did you mean {meant!r}?")


def test_the_folder_of_a_training_run_is_a_model(folder, model_file, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.safetensors").write_bytes(model_file.read_bytes())
    words = ["--data", folder, "--size", SIZE, "--tasks", "denoising", "--steps", 1, "--limit", 1]
    tables = []
    for model in (tmp_path / "run", model_file):
        result = call("evaluate", model, *words, "--out", tmp_path / "out")
        assert result.exit_code == 0, result.output
        tables.append((tmp_path / "out" / "images.csv").read_text())
    assert "FIRM N=1" in tables[0]
    assert tables[0] == tables[1]  # the same model: nothing was left to do


def test_broken_pictures_stop_the_run_or_are_left_out(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "002.png").write_bytes(b"broken")
    common = ["evaluate", "degraded", "--data", str(tmp_path), "--size", str(SIZE), "--tasks", "denoising"]
    result = CliRunner().invoke(app, [*common, "--out", str(tmp_path / "a")])
    assert result.exit_code == 2
    assert says(result.output, "002.png: no picture")
    assert says(result.output, "; --skip-broken leaves it out")
    result = CliRunner().invoke(app, [*common, "--out", str(tmp_path / "b"), "--skip-broken"])
    assert result.exit_code == 0
    assert len(numbers(tmp_path / "b")) == 2 * 8


def test_where_no_picture_can_be_read_none_can_be_left_out(tmp_path):
    (tmp_path / "x.png").write_bytes(b"broken")
    result = call("evaluate", "degraded", "--data", tmp_path, "--out", tmp_path / "out", "--skip-broken")
    assert result.exit_code == 2
    assert says(result.output, "none of the 1 files could be read")
    assert not says(result.output, "leaves it out")


@pytest.mark.parametrize(("size", "enlarged"), [(20, 0), (24, 2), (64, 3)])
def test_pictures_that_are_enlarged_are_counted_in_a_note(size, enlarged, tmp_path):
    for i, sides in enumerate([(20, 30), (40, 20), (30, 30)]):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (*sides, 3), np.uint8)).save(tmp_path / f"{i}.png")
    words = ["--data", tmp_path, "--size", size, "--tasks", "denoising", "--out", tmp_path / "out"]
    result = call("evaluate", "degraded", *words)
    assert result.exit_code == 0, result.output
    note = f"{enlarged} of 3 pictures had to be enlarged to {size}x{size}, so the scores are too good; --size gives"
    assert says(result.stderr, note) == (enlarged > 0)
    assert ("note:" in result.stderr) == (enlarged > 0)
    recorded = json.loads((tmp_path / "out" / "results.json").read_text())["notes"]
    assert [line.startswith(f"{enlarged} of 3 pictures") for line in recorded] == [True] * (enlarged > 0)


@pytest.mark.parametrize(("limit", "note"), [(4, "only the first 4 of 9 pictures are evaluated"), (9, ""), (0, "")])
def test_pictures_that_are_left_out_are_said_and_recorded(limit, note, folder, tmp_path):
    words = ["--data", folder, "--size", 16, "--tasks", "denoising", "--limit", limit, "--out", tmp_path]
    result = call("evaluate", "degraded", *words)
    assert result.exit_code == 0, result.output
    recorded = json.loads((tmp_path / "results.json").read_text())["notes"]
    assert [line.startswith(note) for line in recorded] == [True] * bool(note)
    assert says(result.stderr, note)
    assert ("note:" in result.stderr) == bool(note)
    assert (note in call("info", tmp_path).output) or not note
