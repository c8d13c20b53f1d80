"""What an operator computes of its buffers once: right whenever they, the size or the machine around it change."""

import copy
import pickle

import pytest
import torch
from helpers import dense_solve, rand, relative_error

from firm.acceleration.graphs import structure
from firm.operators import Blur, Downsample, base, gaussian_kernel


@pytest.fixture
def counted(monkeypatch):
    """How often something was computed anew, by its name."""
    counts, once = {}, base.Operator.computed_once

    def watched(op, what, size, source, compute):
        def compute_and_count():
            counts[what] = counts.get(what, 0) + 1
            return compute()

        return once(op, what, size, source, compute_and_count)

    monkeypatch.setattr(base.Operator, "computed_once", watched)
    return counts


def blur(width=1.0):
    return Blur(gaussian_kernel(5, width))


def images(side=8, **how):
    return rand(1, 3, side, side, seed=side).to(**how)


def test_solves_with_one_operator_compute_it_once(counted):
    op, x = blur(), images()
    for _ in range(3):
        op.prox_l2(x, op.A(x), 10.0)
    assert counted == {"transfer": 1}
    down, y = Downsample(2, "bicubic"), images(4)
    for _ in range(3):
        down.prox_l2(x, y, 10.0)
    assert counted == {"transfer": 2, "folded": 1}


def test_other_sizes_and_types_of_images_are_computed(counted):
    op, fresh = blur(), blur
    for x in (images(8), images(12), images(8), images(8, dtype=torch.float64)):
        assert torch.equal(op.A(x), fresh().A(x))
    assert counted["transfer"] == 4 + 4  # only the last size is kept; four fresh ones beside it


@pytest.mark.parametrize("change", ["filled", "replaced", "moved", "double"])
def test_another_kernel_is_noticed(change):
    op, x = blur(), images()
    op.A(x)
    other = gaussian_kernel(5, 2.0)
    if change == "filled":
        op.kernel.copy_(other)
    elif change == "replaced":
        op.kernel = other.expand_as(op.kernel).clone()
    elif change == "moved":
        op.to("meta")
        assert op.A(x.to("meta")).device.type == "meta"
        return
    else:
        op, x, other = op.double(), x.double(), gaussian_kernel(5, 2.0).double()
        op.kernel.copy_(other)
    expected = dense_solve(copy.deepcopy(op), x, x, 0.1)
    assert relative_error(op.prox_l2(x, x, 10.0), expected) < 1e-5
    assert relative_error(op.A(x), Blur(other).to(x.dtype).A(x)) < 1e-6
    assert relative_error(op.A(x), blur().to(x.dtype).A(x)) > 1e-2


def test_another_kernel_is_noticed_in_inference_mode():
    """A tensor made there does not count its changes, and one made before does."""
    x = images()
    with torch.inference_mode():
        for op in (blur(), before := blur()):
            op.A(x)
            op.kernel.copy_(gaussian_kernel(5, 2.0))
            assert torch.equal(op.A(x), blur(2.0).A(x))
    outside = blur()
    with torch.inference_mode():
        outside.A(x)
        outside.kernel.copy_(gaussian_kernel(5, 2.0))
        assert torch.equal(outside.A(x), blur(2.0).A(x))
    x.requires_grad_()
    assert torch.autograd.grad(outside.A(x).sum(), x)[0].isfinite().all()  # kept, but no tensor of inference mode
    assert before.kernel.is_inference()


def test_a_kernel_that_is_learned_is_computed_every_time(counted):
    op = blur()
    op.kernel.requires_grad_()
    for _ in range(2):
        loss = op.A(images()).square().sum()
        (gradient,) = torch.autograd.grad(loss, op.kernel)
        assert gradient.abs().sum() > 0
    assert counted == {"transfer": 2}


def test_copies_begin_with_nothing_and_have_the_same_structure():
    op = blur()
    before = structure(op)
    op.A(images())
    assert vars(op)["_computed"]
    for other in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        assert "_computed" not in vars(other)
        assert torch.equal(other.A(images()), op.A(images()))
    assert structure(op) == before == structure(copy.deepcopy(op))  # one graph serves both


def test_a_graph_computes_it_for_itself(counted, monkeypatch):
    """It must hold the kernels that follow the buffer, and none of the memory that the operator may give back."""
    op, x = blur(), images()
    op.A(x)  # a trial, as before every recording
    with monkeypatch.context() as patch:
        patch.setattr(base, "_captured", lambda source: True)
        op.A(x)
        op.A(x)
    assert counted == {"transfer": 2}  # once in the graph
    op.A(x)
    assert counted == {"transfer": 3}  # nothing of the graph's memory is used outside it
