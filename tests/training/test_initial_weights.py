"""Training starts from the weights of a network that sees less, or more, or is not as deep."""

import pytest
import torch

import firm
from firm._model import Firm, Solver, save_network
from firm.networks import PriorResUNet, ResUNet, UNet
from firm.operators import Mask
from firm.training.initial_weights import initial_weights
from firm.training.log import read_log
from firm.training.objectives import ConfigError

ALL = ["previous", "context", "iteration"]
SMALL = dict(side=16, ch=8, mult=(1, 2), blocks=1, groups=4, attention=())
x, t = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)), torch.tensor([0.1, 0.7])


@pytest.fixture
def started(tmp_path):
    """Save a network, and start another from its weights as ``init_from`` does."""

    def start(saved, net, objective="balanced"):
        save_network(tmp_path / "saved.safetensors", saved, "network", {})
        net.load_state_dict(initial_weights(str(tmp_path / "saved.safetensors"), net, objective))
        return net

    return start


def spread(net, std=0.2):
    for p in net.parameters():
        torch.nn.init.normal_(p, std=std)
    return net


@pytest.mark.parametrize("unshuffle", [1, 2])
def test_a_grown_network_computes_the_same(unshuffle, started):
    less = spread(UNet(3, noise_level=True, unshuffle=unshuffle, **SMALL))
    more = started(less, UNet(3, noise_level=True, unshuffle=unshuffle, extra=ALL, **SMALL))
    op, solver = Mask((torch.rand(16, 16) > 0.5).float()), Solver(K=3, output="correction")
    a, b = (Firm(n, solver).posterior_mean(op, x, 0.4, op.A(x), sigma=0.1) for n in (less, more))
    torch.testing.assert_close(a, b)


def test_a_plain_network_grows_as_well(started):
    less, more = (ResUNet(3, widths=(8, 16), noise_level=True, extra=extra) for extra in ((), ALL))
    more = started(spread(less), more)
    torch.testing.assert_close(more(x, x + 1, x, x, x, t, t, t), less(x, x + 1, t, t))


@pytest.mark.parametrize("unshuffle", [1, 2])
@pytest.mark.parametrize("extra", [(), ALL])
@pytest.mark.parametrize("level", [False, True])
def test_a_narrowed_network_sees_its_image_as_x_and_x_t(unshuffle, extra, level, started):
    more = spread(ResUNet(3, widths=(8, 16), unshuffle=unshuffle, noise_level=True, extra=extra))
    for name, p in more.named_parameters():
        if (name.startswith("conditioning.noise") and not level) or name == "conditioning.iteration":
            p.data.zero_()  # dropped: there is no iteration, nor a noise level without `level`
    one, nothing = PriorResUNet(3, widths=(8, 16), unshuffle=unshuffle, noise_level=level), torch.zeros_like(x)
    one = started(more, one, "prior")
    expected = more(x, x, nothing, nothing, nothing, t, t, t) if extra else more(x, x, t, t)
    found = one(x, t, t) if level else one(x, t)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)  # sums in another order


@pytest.mark.parametrize(("blocks", "more"), [((1, 2, 2), (3, 2, 4)), ((2, 2, 3), (2, 3, 3)), (1, 2)])
@pytest.mark.parametrize("kind", [ResUNet, PriorResUNet])
def test_a_deepened_network_computes_the_same(kind, blocks, more, started):
    shallow, deep = (kind(3, widths=(4, 8, 12), blocks=b) for b in (blocks, more))
    deep, images = started(spread(shallow, 0.3), deep), (x, x + 1)[: kind.images]
    torch.testing.assert_close(deep(*images, t), shallow(*images, t))
    for block in deep.up[-1].blocks:  # and the new ones can be trained
        torch.nn.init.normal_(block.conv2.weight)
    assert not torch.equal(deep(*images, t), shallow(*images, t))


def test_a_network_on_two_images_starts_from_one_on_one(started):
    """A bridge that sees the degraded image too, from a prior: at first it ignores that image."""
    one = spread(PriorResUNet(3, widths=(8, 16), blocks=1))
    two = started(one, ResUNet(3, widths=(8, 16), blocks=(2, 1)), "bridge")
    torch.testing.assert_close(two(x, torch.randn_like(x), t), one(x, t), rtol=1e-4, atol=1e-4)


TINY, CONTEXT = dict(widths=(4, 8)), dict(widths=(4, 8), extra=("context",))
REFUSED = {
    "cannot be given the previous iterate as well": (
        ResUNet(**CONTEXT), ResUNet(widths=(4, 8), extra=("previous", "context"))),
    "has a PriorResUNet, which sees other images": (PriorResUNet(**TINY), ResUNet(**TINY)),
    "do not fit this network": (ResUNet(**TINY, blocks=(2, 1)), ResUNet(**TINY, blocks=(1, 1))),
    "the weights of .* do not fit": (UNet(3, **SMALL), UNet(3, **SMALL | {"ch": 16}, extra=ALL)),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_weights_that_do_not_fit_or_would_mean_something_else_are_refused(message, started):
    """Shapes fit, or can be made to; what stands where does not."""
    with pytest.raises(ConfigError, match=message):
        started(*REFUSED[message])


def test_a_run_with_all_of_them_learns_and_starts_from_less(fit, tmp_path):
    fit("epochs=1", out="less")
    network = "{ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4, time_scale: 100, extra: [%s]}"
    start = f"init_from={tmp_path / 'less' / 'model.safetensors'}"
    fit(f"network={network % ', '.join(ALL)}", start, "epochs=3", "warm_start_epochs=0", out="more")
    model = firm.load(tmp_path / "more" / "model.safetensors")
    assert model.estimator.config["extra"] == tuple(ALL)
    rows = model.estimator.conditioning.iteration.abs().sum(1)
    assert (rows[:2] > 0).all()  # K = 2
    assert torch.equal(rows[2:], rows[1:2].expand(len(rows) - 2))  # later ones count as the last that was taught
    losses = [row["loss"] for row in read_log(tmp_path / "more") if "loss" in row]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("unshuffle", [1, 2])
@pytest.mark.parametrize("kind", [UNet, ResUNet])
@pytest.mark.filterwarnings("ignore:init_from")
def test_a_model_for_color_starts_one_for_gray_and_for_complex_images(unshuffle, kind, started):
    """On one channel it does what the model for color does on three equal ones; of two each begins with their mean."""
    shape = SMALL if kind is UNet else dict(widths=(8, 16))
    color = spread(kind(3, noise_level=True, unshuffle=unshuffle, extra=["previous"], **shape), 0.1)
    gray = started(color, kind(1, noise_level=True, unshuffle=unshuffle, extra=["previous"], **shape))
    one = x[:, :1]
    three = color(*(v.expand(-1, 3, -1, -1) for v in (one, one + 1, 2 * one)), t, t)
    torch.testing.assert_close(gray(one, one + 1, 2 * one, t, t), three.mean(1, keepdim=True), rtol=1e-4, atol=1e-5)
    two = started(color, kind(2, noise_level=True, unshuffle=unshuffle, extra=["previous"], **shape))
    given = x[:, :2].mean(1, keepdim=True)
    expected = gray(given, given + 1, 2 * given, t, t).expand(-1, 2, -1, -1)
    torch.testing.assert_close(two(x[:, :2], x[:, :2] + 1, 2 * x[:, :2], t, t), expected, rtol=1e-4, atol=1e-5)


def test_other_channels_are_said_in_words(started):
    with pytest.warns(UserWarning, match="is for images of 3 channels, and these have 2"):
        started(ResUNet(3, widths=(8,)), ResUNet(2, widths=(8,)))
