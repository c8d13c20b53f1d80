"""Several models in one evaluation: each has rows of its own, whatever the files are called."""

import io

import pytest
import torch
from helpers import call, says
from PIL import Image
from rich.console import Console

import firm
from evaluation_helpers import SIZE, command, csv_rows, results, save_model
from firm.evaluation.methods import _joined
from firm.evaluation.report import tables

NET = """import torch
class Own(torch.nn.Module):
    config = {"channels": 3}
    def __init__(self, channels=3):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(0.5))
    def forward(self, x, x_t, t):
        return self.gain * x
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The training runs runs/a, runs/b and other/a."""
    root = tmp_path_factory.mktemp("several")
    return [
        save_model(root / name / "model.safetensors", i).parent
        for i, name in enumerate(("runs/a", "runs/b", "other/a"))
    ]


def printed(path):
    """The fingerprint of a model as it is evaluated."""
    return firm.fast(firm.load(path), "float32").fingerprint()


def scores(out):
    return {(row["method"], row["index"]): row["psnr"] for row in csv_rows(out)}


def test_every_model_has_rows_of_its_own(runs, pictures, tmp_path):
    a, b = runs[0], runs[1] / "model.safetensors"  # a folder and its file mean the same
    done = command(pictures, tmp_path / "both", a, b, images=1, steps="1,2")
    found = results(done, tmp_path / "both")
    assert list(found["methods"]) == ["degraded", "data-consistency", "a N=1", "a N=2", "b N=1", "b N=2"]
    assert list(found["summary"]["denoising"]) == list(found["methods"])
    assert all(f" {label} " in done.output for label in found["methods"])
    with Image.open(tmp_path / "both" / "denoising.png") as picture:
        assert picture.width == round(110 * 2.1 * 8)  # truth, two without a model, four of models, the error
    both = scores(tmp_path / "both")
    assert both["a N=1", "0"] != both["b N=1", "0"]
    for name, model in (("a", a), ("b", b)):
        alone = results(command(pictures, tmp_path / name, model, steps="1,2"), tmp_path / name)
        assert list(alone["methods"])[2:] == ["FIRM N=1", "FIRM N=2"]
        assert alone["methods"]["FIRM N=1"] == found["methods"][f"{name} N=1"]
        for (label, i), psnr in scores(tmp_path / name).items():
            assert both[label.replace("FIRM", name), i] == psnr


def test_models_of_one_name_do_not_mix(runs, pictures, tmp_path):
    found = results(command(pictures, tmp_path, *runs), tmp_path)
    assert list(found["methods"])[2:] == ["runs/a N=1", "b N=1", "other/a N=1"]
    twins = [save_model(tmp_path / f"{seed}.safetensors", seed, name="twin") for seed in (5, 6)]
    found = results(command(pictures, tmp_path / "twins", *twins), tmp_path / "twins")
    labels = [f"{tmp_path.name}/{seed} N=1" for seed in (5, 6)]
    assert list(found["methods"].items())[2:] == list(zip(labels, map(printed, twins), strict=True))


def test_the_folder_is_called_by_all_of_them(runs, pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = save_model(tmp_path / "c.safetensors", 1, name="cats 64")
    words = ["--data", pictures, "--tasks", "denoising", "--steps", 1, "--limit", 1, "--size", SIZE]
    for models in ([runs[0]], [runs[2]], [runs[0]], [named], runs[:2], ["degraded"]):
        assert call("evaluate", *models, *words).exit_code == 0
    a, b, other, cats = (
        f"{n}-{printed(p)[:8]}" for n, p in zip(("a", "b", "a", "cats_64"), [*runs, named], strict=True)
    )
    expected = {f"evaluate-folder-{stem}-tables" for stem in (a, other, cats, f"{a}+{b}", "degraded")}
    assert {path.name for path in (tmp_path / "outputs").iterdir()} == expected
    many = [f"{'ü' * 50}-{i}" for i in range(9)]
    assert len(_joined(many).encode()) <= 150
    assert _joined(many) != _joined([*many[:8], "other"])  # the last is hashed too


def test_the_same_model_twice_is_refused(runs, pictures, tmp_path):
    copy, out = tmp_path / "copy.safetensors", tmp_path / "out"
    copy.write_bytes((runs[0] / "model.safetensors").read_bytes())
    told = command(pictures, out, *runs[:2], copy)
    assert (told.exit_code, says(told.output, f"{runs[0]} and {copy} are the same model")) == (2, True)
    (tmp_path / "mine.py").write_text("def same(op, y, sigma, *, generator):\n    return op.A_adjoint(y)\n")
    told = command(pictures, out, f"{tmp_path}/mine.py:same", f"{tmp_path}/./mine.py:same")
    assert says(told.output, "are the same function")
    assert not out.exists()
    assert command(pictures, out, runs[0], runs[0]).exit_code == 0  # one word


def test_models_for_different_images(pictures, tmp_path):
    small, large = (save_model(tmp_path / f"{n}.safetensors", n, size=n) for n in (16, 32))
    gray = save_model(tmp_path / "gray.safetensors", 3, channels=1, size=16)
    scans = [save_model(tmp_path / f"scan{n}.safetensors", n, 1, size=16, value_range=[0.0, float(n)]) for n in (7, 9)]
    torch.save(torch.zeros(2, 1, 16, 16), tmp_path / "scans.pt")
    arrays = ["--dataset", "arrays", "--data", tmp_path / "scans.pt"]
    for names, message in (
        ([small, large], "the models differ in the side of their images (16 16, 32 32): give --size"),
        ([small, gray], "the models differ in the channels of their images (16 3, gray 1)"),
        ([small, "toy", "--size", 16], "does not restore images"),
        ([*scans, *arrays], "(scan7 (0.0, 7.0), scan9 (0.0, 9.0)): give --value-range low,high"),
    ):
        told = call("evaluate", "--data", pictures, "--tasks", "denoising", "--out", tmp_path / "out", *names)
        assert (told.exit_code, says(told.output, message)) == (2, True), told.output
    assert not (tmp_path / "out").exists()


def test_a_custom_network_serves_the_models_that_have_it(runs, pictures, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    scope = {}
    exec(NET, scope)
    firm.Firm(scope["Own"](), firm.Solver(K=1)).save(tmp_path / "own.safetensors")
    names, own = (runs[0], tmp_path / "own.safetensors"), f"{tmp_path / 'net.py'}:Own"
    found = results(command(pictures, tmp_path / "out", *names, network=own), tmp_path / "out")
    assert list(found["methods"])[2:] == ["a N=1", "own N=1"]
    assert says(command(pictures, tmp_path / "out", *names).output, "was saved with the network class 'Own'")
    told = command(pictures, tmp_path / "out", *names, "face-12", network=own)
    assert says(told.output, "did you mean 'face-128'?")


def test_notes_come_once_a_task_and_before_the_work(pictures, tmp_path, monkeypatch):
    trained = [{"name": "denoising", "sigma": [0.05, 0.4]}, {"name": "deblurring", "sigma": 0.05, "blur": 1.0}]
    wide, narrow = (
        save_model(tmp_path / f"{name}.safetensors", i, trained_for=trained[: 2 - i], size=128)
        for i, name in enumerate(("wide", "narrow"))
    )

    def notes(*names, **options):
        done = command(pictures, tmp_path / str(options), *names, tasks="denoising,deblurring", steps="1,2", **options)
        assert done.exit_code == 0, done.output
        assert "note:" not in done.stdout
        return [line for line in done.stderr.splitlines() if line.startswith("note")]

    assert notes(wide) == []
    assert notes(narrow) == ["note: deblurring: the model was not trained for deblurring"]
    assert notes(wide, set="sigma=0.5") == [
        "note: denoising: sigma 0.5 is not what the model was trained for, 0.05 to 0.4",
        "note: deblurring: sigma 0.5 is not what the model was trained for, 0.05",
    ]
    assert notes(wide, narrow) == ["note: deblurring with narrow: the model was not trained for deblurring"]
    monkeypatch.setattr("firm.evaluation.run.restore_chunk", lambda *_: 1 / 0)
    stopped = command(pictures, tmp_path / "stopped", narrow, tasks="denoising,deblurring")
    assert isinstance(stopped.exception, ZeroDivisionError)  # a mistake of ours
    assert "note: deblurring" in stopped.stderr


def test_long_names_leave_the_numbers_as_they_are():
    row = {"images": 3, "psnr": 31.234, "psnr_std": 1.5, "ssim": 0.9, "ssim_std": 0.01, "lpips": 0.1, "lpips_std": 0.02,
           "nfe": 125, "seconds": 12.3456, "peak_mb": 12345}  # fmt: skip
    console = Console(width=80, file=io.StringIO())
    console.print(*tables({"denoising": {f"{'long-name-' * 5}{i} N=25": row for i in (1, 2)}}, "tables"))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for value in ("31.23±1.50", "0.900±0.010", "0.100±0.020", "125", "12.3456", "12345"):
        assert text.count(value) == 2
    assert "…" not in text
