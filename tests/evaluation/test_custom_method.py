"""A function of the user's in `firm evaluate`: the same numbers as by hand, errors with file and line."""

import sys

import pytest
import torch
from helpers import call, says, tiny_model

import firm
from evaluation_helpers import SIZE, command, csv_rows, results
from firm._util.checks import generator_for
from firm._util.custom import load_function
from firm.evaluation import custom_method
from firm.metrics import psnr

CODE = """import torch


def halved(op, y, sigma, *, generator):
    return (1 - sigma) * op.A_adjoint(y)


@torch.no_grad()
def noisy(op, y, sigma, generator):
    x = op.A_adjoint(y).clone()
    return x + 0.1 * torch.stack([torch.randn(x.shape[1:], generator=g) for g in generator])


def spoils(op, y, sigma, *, generator, steps=3, **more):
    x = op.A_adjoint(y).double()
    y.zero_()
    return x.requires_grad_()
"""


@pytest.fixture
def mine(tmp_path):
    """The file; its name is new in each test, since a file is run once in a process."""
    path = tmp_path / f"mine_{tmp_path.name}.py"
    path.write_text(CODE)
    return path


def psnrs(out, method):
    return [row["psnr"] for row in csv_rows(out) if row["method"] == method]


def test_a_row_is_the_function_called_by_hand(pictures, evaluation, mine, tmp_path):
    names = (f"{mine}:halved", f"{mine}:noisy")
    found = results(command(pictures, tmp_path, *names, tasks="denoising,super-resolution"), tmp_path)
    assert list(found["methods"]) == ["degraded", "data-consistency", "halved", "noisy"]
    assert found["summary"]["denoising"]["halved"]["nfe"] is None
    for row in [row for row in csv_rows(tmp_path) if row["method"] in ("halved", "noisy")]:
        i, task = int(row["index"]), firm.Task(row["task"], SIZE)
        truth = evaluation.images.batch(range(i, i + 1))
        op, y = task.measure(truth, 42, i)
        x = op.A_adjoint(y)
        noise = torch.randn(x.shape[1:], generator=generator_for(42, i, "method"))
        expected = (1 - task.sigma) * x if row["method"] == "halved" else x + 0.1 * noise
        assert float(row["psnr"]) == pytest.approx(float(psnr(expected, truth)), abs=1e-5)


def test_it_stands_beside_models_and_spoils_nothing(pictures, mine, tmp_path):
    model = tiny_model(tmp_path / "m.safetensors", [{"name": "denoising"}])
    alone, both = tmp_path / "alone", tmp_path / "both"
    results(command(pictures, alone, model, size=32), alone)
    results(command(pictures, both, model, methods=f"{mine}:spoils", size=32, images=1), both)
    assert psnrs(alone, "FIRM N=1") == psnrs(both, "FIRM N=1")
    assert psnrs(both, "spoils") == psnrs(both, "degraded")
    assert (both / "denoising.png").is_file()


def test_an_edited_file_is_another_method(pictures, mine, tmp_path, monkeypatch):
    def run():
        for name in [name for name in sys.modules if name.startswith(f"firm_user_{mine.stem}")]:
            monkeypatch.delitem(sys.modules, name)  # as in a new process
        found = results(command(pictures, tmp_path / "o", f"{mine}:halved"), tmp_path / "o")
        psnr = found["summary"]["denoising"]["halved"]["psnr"]
        return found["methods"]["halved"], psnr, len(csv_rows(tmp_path / "o"))

    first = run()
    assert first == (*first[:2], 9) == run()  # nothing was left to do
    mine.write_text(CODE.replace("(1 - sigma)", "0.5"))
    second = run()
    assert (second[0] != first[0], second[1] != first[1], second[2]) == (True, True, 12)
    mine.write_text(CODE)
    assert run() == (*first[:2], 12)  # the rows of before are found again


def test_the_files_that_a_function_is_from(tmp_path):
    (tmp_path / "helping.py").write_text(
        "def wrapped(f):\n    def g(*a, **k):\n        return f(*a, **k)\n    return g\n"
        "def there(op, y, sigma, *, generator):\n    return y\n"
    )
    named = tmp_path / "named.py"
    named.write_text(
        "import torch\nfrom helping import there, wrapped\n@wrapped\ndef hidden(op, y, sigma, *, generator):\n"
        "    return y\n@torch.no_grad()\ndef kept(op, y, sigma, *, generator):\n    return y\n"
    )
    both = (str(named), str(tmp_path / "helping.py"))
    assert load_function(f"{named}:hidden", "method").files == both  # a wrapper that hides what is in it
    assert load_function(f"{named}:there", "method").files == both
    kept = load_function(f"{named}:kept", "method")
    assert (kept.files, kept.line) == (both[:1], 6)
    before = [custom_method(f"{named}:{name}").fingerprint for name in ("hidden", "kept", "there")]
    named.write_text(named.read_text() + "# edited\n")
    after = [custom_method(f"{named}:{name}").fingerprint for name in ("hidden", "kept", "there")]
    assert len({*before, *after}) == 6


def test_functions_of_one_name_are_told_apart(pictures, mine, tmp_path):
    other = tmp_path / "other_file.py"
    other.write_text(CODE + "\n\ndef degraded(op, y, sigma, *, generator):\n    return 0 * y\n")
    names = [f"{mine}:halved", f"{other}:halved", f"{other}:degraded", f"{mine}:halved"]
    found = results(command(pictures, tmp_path / "o", ",".join(names)), tmp_path / "o")
    labels = [f"{mine.stem}:halved", "other_file:halved", "other_file:degraded"]
    assert list(found["methods"]) == ["degraded", "data-consistency", *labels]


def test_the_folder_is_called_like_the_function(pictures, mine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["--data", pictures, "--tasks", "denoising", "--size", SIZE]
    assert call("evaluate", f"{mine.stem}:halved", *given).exit_code == 0  # as a module of this folder
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["evaluate-folder-halved-tables"]


USUAL = "op, y, sigma, *, generator"
BAD = {  # function: (its arguments, its lines, what is said after the file)
    "no_return": (USUAL, "pass", "line 2: it returned a NoneType; it must return images (B, C, H, W)"),
    "whole": (USUAL, "return y.int()", "line 2: it returned a tensor of torch.int32 on cpu"),
    "elsewhere": (USUAL, "return y.to('meta')", "line 2: it returned a tensor of torch.float32 on meta"),
    "raises": (USUAL, "x = y\n    return x @ torch.zeros(3, 5)", "line 4: RuntimeError: mat1"),
    "network": (f"net, {USUAL}", "return y", "line 2: it is called as network(op, y, sigma, gener"),
    "silent": ("op, y, sigma", "return y", "line 2: it is called as silent(op, y, sigma, generator=...)"),
    "smaller": (USUAL, "return y[..., 1:]", "the shape (1, 3, 16, 15), the images have (1, 3, 16, 16)"),
    "nan": (USUAL, "return y / 0", "values that are NaN or infinite"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_in_a_function_is_said_with_its_place(name, pictures, tmp_path):
    signature, body, message = BAD[name]
    file, out = tmp_path / f"bad_{name}.py", tmp_path / "o"
    file.write_text(f"import torch\ndef {name}({signature}):\n    {body}\n")
    told = command(pictures, out, f"{file}:{name}")
    wrong = name in ("smaller", "nan")
    where = f"{name} on denoising, images 0 to 0: the restoration has " if wrong else f"your method {name}, {file}, "
    assert (told.exit_code, says(told.output, where + message)) == (2, True), told.output
    assert not wrong or {row["method"] for row in csv_rows(out)} == {"degraded", "data-consistency"}


@pytest.mark.parametrize(("name", "message"), [
    ("mine.py:number", "number must be a function, but is of type int"),
    ("mine.py", "write file.py:function or package.module:function"),
])  # fmt: skip
def test_what_is_no_function_is_said_before_any_work(name, message, pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("number = 3\n")
    told = command(pictures, tmp_path / "o", "degraded", methods=name)
    assert (told.exit_code, says(told.output, message)) == (2, True), told.output
    assert not (tmp_path / "o").exists()


def test_a_file_with_a_colon_in_its_name_is_a_model(pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_model(tmp_path / "a:b.safetensors", [{"name": "denoising"}])
    done = command(pictures, tmp_path / "o", "a:b.safetensors", size=32)
    assert "FIRM N=1" in results(done, tmp_path / "o")["methods"]
