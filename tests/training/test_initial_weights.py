"""Training networks that see more than the paper's, also from the weights of one that saw less."""

import pytest
import torch

import firm
from firm._model import Firm, Solver
from firm.networks import GradientResStep, PriorResUNet, ResUNet, UNet
from firm.operators import Mask
from firm.training.initial_weights import _check_alike, _deepened, _grown, _narrowed
from firm.training.log import read_log
from firm.training.objectives import ConfigError

ALL = ["previous", "context", "iteration"]
SMALL = dict(side=16, ch=8, mult=(1, 2), blocks=1, groups=4, attention=())


@pytest.mark.parametrize("unshuffle", [1, 2])
def test_a_grown_network_computes_the_same(unshuffle):
    less = UNet(3, noise_level=True, unshuffle=unshuffle, **SMALL)
    for p in less.parameters():
        torch.nn.init.normal_(p, std=0.2)
    more = UNet(3, noise_level=True, unshuffle=unshuffle, extra=ALL, **SMALL)
    more.load_state_dict(_grown(less.state_dict(), more.state_dict()))
    op, x = Mask((torch.rand(16, 16) > 0.5).float()), torch.randn(2, 3, 16, 16)
    solver = Solver(K=3, output="correction")
    a, b = (Firm(n, solver).posterior_mean(op, x, 0.4, op.A(x), sigma=0.1) for n in (less, more))
    torch.testing.assert_close(a, b)


def test_a_plain_network_grows_as_well():
    less, more = (ResUNet(3, widths=(8, 16), noise_level=True, extra=extra) for extra in ((), ALL))
    for p in less.parameters():
        torch.nn.init.normal_(p, std=0.2)
    more.load_state_dict(_grown(less.state_dict(), more.state_dict()))
    x, t = torch.randn(2, 3, 16, 16), torch.tensor([0.1, 0.7])
    torch.testing.assert_close(more(x, x + 1, x, x, x, t, t, t), less(x, x + 1, t, t))


@pytest.mark.parametrize("unshuffle", [1, 2])
@pytest.mark.parametrize("extra", [(), ALL])
@pytest.mark.parametrize("level", [False, True])
def test_a_narrowed_network_sees_its_image_as_x_and_x_t(unshuffle, extra, level):
    more = ResUNet(3, widths=(8, 16), unshuffle=unshuffle, noise_level=True, extra=extra)
    one = PriorResUNet(3, widths=(8, 16), unshuffle=unshuffle, noise_level=level)
    for name, p in more.named_parameters():
        torch.nn.init.normal_(p, std=0.2)
        if (name.startswith("conditioning.noise") and not level) or name == "conditioning.iteration":
            p.data.zero_()  # dropped: there is no iteration, nor a noise level without `level`
    one.load_state_dict(_narrowed(more.state_dict(), one.state_dict(), more.images))
    x, t, nothing = torch.randn(2, 3, 16, 16), torch.tensor([0.1, 0.7]), torch.zeros(2, 3, 16, 16)
    expected = more(x, x, nothing, nothing, nothing, t, t, t) if extra else more(x, x, t, t)
    found = one(x, t, t) if level else one(x, t)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)  # sums in another order


DEPTHS = [((1, 2, 2), (3, 2, 4)), ((2, 2, 3), (2, 3, 3)), (1, 2)]


@pytest.mark.parametrize(("blocks", "more"), DEPTHS)
@pytest.mark.parametrize("kind", [ResUNet, PriorResUNet])
def test_a_deepened_network_computes_the_same(kind, blocks, more):
    shallow, deep = (kind(3, widths=(4, 8, 12), blocks=b) for b in (blocks, more))
    for p in shallow.parameters():
        torch.nn.init.normal_(p, std=0.3)
    deep.load_state_dict(_deepened(shallow.state_dict(), deep.state_dict(), shallow, deep))
    x, t = torch.randn(2, 3, 16, 16), torch.tensor([0.1, 0.7])
    images = (x, x + 1)[: kind.images]
    torch.testing.assert_close(deep(*images, t), shallow(*images, t))
    for block in deep.up[-1].blocks:  # and the new ones can be trained
        torch.nn.init.normal_(block.conv2.weight)
    assert not torch.equal(deep(*images, t), shallow(*images, t))


def test_blocks_are_not_thrown_away(fit, tmp_path):
    plain = "network={class: ResUNet, widths: [8, 16], blocks: [%s]}"
    fit(plain % "2, 1", "epochs=1", out="less")
    start = [f"init_from={tmp_path / 'less' / 'model.safetensors'}", "lr=1e-12", "lr_end=0", "epochs=1"]
    fit(plain % "3, 2", *start, out="more")
    less, more = (firm.load_network(tmp_path / name / "model.safetensors") for name in ("less", "more"))
    torch.testing.assert_close(more.down[0].blocks[1].conv2.weight, less.down[0].blocks[1].conv2.weight)
    x, t = torch.randn(1, 3, 16, 16), torch.tensor([0.3])
    torch.testing.assert_close(more(x, x, t), less(x, x, t), rtol=1e-4, atol=1e-4)
    with pytest.raises(ConfigError, match="do not fit this network"):
        fit(plain % "1, 1", *start, out="fewer")


def test_a_prior_starts_from_an_estimator(fit, tmp_path):
    plain = "network={class: %s, widths: [8, 16]%s}"
    fit(plain % ("ResUNet", ", extra: [previous, iteration]"), "epochs=1", out="more")
    start = [f"init_from={tmp_path / 'more' / 'model.safetensors'}", "lr=1e-12", "lr_end=0", "epochs=1"]
    fit(plain % ("PriorResUNet", ""), "objective=prior", *start, out="prior")
    more, one = (firm.load_network(tmp_path / name / "model.safetensors") for name in ("more", "prior"))
    x, x_t, _ = more.stem.conv.weight.chunk(3, dim=1)
    torch.testing.assert_close(one.stem.conv.weight, x + x_t)
    torch.testing.assert_close(one.head.weight, more.head.weight)


def test_a_network_on_two_images_starts_from_one_on_one(fit, tmp_path):
    """A bridge that sees the degraded image too, from a prior: at first it ignores that image."""
    plain = "network={class: %s, widths: [8, 16], blocks: %s}"
    fit(plain % ("PriorResUNet", 1), "objective=prior", "epochs=1", out="one")
    start = [f"init_from={tmp_path / 'one' / 'model.safetensors'}", "lr=1e-12", "lr_end=0", "epochs=1"]
    fit(plain % ("ResUNet", [2, 1]), "objective=bridge", *start, out="two")
    one, two = (firm.load_network(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    x, t = torch.randn(2, 3, 16, 16), torch.tensor([0.3, 0.8])
    torch.testing.assert_close(two(x, torch.randn_like(x), t), one(x, t), rtol=1e-4, atol=1e-4)


def test_weights_that_would_mean_something_else_are_refused():
    """Shapes fit, or can be made to; what stands where does not."""
    one, two = PriorResUNet(widths=(4, 8)), ResUNet(widths=(4, 8))
    context, both = (ResUNet(widths=(4, 8), extra=extra) for extra in (("context",), ("previous", "context")))
    with pytest.raises(ConfigError, match="cannot be given the previous iterate as well"):
        _check_alike(context, both, "a.safetensors", "balanced")
    _check_alike(two, both, "a.safetensors", "balanced")
    _check_alike(GradientResStep(widths=(4, 8)), one, "a.safetensors", "prior")
    _check_alike(two, one, "a.safetensors", "prior")
    _check_alike(one, two, "a.safetensors", "bridge")
    with pytest.raises(ConfigError, match="trained with channels=3, not 1"):
        _check_alike(two, ResUNet(1, widths=(4, 8)), "a.safetensors", "balanced")
    with pytest.raises(ConfigError, match="has a PriorResUNet, which sees other images"):
        _check_alike(one, two, "a.safetensors", "balanced")

    class Three(ResUNet):
        images = 3

    with pytest.raises(ConfigError, match="has a ResUNet, which sees other images"):
        _check_alike(two, Three(widths=(4, 8)), "a.safetensors", "balanced")


def test_other_networks_do_not_grow():
    less, other = UNet(3, **SMALL), UNet(3, **SMALL | {"ch": 16}, extra=ALL)
    weights = _grown(less.state_dict(), other.state_dict())
    assert weights["stem.conv.weight"].shape == less.stem.conv.weight.shape
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.load_state_dict(weights)


def test_a_run_with_all_of_them_learns_and_starts_from_less(make, tmp_path, fit):
    fit("epochs=1", out="less")
    network = "{ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4, time_scale: 100, extra: [%s]}"
    start = f"init_from={tmp_path / 'less' / 'model.safetensors'}"
    more = make(f"network={network % ', '.join(ALL)}", start, "epochs=3", "warm_start_epochs=0", out="more")
    fit(more)
    model = firm.load(tmp_path / "more" / "model.safetensors")
    assert model.estimator.config["extra"] == tuple(ALL)
    rows = model.estimator.conditioning.iteration.abs().sum(1)
    assert (rows[:2] > 0).all()  # K = 2
    assert (rows[2:] == 0).all()
    losses = [row["loss"] for row in read_log(tmp_path / "more") if "loss" in row]
    assert losses[-1] < losses[0]
