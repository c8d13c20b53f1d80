"""The tutorial docs/own-operator.md runs as written, and shows the files of examples/ as they are."""

import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from helpers import says
from typer.testing import CliRunner

import firm
from firm._model_file import signed
from firm._util.custom import load_class
from firm.cli import app
from firm.restoration import Problem
from firm.restoration.advice import advice
from firm.tasks import BaseTask, Rows
from firm.training.run_folder import Checkpoints

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "own-operator.md").read_text()
BLOCKS = re.findall(r"(?:<!-- file: (\S+) -->\n)?^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
TASK = "examples/motion_blur.py:MotionBlur"
FEW = ["steps_per_epoch=1", "val_images=8"]  # all that the tests change: ten training steps, not hundreds


def test_the_page_shows_the_files():
    shown = {name: text for name, _, text in BLOCKS if name}
    assert shown == {name: (ROOT / name).read_text() for name in shown}
    assert set(shown) >= {f"examples/{n}" for n in ("motion_blur.py", "motion_blur.yaml", "own_network.py")}
    assert "examples/own_objective.py" in shown


def test_every_example_is_listed():
    listed = set(re.findall(r"\[(\w+\.\w+)\]\(\1\)", (EXAMPLES / "README.md").read_text()))
    assert listed == {p.name for p in EXAMPLES.iterdir() if p.is_file()} - {"README.md"}


def run_line(program, *arguments):
    """One line of the shell, in this process: a new one would spend its time on importing torch."""
    if program == "python":
        sys.argv = list(arguments)
        runpy.run_path(arguments[0], run_name="__main__")
        return
    assert program == "firm", f"{program}: only firm and python can be run here"
    done = CliRunner().invoke(app, [*arguments, *(FEW if arguments[0] == "train" else ())])
    assert done.exit_code == 0, f"{arguments}\n{done.output}"


def run_tutorial():
    """Run every shell and Python block of the page, in order."""
    for name, language, text in BLOCKS:
        if language == "python" and not name:
            exec(compile(text, "own-operator.md", "exec"), {})
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                run_line(*shlex.split(line))


def test_the_tutorial_runs_as_written(tmp_path, monkeypatch, capsys):
    """One test, since it is one sequence of commands: each part looks at what the page says of it."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [])
    run_tutorial()
    claimed = set(re.findall(r"`((?:phantoms|runs|results|restored)/[\w./-]+|measurement\.png)`", PAGE))
    assert len(claimed) >= 12
    assert [name for name in sorted(claimed) if not Path(name).exists()] == []
    assert "MotionBlur(128, length=15.0" in capsys.readouterr().out
    assert np.load("phantoms/train.npy").shape == (2000, 1, 32, 32)
    check_evaluation()
    check_restoration()
    check_own_network()
    check_own_objective()


def check_evaluation():
    results = json.loads(Path("results/motion/results.json").read_text())
    summary = results["summary"]["motion-blur"]
    assert list(summary) == ["degraded", "data-consistency", "FIRM N=1", "FIRM N=2", "FIRM N=4"]
    assert results["config"]["tasks"]["motion-blur"]["kernel"] == 11
    told = dict(re.findall(r"^ *(degraded|data-consistency|FIRM N=\d) +([\d.]+)±", PAGE, re.MULTILINE))
    for method in ("degraded", "data-consistency"):  # need no training, so the numbers of the page must come out
        assert summary[method]["psnr"] == pytest.approx(float(told[method]), abs=0.02)
    best = max(float(told[method]) for method in ("degraded", "data-consistency"))
    assert float(told["FIRM N=2"]) > best + 2


def check_restoration():
    (row,) = json.loads(Path("restored/restore.json").read_text())
    assert row["samples"] == 8
    assert row["length"] == 9
    assert row["advice"] == []  # within what the model was trained for


def check_own_network():
    path, name = "runs/own-network/model.safetensors", "examples/own_network.py:Small"
    small = load_class(name, torch.nn.Module, "network")
    model = firm.load(path, small)
    assert model.estimator.config == {"channels": 1, "width": 16, "noise_level": True}
    assert model.card["steps"] == 10
    with pytest.raises(ValueError, match="Small"):
        firm.load(path)
    simulate = ["restore", "phantoms/one.png", "--simulate", TASK, "--set", "kernel=11", "--model", path]
    refused = CliRunner().invoke(app, simulate)
    assert refused.exit_code == 2
    assert says(refused.output, "--network file.py:Small")
    restored = CliRunner().invoke(app, [*simulate, "--network", name, "--out", "again"])
    assert restored.exit_code == 0, restored.output
    assert Path("again/one_restored.png").is_file()


def check_own_objective():
    path = "runs/own-objective/model.safetensors"
    denoiser = firm.load_network(path)
    assert denoiser.card["objective"] == "examples/own_objective.py:Denoiser"
    assert denoiser(torch.zeros(1, 1, 32, 32), torch.tensor([0.2])).shape == (1, 1, 32, 32)
    assert Path("runs/own-objective/best.safetensors").is_file()
    with pytest.raises(ValueError, match="denoiser, not a FIRM model"):
        firm.load(path)


# The task


def motion_blur(**settings):
    return load_class(str(EXAMPLES / "motion_blur.py") + ":MotionBlur", BaseTask, "task")(32, kernel=11, **settings)


def test_the_task_draws_a_kernel_for_every_sample():
    task = motion_blur(length=(1, 11), angle=(0, 180), sigma=(0.01, 0.05))
    op, y, sigma = task.draw(torch.zeros(6, 1, 32, 32), Rows(6, 0, 6))
    assert y.shape == (6, 1, 22, 22)
    assert len({float(k.max()) for k in op.kernel}) == 6
    assert 0.01 <= float(sigma.min()) < float(sigma.max()) <= 0.05
    assert (op.cg_tol, op.cg_iterations) == (0, 10)
    assert firm.operators.dot_test(op, (6, 1, 32, 32)) < 1e-3


@pytest.mark.parametrize("settings", [{"length": 12}, {"length": (1, 12)}])
def test_a_motion_longer_than_the_kernel_is_refused(settings):
    with pytest.raises(ValueError, match="12 pixels does not fit into a kernel of 11"):
        motion_blur(**settings)


def test_the_page_counts_the_calls_of_a():
    op, calls = motion_blur().operator(), []
    A, A_adjoint = op.A, op.A_adjoint
    op.A, op.A_adjoint = lambda v: calls.append("A") or A(v), lambda v: calls.append("A'") or A_adjoint(v)
    z = torch.randn(1, 1, 32, 32, requires_grad=True)
    x = firm.data_consistency(op, z, torch.randn(1, 1, 22, 22), 0.01)
    assert (calls.count("A"), calls.count("A'")) == (11, 12)
    x.sum().backward()
    assert (calls.count("A"), calls.count("A'")) == (21, 22)
    assert "11 calls of A and 12 of its adjoint, and its backward pass 10 of each" in " ".join(PAGE.split())


# A file says what it holds, never which code to run


EVIL = """
from pathlib import Path
from torch import nn
from firm.tasks import BaseTask
from firm.training.objectives import Objective
Path(__file__).with_name("ran").touch()
class Evil(nn.Module): pass
"""


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A folder with code that leaves a trace, and a model whose file names that code wherever it can."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path


def named(folder, name):
    card = {"trained_for": [{"name": name, "weight": 1.0, "sigma": 0.02}], "objective": name, "class": name,
            "network": name, "size": 32, "channels": 1}  # fmt: skip
    weights = {"layer.weight": torch.zeros(1)}
    about = {"format": 1, "estimator": name, "config": {"class": name}, "card": card, "network": name,
             "solver": {"K": 1, "rho": 0.01, "beta": 0.5, "output": "direct"}}  # fmt: skip
    path = folder / "model.safetensors"
    safetensors.torch.save_file(weights, path, metadata={"firm": signed(json.dumps(about), weights)})
    return path, card


@pytest.mark.parametrize("name", ["evil.py:Evil", "evil:Evil", "evil"])
def test_loading_a_file_never_runs_code_that_it_names(evil, name):
    path, card = named(evil, name)
    for load in (firm.load, firm.load_network):
        with pytest.raises(ValueError, match="network class"):
            load(path)
    np.save(evil / "one.npy", np.zeros((1, 32, 32), np.float32))
    np.save(evil / "all.npy", np.zeros((4, 1, 32, 32), np.float32))
    for command in (
        ["restore", "one.npy", "--simulate", "denoising", "--model", str(path)],
        ["evaluate", str(path), "--dataset", "arrays", "--data", "all.npy", "--tasks", "denoising"],
        ["train", str(EXAMPLES / "motion_blur.yaml"), "task=denoising", "data=all.npy", f"init_from={path}",
         "val_images=0", "out=run"],
    ):  # fmt: skip
        result = CliRunner().invoke(app, command)
        assert result.exit_code != 0, result.output
        assert not (evil / "ran").exists(), command
    found = advice(card, Problem.simulated(evil / "one.npy", "denoising", {}, channels=1))
    assert "not trained for denoising" in found[0]
    Checkpoints(evil / "checkpoints", {}, keep=1).save({"step": 1, "network": {"class": name}})
    with pytest.warns(UserWarning, match="another network"):
        assert Checkpoints(evil / "checkpoints", {}, keep=1).latest(lambda state: None) is None
    assert not (evil / "ran").exists()
    assert not [module for module in sys.modules if "evil" in module]


def test_a_class_that_the_user_names_is_run(evil):
    """Otherwise the test above would see nothing."""
    load_class("evil.py:Evil", torch.nn.Module, "network")
    assert (evil / "ran").exists()
    for module in [module for module in sys.modules if "evil" in module]:
        del sys.modules[module]
