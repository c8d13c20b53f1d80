"""Nothing that is not finite comes out without a word, and measurements of the wrong kind do not go in."""

import numpy as np
import pytest
import torch
from helpers import Shrink
from torch import nn

import firm
from firm.operators import Blur, Downsample, Fourier, Identity, Mask, Subsample, from_functions, gaussian_kernel

TINY = dict(side=16, ch=8, mult=(1, 2), blocks=1, groups=4, attention=())
IMAGE = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1


def model(**settings):
    return firm.Firm(firm.UNet(1, noise_level=True, **TINY), firm.Solver(K=1), **settings).requires_grad_(False).eval()


class Broken(Identity):
    """A closed form that fails."""

    def prox_l2(self, z, y, gamma):
        return z * float("nan")


def both(*args, **kwargs):
    return [lambda: firm.sample(*args, **kwargs), lambda: firm.restore(*args, **kwargs)]


NOISE, FLOATS = "sigma, the noise level, must be finite and at least 0", "y must be a torch tensor of floats .*, got"
KIND = r"op must be an operator, with A\(x\).* but is of type"


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        *((NOISE, {"sigma": s}) for s in (float("nan"), float("inf"), -0.1, "much")),
        *((NOISE, {"sigma": torch.tensor(s)}) for s in ([0.1, float("nan")], [0.1, -1.0])),
        *(
            (FLOATS, {"y": y})
            for y in (np.zeros((1, 1, 16, 16), np.float32), IMAGE.byte(), IMAGE.long(), [[0.0]], None)
        ),
        ("y must be a dense tensor", {"y": IMAGE.to_sparse()}),
        (f"{KIND} function:.*from_functions", {"op": lambda x: x}),
        (f"{KIND} Identity:", {"op": nn.Identity()}),
        (f"{KIND} Tensor:", {"op": torch.eye(4)}),
        (r"Identity\(\): 512 values of y, .* are NaN", {"y": IMAGE * float("nan")}),
        ("y holds no measurements", {"y": IMAGE[:0]}),
        ("A'y is complex.*as_real", {"y": IMAGE + 0j}),
        ("got a NumPy array", {"op": from_functions(lambda x: x.numpy(), lambda y: y)}),
        ("2 measurements .* for 1 images", {"op": from_functions(lambda x: x.repeat(2, 1, 1, 1), lambda y: y[:1])}),
        *(("steps must be a whole number of at least 1", {"steps": N}) for N in (0, 1.5)),
        ("one of euler, midpoint, heun, churn", {"integrator": "rk4"}),
    ],
)
def test_what_is_no_input_is_refused_in_words(message, wrong):
    for call in both(model(), **{"op": Identity(), "y": IMAGE, "sigma": 0.1, **wrong}):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_in_half_precision_is_told_of_fast(dtype):
    for call in both(model().to(dtype), Identity(), IMAGE, sigma=0.1):
        with pytest.raises(ValueError, match=rf"its weights are {dtype}, its inputs torch.float32.*firm\.fast"):
            call()


def test_another_default_device_changes_nothing():
    m = model()
    image = firm.restore(m, Identity(), IMAGE, sigma=0.1).image
    with torch.device("meta"):
        assert torch.equal(firm.restore(m, Identity(), IMAGE, sigma=0.1).image, image)
        assert torch.equal(firm.restore(firm.tiled(m), Identity(), IMAGE, sigma=0.1).image, image)


def test_a_prox_that_fails():
    for call in both(model(), Broken(), IMAGE, sigma=0.1):
        with pytest.raises(ValueError, match=r"512 of the 512 values .* are NaN.*data-consistency step of Broken\(\)"):
            call()


def test_a_network_that_fails():
    m = model()
    m.estimator.head.conv.bias.fill_(float("inf"))
    for call in both(m, Identity(), IMAGE, sigma=0.1):
        with pytest.raises(ValueError, match=r"values of the restored images \(2, 1, 16, 16\) are NaN or infinite"):
            call()


OPERATORS = {
    "identity": Identity(),
    "few pixels": Mask((torch.arange(256) % 20 == 0).float().reshape(16, 16)),
    "blur": Blur(gaussian_kernel(9, 2.0)),
    "subsample": Subsample(4),
    "downsample": Downsample(2),
    "fourier": Fourier((torch.arange(256) % 6 == 0).float().reshape(16, 16)),
    "faint": from_functions(lambda x: 1e-4 * x, lambda y: 1e-4 * y),
    "loud": from_functions(lambda x: 1e4 * x, lambda y: 1e4 * y),
    "sums": from_functions(lambda x: x.cumsum(-1), image_shape=(1, 16, 16)),
}


@pytest.mark.filterwarnings("ignore:the norm of A")
@pytest.mark.parametrize("name", OPERATORS)
def test_the_range_of_the_images_is_seen_through_any_operator(name):
    op, m = OPERATORS[name], model()
    for sigma in (0.0, 0.5):  # of the images
        y = op.A(IMAGE)
        noise = sigma * y.abs().square().mean().sqrt()
        y = y + noise * torch.randn_like(y)
        assert firm.sample(m, op, y, 1, sigma=float(noise)).isfinite().all()
    pictures = (IMAGE + 1) * 127.5
    for bad in (op.A(pictures), op.A(1e30 * IMAGE)):
        for call in both(m, op, bad, sigma=0.1 if name != "faint" else 1e-6):
            with pytest.raises(ValueError, match=r"must be a torch tensor of floats with images in \[-1, 1\]"):
                call()


def test_pure_noise_is_no_picture_of_255():
    """A strong noise over a faint operator is not taken for a wrong range."""
    y = torch.randn(2, 1, 16, 16)
    assert firm.sample(model(), OPERATORS["faint"], y, 1, sigma=1.0).isfinite().all()
    assert firm.sample(model(), Identity(), torch.zeros(1, 1, 16, 16), 1, sigma=1.0).isfinite().all()


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (Identity(), torch.float64),
        (Mask(torch.eye(16)), torch.float16),
        (Blur(gaussian_kernel(5, 1.0)), torch.bfloat16),
        (OPERATORS["fourier"], torch.complex128),
    ],
    ids=str,
)
def test_other_precisions_become_that_of_the_weights(op, dtype):
    m, y = model(), op.A(IMAGE)
    given, converted = y.to(dtype), y.to(dtype).to(y.dtype)
    found, wanted = (firm.restore(m, op, v, samples=2, sigma=0.1).samples for v in (given, converted))
    assert found.dtype == torch.float32
    assert torch.equal(found, wanted)
    x_0 = torch.randn(IMAGE.shape)
    a, b = (firm.sample(m, op, v, sigma=0.1, x_0=x_0) for v in (given, converted))
    assert torch.equal(a, b)


def test_a_model_in_double_precision_stays_so():
    m = model().double()
    assert firm.restore(m, Identity(), IMAGE, sigma=0.1).image.dtype == torch.float64


def test_weights_that_are_not_finite_are_refused(tmp_path):
    for value, dtype in ((float("nan"), torch.float32), (float("inf"), torch.float32), (1e6, torch.float16)):
        m = model()
        m.estimator.head.conv.weight.view(-1)[5] = value
        m.save(tmp_path / "m.safetensors", dtype)
        for load in (firm.load, firm.load_network):
            with pytest.raises(ValueError, match=r"m\.safetensors: 1 of the 72 weights 'head\.conv\.weight' are NaN"):
                load(tmp_path / "m.safetensors")


def test_the_checks_cost_six_applications_of_a():
    """One for shapes and values, and five power iterations for a norm that is not known."""
    calls = []
    op = from_functions(lambda x: calls.append(1) or x, lambda y: y)
    op.prox_l2 = lambda z, y, gamma: (gamma * y + z) / (gamma + 1)
    firm.sample(firm.Firm(Shrink(), firm.Solver(K=3)), op, IMAGE, 4)
    assert len(calls) == 6
