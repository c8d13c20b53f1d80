"""A noise model takes the place of the noise level: in sampling, in what networks see, in recordings; refusals."""

import pytest
import torch
from helpers import rand, recordable, stirred

import firm
from firm.networks.res_unet import ResUNet
from firm.noise import Gaussian, Poisson, PoissonGaussian
from firm.operators import Fourier, Identity, Mask

EXTRA = ("previous", "context", "iteration")


def network(extra=EXTRA, noise_level=True):
    torch.manual_seed(1)
    return stirred(ResUNet(3, widths=(8, 16), blocks=1, noise_level=noise_level, extra=extra), 0.08)


@pytest.fixture(scope="module")
def model():
    return firm.Firm(network((*EXTRA, "noise")), firm.Solver(K=2, output="correction")).eval()


def problem(seed=0):
    op, x = Mask((rand(2, 1, 16, 16, seed=seed) < 0.6).float()), rand(2, 3, 16, 16, seed=seed + 1) * 2 - 1
    noise = Poisson(torch.tensor([0.05, 0.1])).on(op, op.A(x), x)
    return op, noise.draw(op.A(x), torch.Generator().manual_seed(seed))


def run(model, sigma, op, y):
    return firm.sample(model, op, y, 2, sigma=sigma, generator=torch.Generator().manual_seed(0))


def test_gaussian_noise_of_one_level_is_a_noise_level_to_the_bit(model):
    op, y = problem()
    for sigma in (0.1, torch.tensor([0.1, 0.2])):
        assert torch.equal(run(model, Gaussian(sigma), op, y), run(model, sigma, op, y))


def test_a_network_that_sees_the_noise_starts_as_one_that_does_not(model):
    """With zeros for the new input it gives the same to the bit, whatever the noise."""
    plain = firm.Firm(network(), model.solver).eval()
    seeing = firm.Firm(ResUNet(3, widths=(8, 16), blocks=1, noise_level=True, extra=(*EXTRA, "noise")), model.solver)
    weights = dict(plain.estimator.state_dict())
    stem = weights["stem.conv.weight"]
    weights["stem.conv.weight"] = torch.cat([stem, torch.zeros_like(stem[:, :3])], 1)
    seeing.estimator.load_state_dict(weights)
    op, y = problem()
    for noise in (0.1, Poisson(0.05)):
        torch.testing.assert_close(run(seeing.eval(), noise, op, y), run(plain, noise, op, y), rtol=1e-5, atol=1e-5)


def test_what_reaches_the_network(model):
    """The last image is where it is how noisy, the number beside the time the level."""
    seen = []

    class Spy(torch.nn.Module):
        config = model.estimator.config

        def forward(self, *inputs):
            seen.append(inputs)
            return torch.zeros_like(inputs[0])

    op, y = problem()
    noise = Poisson(0.05)
    bound = noise.on(op, y, y)
    run(firm.Firm(Spy(), model.solver), noise, op, y)
    image, level = seen[0][5], seen[0][7]
    torch.testing.assert_close(image, bound.relative(op, y, y))
    torch.testing.assert_close(level, bound.level(y))
    assert image.abs().max() > 0.1
    run(firm.Firm(Spy(), model.solver), 0.1, op, y)
    assert not seen[-1][5].any()


@pytest.mark.parametrize("K", [0, 2])
def test_models_that_are_told_no_level_solve_for_the_noise_all_the_same(K):
    net = network((), noise_level=False)
    blind = firm.Firm(net, firm.Solver(K=K, output="correction")).eval()
    op, y = problem()
    found, plain = run(blind, Poisson(0.05), op, y), run(blind, None, op, y)
    assert torch.equal(found, plain) == (K == 0)  # K = 0 has no solver


def test_samples_of_a_batch_are_those_of_its_images(model):
    op, y = problem()
    together = firm.restore(model, op, y, 1, samples=2, seed=1, sigma=Poisson(torch.tensor([0.05, 0.1])))
    for i, gain in enumerate((0.05, 0.1)):
        alone = firm.sample(
            model, Mask(op.mask[i : i + 1]), y[i : i + 1], 1, sigma=Poisson(gain), x_0=start(together, y)[i : i + 1]
        )
        torch.testing.assert_close(together.samples[1, i : i + 1], alone, rtol=1e-4, atol=1e-5)


def start(result, y):
    """The noise that the second sample began with."""
    generator = torch.Generator().manual_seed(1)
    torch.randn(y.shape, generator=generator)
    return torch.randn(y.shape, generator=generator)


def noises(seed, y):
    gain = 0.05 + 0.02 * seed
    return {
        "poisson": Poisson(gain), "one each": Poisson(torch.tensor([gain, 0.03])),
        "camera": PoissonGaussian(torch.full((3, 1, 1), gain), 0.05),
        "map": Gaussian(0.1 + rand(*y.shape[1:], seed=seed)),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["poisson", "one each", "camera", "map"])
@pytest.mark.parametrize("key", ["identity", "masks", "blur", "valid blur", "subsample", "repeated"])
def test_a_recording_serves_all_noise_of_one_kind(model, as_on_a_gpu, key, kind):
    quick, waits = firm.fast(model, "float32"), (key, kind) == ("blur", "map")
    for seed in range(3):
        op, y = recordable(seed)[key]
        y = y.clamp(min=-1 if key != "valid blur" else -0.99) * (op.A(torch.ones(2, 3, 32, 32)) > 0)
        given = dict(sigma=noises(seed, y)[kind], x_0=torch.randn(2, 3, 32, 32))
        found = firm.sample(quick, op, y, 2, **given)
        torch.testing.assert_close(found, firm.sample(model, op, y, 2, **given), rtol=1e-3, atol=1e-3)
    assert bool(quick.recordings.kept) != waits  # conjugate gradients that look at their residual are not recorded
    assert waits or len(as_on_a_gpu) == 1


def test_wrong_use_is_refused_in_words(model):
    y = rand(2, 3, 16, 16) * 2 - 1
    fourier = Fourier((rand(16, 16) < 0.5).float())
    for op, given, noise, message in (
        (Identity(), y - 0.5, Poisson(0.1), "below black.*negative counts of photons"),
        (Identity(), 1000 * y.abs(), Poisson(0.1), "images in"),
        (fourier, fourier.A(y), Poisson(0.1), "noise of real measurements, and these are complex"),
        (fourier, fourier.A(y), PoissonGaussian(0.1, 0.1), "noise of real measurements"),
        (Identity(), y, Poisson(torch.tensor([0.1, 0.2, 0.3])), r"gain has shape \(3,\), the measurements"),
        (Identity(), y, Gaussian(torch.ones(4, 16)), "sigma has shape"),
        (Identity(), y, Gaussian(0.1, torch.ones(8, 8)), "spectrum"),
    ):
        with pytest.raises(ValueError, match=message):
            firm.sample(model, op, given, 1, sigma=noise)
    assert firm.sample(model, Identity(), y - 0.5, 1, sigma=PoissonGaussian(0.1, 0.2)).isfinite().all()  # read noise


def test_a_noise_model_of_what_is_not_linear_is_refused():
    """The solve of a nonlinear operator knows a level alone."""
    y = torch.zeros(1, 3, 16, 16)
    with pytest.raises(ValueError, match="not linear"):
        firm.prepare(None, firm.operators.Clipping(), y, firm.noise.Poisson(0.1))
    assert firm.prepare(None, firm.operators.Clipping(), y, 0.1).noise == 0.1
