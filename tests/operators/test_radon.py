"""Tomography: the sinogram of a disk, whose rays have chords of known length, in every kind of beam; its inverse."""

import copy
import math
import pickle

import pytest
import torch
from helpers import dense, dense_solve, randn, relative_error
from torch.autograd import gradcheck

from firm.noise import Gaussian
from firm.operators import Identity, Radon, data_consistency, dot_test, filtered_back_projection, nonlinear, prox_test
from firm.operators.compose import Repeated
from firm.operators.scale import Scaled

SIDE = 64
BEAMS = {
    "parallel": ({}, math.pi),
    "fan": (dict(source=60.0, detector=40.0), 2 * math.pi),
    "curved": (dict(source=60.0, detector=40.0, curved=True), 2 * math.pi),
    "shifted": (dict(source=60.0, detector=40.0, offset=5.3), 2 * math.pi),
    "shifted parallel": (dict(offset=-3.6, pixel=0.5, spacing=0.7), math.pi),
}


def angles(count, around=math.pi):
    return torch.arange(count, dtype=torch.float64) * around / count + 0.1


def disk(side, x, y, radius, pixel=1.0, fine=8):
    """An image of a disk, whose pixels at the rim hold their share of it."""
    place = ((torch.arange(side * fine) + 0.5) / fine - side / 2) * pixel
    inside = ((place - x).square() + (-place[:, None] - y).square() < radius**2).float()
    return inside.reshape(side, fine, side, fine).mean((1, 3))[None, None]


def chords(op, x, y, radius):
    """How long every ray lies within the disk, from its distance to the center."""
    point, direction = op.geometry.rays(op.geometry.angles)
    dx, dy = x - point[..., 0], y - point[..., 1]
    distance = dx * direction[..., 1] - dy * direction[..., 0]
    return 2 * (radius**2 - distance.square()).clamp(min=0).sqrt()[None, None]


@pytest.mark.parametrize("beam", BEAMS)
def test_the_sinogram_of_a_disk(beam):
    kinds, around = BEAMS[beam]
    pixel = kinds.get("pixel", 1.0)
    x, y, radius = 6 * pixel, 11 * pixel, 14 * pixel
    op = Radon(angles(40, around), SIDE, **kinds)
    assert relative_error(op.A(disk(SIDE, x, y, radius, pixel)), chords(op, x, y, radius)) < 0.02  # of the rim


def test_where_a_ray_ends_is_where_its_pixel_lies():
    """`project` and `rays` are two ways to the same geometry."""
    for kinds, _ in BEAMS.values():
        near = {"source": 8.0, "detector": 5.0} if "source" in kinds else {}
        op = Radon([0.7, 3.9], (9, 12), **{**kinds, **near, "bins": 200})
        place, _ = op.geometry.project(op.geometry.angles)
        point, direction = op.geometry.rays(op.geometry.angles)
        pixel = op.geometry.pixel
        x, y = pixel * (7 - 5.5), pixel * (4 - 1)  # of the pixel in row 1 and column 7
        distance = (x - point[..., 0]) * direction[..., 1] - (y - point[..., 1]) * direction[..., 0]
        for view in range(2):
            left = int(place[view, 1, 7].floor())
            share = float(place[view, 1, 7]) - left
            assert abs(float(torch.lerp(distance[view, left], distance[view, left + 1], share))) < 1e-2 * pixel


def test_angle_and_offset_have_the_directions_that_are_documented():
    point = torch.zeros(1, 1, 9, 9)
    point[0, 0, 2, 7] = 1  # 3 to the right of the axis, 2 above it
    measured = Radon([0.0, math.pi / 2], 9, bins=15).A(point)[0, 0]
    assert measured[0].argmax() == 7 + 3  # rays upwards: the detector lies along x
    assert measured[1].argmax() == 7 + 2  # turned counterclockwise it lies along y
    assert Radon([0.0], 9, bins=15, offset=1.0).A(point)[0, 0, 0].argmax() == 7 + 2


@pytest.mark.parametrize("beam", BEAMS)
@pytest.mark.parametrize("size", [(6, 7), (5, 4)])
def test_is_an_operator(beam, size):
    kinds, around = BEAMS[beam]
    op = Radon(angles(5, around), size, **{**kinds, "bins": 11})
    assert dot_test(op, (2, 3, *size)) < 1e-6
    op = op.double()
    assert dot_test(op, (2, 3, *size), dtype=torch.float64) < 1e-13
    rho = torch.tensor([0.5, 3.0], dtype=torch.float64)
    assert prox_test(op, (2, 1, *size), rho, dtype=torch.float64) < 1e-10
    z, y = randn(2, 1, *size), randn(2, 1, 5, 11, seed=1)
    for each in (0.5, rho):
        assert relative_error(data_consistency(op, z, y, each), dense_solve(op, z, y, each)) < 1e-9
    assert torch.linalg.matrix_norm(dense(op, (1, *size), 1)[0], 2) == pytest.approx(float(op.known_norm(z)), rel=1e-4)


def test_derivatives_first_and_second():
    op = Radon(angles(4), (4, 5)).double()
    op.cg_tol = 1e-15
    inputs = [randn(2, 1, 4, 5).requires_grad_(), randn(2, 1, *op.measured).requires_grad_(),
              torch.tensor([0.5, 3.0], dtype=torch.float64).requires_grad_()]  # fmt: skip
    assert gradcheck(lambda z, y, rho: data_consistency(op, z, y, rho), inputs, fast_mode=True)
    assert gradcheck(op.A, inputs[0], fast_mode=True)
    x = inputs[0].detach()  # the Jacobian of a nonlinear operator is made by torch.func
    seen = nonlinear(lambda x: torch.exp(-op.A(x) / 10), image_shape=(1, 4, 5))
    torch.testing.assert_close(seen.linearized(x).A(x), -seen.A(x) * op.A(x) / 10)


def test_some_of_the_views_for_each_sample():
    op = Radon(angles(6), 8).double()
    seen = torch.tensor([[1, 0, 1, 0, 1, 0], [0, 1, 1, 1, 1, 1.0]])
    some, x = op.of_views(seen), randn(2, 1, 8, 8)
    y = some.A(x)
    assert torch.equal(y, op.A(x) * seen[:, None, :, None])
    assert some.lengths.data_ptr() == op.lengths.data_ptr()
    assert op.seen is None
    few = Radon(angles(6)[::2], 8).double()
    torch.testing.assert_close(y[:1, :, ::2], few.A(x[:1]), rtol=1e-6, atol=1e-6)
    assert dot_test(some, (2, 1, 8, 8), dtype=torch.float64) < 1e-13
    z = randn(2, 1, 8, 8, seed=3)
    assert relative_error(data_consistency(some, z, y, 0.5), dense_solve(some, z, y, 0.5)) < 1e-9
    few = Radon(angles(60)[::3], 32)
    seen = torch.zeros(1, 60)
    seen[:, ::3] = 1
    assert float(Radon(angles(60), 32).of_views(seen).known_norm(x)) == pytest.approx(float(few.largest), rel=0.01)


def test_copies_types_and_runs():
    op = Radon(angles(5), (6, 8))
    x = randn(4, 1, 6, 8, dtype=torch.float32)
    for other in (copy.deepcopy(op), pickle.loads(pickle.dumps(op)), Repeated(op, 2)):
        assert torch.equal(other.A(x), op.A(x))
    assert op.double().A(x.double()).dtype == torch.float64
    assert op.float().starts.dtype == torch.int32
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(op.A(x), op.A(x.float()))
        assert op.A(x.bfloat16()).dtype == torch.float32
    z, y = randn(4, 1, 6, 8, dtype=torch.float32), op.A(x)
    together = data_consistency(Repeated(op, 2), z, y, 0.5)
    torch.testing.assert_close(together[2:], data_consistency(op, z[2:], y[2:], 0.5), rtol=1e-4, atol=1e-5)


def test_the_preconditioner_halves_the_iterations():
    class Plain(Radon):
        def precondition(self, r, rho):
            return r

    calls = []
    for kind in (Plain, Radon):
        op = kind(angles(60), SIDE)
        op.count, product = 0, op._apply_matrix

        def counted(*given, op=op, product=product, **more):
            op.count += 1
            return product(*given, **more)

        op._apply_matrix = counted
        x = disk(SIDE, 4, 3, 20)
        op._spectrum(x)
        op.count = 0
        data_consistency(op, torch.zeros_like(x), op.A(x), 0.01 * float(op.largest) ** 2)
        calls.append(op.count)
    assert calls[1] < 0.62 * calls[0]


def test_the_preconditioner_of_what_holds_an_operator():
    op = Radon(angles(9), 8).double()
    r, rho = randn(4, 1, 8, 8), torch.full((4, 1, 1, 1), 0.02, dtype=torch.float64)
    c = torch.tensor([0.1], dtype=torch.float64)
    scaled = Scaled(op, c)
    dividing = Radon.precondition(op, r, rho / 0.01) / 0.01  # of 0.01 A'A + rho
    torch.testing.assert_close(scaled.precondition(r, rho), dividing)
    torch.testing.assert_close(Repeated(scaled, 2).precondition(r, rho), dividing)
    assert Repeated(Scaled(Identity(), c), 2).precondition(r, rho) is r


def test_weighted_noise_is_solved_too():
    op = Radon(angles(7), (5, 6)).double()
    z, y = randn(1, 1, 5, 6), randn(1, 1, *op.measured, seed=1)
    sigma = torch.rand(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.2
    noise = Gaussian(sigma)
    x = data_consistency(op, z, y, 0.5, noise)
    weight = float(noise.level(y)) ** 2 / sigma.flatten() ** 2
    matrix = dense(op, (1, 5, 6), 1)[0]
    normal = matrix.T @ (weight[:, None] * matrix) + 0.5 * torch.eye(30, dtype=torch.float64)
    expected = torch.linalg.solve(normal, matrix.T @ (weight * y.flatten()) + 0.5 * z.flatten())
    assert relative_error(x.flatten(), expected) < 1e-9


@pytest.mark.parametrize("beam", BEAMS)
def test_filtered_back_projection_finds_the_disk(beam):
    kinds, around = BEAMS[beam]
    pixel = kinds.get("pixel", 1.0)
    op = Radon(angles(180, around), SIDE, **kinds)
    for x, y, radius in ((6 * pixel, 11 * pixel, 14 * pixel), (0, 0, 26 * pixel)):
        truth = disk(SIDE, x, y, radius, pixel)
        inside = disk(SIDE, x, y, 0.7 * radius, pixel) == 1
        for smooth, most in ((False, 0.06), (True, 0.09)):
            found = filtered_back_projection(op, chords(op, x, y, radius).float(), smooth=smooth)
            assert float((found - truth).square().mean().sqrt()) < most
            assert float(found[inside].mean()) == pytest.approx(1, abs=0.003)
            assert float(found[inside].std()) < 0.003
    again = filtered_back_projection(op.geometry, op.A(truth))
    assert float((again - truth).square().mean().sqrt()) < 0.05


def test_filtered_back_projection_counts_views_that_repeat_and_views_that_are_missing():
    twice = torch.cat([angles(90), angles(90) + math.pi, angles(90)[:1]])
    for views in (twice, angles(120)[:90]):
        op = Radon(views, SIDE)
        found = filtered_back_projection(op, op.A(disk(SIDE, 0, 0, 20)))
        assert 0.65 < float(found[0, 0, 22:42, 22:42].mean()) < 1.02
    assert float(filtered_back_projection(op, torch.zeros(1, 1, *op.measured)).abs().max()) == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (dict(angles=[]), "angles must be finite"),
        (dict(angles=[float("nan")]), "angles must be finite"),
        (dict(pixel=0.0), "pixel > 0"),
        (dict(spacing=-1.0), "spacing > 0"),
        (dict(curved=True), "curved detector needs a source"),
        (dict(source=5.0, bins=5), "outside the image"),
        (dict(seen=torch.ones(2, 7)), r"seen must be \(B, 2\)"),
    ],
)
def test_wrong_geometries_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        Radon(**{"angles": [0.0, 1.0], "image_size": 8, **change})


def test_wrong_shapes_are_refused():
    op = Radon([0.0, 1.0], 8)
    with pytest.raises(ValueError, match=r"\(B, C, 8, 8\) is expected"):
        op.A(torch.zeros(1, 1, 8, 9))
    with pytest.raises(ValueError, match="measurements of shape"):
        op.A_adjoint(torch.zeros(1, 1, 3, 13))
