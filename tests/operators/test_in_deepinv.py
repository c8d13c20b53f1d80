"""Inside the real deepinv: our operators and models in its algorithms and evaluation; and where it is not installed."""

import gc
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from helpers import Shrink, dense_solve, rand, relative_error

import firm
from firm.data import portrait
from firm.metrics import psnr, ssim
from firm.operators import (
    Blur,
    Identity,
    Mask,
    Subsample,
    as_deepinv,
    data_consistency,
    from_deepinv,
    from_functions,
    gaussian_kernel,
)
from firm.restoration import as_reconstructor

dinv = pytest.importorskip("deepinv")
P = dinv.physics


@pytest.fixture(scope="module")
def model():
    return firm.load("face-128")


SIZE, NOISE = (3, 64, 64), P.GaussianNoise


def face():
    """The middle of the portrait."""
    return portrait()[..., 32:96, 32:96]


def inpainting():
    return P.Inpainting(SIZE, mask=0.3, pixelwise=True, noise_model=NOISE(0.005), rng=torch.Generator().manual_seed(0))


# The PSNR in dB that face-128 must reach with N = 2; it reaches 0.2 to 0.4 more.
FACES = {
    "inpainting": (inpainting, 31.0),
    "deblurring": (
        lambda: P.BlurFFT(SIZE, filter=gaussian_kernel(61, 1.0)[None, None], noise_model=NOISE(0.025)),
        31.8,
    ),
    "decimation": (lambda: P.Downsampling(SIZE, filter=None, noise_model=NOISE(0.005)), 30.8),
    "denoising": (lambda: P.Denoising(NOISE(0.1)), 30.8),
}


@pytest.mark.parametrize("name", FACES)
def test_quality_on_a_face(name, model):
    make, floor = FACES[name]
    physics, truth = make(), face()
    torch.manual_seed(1)  # not the seed that `restore` starts from
    y = physics((truth + 1) / 2)
    op = from_deepinv(physics)
    restored = firm.restore(model, op, op.measurement(y), sigma=op.sigma).image
    assert float(psnr(restored, truth)) > floor
    if name == "inpainting":  # the same problem without deepinv
        own = firm.restore(model, Mask(physics.mask[0]), physics.mask * (2 * y - 1), sigma=0.01).image
        torch.testing.assert_close(restored, own, rtol=0, atol=1e-5)
    metrics = [m(op.image(restored), (truth + 1) / 2) for m in (dinv.metric.PSNR(), dinv.metric.SSIM())]
    torch.testing.assert_close(
        torch.cat(metrics), torch.cat([psnr(restored, truth), ssim(restored, truth)]), rtol=1e-5, atol=1e-6
    )


OPERATORS = {
    "mask": lambda: Mask(rand(8, 8).round()),
    "blur": lambda: Blur(gaussian_kernel(5, 1.0)),
    "subsample": lambda: Subsample(2),
    "functions": lambda: from_functions(lambda x: x.cumsum(-1) / 8, image_shape=(1, 8, 8)),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("algorithm", ["PGD", "ADMM", "HQS"])
def test_our_operators_in_deepinvs_algorithms(name, algorithm):
    """With a Tikhonov prior each has a solution in closed form."""
    op, weight, step = OPERATORS[name](), 0.5, 0.8
    physics = as_deepinv(op)
    y = op.A(rand(2, 1, 8, 8))
    solver = getattr(dinv.optim, algorithm)(
        data_fidelity=dinv.optim.L2(), prior=dinv.optim.Tikhonov(), lambda_reg=weight, stepsize=step, max_iter=150
    )
    found = solver(y, physics)
    if algorithm == "HQS":  # minimizes over u and x with the coupling |u - x|^2 / (2 step)
        expected = dense_solve(op, torch.zeros_like(found), y, weight / (1 + weight * step)) / (1 + weight * step)
    else:
        expected = dense_solve(op, torch.zeros_like(found), y, weight)
    assert relative_error(found, expected) < 1e-4


def test_what_a_physics_of_ours_offers():
    op = Subsample(2)
    physics = as_deepinv(op, sigma=0.3, img_size=(1, 8, 8))
    x = rand(2, 1, 8, 8)
    y = physics(x)
    assert isinstance(physics, P.LinearPhysics)
    assert float((y - op.A(x)).std()) == pytest.approx(0.3, rel=0.4)
    assert float(physics.adjointness_test()) < 1e-5
    torch.testing.assert_close(physics.A_vjp(x, y), op.A_adjoint(y))
    torch.testing.assert_close(physics.A_dagger(y), op.A_adjoint(y))
    z = rand(2, 1, 8, 8, seed=1)
    for gamma in (3.0, torch.tensor(3.0), torch.tensor([3.0]), torch.full((2,), 3.0), torch.full((2, 1, 1, 1), 3.0)):
        torch.testing.assert_close(physics.prox_l2(z, y, gamma), op.prox_l2(z, y, 3.0))
    torch.testing.assert_close(physics.prox_l2(None, y, 3.0), op.prox_l2(0 * z, y, 3.0))
    back = from_deepinv(physics)
    assert back.sigma == pytest.approx(0.6)
    torch.testing.assert_close(data_consistency(back, z, y, 0.1), data_consistency(op, z, y, 0.1))

    def shift(x):
        return x.roll(1, -1)

    inverse = as_deepinv(from_functions(shift, image_shape=(1, 8, 8)))
    assert inverse.img_size == (1, 8, 8)
    torch.testing.assert_close(inverse.A_dagger(shift(x)), x, rtol=1e-3, atol=1e-3)
    wrong = as_deepinv(from_functions(shift, shift))
    with pytest.raises(ValueError, match="A_adjoint is not the adjoint of A"):
        wrong.prox_l2(z, x, 1.0)


def test_a_model_in_deepinvs_evaluation(model):
    truth = (face() + 1) / 2
    physics = inpainting()
    x = torch.cat([truth, truth.flip(-1)])
    y = physics(x)
    reconstructor = as_reconstructor(model, steps=1)
    pairs = torch.utils.data.DataLoader([{"x": a, "y": b} for a, b in zip(x, y, strict=True)], batch_size=2)
    results = dinv.test(
        reconstructor, pairs, physics, verbose=False, show_progress_bar=False, non_blocking_transfers=False
    )
    assert results["PSNR"] > 31
    assert results["PSNR no learning"] < 10
    one = reconstructor(y[1:], physics)
    op = from_deepinv(physics)
    torch.testing.assert_close(
        one, op.image(firm.restore(model, op, op.measurement(y[1:]), steps=1, sigma=op.sigma).image), rtol=0, atol=1e-5
    )


def test_a_reconstructor_does_not_depend_on_the_batch_and_follows_the_physics():
    sizes = []

    class Watch(Shrink):
        config = {"noise_level": True}  # noqa: RUF012

        def forward(self, x, x_t, t, sigma):
            sizes.append(sigma)
            return super().forward(x, x_t, t) + 0.1 * sigma[:, None, None, None]

    reconstructor = as_reconstructor(firm.Firm(Watch()), steps=1)
    physics = P.Inpainting((1, 8, 8), mask=rand(3, 1, 8, 8).round())
    y = physics(rand(3, 1, 8, 8))
    both = reconstructor(y, physics)
    assert float(sizes[0][0]) == pytest.approx(0.01)  # assumed: 0.005 of [0, 1]
    mask = physics.mask
    for i in range(3):
        physics.update(mask=mask[i : i + 1])
        torch.testing.assert_close(reconstructor(y[i : i + 1], physics), both[i : i + 1])
    denoising = P.Denoising(P.GaussianNoise(0.1))
    reconstructor(y, denoising)
    assert float(sizes[-1][0]) == pytest.approx(0.2)
    assert len(reconstructor._known) == 2
    del denoising
    gc.collect()
    assert len(reconstructor._known) == 1  # a physics is not kept alive
    with pytest.raises(ValueError, match="Haze is not a linear physics"):
        reconstructor(y, P.Haze())
    mri = P.MRI(img_size=(8, 8))
    assert reconstructor(mri(rand(1, 2, 8, 8)), mri).shape == (1, 2, 8, 8)


def test_without_deepinv(monkeypatch):
    from firm.operators import interop
    from firm.restoration import reconstructor

    interop._physics_class.cache_clear()
    reconstructor._reconstructor_class.cache_clear()
    monkeypatch.setitem(sys.modules, "deepinv", None)
    for call in (lambda: from_deepinv(Identity()), lambda: as_deepinv(Identity()), lambda: as_reconstructor(None)):
        with pytest.raises(ImportError, match="pip install deepinv"):
            call()


def test_with_a_torchvision_that_does_not_load(monkeypatch, tmp_path):
    (tmp_path / "deepinv.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "deepinv")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="built for CUDA while torch was not"):
        from_deepinv(Identity())


def test_the_declarations_of_the_docs_are_enough():
    if torch._C._dispatch_has_kernel_for_dispatch_key("torchvision::nms", "CPU"):
        pytest.skip("this torchvision loads by itself")
    page = (Path(__file__).parents[2] / "docs" / "deepinv.md").read_text()
    (program,) = re.findall(r"```python notest\n(.*?)```", page, re.DOTALL)
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_reconstructor_notices_noise_of_its_seed():
    physics = P.Denoising(NOISE(0.1))
    for seed, same in ((3, True), (4, False)):
        torch.manual_seed(3)
        y = physics(rand(*SIZE)[None])
        with pytest.warns(UserWarning, match="resembles the noise that seed=3") if same else nullcontext():
            as_reconstructor(firm.Firm(Shrink()), steps=1, seed=seed)(y, physics)
