"""Against the real deepinv: its physics in FIRM."""

import pytest
import torch
from helpers import Shrink, rand, relative_error

import firm
from firm.operators import Blur, Identity, as_deepinv, data_consistency, from_deepinv, from_functions, nonlinear

dinv = pytest.importorskip("deepinv")
P = dinv.physics
BOX = torch.ones(1, 1, 3, 3) / 9


def rng():
    return torch.Generator().manual_seed(0)


def coils():
    g = rng()
    return torch.complex(torch.randn(1, 3, 12, 12, generator=g), torch.randn(1, 3, 12, 12, generator=g)) / 2


PHYSICS = {  # name: how to make it, the shape of an image, whether its prox is a formula
    "denoising": (lambda: P.Denoising(P.GaussianNoise(0.1)), (3, 8, 8), True),
    "inpainting": (lambda: P.Inpainting((3, 8, 8), mask=0.5, rng=rng()), (3, 8, 8), True),
    "one mask a sample": (lambda: P.Inpainting((1, 8, 8), mask=rand(3, 1, 8, 8).round()), (1, 8, 8), True),
    "demosaicing": (lambda: P.Demosaicing((3, 8, 8)), (3, 8, 8), True),
    "blur, valid": (lambda: P.Blur(filter=BOX, padding="valid"), (3, 8, 8), False),
    "blur, FFT": (lambda: P.BlurFFT((3, 8, 8), filter=BOX), (3, 8, 8), True),
    "downsampling, no filter": (lambda: P.Downsampling((3, 8, 8), filter=None), (3, 8, 8), False),
    "downsampling, bicubic": (lambda: P.Downsampling((1, 16, 16), filter="bicubic"), (1, 16, 16), True),
    "downsampling, valid": (lambda: P.Downsampling((1, 16, 16), filter=BOX, padding="valid"), (1, 16, 16), False),
    "MRI": (lambda: P.MRI(mask=rand(12, 12).round()), (2, 12, 12), True),
    "multi-coil MRI": (lambda: P.MultiCoilMRI(mask=rand(12, 12).round(), coil_maps=coils()), (2, 12, 12), False),
    "tomography": (lambda: P.Tomography(6, 12, normalize=True), (1, 12, 12), False),
    "compressed sensing": (lambda: P.CompressedSensing(20, (1, 8, 8), rng=rng()), (1, 8, 8), False),
    "single-pixel camera": (lambda: P.SinglePixelCamera(20, (1, 8, 8)), (1, 8, 8), True),
    "two in a row": (
        lambda: P.Blur(filter=BOX, padding="circular") * P.Blur(filter=BOX, padding="valid"),
        (3, 8, 8),
        False,
    ),
}


@pytest.fixture(params=PHYSICS)
def case(request):
    make, image_shape, closed_form = PHYSICS[request.param]
    shape = (3 if request.param == "one mask a sample" else 2, *image_shape)
    return make(), shape, closed_form


def matrices(A, shape):
    """One matrix a sample, (B, m, n), from deepinv's own A, in float64."""
    B, n = shape[0], torch.Size(shape[1:]).numel()
    columns = [A(e.expand(B, n).reshape(shape)).flatten(1) for e in torch.eye(n)]
    return torch.stack(columns, dim=2).double()


def dense_operator(matrix, image_shape):
    return from_functions(
        lambda x: torch.einsum("bmn,bn->bm", matrix, x.flatten(1)),
        lambda y: torch.einsum("bmn,bm->bn", matrix, y).reshape(-1, *image_shape),
    )


def test_a_physics_restores_like_its_matrix(case):
    """The data-consistency step, and a whole restoration, against the matrix of deepinv's A in float64."""
    physics, shape, closed_form = case
    op = from_deepinv(physics)
    assert op.closed_form == closed_form
    dense = dense_operator(matrices(physics.A, shape), shape[1:])
    x01, z = rand(*shape), rand(*shape, seed=1)
    y01 = physics.A(x01)
    y = op.measurement(y01)
    mri = isinstance(physics, (P.MRI, P.MultiCoilMRI))
    expected = y01 if mri else physics.A(2 * x01 - 1)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(op.image(x01 if mri else 2 * x01 - 1), x01)

    rho = torch.tensor([0.01, 0.1, 1.0])[: shape[0]]
    step = data_consistency(op, z, y, rho)
    assert relative_error(step, data_consistency(dense, z.double(), y.double().flatten(1), rho)) < 2e-5
    model = firm.Firm(Shrink(), firm.Solver(K=2))
    restored = firm.restore(model, op, y, sigma=op.sigma).image
    generator = torch.Generator().manual_seed(0)
    x_0 = torch.randn(shape, generator=generator).double()
    by_hand = firm.sample(model, dense, y.double().flatten(1), 2, x_0=x_0)
    assert relative_error(restored, by_hand) < 2e-5


def test_gradients_pass_through_both_kinds_of_solve():
    for physics in (P.BlurFFT((1, 8, 8), filter=BOX), P.Blur(filter=BOX, padding="circular")):
        op = from_deepinv(physics)
        z, y = (rand(2, 1, 8, 8, seed=s).requires_grad_() for s in (0, 1))
        grads = torch.autograd.grad(data_consistency(op, z, y, 0.05).square().sum(), (z, y))
        ours = torch.autograd.grad(data_consistency(Blur(BOX[0, 0]), z, y, 0.05).square().sum(), (z, y))
        for a, b in zip(grads, ours, strict=True):
            assert relative_error(a, b) < 1e-4


def test_one_gamma_a_sample_where_the_batch_is_as_long_as_a_row():
    op = from_deepinv(P.Inpainting((1, 8, 8), mask=0.5, rng=rng()))
    z, y, gamma = rand(8, 1, 8, 8), rand(8, 1, 8, 8, seed=1), torch.logspace(0, 2, 8)
    alone = [op.prox_l2(z[i : i + 1], y[i : i + 1], float(gamma[i])) for i in range(8)]
    torch.testing.assert_close(op.prox_l2(z, y, gamma), torch.cat(alone))


def test_complex_images_are_pairs_of_channels():
    mask = rand(8, 8).round()
    op = from_deepinv(
        P.LinearPhysics(
            A=lambda x: mask * torch.fft.fft2(x, norm="ortho"),
            A_adjoint=lambda y: torch.fft.ifft2(mask * y, norm="ortho"),
        ),
        complex=True,
        image_shape=(4, 8, 8),
    )
    x = rand(2, 4, 8, 8)  # two complex channels
    y = op.A(x)
    torch.testing.assert_close(y, mask * torch.fft.fft2(torch.complex(x[:, :2], x[:, 2:]), norm="ortho"))
    step = data_consistency(op, torch.zeros_like(x), y, 0.5)
    torch.testing.assert_close(step, op.A_adjoint(y) / 1.5)  # A A' = I on what is seen
    assert op.measurement(y) is y
    with pytest.raises(ValueError, match=r"takes complex images: pass from_deepinv\(..., complex=True\)"):
        from_deepinv(op.physics, image_shape=(2, 8, 8))
    with pytest.raises(ValueError, match=r"not in \[0, 1\]; pass unit_range=False"):
        from_deepinv(op.physics, complex=True, unit_range=True)


def test_the_noise_level_doubles_with_the_range():
    assert from_deepinv(P.Denoising(P.GaussianNoise(0.1))).sigma == pytest.approx(0.2)
    assert from_deepinv(P.Denoising(P.GaussianNoise(0.1)), unit_range=False).sigma == pytest.approx(0.1)
    each = from_deepinv(P.Denoising(P.GaussianNoise(torch.tensor([0.1, 0.2])))).sigma
    torch.testing.assert_close(each, torch.tensor([0.2, 0.4]))
    assert from_deepinv(P.Denoising(P.PoissonGaussianNoise(0.1, 0.1))).sigma is None  # its sigma is not all of it
    noise = from_deepinv(P.MRI(img_size=(8, 8), noise_model=P.GaussianNoise(0.1)))
    assert noise.sigma == pytest.approx(0.1)


def test_later_changes_and_types_do_not_reach_the_operator():
    physics = P.BlurFFT((1, 8, 8), filter=BOX)
    op, x = from_deepinv(physics), rand(1, 1, 8, 8)
    before = op.A(x)
    physics.A(x, filter=torch.ones(1, 1, 5, 5) / 25)
    torch.testing.assert_close(op.to(torch.float64).A(x.double()), before)  # deepinv's own loses the imaginary part
    step = data_consistency(op, x.double(), before, 0.1)
    assert step.dtype == torch.float64


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"Haze is not linear: pass image_shape=\(C, H, W\)"):
        from_deepinv(P.Haze())
    with pytest.raises(ValueError, match=r"its A does not take one tensor|cannot be differentiated"):
        from_deepinv(P.Haze(), image_shape=(3, 8, 8))
    with pytest.raises(ValueError, match="Identity is not a physics"):
        from_deepinv(Identity())
    with pytest.raises(ValueError, match="measures a list of tensors"):
        from_deepinv(P.stack(P.Denoising(), P.Denoising()))
    with pytest.raises(ValueError, match="A_adjoint is not the adjoint of A"):
        from_deepinv(P.Tomography(6, 12, normalize=True, adjoint_via_backprop=False))
    with pytest.raises(ValueError, match="A_adjoint is not the adjoint of A"):
        from_deepinv(P.LinearPhysics(A=lambda x: 2 * x, A_adjoint=lambda y: y))
    with pytest.raises(ValueError, match="A is not linear"):
        from_deepinv(P.LinearPhysics(A=lambda x: x + 1, A_adjoint=lambda y: y))
    five = P.LinearPhysics(A=lambda x: x.reshape(-1, 5, 8, 8), A_adjoint=lambda y: y)
    with pytest.raises(ValueError, match=r"pass image_shape=\(C, H, W\)"):
        from_deepinv(five)
    assert not from_deepinv(five, image_shape=(5, 8, 8)).closed_form


def test_a_physics_that_is_not_linear():
    """Its step against the function itself, made an operator without deepinv."""
    physics = P.Physics(A=lambda x: torch.tanh(2 * x), noise_model=P.GaussianNoise(0.05))
    op = from_deepinv(physics, image_shape=(1, 6, 6))
    x01, z = rand(2, 1, 6, 6), 2 * rand(2, 1, 6, 6, seed=1) - 1
    y = op.measurement(physics.A(x01))
    torch.testing.assert_close(op.A(2 * x01 - 1), y)
    torch.testing.assert_close(op.image(2 * x01 - 1), x01)
    assert op.sigma == pytest.approx(0.1)
    assert not op.linear
    by_hand = nonlinear(lambda x: 2 * torch.tanh(x + 1), (1, 6, 6))
    torch.testing.assert_close(data_consistency(op, z, y, 0.1), data_consistency(by_hand, z, y, 0.1))
    torch.testing.assert_close(op.A_adjoint(y), by_hand.A_adjoint(y))
    model = firm.Firm(Shrink(), firm.Solver(K=2))
    assert firm.restore(model, op, y, sigma=op.sigma).image.shape == x01.shape
    with pytest.raises(ValueError, match="is not linear"):
        as_deepinv(op)


@pytest.mark.filterwarnings("ignore:Complex modules")  # deepinv makes one of its matrix
def test_deepinvs_phase_retrieval():
    physics = P.RandomPhaseRetrieval(m=160, img_size=(1, 4, 4), rng=rng())
    op = from_deepinv(physics, complex=True)
    assert op.image_shape == (2, 4, 4)
    x = rand(2, 2, 4, 4)
    y = op.A(x)
    torch.testing.assert_close(y, physics.A(torch.complex(x[:, :1], x[:, 1:])))
    z = x + 0.1 * torch.randn(2, 2, 4, 4, generator=rng())
    step = data_consistency(op, z, y, 1e-4)
    assert (op.A(step) - y).norm() < 0.05 * (op.A(z) - y).norm()
