"""The network of plain residual blocks: its layers written out again, its inputs, its use in training."""

import pytest
import torch
from helpers import interpreted, stirred
from torch.nn import functional as F

import firm
from firm.acceleration import fast_network
from firm.acceleration.compiled import compile_blocks, signatures
from firm.networks import GradientResStep, PriorResUNet, ResUNet
from firm.networks.res_unet import Level, PlainBlock
from firm.training.config import load_config
from firm.training.config_checks import ConfigError
from firm.training.optimizer import make_optimizers


def conv(h, weights, name, **more):
    return F.conv2d(h, weights[f"{name}.weight"], weights[f"{name}.bias"], **more)


def block(h, weights, name, shift):
    sizes = (sum(feature**2 for feature in h.unbind(1)) / h.shape[1] + 1e-6) ** 0.5
    inside = conv(h / sizes[:, None], weights, f"{name}.conv1", padding=1) + shift[:, :, None, None]
    return h + conv(inside * inside.sigmoid(), weights, f"{name}.conv2", padding=1)


def test_its_layers_are_what_its_docstring_says():
    """Three levels of 2, 1 and 3 blocks, pixels folded two by two: the whole network written out."""
    net = stirred(ResUNet(2, widths=(4, 6, 8), blocks=(2, 1, 3), unshuffle=2, attention=False))
    w, t = net.state_dict(), torch.tensor([0.2, 0.9])
    x, x_t = torch.randn(2, 2, 2, 16, 24).unbind()
    embedding = net.conditioning.time(firm.networks.estimator._sinusoid(t, 64))
    shifts = F.linear(F.silu(embedding), w["conditioning.project.weight"], w["conditioning.project.bias"])
    a0, a1, b0, c0, c1, c2, d0, e0, e1 = shifts.split([4, 4, 6, 8, 8, 8, 6, 4, 4], dim=1)
    first = conv(F.pixel_unshuffle(torch.cat([x, x_t], 1), 2), w, "stem.conv", padding=1)
    h = block(block(first, w, "down.0.blocks.0", a0), w, "down.0.blocks.1", a1)
    second = conv(h, w, "shrink.0", stride=2)
    third = conv(block(second, w, "down.1.blocks.0", b0), w, "shrink.1", stride=2)
    h = block(block(third, w, "before.blocks.0", c0), w, "before.blocks.1", c1)
    h = block(h, w, "after.blocks.0", c2)
    h = F.conv_transpose2d(h + third, w["enlarge.0.weight"], w["enlarge.0.bias"], stride=2)
    h = block(h, w, "up.0.blocks.0", d0)
    h = F.conv_transpose2d(h + second, w["enlarge.1.weight"], w["enlarge.1.bias"], stride=2)
    h = block(block(h, w, "up.1.blocks.0", e0), w, "up.1.blocks.1", e1)
    expected = F.pixel_shuffle(conv(h + first, w, "head", padding=1), 2)
    torch.testing.assert_close(net(x, x_t, t), expected, rtol=1e-4, atol=1e-5)
    assert net.stride == 8


def test_a_block_adds_as_much_to_large_features_as_to_small_ones():
    """Or blocks one after the other multiply, and training ends with pictures a million times too bright."""
    block = stirred(PlainBlock(6))
    x, shift = torch.randn(2, 6, 5, 7), torch.randn(2, 6, 1, 1)
    added = block(x, shift) - x
    torch.testing.assert_close(block(1000 * x, shift) - 1000 * x, added, rtol=1e-2, atol=1e-2)
    assert block(torch.zeros_like(x), shift).isfinite().all()  # a pixel whose features are all zero


@pytest.mark.parametrize("attention", [True, False])
def test_with_attention_every_pixel_sees_every_other(attention):
    net, t = stirred(ResUNet(widths=(4,), blocks=2, attention=attention)), torch.tensor([0.5])
    x, x_t = torch.randn(2, 1, 3, 16, 16).unbind()
    far = x.clone()
    far[..., -1, -1] += 5  # fifteen pixels away; the convolutions see six
    assert torch.equal(net(far, x_t, t)[..., 0, 0], net(x, x_t, t)[..., 0, 0]) is not attention


def test_it_starts_from_zero_and_learns_from_the_first_step():
    net = ResUNet(widths=(4, 8))
    x = torch.randn(1, 3, 8, 8)
    out = net(x, x, torch.tensor([0.5]))
    assert not out.any()
    (out - 1).square().sum().backward()
    assert net.head.bias.grad.abs().sum() > 0


def test_muon_has_the_maps_between_features():
    net = ResUNet(widths=(4, 8), blocks=1)
    config = load_config(None, ["optimizer=muon", "size=32"])
    _, muon = make_optimizers(config, net)
    chosen = {id(p) for group in muon.param_groups for p in group["params"]}
    names = {name for name, p in net.named_parameters() if id(p) in chosen}
    blocks = {f"{level}.blocks.0.conv{i}.weight" for level in ("down.0", "before", "up.0") for i in (1, 2)}
    attention = {f"attention.{part}.weight" for part in ("query", "key", "value", "project")}
    assert names == {*blocks, *attention, "shrink.0.weight", "enlarge.0.weight"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["network={class: ResNet}"], "did you mean 'ResUNet'"),
        (["network={class: ResUNet, width: 3}"], "ResUNet has no argument 'width'"),
        (["network={class: ResUNet, widths: [4, 8, 8], blocks: 0}"], "blocks must be a whole number"),
        (["network={class: ResUNet, widths: [4, 8, 8, 8, 8, 8, 8]}"], "multiple of the network's stride, 64"),
        (["network=ResUNet"], "write {class: ResUNet}"),
        (["network={class: PriorResUNet}"], "objective=paper trains UNet or ResUNet, not PriorResUNet"),
        (["network={class: ResUNet}", "objective=prior"], "trains PriorUNet or PriorResUNet, not ResUNet"),
        (["network={class: ResUNet}", "objective=unrolled"], "trains ISTANet, not ResUNet"),
        (["network={class: ResUNet}", "objective=denoiser"], "DRUNet or GradientStep or GradientResStep, not"),
        (["network={class: DRUNet}", "objective=bridge"], "PriorUNet or PriorResUNet or UNet or ResUNet, not DRUNet"),
    ],
)
def test_a_configuration_names_a_network_that_fits(settings, said):
    with pytest.raises(ConfigError, match=said):
        load_config(None, [*settings, "size=32", "task=deblurring"])


def test_another_class_starts_from_its_own_arguments():
    config = load_config(None, ["network=celeba", "network.class=ResUNet", "network.widths=[4, 8]", "size=32"])
    assert config.network == {"class": "ResUNet", "widths": [4, 8]}


@pytest.mark.parametrize("number", [1, 3])
def test_too_few_and_too_many_inputs_are_refused(number):
    net, x, t = ResUNet(widths=(4,), noise_level=True, extra=("iteration",)), torch.zeros(1, 3, 8, 8), torch.zeros(1)
    net(x, x, t, t, t)
    with pytest.raises(
        ValueError, match=r"ResUNet takes 2 images .*, then sigma .* and then the iteration; got inputs"
    ):
        net(x, x, *[t] * (number + (number == 3)))
    with pytest.raises(ValueError, match="this network was built with noise_level=True and needs sigma"):
        net(x, x, t, t)


def test_a_gradient_step_is_left_as_it_is():
    """It needs gradients inside, which kernels and graphs for restoring do not have."""
    step, flow = GradientResStep(widths=(4, 8)), PriorResUNet(widths=(4, 8))
    assert fast_network(step, "bf16") is step
    assert fast_network(flow, "bf16") is not flow


def test_its_blocks_are_compiled_and_compute_the_same():
    net = stirred(ResUNet(widths=(4, 8), blocks=(1, 2), noise_level=True))
    inputs = (*torch.randn(2, 1, 3, 8, 8).unbind(), torch.tensor([0.3]), torch.tensor([0.1]))
    found = {type(module) for module in signatures(net, inputs, bf16=False).values()}
    assert {"PlainBlock", "Stem", "Conditioning"} == {kind.__name__ for kind in found}
    with torch.no_grad():
        eager = net(*inputs)
        compile_blocks(net, backend="aot_eager")
        torch.testing.assert_close(net(*inputs), eager)


def check_fused_blocks(device):
    for B, width, H, W, number in ((1, 32, 8, 8, 2), (3, 24, 7, 5, 3), (2, 5, 60, 40, 1)):  # the last: several tiles
        level = stirred(Level(width, number)).requires_grad_(False).to(device, memory_format=torch.channels_last)
        x = torch.randn(B, width, H, W, generator=torch.Generator().manual_seed(width)).to(device) + 0.5
        x[:, :, 0, 0] = 0  # a pixel without features
        shifts = torch.randn(B, width * number, 1, 1, generator=torch.Generator().manual_seed(1)).to(device)
        given = x.clone()
        out = level._fused_blocks(x, iter(shifts.split(width, 1)))
        assert torch.equal(x, given)  # the skips still need it
        torch.testing.assert_close(out, level(x, iter(shifts.split(width, 1))), rtol=1e-4, atol=1e-4)


@pytest.mark.cuda
def test_the_fused_blocks_compute_the_same_on_a_gpu():
    pytest.importorskip("triton")
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
        check_fused_blocks("cuda")


def test_the_fused_blocks_compute_the_same():
    pytest.importorskip("triton")
    interpreted(__file__)


if __name__ == "__main__":
    check_fused_blocks("cpu")
