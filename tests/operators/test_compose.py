"""Products and stacks against their parts."""

import pytest
import torch
from helpers import randn

from firm.operators import (
    Blur,
    Compose,
    Downsample,
    Fourier,
    Identity,
    Mask,
    Stack,
    Subsample,
    from_functions,
    prox_test,
)


def test_compose_reads_like_the_mathematics():
    B, A = Mask(randn(4, 5)), Blur(randn(3, 2))
    x = randn(2, 1, 4, 5)
    assert torch.equal(Compose(B, A).A(x), B.A(A.A(x)))
    assert repr(Compose(B, A)) == "Compose(Mask(4x5), Blur(3x2))"
    for outer, inner in ((Blur(randn(3, 4)), Blur(randn(2, 2))), (Subsample(2), Blur(randn(2, 3)))):
        x = randn(2, 1, 6, 4)
        torch.testing.assert_close(Compose(outer, inner).A(x), outer.A(inner.A(x)))
    bicubic = Compose(Subsample(3), Blur(Downsample(3).kernel))
    torch.testing.assert_close(bicubic.A(randn(1, 1, 9, 6)), Downsample(3).A(randn(1, 1, 9, 6)))
    with pytest.raises(ValueError, match="at least one"):
        Compose()
    with pytest.raises(ValueError, match=r"Blur\(2x1x3x3\) and Blur\(3x1x3x3\).*different numbers"):
        Compose(Blur(torch.ones(2, 1, 3, 3)), Blur(torch.ones(3, 1, 3, 3)))


class Plain:
    """A user's class: no module, no closed form."""

    def A(self, x):
        return 2 * x.flip(-1)

    def A_adjoint(self, y):
        return 2 * y.flip(-1)


def test_plain_classes_can_be_joined():
    for op in (Compose(Plain(), Mask(randn(4, 4))), Stack(Plain(), Mask(randn(4, 4)), image_shape=(1, 4, 4))):
        assert not op.closed_form
        assert [key for key, _ in op.named_buffers()] == ["registered.0.mask"]
        assert prox_test(op, (2, 1, 4, 4), dtype=torch.float64) < 1e-9


def test_stack_packs_real_and_complex_measurements():
    ops = [Subsample(2, (3, 3)), Fourier(torch.ones(3, 3)), Mask(torch.rand(2, 1, 3, 3))]
    stack = Stack(*ops, image_shape=(1, 3, 3))
    before = dict(vars(stack))
    x = randn(2, 1, 3, 3)
    parts = [op.A(x) for op in ops]
    y = stack.pack(parts)
    assert y.shape == (2, 4 + 18 + 9)
    assert torch.equal(stack.A(x), y)
    assert vars(stack) == before  # measuring leaves an operator as it was
    adjoints = [op.A_adjoint(p) for op, p in zip(ops, parts, strict=True)]
    torch.testing.assert_close(stack.A_adjoint(y), sum(adjoints))
    for part, again in zip(parts, stack.unpack(y), strict=True):
        assert torch.equal(part, again)
    shapes = stack._like
    stack.A(randn(2, 1, 3, 3))
    assert stack._like is shapes  # found once
    with pytest.raises(ValueError, match=r"Stack\(.*\): y has shape \(2, 30\), expected \(2, 31\)"):
        stack.A_adjoint(y[:, 1:])
    with pytest.raises(ValueError, match=r"Stack\(.*\): x has shape \(2, 1, 4, 3\), expected \(2, 1, 3, 3\)"):
        stack.A(torch.zeros(2, 1, 4, 3))
    with pytest.raises(ValueError, match="at least one"):
        Stack(image_shape=(1, 3, 3))


def test_a_single_operator_keeps_its_limits_on_conjugate_gradients():
    own = from_functions(lambda x: 2 * x, lambda y: 2 * y, cg_tol=1e-3, cg_iterations=7)
    alone = Compose(Identity(), own)
    assert (alone.cg_tol, alone.cg_iterations) == (1e-3, 7)
    assert (Compose(own, own).cg_tol, Compose(own, own).cg_iterations) == (None, 500)
