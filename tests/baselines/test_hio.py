"""Phase retrieval without a network, and which of the other methods take an operator that is not linear."""

import pytest
import torch
from helpers import rand

import firm
from firm.baselines import hio, pnp_flow, pnp_hqs
from firm.metrics import psnr
from firm.operators import Clipping


def test_it_finds_an_image_from_its_magnitudes():
    task = firm.Task("phase-retrieval", 24, sigma=0.0)
    x = torch.nn.functional.interpolate(rand(2, 1, 6, 6) * 2 - 1, 24, mode="bilinear")
    op, y = task.measure(x)
    found = hio(op, y, steps=400, restarts=3, generator=torch.Generator().manual_seed(0))
    assert (psnr(task.aligned(found, x), x) > 30).all()
    one = hio(op, y, steps=5, restarts=1, clean_up=1, generator=torch.Generator().manual_seed(0))
    more = hio(op, y, steps=5, restarts=4, clean_up=1, generator=torch.Generator().manual_seed(0))
    misfits = [(op.A(v) - y).square().mean((1, 2, 3)) for v in (one, more)]
    assert (misfits[1] <= misfits[0] + 1e-7).all()
    with pytest.raises(ValueError, match="magnitudes of an oversampled Fourier transform"):
        hio(firm.Task("phase-retrieval", 24, optics="coded").operator(), y)


def test_methods_that_need_a_linear_operator_say_so():
    op, x = Clipping(-1, 0.2), rand(1, 3, 8, 8)
    with pytest.raises(ValueError, match=r"for linear operators, and Clipping\(-1, 0.2\) is none"):
        pnp_flow(lambda x, t: -x, op, op.A(x), 0.05, steps=1)
    restored = pnp_hqs(lambda x, sigma: 0.9 * x, op, op.A(x), 0.05, steps=2)
    assert restored.shape == x.shape
