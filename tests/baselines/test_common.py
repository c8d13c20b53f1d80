"""What all baselines have in common: batches, seeds, progress, and errors before any work."""

import pytest
import torch

from firm.baselines import as_denoiser
from firm.networks import PriorUNet
from firm.operators import Fourier, Identity, Mask
from flow_helpers import METHODS, network_for, operator_on, seeds

SIDE, CHANNELS, SIGMA = 8, 2, 0.15
SHAPE = (CHANNELS, SIDE, SIDE)
DRAWS_NOTHING = ("pnp_hqs", "pnp_gs")


def operator(name):
    return operator_on(name, SIDE, CHANNELS)


@pytest.fixture(scope="module")
def nets():
    return {name: network_for(name, CHANNELS) for name in METHODS}


def measured(op, batch=1):
    g = torch.Generator().manual_seed(5)
    return op.A(torch.rand(batch, *SHAPE, dtype=torch.float64, generator=g) * 2 - 1) + SIGMA / 2


@pytest.mark.parametrize("operator_name", ["matrix", "blur", "subsample", "masks"])
@pytest.mark.parametrize("name", METHODS)
def test_an_images_result_does_not_depend_on_its_batch(name, operator_name, nets):
    method, settings = METHODS[name]
    op = operator(operator_name)
    y = measured(op, 3)
    together = method(nets[name], op, y, SIGMA, generator=seeds(3, 4, 5), **settings)
    op = Mask(op.mask[1:2]) if operator_name == "masks" else op
    alone = method(nets[name], op, y[1:2], SIGMA, generator=seeds(4), **settings)
    torch.testing.assert_close(together[1:2], alone, rtol=1e-7, atol=1e-8)
    assert (together[0] - together[1]).abs().max() > 0.05


@pytest.mark.parametrize("name", METHODS)
def test_a_seed_is_a_result_and_another_seed_another(name, nets):
    method, settings = METHODS[name]
    op = operator("mask" if name == "i2sb" else "blur")
    y = measured(op, 2)
    one, again, other = (
        method(nets[name], op, y, SIGMA, generator=seeds(*s), **settings) for s in ((3, 4), (3, 4), (5, 6))
    )
    assert torch.equal(one, again)
    assert torch.equal(one, other) == (name in DRAWS_NOTHING)
    assert not one.requires_grad


@pytest.mark.parametrize("name", METHODS)
def test_the_callback_sees_every_step(name, nets):
    method, settings = METHODS[name]
    op, seen = operator("mask"), []
    got = method(nets[name], op, measured(op, 2), SIGMA, generator=seeds(3, 4), **settings,
                 callback=lambda *row: seen.append((*row[:2], row[2].clone())))  # fmt: skip
    total = 6 if name == "flower" else 3
    assert [row[:2] for row in seen] == [(i + 1, total) for i in range(total)]
    assert all(row[2].shape == got.shape for row in seen)
    last = (seen[2][2] + seen[5][2]) / 2 if name == "flower" else seen[-1][2]  # Flower averages its runs
    torch.testing.assert_close(last, got, rtol=1e-6, atol=1e-7)
    assert (seen[0][2] - seen[-1][2]).abs().max() > 1e-3


@pytest.mark.parametrize("name", METHODS)
def test_single_precision_and_complex_measurements(name, nets):
    method, settings = METHODS[name]
    net = network_for(name, CHANNELS, torch.float32)
    op = Fourier(operator("mask").mask.float())
    y = op.A(torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(5)))
    assert y.is_complex()
    x = method(net, op, y, SIGMA, generator=seeds(1, 2), **settings)
    assert (x.dtype, x.shape, x.requires_grad) == (torch.float32, (2, *SHAPE), False)
    assert x.isfinite().all()


@pytest.mark.parametrize("name", ["pnp_flow", "pnp_hqs", "pnp_gs", "d_flow", "flow_priors", "i2sb"])
def test_measurements_without_noise_are_restored(name, nets):
    method, settings = METHODS[name]
    op = operator("blur")
    assert method(nets[name], op, measured(op), 0.0, generator=seeds(1), **settings).isfinite().all()


@pytest.fixture
def idle():
    """A network that must not be called."""

    class Idle(PriorUNet):
        def forward(self, *inputs):
            raise AssertionError("work was done")

    return Idle(CHANNELS, side=SIDE, ch=8, mult=(1, 2), blocks=1, groups=4, attention=())


@pytest.mark.parametrize("name", METHODS)
def test_wrong_measurements_are_refused(name, idle):
    method, settings = METHODS[name]
    net = as_denoiser(idle) if name in ("pnp_hqs", "diffpir") else idle
    y = torch.zeros(1, *SHAPE)
    broken = y.clone()
    broken[0, 0, 1, 1] = float("nan")
    cases = [
        (broken, 0.1, r"1 values of y.*NaN"),
        (y, -0.1, r"sigma, the noise level.*-0\.1"),
        (y, float("nan"), "sigma, the noise level"),
        (torch.zeros(1, 3, SIDE, SIDE), 0.1, r"images \(B, 2, H, W\).*\(1, 3, 8, 8\)"),
        (torch.zeros(1, CHANNELS, SIDE, 7), 0.1, "multiples of 2, .* 8x7"),
    ]
    if name in ("flower", "ot_ode", "diffpir"):
        cases.append((y, 0.0, f"{name}: sigma, the noise level of y, must be positive"))
    for wrong, sigma, message in cases:
        with pytest.raises(ValueError, match=message):
            method(net, Identity(), wrong, sigma, **settings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("pnp_flow", [dict(steps=0), dict(averages=0)]),
        ("flower", [dict(steps=0), dict(averages=-1), dict(gamma=2)]),
        ("ot_ode", [dict(steps=0), dict(start=0.0), dict(start=1.0), dict(schedule="linear")]),
        ("pnp_hqs", [dict(steps=0), dict(weight=0.0), dict(first=0.0)]),
        ("diffpir", [dict(steps=0), dict(weight=-1.0), dict(zeta=1.5)]),
        ("pnp_gs", [dict(steps=0), dict(step_length=0.0), dict(relaxation=1.5), dict(factor=0.0)]),
        ("d_flow", [dict(sign="wrong"), dict(outer=0), dict(inner=0), dict(blend=1.5), dict(regularization=-1)]),
        ("flow_priors", [dict(steps=0), dict(updates=0)]),
        ("i2sb", [dict(steps=0), dict(steps=1000), dict(beta_max=0.0)]),
    ],
)
def test_wrong_settings_are_refused(name, settings, idle):
    for wrong in settings:
        with pytest.raises(ValueError, match=rf"{name}: .*{next(iter(wrong))}"):
            METHODS[name][0](idle, Identity(), torch.zeros(1, *SHAPE), 0.1, **wrong)
