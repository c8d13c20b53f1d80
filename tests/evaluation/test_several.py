"""Several models in one evaluation: each has rows of its own, whatever the files are called."""

import csv
import io
import json

import pytest
import torch
from helpers import call, save_pictures, says
from rich.console import Console

import firm
from firm.evaluation.methods import _joined
from firm.evaluation.report import tables

SIZE = 16
NET = """import torch
class Own(torch.nn.Module):
    config = {"channels": 3}
    def __init__(self, channels=3):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(0.5))
    def forward(self, x, x_t, t):
        return self.gain * x
"""


def save(path, seed, channels=3, **card):
    torch.manual_seed(seed)
    net = firm.UNet(channels, side=SIZE, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4)
    for p in net.parameters():
        p.data = 0.1 * torch.randn(p.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    firm.Firm(net, firm.Solver(K=1), card).save(path)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two pictures, and the training runs a, b and other/a."""
    root = tmp_path_factory.mktemp("several")
    (root / "pictures").mkdir()
    save_pictures(root / "pictures", 2, (20, 20))
    for seed, name in enumerate(("runs/a", "runs/b", "other/a")):
        save(root / name / "model.safetensors", seed)
    return root


def evaluated(place, out, *names, **options):
    given = {"tasks": "denoising", "steps": "1,2", "size": SIZE, **options}
    words = [word for key, value in given.items() for word in (f"--{key}", value)]
    return call("evaluate", *names, "--data", place / "pictures", *words, "--out", out)


def results(done, out):
    assert done.exit_code == 0, done.output
    return json.loads((out / "results.json").read_text())


def printed(path):
    """The fingerprint of a model as it is evaluated."""
    return firm.fast(firm.load(path), "float32").fingerprint()


def scores(out):
    with open(out / "images.csv") as file:
        return {(r["method"], r["index"]): r["psnr"] for r in csv.DictReader(file)}


def test_every_model_has_rows_of_its_own(place, tmp_path):
    a, b = place / "runs/a", place / "runs/b/model.safetensors"
    done = evaluated(place, tmp_path / "both", a, b, images=1)
    found = results(done, tmp_path / "both")
    assert list(found["methods"]) == ["degraded", "data-consistency", "a N=1", "a N=2", "b N=1", "b N=2"]
    assert list(found["summary"]["denoising"]) == list(found["methods"])
    assert all(f" {label} " in done.output for label in found["methods"])
    both = scores(tmp_path / "both")
    assert both["a N=1", "0"] != both["b N=1", "0"]
    for name, model in (("a", a), ("b", b)):
        alone = results(evaluated(place, tmp_path / name, model), tmp_path / name)
        assert list(alone["methods"])[2:] == ["FIRM N=1", "FIRM N=2"]  # as it always was
        assert alone["methods"]["FIRM N=1"] == found["methods"][f"{name} N=1"]
        for (label, i), psnr in scores(tmp_path / name).items():
            assert both[label.replace("FIRM", name), i] == psnr


def test_the_pictures_show_all_of_them(place, tmp_path):
    from PIL import Image

    evaluated(place, tmp_path, place / "runs/a", place / "runs/b", steps="1", images=1)
    with Image.open(tmp_path / "denoising.png") as picture:
        assert picture.width == round(110 * 2.1 * 6)  # truth, two without a model, two models, the error


def test_a_stopped_run_continues(place, tmp_path, monkeypatch):
    names = (place / "runs/a", place / "runs/b")
    evaluated(place, tmp_path, *names)
    before, table = scores(tmp_path), tmp_path / "images.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:6]))
    evaluated(place, tmp_path, *names)
    assert scores(tmp_path) == before
    monkeypatch.setattr("firm.evaluation.run.restore_chunk", lambda *_: pytest.fail("computed again"))
    assert evaluated(place, tmp_path, *names).exit_code == 0
    assert evaluated(place, tmp_path, ",".join(map(str, names))).exit_code == 0  # commas mean the same


def test_models_of_one_name_do_not_mix(place, tmp_path):
    done = evaluated(place, tmp_path, place / "runs/a", place / "runs/b", place / "other/a", steps="1")
    assert list(results(done, tmp_path)["methods"])[2:] == ["runs/a N=1", "b N=1", "other/a N=1"]
    twins = [save(tmp_path / f"{seed}.safetensors", seed, name="twin") for seed in (5, 6)]
    prints = [printed(path) for path in twins]
    found = results(evaluated(place, tmp_path / "twins", *twins, steps="1"), tmp_path / "twins")
    assert list(found["methods"])[2:] == [f"{tmp_path.name}/{seed} N=1" for seed in (5, 6)]
    assert list(found["methods"].values())[2:] == prints


def test_the_folder_is_called_by_all_of_them(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--data", place / "pictures", "--tasks", "denoising", "--steps", 1, "--limit", 1, "--size", SIZE]
    assert call("evaluate", place / "runs/a", place / "runs/b", *words).exit_code == 0
    parts = [f"{name}-{printed(place / 'runs' / name)[:8]}" for name in "ab"]
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == [f"evaluate-folder-{'+'.join(parts)}-tables"]
    many = [f"{'ü' * 50}-{i}" for i in range(9)]
    assert len(_joined(many).encode()) <= 150
    assert _joined(many) != _joined([*many[:8], "other"])  # the last is hashed too


def test_the_same_model_twice_is_refused(place, tmp_path):
    (tmp_path / "copy.safetensors").write_bytes((place / "runs/a/model.safetensors").read_bytes())
    told = evaluated(place, tmp_path / "out", place / "runs/a", place / "runs/b", tmp_path / "copy.safetensors")
    assert told.exit_code == 2
    assert says(told.output, f"{place / 'runs/a'} and {tmp_path / 'copy.safetensors'} are the same model")
    (tmp_path / "mine.py").write_text("def same(op, y, sigma, *, generator):\n    return op.A_adjoint(y)\n")
    twice = evaluated(place, tmp_path / "out", f"{tmp_path}/mine.py:same", f"{tmp_path}/./mine.py:same")
    assert says(twice.output, "are the same function: leave one of them out")
    assert not (tmp_path / "out").exists()
    assert evaluated(place, tmp_path / "out", place / "runs/a", place / "runs/a", steps="1").exit_code == 0  # one word


def test_models_for_different_images(place, tmp_path):
    small, large = (save(tmp_path / f"{n}.safetensors", n, size=n) for n in (16, 32))
    gray = save(tmp_path / "gray.safetensors", 3, channels=1, size=16)
    scans = [
        save(tmp_path / f"scan{n}.safetensors", n, channels=1, size=16, value_range=[0.0, float(n)]) for n in (7, 9)
    ]
    words = ["--data", place / "pictures", "--tasks", "denoising", "--out", tmp_path / "out"]
    told = call("evaluate", small, large, *words)
    assert says(told.output, "the models differ in the side of their images (16 16, 32 32): give --size")
    told = call("evaluate", small, gray, *words)
    assert says(told.output, "the models differ in the channels of their images (16 3, gray 1): evaluate them one by")
    told = call("evaluate", small, "toy", *words, "--size", 16)
    assert says(told.output, "does not restore images")
    torch.save(torch.zeros(2, 1, 16, 16), tmp_path / "scans.pt")
    told = call("evaluate", *scans, "--dataset", "arrays", "--data", tmp_path / "scans.pt", "--out", tmp_path / "out")
    assert says(told.output, "(scan7 (0.0, 7.0), scan9 (0.0, 9.0)): give --value-range low,high")
    assert not (tmp_path / "out").exists()


def test_a_network_of_ones_own_serves_the_models_that_have_it(place, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    scope = {}
    exec(NET, scope)
    firm.Firm(scope["Own"](), firm.Solver(K=1)).save(tmp_path / "own.safetensors")
    names, own = (place / "runs/a", tmp_path / "own.safetensors"), f"{tmp_path / 'net.py'}:Own"
    found = results(evaluated(place, tmp_path / "out", *names, steps="1", network=own), tmp_path / "out")
    assert list(found["methods"])[2:] == ["a N=1", "own N=1"]
    told = evaluated(place, tmp_path / "out", *names, steps="1")
    assert says(told.output, "was saved with the network class 'Own'")
    told = evaluated(place, tmp_path / "out", *names, "face-12", network=own)
    assert says(told.output, "did you mean 'face-128'?")


def test_notes_come_once_a_task_and_before_the_work(place, tmp_path, monkeypatch):
    trained = [{"name": "denoising", "sigma": [0.05, 0.4]}, {"name": "deblurring", "sigma": 0.05, "blur": 1.0}]
    wide, narrow = (
        save(tmp_path / f"{name}.safetensors", i, trained_for=trained[: 2 - i], size=128)
        for i, name in enumerate(("wide", "narrow"))
    )
    tasks = "denoising,deblurring"

    def notes(*names, **options):
        done = evaluated(place, tmp_path / str(options), *names, tasks=tasks, steps="1,2", **options)
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
    stopped = evaluated(place, tmp_path / "stopped", narrow)
    assert isinstance(stopped.exception, ZeroDivisionError)
    stopped = evaluated(place, tmp_path / "stopped", narrow, tasks=tasks)
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
