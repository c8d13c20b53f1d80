"""Tasks: added as one file, brought along by a user, with settings and ranges declared once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import relative_error

import firm
from firm.operators import data_consistency
from firm.restoration.advice import advice
from firm.restoration.problem import Problem
from firm.tasks import BaseTask, Parameter, Rows, built_in, tables, task_class
from firm.training.config import ConfigError, load_config
from firm.training.objectives import Batch

OWN = f"{Path(__file__).parent / 'own_tasks.py'}"
CPU = torch.device("cpu")

NEW = '''
from firm.operators import Identity
from firm.tasks.base import BaseTask
from firm.tasks.parameter import Parameter


class Fading(BaseTask):
    """Colors that fade."""

    name = "fading"
    picture = "fading"
    fade_share = Parameter(float, "share of the color lost", 0.25, low=0, high=1, drawn="uniform")

    def build(self, values):
        return Identity()
'''

PROGRAM = """
import json, sys
import firm.tasks
firm.tasks.__path__.append(sys.argv[1])
from typer.testing import CliRunner
from firm.cli import app
from firm.restoration.advice import advice
from firm.tasks import picture_tasks
from firm.restoration.problem import Problem
from firm.training.config import load_config

helps = {c: CliRunner().invoke(app, [c, "--help"], env={"COLUMNS": "250"}).output for c in ("restore", "evaluate")}
config = load_config(None, ["task=fading", "network={ch: 8, mult: [1], blocks: 1, groups: 4}"])
entry = "mixture=[{name: fading, fade_share: [0.1, 0.2]}]"
mixed = load_config(None, [entry, "network={ch: 8, mult: [1], blocks: 1, groups: 4}"])
told = advice({"trained_for": mixed.tasks()}, Problem(None, None, 0.05, None, {"task": "fading", "fade_share": 0.9}))
print(json.dumps({"names": list(firm.tasks.built_in()), "restore": helps["restore"], "evaluate": helps["evaluate"],
                  "made": repr(config.make_tasks()[0]), "ranges": mixed.make_tasks()[0].ranges, "told": told,
                  "tables": firm.tasks.tables(), "pictures": list(picture_tasks())}))
"""


def images(n, size=8, channels=3):
    return torch.rand(n, channels, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1


def test_a_file_in_the_folder_is_a_task_everywhere(tmp_path):
    (tmp_path / "fading.py").write_text(NEW)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert "fading" in found["names"]
    assert found["tables"] == tables()  # the paper's tables have not grown
    assert "--fade-share" in found["restore"]
    assert "fading: share of the color lost." in found["restore"]
    assert "fading" in found["evaluate"]
    assert found["made"] == "Fading(128, fade_share=0.25, sigma=0.05)"
    assert found["ranges"] == {"fade_share": [0.1, 0.2]}
    assert found["told"] == ["fade_share 0.9 is not what the model was trained for, 0.1 to 0.2"]
    assert "fading" in found["pictures"]


def test_the_tasks_of_the_papers_tables_come_first_and_in_its_order():
    five = ["denoising", "deblurring", "super-resolution", "random-inpainting", "box-inpainting"]
    assert tables() == five
    others = [
        "blind-deblurring", "camera-denoising", "clipping", "ct", "demosaicing", "fourier", "jpeg", "microscopy",
        "motion-deblurring", "mri", "phase-retrieval", "poisson-denoising", "poisson-inpainting", "stroke-inpainting",
    ]  # fmt: skip
    assert list(built_in()) == [*five, *others]


def test_names_are_classes_or_suggestions():
    assert task_class(f"{OWN}:Gain") is task_class(f"{OWN}:Gain")  # run once
    assert firm.Task(f"{OWN}:Gain", 8, gain=0.25).gain == 0.25
    assert firm.Task("firm.tasks.denoising:Denoising", 8) == firm.Task("denoising", 8)
    assert task_class(f"{OWN}:Gain").name == "gain"
    assert task_class(f"{OWN}:WrongAdjoint").name == "wrong-adjoint"
    with pytest.raises(ValueError, match="did you mean 'box-inpainting'"):
        firm.Task("boxinpainting")
    with pytest.raises(ValueError, match="has no setting 'gian'; did you mean 'gain'"):
        firm.Task(f"{OWN}:Gain", gian=1)


def test_files_of_one_name_in_two_folders_are_two_modules(tmp_path):
    text = "from firm.tasks import BaseTask, Parameter\nclass T(BaseTask):\n    a = Parameter(int, 'a', {})\n"
    for k in (1, 2):
        (tmp_path / str(k)).mkdir()
        (tmp_path / str(k) / "mine.py").write_text(text.format(k))
    names = [f"{tmp_path / str(k) / 'mine.py'}:T" for k in (1, 2)]
    first, second = (task_class(name) for name in names)
    assert (first().a, second().a) == (1, 2)
    assert task_class(names[0]) is first  # not run again because another of its name came between


def test_draws_are_uniform_or_uniform_in_the_logarithm():
    task = firm.Task(f"{OWN}:Gain", 8, gain=[0.2, 2.0], power=[1, 3], sigma=[0.001, 0.1])
    rows = Rows(4000, 0, 4000)
    torch.manual_seed(0)
    gain, power, sigma = (task.sample(key, rows, CPU) for key in ("gain", "power", "sigma"))
    assert 0.2 <= float(gain.min()) < 0.21
    assert 1.98 < float(gain.max()) <= 2.0
    assert float(gain.mean()) == pytest.approx(1.1, abs=0.02)
    assert set(power.tolist()) == {1, 2, 3}  # whole numbers stay whole
    assert 0.001 <= float(sigma.min()) < 0.00102
    assert float(sigma.log10().mean()) == pytest.approx(-2, abs=0.03)
    assert float((sigma < 0.01).float().mean()) == pytest.approx(0.5, abs=0.03)
    zero = firm.Task("denoising", 8, sigma=[0.0, 0.4]).sample("sigma", rows, CPU)
    assert float(zero.mean()) == pytest.approx(0.2, abs=0.01)  # no logarithm of 0


def test_an_own_task_draws_sample_by_sample():
    task = firm.Task(f"{OWN}:Gain", 8, gain=[0.5, 2.0], sigma=0.0)
    x = images(6)
    torch.manual_seed(1)
    op, y, _ = task.draw(x, Rows(6, 0, 6))
    factors = (y / x).flatten(1)
    torch.testing.assert_close(factors.amin(1), factors.amax(1))
    assert len(set(factors[:, 0].round(decimals=3).tolist())) == 6
    assert 0.5 <= float(factors.min()) <= float(factors.max()) <= 2.0001
    torch.manual_seed(1)
    part = task.draw(x[2:4], Rows(6, 2, 4))
    assert torch.equal(part[1], y[2:4])  # a process's rows do not depend on the split
    assert torch.equal(part[0].factor, op.factor[2:4])


def test_complex_buffers_of_an_own_operator_stay_complex():
    for dtype in (torch.float32, torch.float64):
        x = images(2).to(dtype)
        op, y = firm.Task(f"{OWN}:Coils", 8, sigma=0.0).measure(x)
        phase = torch.arange(64.0).reshape(8, 8) / 10
        assert y.dtype == (torch.complex64 if dtype == torch.float32 else torch.complex128)
        torch.testing.assert_close(y, (torch.polar(torch.ones(8, 8), phase) * x).to(y.dtype))
        torch.testing.assert_close(op.A_adjoint(y), x)


def test_a_mixture_with_and_without_closed_forms_solves_like_its_parts():
    entries = [
        {"name": f"{OWN}:Gain", "gain": [0.5, 2.0]},
        {"name": "random-inpainting", "missing": [0.3, 0.6], "mask": "fresh"},
        {"name": f"{OWN}:ClosedGain", "gain": [0.5, 2.0]},
        {"name": "fourier", "mask": "fresh"},
    ]
    tasks = [firm.Task(size=8, sigma=0.01, **entry) for entry in entries]
    x, sizes = images(8), [2, 2, 2, 2]
    rows = [Rows(2, 0, 2)] * 4
    torch.manual_seed(2)
    op, y, _ = Batch(x, torch.zeros(len(x)), rows, tasks).measure()
    torch.manual_seed(2)
    parts = [task.draw(part, r) for task, part, r in zip(tasks, x.split(sizes), rows, strict=True)]
    z, rho = images(8).flip(0), torch.linspace(0.01, 1.0, 8)
    joint = data_consistency(op, z, y, rho).split(sizes)
    for (op_i, y_i, _), z_i, rho_i, x_i in zip(parts, z.split(sizes), rho.split(sizes), joint, strict=True):
        assert relative_error(x_i, data_consistency(op_i, z_i, y_i, rho_i)) < 1e-6
    factor, r = parts[0][0].factor, rho[:2].reshape(2, 1, 1, 1)
    assert relative_error(joint[0], (factor * parts[0][1] + r * z[:2]) / (factor**2 + r)) < 1e-5  # by hand


def test_a_mask_that_is_not_shared_or_fresh_is_left_alone():
    class Sided(BaseTask):
        mask = Parameter(str, "side", "left", choices=("left", "right"))

    assert not Sided.takes_mask()
    assert built_in()["fourier"].takes_mask()
    assert not built_in()["denoising"].takes_mask()


def test_advice_does_not_mind_how_masks_are_drawn():
    card = {"trained_for": [{"name": "random-inpainting", "mask": "fresh"}]}
    settings = {"task": "random-inpainting", **firm.Task("random-inpainting", 8).settings()}
    assert advice(card, Problem(None, None, 0.01, None, settings)) == []
    own = {"trained_for": [{"name": "elsewhere.py:Gain", "gain": [0.1, 0.2], "note": "x"}]}  # never imported
    told = advice(own, Problem(None, None, 0.05, None, {"task": f"{OWN}:Gain", "gain": 0.5, "note": "y"}))
    assert told == [
        "gain 0.5 is not what the model was trained for, 0.1 to 0.2",
        "note y is not what the model was trained for, x",
    ]


def test_ranges_in_a_configuration_are_checked():
    with pytest.raises(ConfigError, match="range of noise levels needs a network with noise_level"):
        load_config(None, ["mixture=[{name: denoising, sigma: [0.1, 0.2]}]"])
    for entry in ("{name: random-inpainting, missing: [0.1, 0.2]}", "{name: fourier, lines: [2, 9]}"):
        with pytest.raises(ConfigError, match=r"a range of (missing|lines) needs mask: fresh"):
            load_config(None, [f"mixture=[{entry}]", "mask=shared"])
        assert load_config(None, [f"mixture=[{entry}]"]).make_tasks(mask="shared")  # as validation has it
    with pytest.raises(ConfigError, match="factor cannot be a range"):
        load_config(None, ["mixture=[{name: super-resolution, factor: [2, 4]}]"])
