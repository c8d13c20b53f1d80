"""The rows of the paper's tables: their published settings, and the network calls they announce, counted."""

from pathlib import Path

import pytest
import torch
import yaml

import firm
from firm.baselines.catalog import BASELINES, TASKS, baseline_names, settings
from firm.networks import GradientStep, ISTANet, PriorUNet
from firm.operators import Blur, gaussian_kernel


def documented():
    """The table of settings in docs/baselines.md: (method, setting, a text for each task)."""
    page, method = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text(), ""
    for line in page[page.index("| method | setting |") :].split("\n\n")[0].splitlines()[2:]:
        name, setting, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        method = name or method
        yield method, setting.split()[0].strip("`"), [cell.split()[0] for cell in cells]


def test_the_settings_are_the_documented_ones():
    """Those for CelebA, which the page says are the published ones but for where it names those as well."""
    seen = {}
    for method, setting, cells in documented():
        for task, cell in zip(TASKS, cells, strict=True):
            found = settings(method, task)
            if cell == "-":
                assert found is None
            else:
                seen.setdefault((method, task), set()).add(setting)
                wanted = yaml.safe_load(cell)
                near = wanted if isinstance(wanted, str) else pytest.approx(wanted, rel=1e-3)
                assert found[setting] == near, (method, setting, task)
    names = {method for method, _ in seen}
    assert names == {row.method for row in BASELINES.values()} - {"ista-net"}
    assert all(settings(method, task).keys() == keys for (method, task), keys in seen.items())
    assert [settings("ista-net", task) for task in TASKS] == [None, {}, {}, {}, None]


@pytest.mark.parametrize(("method", "setting", "values"), [
    ("pnp-flow", "alpha", (0.8, 0.01, 0.01, 0.01, 0.5)), ("pnp-flow", "steps", (100, 500, 500, 200, 100)),
    ("flower", "steps", (100, 500, 500, 200, 100)), ("ot-ode", "start", (0.3, 0.3, 0.1, 0.1, 0.1)),
    ("d-flow", "outer", (3, 20, 20, 20, 9)), ("d-flow", "regularization", (0.001, 0.01, 0.001, 0.001, 0.01)),
    ("d-flow", "blend", (0.1, 0.5, 0.1, 0.1, 0.1)), ("pnp-gs", "steps", (1, 60, 50, 23)),
    ("pnp-gs", "relaxation", (1, 0.3, 1, 1)), ("pnp-gs", "factor", (1, 1.8, 5, 1)),
])  # fmt: skip
def test_large_images_have_the_settings_of_afhq(method, setting, values):
    assert [settings(method, task, 256)[setting] for task in TASKS[: len(values)]] == list(values)
    assert settings(method, "denoising", 255) == settings(method, "denoising")


def test_diffpirs_weights_are_the_published_codes():
    """Its lambda is in other units: rho = 2 lambda sigma^4 / s^2, and in denoising 2 lambda sigma^2 / s^2."""
    for task, published in zip(TASKS, (1, 1000, 100, 1), strict=False):
        sigma = firm.Task(task, 128).sigma
        expected = 2 * published * (1 if task == "denoising" else sigma**2)
        assert settings("diffpir", task)["weight"] == pytest.approx(expected)


def test_other_tasks_use_the_defaults_and_other_methods_are_refused():
    assert settings("ot-ode", "fourier") == {}
    with pytest.raises(ValueError, match=r"no settings for the method 'ddrm'; there are pnp-flow, flower, ot-ode"):
        settings("ddrm", "deblurring")


def test_rows_have_their_own_settings_beside_those_of_the_method():
    box, deblurring = firm.Task("box-inpainting", 128), firm.Task("deblurring", 128)
    done = [row.label for row in BASELINES.values() if row.settings(box) is None]
    assert done == ["PnP-GS", "PnP-HQS", "ISTA-Net", "DiffPIR"]
    assert BASELINES["flower5"].settings(box) == {"steps": 100, "averages": 5}
    assert BASELINES["pnp-flow1"].settings(deblurring) == {"alpha": 0.01, "averages": 1}
    assert BASELINES["pnp-flow5"].settings(firm.Task("deblurring", 256)) == {"alpha": 0.01, "steps": 500, "averages": 5}


def test_names_and_groups():
    assert baseline_names("all") == list(BASELINES)
    assert baseline_names("flower, ot-ode,flower1") == ["flower1", "flower5", "ot-ode"]
    with pytest.raises(ValueError, match=r"no baseline flowr, x; there are all, pnp-flow, flower, pnp-gs"):
        baseline_names("flowr,ot-ode,x")


def counted(name, values):
    """Forward and backward passes of a row for one blurred image, counted at the end of its network."""
    small = dict(side=8, ch=8, mult=(1,), blocks=1, groups=4, attention=())
    kind = GradientStep if name == "pnp-gs" else PriorUNet
    net, counts = ISTANet(3, phases=2, features=4) if name == "ista-net" else kind(3, **small), [0, 0]

    def note(module, inputs, out):
        counts[0] += 1
        if out.requires_grad:
            out.register_hook(lambda gradient: counts.__setitem__(1, counts[1] + 1))

    getattr(net, "head", net).register_forward_hook(note)
    op = Blur(gaussian_kernel(5, 0.8))
    y, generator = op.A(torch.rand(1, 3, 8, 8) * 2 - 1), torch.Generator().manual_seed(0)
    BASELINES[name].function(net.requires_grad_(False), op, y, 0.05, generator=generator, **values)
    return tuple(counts)


FEWER = {"ot-ode": dict(steps=10), "flow-priors": dict(steps=3, updates=2), "ista-net": {}}


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "d-flow"])
def test_the_announced_calls_are_made(name):
    """With the settings of deblurring but for the number of steps; of some methods as they are, and with none."""
    row = BASELINES[name]
    deblurring, fourier = (row.settings(firm.Task(task, 128)) for task in ("deblurring", "fourier"))
    full = [deblurring, fourier] if name in ("pnp-gs", "pnp-hqs", "ot-ode", "flow-priors") else []
    for values in [deblurring | FEWER.get(name, dict(steps=4)), *full]:
        calls = row.calls(values)
        assert counted(name, values) == (calls.forward, calls.backward)


def test_the_calls_in_the_papers_efficiency_table():
    task = firm.Task("deblurring", 128)
    calls = {name: row.calls(row.settings(task)) for name, row in BASELINES.items()}
    assert calls.pop("d-flow") is None  # its line search depends on the image
    paper = {"ot-ode": 180, "flow-priors": 100, "pnp-flow1": 100, "pnp-flow5": 500, "flower1": 100, "flower5": 500}
    assert {name: found.paper for name, found in calls.items() if found.paper is not None} == paper
