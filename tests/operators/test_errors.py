"""Bad input: the message names the operator and the shapes."""

import pytest
import torch

import firm
from firm.operators import (
    Blur,
    Downsample,
    Fourier,
    Identity,
    Mask,
    Subsample,
    data_consistency,
    from_functions,
    prox_test,
    to_complex,
)

x = torch.randn(2, 3, 8, 8)


@pytest.mark.parametrize(
    ("op", "y", "message"),
    [
        (Mask(torch.ones(3, 8, 8)), x[:, :1], r"Mask\(3x8x8\): y has shape \(2, 1, 8, 8\).*\(2, 3, 8, 8\)"),
        (Mask(torch.ones(6, 8)), x, r"Mask\(6x8\) does not take y of shape \(2, 3, 8, 8\)"),
        (Mask(torch.ones(3, 1, 8, 8)), x[:1], r"Mask\(3x1x8x8\): 1 measurements"),
        (Subsample(2), x[0, 0], r"Subsample\(2\): y has shape \(8, 8\)"),
        (Subsample(2, (7, 7)), x[..., :1, :1], r"Subsample\(2, .*: y has shape \(2, 3, 1, 1\)"),
        (Downsample(2), x[0, 0], r"Downsample"),
        (Blur(torch.ones(3, 1, 3, 3)), x, r"Blur\(3x1x3x3\) does not take y"),
        (Fourier(torch.ones(8, 6)), x + 0j, r"Fourier\(8x6\) does not take y"),
        (Fourier(torch.ones(8, 8), complex_images=True), x + 0j, r"complex.*as_real"),
        (from_functions(lambda v: v, lambda y: y[..., :4]), x, r"y has shape \(2, 3, 8, 8\).*\(2, 3, 8, 4\)"),
        (from_functions(lambda v: 0.5 * v, lambda y: y.roll(1, -1)), x, r"not the adjoint of A.*\(2, 3, 8, 8\)"),
    ],
)
def test_wrong_measurements_are_refused_where_they_enter(op, y, message):
    with pytest.raises(ValueError, match=message):
        firm.prepare(None, op, y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data_consistency(Identity(), x, x, torch.ones(8)), r"one value per sample, \(2,\), got .* \(8,\)"),
        (lambda: data_consistency(Identity(), x[:, :1], x, 0.1), r"Identity\(\).*\(2, 3, 8, 8\)"),
        (lambda: data_consistency(Blur(torch.ones(3, 3), boundary="valid"), x, x, 0.1), r"valid\): A_adjoint\(y\) has"),
        (lambda: Blur(torch.ones(9, 3), boundary="valid").A(x), r"Blur\(9x3, valid\): images .* smaller"),
        (lambda: Blur(torch.ones(3, 3), boundary="reflect"), '"circular" or "valid", got \'reflect\''),
        (lambda: Downsample(4).A(x[..., :6]), r"Downsample\(4, bicubic\): both sides.*crop them to 8x4"),
        (lambda: Subsample(2).A(x[..., :7, :6]), r"Subsample\(2, image_size=\(7, 6\)\)"),
        (lambda: Fourier(torch.ones(8, 8)).A(x + 0j), r"takes real images, got torch.complex64"),
        (lambda: Fourier(torch.ones(8, 8), complex_images=True).A(x), r"takes complex images, got torch.float32"),
        (lambda: to_complex(x), r"even number of channels, got torch.float32 of \(2, 3, 8, 8\)"),
        (lambda: from_functions(lambda x: x), "image_shape"),
        (lambda: from_functions(lambda x: x, image_shape=(1, 4, 4)).A(x), r"expected \(2, 1, 4, 4\)"),
        (lambda: Downsample(2, "cubic"), "bicubic, bilinear, box, got 'cubic'"),
        (lambda: Mask(torch.zeros(8, 8)), r"Mask: the mask of shape \(8, 8\) is empty"),
        (lambda: Fourier(torch.stack([torch.ones(1, 8, 8), torch.zeros(1, 8, 8)])), "Fourier: the mask .* is empty"),
        (lambda: Downsample(2, torch.zeros(3, 3)), "Downsample: the kernel .* is empty"),
        (lambda: Mask(torch.full((8, 8), float("nan"))), "non-empty and finite"),
        (lambda: Mask(x + 0j), "Mask: the mask must be a real tensor"),
        (lambda: Fourier(torch.ones(8)), r"Fourier: mask must be \(H, W\)"),
        (lambda: Blur(torch.ones(3)), "Blur: kernel must be"),
        (lambda: Downsample(2, torch.ones(3)), "Downsample: kernel must be"),
        (lambda: Subsample(0), "Subsample: factor"),
        (lambda: Downsample(1.5), "Downsample: factor"),
    ],
)
def test_wrong_images_and_settings(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_prox_test_finds_a_wrong_closed_form_and_names_few_iterations():
    class Wrong(Identity):
        def prox_l2(self, z, y, gamma):
            return (y + z) / 2

    with pytest.raises(ValueError, match=r"Wrong\(\): the data-consistency step misses"):
        prox_test(Wrong(), (1, 1, 4, 4))
    op = from_functions(lambda x: x.cumsum(-1), image_shape=(1, 8, 8), cg_tol=0, cg_iterations=2)
    with pytest.raises(ValueError, match="makes only 2 iterations"):
        prox_test(op, (2, 1, 8, 8))
