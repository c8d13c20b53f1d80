"""A function of the user's own in `firm evaluate`: the same numbers as by hand, errors with file and line."""

import csv
import json
import sys

import pytest
import torch
from helpers import call, save_pictures, says, tiny_model

import firm
from firm._util.custom import load_function
from firm._util.seeds import generator_for
from firm.data import load_images
from firm.evaluation import custom_method
from firm.metrics import psnr

SIZE = 16
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


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 3, (20, 20))


@pytest.fixture
def mine(tmp_path):
    """The file; its name is new in each test, since a file is run once in a process."""
    path = tmp_path / f"mine_{tmp_path.name}.py"
    path.write_text(CODE)
    return path


def words(pictures, out, *names, **options):
    given = {"tasks": "denoising", "steps": "1", "size": SIZE, "data": pictures, "out": out, **options}
    return ["evaluate", *names, *(word for key, value in given.items() for word in (f"--{key}", value))]


def rows(out):
    with open(out / "images.csv") as file:
        return list(csv.DictReader(file))


def test_a_row_is_the_function_called_by_hand(pictures, mine, tmp_path):
    names = (f"{mine}:halved", f"{mine}:noisy")
    done = call(*words(pictures, tmp_path / "o", *names, tasks="denoising,super-resolution"))
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "o" / "results.json").read_text())
    assert list(found["methods"]) == ["degraded", "data-consistency", "halved", "noisy"]
    assert found["summary"]["denoising"]["halved"]["nfe"] is None
    images = load_images("folder", pictures, size=SIZE, progress=False)
    for row in [row for row in rows(tmp_path / "o") if row["method"] in ("halved", "noisy")]:
        i, task = int(row["index"]), firm.Task(row["task"], SIZE)
        truth = images.batch(range(i, i + 1))
        op, y = task.measure(truth, 42, i)
        x = op.A_adjoint(y)
        noise = torch.randn(x.shape[1:], generator=generator_for(42, i, "method"))
        expected = (1 - task.sigma) * x if row["method"] == "halved" else x + 0.1 * noise
        assert float(row["psnr"]) == pytest.approx(float(psnr(expected, truth)), abs=1e-5)


def test_it_stands_beside_models_and_spoils_nothing(pictures, mine, tmp_path):
    model = tiny_model(tmp_path / "m.safetensors", [{"name": "denoising"}])
    alone = call(*words(pictures, tmp_path / "alone", model, size=32))
    both = call(*words(pictures, tmp_path / "both", model, methods=f"{mine}:spoils", size=32, images=1))
    assert (alone.exit_code, both.exit_code) == (0, 0), both.output
    kept = [[r["psnr"] for r in rows(tmp_path / o) if r["method"] == "FIRM N=1"] for o in ("alone", "both")]
    assert kept[0] == kept[1]
    assert [r["psnr"] for r in rows(tmp_path / "both") if r["method"] == "spoils"] == [
        r["psnr"] for r in rows(tmp_path / "both") if r["method"] == "degraded"
    ]
    assert (tmp_path / "both" / "denoising.png").is_file()


def test_an_edited_file_is_another_method(pictures, mine, tmp_path, monkeypatch):
    def run():
        for name in [name for name in sys.modules if name.startswith(f"firm_user_{mine.stem}")]:
            monkeypatch.delitem(sys.modules, name)  # as in a new process
        done = call(*words(pictures, tmp_path / "o", f"{mine}:halved"))
        assert done.exit_code == 0, done.output
        found = json.loads((tmp_path / "o" / "results.json").read_text())
        return found["methods"]["halved"], found["summary"]["denoising"]["halved"]["psnr"], len(rows(tmp_path / "o"))

    first = run()
    assert first[2] == 9
    assert run() == first  # nothing was left to do
    mine.write_text(CODE.replace("(1 - sigma)", "0.5"))
    second = run()
    assert second[0] != first[0]
    assert second[1] != first[1]
    assert second[2] == 12
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
    assert len(set(before)) == 3
    named.write_text(named.read_text() + "# edited\n")
    after = [custom_method(f"{named}:{name}").fingerprint for name in ("hidden", "kept", "there")]
    assert not set(before) & set(after)


def test_functions_of_one_name_are_told_apart(pictures, mine, tmp_path):
    other = tmp_path / "other_file.py"
    other.write_text(CODE + "\n\ndef degraded(op, y, sigma, *, generator):\n    return 0 * y\n")
    names = [f"{mine}:halved", f"{other}:halved", f"{other}:degraded", f"{mine}:halved"]
    done = call(*words(pictures, tmp_path / "o", ",".join(names)))
    assert done.exit_code == 0, done.output
    found = list(json.loads((tmp_path / "o" / "results.json").read_text())["methods"])
    labels = [f"{mine.stem}:halved", "other_file:halved", "other_file:degraded"]
    assert found == ["degraded", "data-consistency", *labels]


def test_the_folder_is_called_like_the_function(pictures, mine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["--data", pictures, "--tasks", "denoising", "--size", SIZE]
    assert call("evaluate", f"{mine.stem}:halved", *given).exit_code == 0  # as a module of this folder
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["evaluate-folder-halved-tables"]


BAD = {  # function: (its lines, what is said)
    "no_return": (
        "op, y, sigma, *, generator",
        "pass",
        "line 2: it returned a NoneType; it must return images (B, C, H, W)",
    ),
    "numpied": (
        "op, y, sigma, *, generator",
        "return y.numpy()",
        "line 2: it returned a ndarray; it must return images",
    ),
    "whole": (
        "op, y, sigma, *, generator",
        "return y.int()",
        "line 2: it returned a tensor of torch.int32 on cpu; it must",
    ),
    "elsewhere": (
        "op, y, sigma, *, generator",
        "return y.to('meta')",
        "line 2: it returned a tensor of torch.float32 on meta; it",
    ),
    "raises": ("op, y, sigma, *, generator", "x = y\n    return x @ torch.zeros(3, 5)", "line 4: RuntimeError: mat1"),
    "network": ("net, op, y, sigma, *, generator", "return y", "line 2: it is called as network(op, y, sigma, gener"),
    "silent": ("op, y, sigma", "return y", "line 2: it is called as silent(op, y, sigma, generator=...): got an une"),
}
WRONG = {
    "smaller": ("y[..., 1:]", "the restoration has the shape (1, 3, 16, 15), the images have (1, 3, 16, 16)"),
    "nan": ("y / 0", "the restoration has values that are NaN or infinite"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_in_a_function_is_told_with_file_and_line(name, pictures, tmp_path):
    arguments, body, message = BAD[name]
    file = tmp_path / f"bad_{name}.py"
    file.write_text(f"import torch\ndef {name}({arguments}):\n    {body}\n")
    told = call(*words(pictures, tmp_path / "o", f"{file}:{name}"))
    assert told.exit_code == 2
    assert says(told.output, f"the error is in your method {name}, {file}, {message}")


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_restoration_is_refused(name, pictures, tmp_path):
    body, message = WRONG[name]
    file = tmp_path / f"wrong_{name}.py"
    file.write_text(f"def {name}(op, y, sigma, *, generator):\n    return {body}\n")
    told = call(*words(pictures, tmp_path / "o", f"{file}:{name}"))
    assert told.exit_code == 2
    assert says(told.output, f"{name} on denoising, images 0 to 0: {message}")
    assert {row["method"] for row in rows(tmp_path / "o")} == {"degraded", "data-consistency"}


def test_what_is_no_function_is_said_before_any_work(pictures, mine, tmp_path):
    (tmp_path / "cut.py").write_text("def f(:\n")
    (tmp_path / "fails.py").write_text("import torch\n1 / 0\n")
    mine.write_text(CODE + "number = 3\nclass Thing: pass\n")
    for name, message in {
        f"{mine}:number": "number must be a function, but is of type int",
        f"{mine}:Thing": "Thing must be a function, but is of type type",
        f"{mine}:halve": f"{mine} has no halve; it has halved, noisy, spoils",
        f"{mine}": "write file.py:function or package.module:function",
        f"{tmp_path / 'none.py'}:f": f"method: there is no file {tmp_path / 'none.py'}",
        "no_such_module:f": "there is no module no_such_module (a file is written with its ending, name.py:function)",
        f"{tmp_path / 'cut.py'}:f": "cut.py cannot be run: line 1: SyntaxError",
        f"{tmp_path / 'fails.py'}:f": "fails.py cannot be run: line 2: ZeroDivisionError: division by zero",
    }.items():
        told = call(*words(pictures, tmp_path / "o", "degraded", methods=name))
        assert told.exit_code == 2
        assert says(told.output, message), told.output
    assert not (tmp_path / "o").exists()


def test_a_file_with_a_colon_in_its_name_is_a_model(pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_model(tmp_path / "a:b.safetensors", [{"name": "denoising"}])
    done = call(*words(pictures, tmp_path / "o", "a:b.safetensors", size=32))
    assert done.exit_code == 0, done.output
    assert "FIRM N=1" in done.output
