"""The user's own tasks, networks, objectives: a run goes on with the same, and what they raise is told as theirs."""

import errno
import json

import pytest
import torch
from helpers import call, says, tells, tiny_model

import firm
from firm._util.custom import custom_code, load_class
from firm.restoration import Problem, ProblemError
from firm.restoration.advice import advice
from firm.tasks import task_class
from firm.training.config import ConfigError
from firm.training.run_folder import RunFolder

CODE = """
from firm.operators import Identity
from firm.tasks import BaseTask, Parameter


class Mine(BaseTask):
    gain = Parameter(float, "gain", 0.5, low=0, drawn="uniform")
    label = Parameter(str, "what for", "faces")

    def build(self, values):
        return Identity()
"""


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(CODE)
    return file


# A run and its code


@pytest.mark.parametrize("setting", ["task={}:Mine", "mixture=[{{name: denoising}}, {{name: '{}:Mine', gain: 0.2}}]"])
def test_a_run_does_not_go_on_with_edited_code(setting, own, fit, tmp_path):
    settings = [setting.format(own), "val_images=0", "steps_per_epoch=2", "warm_start_epochs=0"]
    fit(*settings, "epochs=1")
    assert fit(*settings, "epochs=2")["steps_now"] == 2
    own.write_text(CODE + "# edited\n")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(ConfigError) as caught:
        fit(*settings, "epochs=3")
    for words in (f"{own} has been edited since the run in {tmp_path / 'run'}", "its Mine: undo the edit", "out="):
        assert words in str(caught.value)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    own.write_text(CODE)
    assert fit(*settings, "epochs=3")["steps_now"] == 2
    own.write_text(CODE + "# edited\n")
    assert fit(*settings, "epochs=1", out="another")["finished"]


def test_an_edited_objective_or_network_and_digests_that_cannot_be_read(make, tmp_path):
    file = tmp_path / "both.py"
    file.write_text(
        "from firm import UNet\nfrom firm.training.objectives import Objective\n"
        "class Net(UNet):\n    pass\nclass Own(Objective):\n    pass\n"
    )
    for setting in (f"objective={file}:Own", f"network={{class: '{file}:Net', ch: 8}}"):
        config = make(setting)
        folder = RunFolder(tmp_path, config)
        folder.write(finished=False)
        folder.refuse_another_run()
        file.write_text(file.read_text() + "# edited\n")
        edited = RunFolder(tmp_path, config)
        assert edited.same_settings() != folder.same_settings()  # nor do processes train together
        with pytest.raises(ConfigError, match=r"both\.py has been edited since"):
            edited.refuse_another_run()
        (tmp_path / "config.yaml").unlink()
    for damaged in ("{", "[1]"):
        (tmp_path / "code.json").write_text(damaged)
        with pytest.raises(ConfigError, match=r"code\.json, .* cannot be read: choose another out=, or delete"):
            folder.refuse_another_run()


# The card


def test_the_card_has_the_defaults_of_a_custom_task(own, fit, pictures, tmp_path):
    """So that advice is given without running code that a card names."""
    fit(f"task={own}:Mine", "val_images=0", "epochs=1", "steps_per_epoch=2", "warm_start_epochs=0")
    card = firm.load(tmp_path / "run" / "model.safetensors").card
    assert card["trained_for"] == [{"weight": 1.0, "name": f"{own}:Mine", "gain": 0.5, "label": "faces", "sigma": 0.05}]
    elsewhere = tmp_path / "elsewhere.py"
    own.rename(elsewhere)

    def told(**settings):
        return advice(card, Problem.simulated(pictures / "000.png", f"{elsewhere}:Mine", settings))

    assert told() == []
    assert told(gain=0.9) == ["gain 0.9 is not what the model was trained for, 0.5"]
    assert told(label="cats", sigma=0.2) == [
        "label cats is not what the model was trained for, faces",
        "sigma 0.2 is not what the model was trained for, 0.05",
    ]


def test_the_card_has_ranges_and_leaves_the_tasks_of_the_library_as_they_are(own, make_trainer):
    own.write_text(CODE + "\nfrom firm.tasks.inpainting import RandomInpainting\n"
                   "class Holes(RandomInpainting):\n    name = 'holes'\n")  # fmt: skip
    entries = f"[{{name: denoising}}, {{name: '{own}:Mine', gain: [1e-1, 2.0]}}, {{name: '{own}:Holes'}}]"
    first, second, third = make_trainer(f"mixture={entries}").card()["trained_for"]
    assert first == {"weight": 1.0, "name": "denoising"}
    assert second["gain"] == [0.1, 2.0]  # numbers, though YAML reads the first as text
    assert second["label"] == "faces"
    assert "missing" in third
    assert "mask" not in third  # how masks are drawn is no degradation


# Errors of the user's code

HEAD = """
import torch
from firm.operators import Identity
from firm.tasks import BaseTask, Parameter


class Bad(BaseTask):
    gain = Parameter(float, "gain", 0.5, low=0, drawn="uniform")
"""
BAD = {  # the line, what is said, the method
    "raises": (11, "KeyError: 'gian'", "def build(self, values):\n        return Identity(values['gian'])"),
    "value": (11, "ValueError: odd", "def build(self, values):\n        raise ValueError('odd')"),
    "library": (11, "RuntimeError:", "def build(self, values):\n        return torch.ones(2) @ torch.ones(3)"),
    "none": (10, "build returned None; it must return an operator, with A(x) and A_adjoint(y)",
             "def build(self, values):\n        Identity()"),
    "tensor": (10, "build returned a Tensor; it must", "def build(self, values):\n        return values['gain']"),
    "operator": (10, "operator returned None; it must", "def operator(self, seed=42, indices=(0,)):\n        pass"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_errors_of_a_custom_task_are_told_with_file_and_line(case, config_file, pictures, tmp_path):
    line, message, method = BAD[case]
    file = tmp_path / f"{case}_task.py"
    file.write_text(f"{HEAD}\n    {method}\n")
    place = f"the error is in your task Bad, {file}, line {line}: {message}"
    tells(place, "train", config_file, f"task={file}:Bad", f"out={tmp_path / 'run'}")
    model = tiny_model(tmp_path / "m.safetensors", [{"name": "denoising"}])
    words = ["restore", pictures / "000.png", "--simulate", f"{file}:Bad", "--model", model, "--out", tmp_path / "out"]
    tells(place, *words)


def test_errors_in_the_adjoint_and_in_a_base_class_are_told(pictures, tmp_path):
    (tmp_path / "below.py").write_text(HEAD + "\n    def build(self, values):\n        return Half()\n"
                                       "class Half:\n    def A(self, x):\n        return x\n"
                                       "    def A_adjoint(self, y):\n        return 1 / 0\n")  # fmt: skip
    (tmp_path / "above.py").write_text("from below import Bad\nclass Above(Bad):\n    pass\n")
    with pytest.raises(ProblemError) as caught:
        Problem.simulated(pictures / "000.png", f"{tmp_path / 'above.py'}:Above", {})
    place = f"your task Above, {tmp_path / 'below.py'}, line 16: ZeroDivisionError: division by zero"
    assert place in str(caught.value)


TRAINED = """
import torch
from firm.training.step import Velocity


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Conv2d({width}, 3, 1)

    def forward(self, x, x_t{t}):
        return self.body(x)


class Own(Velocity):
    def loss(self, net, batch):
        {loss}
        return super().loss(net, batch)

    def validate(self, net, images, picture):
        return {scores}

    def save(self, net, card, path):
        return {saved}
"""
RIGHT = {"width": 3, "t": ", t", "loss": "", "scores": "{}", "saved": "super().save(net, card, path)"}
WRONG = {  # whose it is, the line, what is said, what is wrong
    "network": ("network Net", 12, "RuntimeError: Given groups=1, weight of size", {"width": 5}),
    "arguments": ("network Net", 11, "TypeError: Net.forward() takes 3 positional arguments but 4", {"t": ""}),
    "objective": ("objective Own", 17, "AttributeError: 'Batch' object has no attribute 'x'", {"loss": "batch.x"}),
    "saving": ("objective Own", 24, "KeyError: 'nothing'", {"saved": "card['nothing']"}),
    "validation": ("objective Own", 21, "KeyError: 'psnr'", {"scores": "{}['psnr']"}),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_of_a_custom_network_or_objective_are_told_with_file_and_line(case, config_file, tmp_path):
    whose, line, message, wrong = WRONG[case]
    file = tmp_path / f"{case}_wrong.py"
    file.write_text(TRAINED.format(**{**RIGHT, **wrong}))
    setting = whose.replace(" ", f"={file}:")
    place = f"the error is in your {whose}, {file}, line {line}: {message}"
    tells(place, "train", config_file, setting, "epochs=1", "warm_start_epochs=0", f"out={tmp_path / 'run'}", code=1)


@pytest.mark.parametrize("every", [2, 0])
def test_a_validation_that_is_mended_goes_on_in_the_ways_that_are_told(every, config_file, tmp_path):
    """An own `validate` fails after hours: they are not lost, and both messages name the ways on; at the end, too."""
    file, mended, out = tmp_path / "mended_later.py", tmp_path / "mended", tmp_path / "run"
    file.write_text("from pathlib import Path\nfrom firm.training.step import Velocity\nclass Own(Velocity):\n"
                    "    def validate(self, net, images, picture):\n"
                    f"        return {{'score': len(Path({str(mended)!r}).read_text())}}\n"
                    )  # fmt: skip
    words = ["train", config_file, f"objective={file}:Own", "epochs=1", f"validate_every={every}"]
    ways = (f"init_from={out / 'model.safetensors'} and another out=", f"delete {out / 'code.json'} and give the same")
    told = call(*words, f"out={out}")
    assert told.exit_code == 1
    assert all(says(told.output, way) for way in ("is saved in", "Once it is mended", *ways)), told.output
    file.write_text(file.read_text() + "# mended\n")
    mended.write_text("good")
    told = call(*words, f"out={out}")
    assert told.exit_code == 2
    assert all(says(told.output, way) for way in ("has been edited since", *ways)), told.output
    told = call(*words, f"init_from={out / 'model.safetensors'}", f"out={tmp_path / 'another'}")
    assert says(told.output, "done after 10 steps"), told.output
    (out / "code.json").unlink()
    told = call(*words, f"out={out}")
    assert says(told.output, "done after 10 steps"), told.output
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == sorted(row["step"] for row in rows)  # it went on, and did not begin again
    assert [row["step"] for row in rows if "score" in row] == ([4, 6, 8, 10] if every else [10])
    assert (out / "best.safetensors").is_file()
    assert (out / "code.json").is_file()


def test_an_objective_and_a_network_in_one_file_and_a_dry_run(config_file, tmp_path):
    file = tmp_path / "both_wrong.py"
    file.write_text(TRAINED.format(**{**RIGHT, "width": 5}))
    words = ["train", config_file, f"objective={file}:Own", f"network={file}:Net", f"out={tmp_path}"]
    for option in ([], ["--dry-run"]):
        tells(f"your objective Own or network Net, {file}, line 12: RuntimeError", *words, *option, code=1)


OURS = """
from firm import UNet


class Net(UNet):
    def forward(self, *inputs):
        return super().forward(*inputs)[:, 9]
"""


@pytest.mark.parametrize("kind", ["own", "ours"])
@pytest.mark.parametrize("command", ["evaluate", "restore", "calibrate"])
def test_errors_of_a_custom_network_are_told_by_all_commands(command, kind, pictures, tmp_path):
    """Also where it is inside of what makes it fast, as a network derived from ours is, and any size."""
    file, model = tmp_path / f"{command}_{kind}.py", tmp_path / "m.safetensors"
    file.write_text(OURS if kind == "ours" else TRAINED.format(**{**RIGHT, "width": 5}))
    small = {"channels": 3, "ch": 8, "mult": (1, 1), "blocks": 1, "attention": (), "groups": 4}
    net = load_class(f"{file}:Net", torch.nn.Module, "network")(**(small if kind == "ours" else {}))
    firm.Firm(net, None, {"channels": 3, "size": 16}).save(model)
    words = {
        "evaluate": [model, "--data", pictures, "--tasks", "denoising", "--limit", 1, "--out", tmp_path / "out"],
        "restore": [pictures / "000.png", "--task", "denoising", "--model", model, "--out", tmp_path / "out"],
        "calibrate": [model, "--data", pictures, "--tasks", "denoising", "--limit", 2, "--out", tmp_path / "c.json"],
    }[command]
    told = call(command, *words, "--network", f"{file}:Net")
    assert told.exit_code != 0
    line, error = (7, "IndexError") if kind == "ours" else (12, "RuntimeError: Given groups=1")
    assert says(told.output, f"the error is in your network Net, {file}, line {line}: {error}")
    assert "Traceback" not in told.output


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_errors_of_a_custom_operator_inside_the_solver_are_told(command, config_file, pictures, tmp_path):
    """The check before a training has one image, and measuring needs no adjoint."""
    file = tmp_path / f"solved_{command}.py"
    file.write_text(HEAD + "\n    def build(self, values):\n        return Half()\n"
                    "class Half:\n    def A(self, x):\n        return x\n    def A_adjoint(self, y):\n"
                    f"        assert {'len(y) == 1' if command == 'train' else 'False'}, 'too many'\n"
                    "        return y\n")  # fmt: skip
    model = tiny_model(tmp_path / "m.safetensors", [{"name": "denoising"}])
    words = {
        "train": [config_file, f"task={file}:Bad", "warm_start_epochs=0", f"out={tmp_path / 'run'}"],
        "evaluate": [model, "--data", pictures, "--tasks", f"{file}:Bad", "--limit", 1, "--out", tmp_path / "out"],
    }[command]
    told = call(command, *words)
    assert told.exit_code != 0
    assert says(told.output, f"the error is in your task Bad, {file}, line 16: AssertionError: too many"), told.output
    assert "Traceback" not in told.output


def test_what_is_not_the_users_fault_passes_as_it_is(own, make):
    own.write_text(HEAD + "\n    def build(self, values):\n        raise self.error\n")
    kind = task_class(f"{own}:Bad")
    no_memory = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
    for error in (OSError(errno.ENOSPC, "no room"), torch.OutOfMemoryError("much"), MemoryError("much"), no_memory):
        kind.error = error
        with pytest.raises(type(error)) as caught:
            kind(8).operator()
        assert caught.value is error
    with pytest.raises(RuntimeError, match="not of the task") as caught, custom_code(task=kind):
        raise RuntimeError("not of the task")
    with pytest.raises(ValueError, match=r"^bad: gain"):
        make(f"mixture=[{{name: '{own}:Bad', gain: -1}}]")
