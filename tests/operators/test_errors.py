"""Bad input: the message names the operator and the shapes."""

import pytest
import torch

import firm
from firm.operators import (
    Blur,
    Fourier,
    Identity,
    Mask,
    Subsample,
    data_consistency,
    dot_test,
    from_functions,
    prox_test,
)

x = torch.randn(2, 3, 8, 8)


@pytest.mark.parametrize(
    ("op", "y", "message"),
    [
        (Identity(), x[:, :, :7], r"Identity\(\): y has shape \(2, 3, 7, 8\), expected \(2, 3, 8, 8\)"),
        (Mask(torch.ones(8, 8)), x[:, :1], r"Mask\(8x8\): y has shape \(2, 1, 8, 8\)"),
        (Mask(torch.ones(6, 8)), x, r"Mask\(6x8\).*\(2, 3, 8, 8\)"),
        (Mask(torch.ones(3, 1, 8, 8)), x, r"Mask\(3x1x8x8\).*one per sample"),
        (Subsample(2), x, r"Subsample\(2\): y has shape \(2, 3, 8, 8\), expected \(2, 3, 4, 4\)"),
        (Blur(torch.ones(3, 3)), x[..., :4], r"Blur\(3x3\): y has shape"),
        (Blur(torch.ones(3, 1, 3, 3)), x, r"3 kernels"),
        (Fourier(torch.ones(8, 8)), x[..., :4] + 0j, r"Fourier\(8x8\): y has shape"),
        (Fourier(torch.ones(8, 6)), x + 0j, r"Fourier\(8x6\)"),
    ],
)
def test_wrong_measurements(op, y, message):
    with pytest.raises(ValueError, match=message):
        data_consistency(op, x, y, 0.01)


def test_rho_has_one_value_per_sample():
    with pytest.raises(ValueError, match=r"one value per sample, \(2,\), got a tensor of \(8,\)"):
        data_consistency(Identity(), x, x, torch.ones(8))


@pytest.mark.parametrize("kind", [Mask, Fourier])
def test_empty_masks(kind):
    with pytest.raises(ValueError, match=rf"{kind.__name__}: the mask of shape \(8, 8\) is empty"):
        kind(torch.zeros(8, 8))
    mask = torch.ones(2, 1, 8, 8)
    mask[1] = 0
    with pytest.raises(ValueError, match="is empty"):
        kind(mask)
    with pytest.raises(ValueError, match="non-empty and finite"):
        kind(torch.full((8, 8), float("nan")))


WRONG_CONSTRUCTION = [
    lambda: Subsample(0),
    lambda: Subsample(1.5),
    lambda: Blur(torch.ones(3)),
    lambda: Mask(x + 0j),
    lambda: Fourier(torch.ones(8)),
]


@pytest.mark.parametrize("build", WRONG_CONSTRUCTION)
def test_wrong_construction(build):
    with pytest.raises(ValueError, match=r"Subsample|Blur|Mask|Fourier"):
        build()


def test_images_have_four_axes():
    with pytest.raises(ValueError, match=r"Subsample\(2\) takes images of shape \(B, C, H, W\), got \(8, 8\)"):
        Subsample(2).A(torch.zeros(8, 8))
    with pytest.raises(ValueError, match="takes real images"):
        Fourier(torch.ones(8, 8)).A(x + 0j)


WRONG = {
    "scale": lambda y: 2 * y,
    "sign": lambda y: -y,
    "shift": lambda y: y.roll(1, -1),
    "flip": lambda y: y.flip(-1),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_adjoint_is_refused(wrong):
    def halve(v):
        return 0.5 * v

    op = from_functions(halve, lambda y: wrong(0.5 * y))
    for call in (lambda: firm.prepare(None, op, x), lambda: dot_test(op, (2, 3, 8, 8))):
        with pytest.raises(
            ValueError, match=r"FunctionOperator\(halve\): A_adjoint is not the adjoint.*\(2, 3, 8, 8\)"
        ):
            call()


def test_an_adjoint_of_the_wrong_shape():
    op = from_functions(lambda v: v, lambda y: y[..., :4])
    with pytest.raises(ValueError, match=r"A_adjoint\(y\) has shape \(2, 3, 8, 4\), expected \(2, 3, 8, 8\)"):
        data_consistency(op, x, x, 0.01)


def test_prox_test_finds_a_wrong_closed_form():
    class Wrong(Identity):
        def prox_l2(self, z, y, gamma):
            return (y + z) / 2

    with pytest.raises(ValueError, match=r"Wrong\(\): the data-consistency step misses"):
        prox_test(Wrong(), (1, 1, 4, 4))


def test_the_check_of_a_solve_names_the_few_iterations():
    op = from_functions(lambda x: x.cumsum(-1), image_shape=(1, 8, 8), cg_tol=0, cg_iterations=2)
    with pytest.raises(ValueError, match="makes only 2 iterations of conjugate gradients"):
        prox_test(op, (2, 1, 8, 8))
