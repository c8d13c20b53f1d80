import pytest
import torch
from helpers import randn, relative_error, stirred

import firm
from firm.operators import (
    Blur,
    Identity,
    Mask,
    Subsample,
    data_consistency,
    from_functions,
    gaussian_kernel,
    random_mask,
)


def linear(x, x_t, t):
    """An estimator with a known answer."""
    return 0.6 * x + 0.3 * x_t + t[:, None, None, None]


def problem(batch=2):
    g = torch.Generator().manual_seed(0)
    x_t, y = torch.randn(2, batch, 3, 8, 8, generator=g)
    return Mask(random_mask((8, 8), 0.5, g)), x_t, torch.linspace(0.1, 0.9, batch), y


@pytest.mark.parametrize("output", ["direct", "correction"])
def test_is_algorithm_3_line_by_line(output):
    op, x_t, t, y = problem()
    rho, beta = 0.05, 0.3
    z = x_t
    for _ in range(4):
        m = op.mask
        x = (m * y + rho * z) / (m * m + rho)
        z_hat = linear(x, x_t, t) + (x if output == "correction" else 0)
        z = (1 - beta) * x + beta * z_hat
    result = firm.posterior_mean(linear, op, x_t, t, y, K=4, rho=rho, beta=beta, output=output)
    torch.testing.assert_close(result, z)


def test_the_callback_sees_every_iterate():
    op, x_t, t, y = problem()
    seen = []
    z = firm.posterior_mean(linear, op, x_t, t, y, callback=lambda k, x, z: seen.append((k, x, z)))
    assert [k for k, _, _ in seen] == [1, 2, 3, 4, 5]
    assert torch.equal(seen[-1][2], z)
    torch.testing.assert_close(seen[1][1], data_consistency(op, seen[0][2], y, 0.01))


def test_flow_only_is_one_call_on_the_adjoint():
    op, x_t, t, y = problem()
    adjoint = op.A_adjoint(y)
    answer = linear(adjoint, x_t, t)
    torch.testing.assert_close(firm.flow_only(linear, op, x_t, t, y), answer)
    torch.testing.assert_close(firm.flow_only(linear, op, x_t, t, y, output="correction"), adjoint + answer)


OPERATORS = {
    "identity": Identity(),
    "mask": Mask(random_mask((8, 8), 0.5, torch.Generator().manual_seed(0))),
    "subsample": Subsample(2),
    "blur": Blur(gaussian_kernel(5, 1.0)),
    "general": from_functions(lambda x: x.cumsum(-1) / 4, image_shape=(3, 8, 8)),
}


@pytest.mark.parametrize("op", OPERATORS.values(), ids=OPERATORS.keys())
def test_differentiates_through_all_iterations(op):
    """Against a numerical derivative along a random direction of the weights, in float64."""
    net = stirred(firm.UNet(3, side=8, ch=4, mult=(1, 2), blocks=1, groups=2, attention=()).double(), 0.3)
    params, x_t = list(net.parameters()), randn(1, 3, 8, 8)
    y, direction = op.A(randn(1, 3, 8, 8, seed=1)), [torch.randn_like(p) for p in params]

    def value():
        return firm.posterior_mean(net, op, x_t, 0.4, y).square().mean()

    gradients, values = torch.autograd.grad(value(), params), []
    for step in (1e-6, -2e-6):
        torch._foreach_add_([p.data for p in params], direction, alpha=step)
        values.append(float(value().detach()))
    along = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
    assert along == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5)


def test_the_batch_order_does_not_change_a_sample():
    op, x_t, t, y = problem(batch=4)
    order = torch.tensor([3, 1, 0, 2])
    z = firm.posterior_mean(linear, op, x_t, t, y)
    torch.testing.assert_close(firm.posterior_mean(linear, op, x_t[order], t[order], y[order]), z[order])
    one = firm.posterior_mean(linear, op, x_t[2:3], t[2:3], y[2:3])
    assert relative_error(one, z[2:3]) < 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"K": 0}, "need K >= 1"),
        ({"beta": 1.5}, r"beta in \[0, 1\], got 5 and 1.5"),
        ({"output": "residual"}, '"direct" or "correction"'),
        ({"t": torch.zeros(3)}, r"one per sample, \(2,\), got shape \(3,\)"),
    ],
)
def test_wrong_settings(settings, message):
    op, x_t, t, y = problem()
    arguments = {"t": t, **settings}
    with pytest.raises(ValueError, match=message):
        firm.posterior_mean(linear, op, x_t, y=y, **arguments)


def test_an_estimate_of_another_shape_is_not_broadcast():
    x = torch.zeros(2, 3, 4, 4)
    for output in ("direct", "correction"):
        with pytest.raises(ValueError, match=r"returned \(2, 1, 4, 4\), where the images are \(2, 3, 4, 4\)"):
            firm.posterior_mean(lambda a, *_: a[:, :1], Identity(), x, 0.0, x, output=output)
