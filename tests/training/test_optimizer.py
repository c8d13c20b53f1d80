"""Muon against the singular value decomposition and torch's own Muon, and in the training loop."""

import copy

import pytest
import torch

import firm
from firm.training.optimizer import Muon, _orthogonalize, make_optimizers


@pytest.mark.parametrize("shape", [(3, 12, 40), (2, 40, 12), (1, 16, 16)])
def test_orthogonalize_keeps_the_directions_and_levels_the_singular_values(shape):
    G = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    X = _orthogonalize(G)
    U, _, Vh = torch.linalg.svd(G, full_matrices=False)
    levelled = U.mT @ X @ Vh.mT  # diagonal in the singular vectors of G
    values = levelled.diagonal(dim1=1, dim2=2)
    assert (levelled - torch.diag_embed(values)).abs().max() < 1e-4
    assert values.min() > 0.4
    assert values.max() < 1.3


@pytest.mark.filterwarnings("ignore")
def test_the_update_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(12, 30, generator=generator)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    a = Muon([ours], lr=0.02, weight_decay=0.1)
    b = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        ours.grad = torch.randn(12, 30, generator=generator)
        theirs.grad = ours.grad.clone()
        a.step()
        b.step()
    moved = float((theirs - start).norm())
    assert float((ours - theirs).norm()) < 0.02 * moved  # theirs iterates in bfloat16


def test_a_convolution_is_a_matrix():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(6, 4, 3, 3, generator=generator)
    image, matrix = torch.nn.Parameter(weight.clone()), torch.nn.Parameter(weight.reshape(6, 36).clone())
    image.data = image.data.to(memory_format=torch.channels_last)
    image.grad = torch.randn(6, 4, 3, 3, generator=generator)
    matrix.grad = image.grad.reshape(6, 36).clone()
    for p in (image, matrix):
        Muon([p], lr=0.1).step()
    torch.testing.assert_close(image.reshape(6, 36), matrix)


def test_a_bad_step_changes_nothing():
    p = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = Muon([p], lr=0.1, weight_decay=0.1)
    p.grad = torch.full((4, 4), float("nan"))
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert torch.equal(p.detach(), torch.ones(4, 4))
    assert torch.equal(optimizer.state[p]["momentum"], torch.zeros(4, 4))


def test_every_parameter_belongs_to_one_optimizer(make):
    net = firm.UNet(3, side=16, ch=8, mult=(1, 2), blocks=1, attention=(8,), groups=4)
    for name, parts in (("adamw", 1), ("muon", 2)):
        optimizers = make_optimizers(make(f"optimizer={name}"), net)
        held = [id(p) for o in optimizers for g in o.param_groups for p in g["params"]]
        assert len(optimizers) == parts
        assert sorted(held) == sorted(id(p) for p in net.parameters())
    names = {id(p): n for n, p in net.named_parameters()}
    muon = {names[id(p)] for p in optimizers[1].param_groups[0]["params"]}
    assert "down.0.conv1.weight" in muon
    assert "middle.0.attention.query.weight" in muon
    assert not any(n.endswith("bias") or n.startswith(("stem", "head", "conditioning")) for n in muon)


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("fused", ["true", "false"])
def test_weight_decay_shrinks_every_weight(name, fused, make):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    before = [p.detach().clone() for p in net.parameters()]
    for optimizer in make_optimizers(
        make(f"optimizer={name}", f"fused={fused}", "weight_decay=0.5", "lr=0.1", "lr_end=0"), net
    ):
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
    for p, old in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(p.detach(), old * (1 - 0.1 * 0.5))


def test_muon_trains_and_goes_on_from_a_checkpoint(make_trainer):
    settings = ["optimizer=muon", "objective=balanced", "output=correction", "warm_start_epochs=0"]
    whole, other = make_trainer(*settings), make_trainer(*settings)
    for _ in range(4):
        whole.advance()
    other.restore(copy.deepcopy(whole.state()))  # which refers to the live tensors
    for _ in range(4):
        whole.advance()
        other.advance()
    assert all(torch.equal(a, b) for a, b in zip(whole.params, other.params, strict=True))
