import pytest
import torch
from helpers import stirred

import firm
from firm import UNet
from firm.networks import DRUNet
from firm.networks.unet import Attention

TINY = dict(side=16, ch=8, mult=(1, 2), blocks=1, groups=4, attention=(8,))


@pytest.mark.parametrize(
    ("build", "parameters", "attentions"),
    [
        (lambda: UNet.preset("celeba"), 34_474_531, 14),  # counted in the priors' code, notes/protocol.md 3.2
        (lambda: UNet.preset("afhq"), 59_918_883, 27),
        (lambda: UNet.preset("afhq-deblurring"), 239_412_291, 27),
        (lambda: UNet(ch=64, mult=(1, 2, 4), blocks=2, attention=(16,), unshuffle=2), 15_742_220, 6),
        (DRUNet, 32_640_960, 0),
    ],
)
def test_networks_have_the_published_number_of_parameters(build, parameters, attentions):
    with torch.device("meta"):
        net = build()
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert sum(isinstance(m, Attention) for m in net.modules()) == attentions


def test_a_gradient_reaches_every_parameter_of_the_papers_network():
    net, x = UNet.preset("celeba"), torch.rand(1, 3, 16, 16) * 2 - 1
    model = firm.Firm(net, firm.Solver(K=1))
    firm.velocity_loss(model, firm.operators.Identity(), x, x, torch.randn_like(x), torch.tensor([0.5])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize(("channels", "unshuffle", "size"), [(1, 1, (16, 16)), (2, 2, (12, 20)), (3, 1, (12, 20))])
def test_any_size_the_strides_divide(channels, unshuffle, size):
    net = UNet(channels, unshuffle=unshuffle, **TINY)
    x = torch.randn(2, channels, *size)
    assert net(x, x, torch.tensor([0.1, 0.9])).shape == x.shape


def test_other_sizes_give_a_clear_error():
    net = UNet(1, unshuffle=2, **TINY)
    x = torch.zeros(1, 1, 18, 16)
    with pytest.raises(ValueError, match=r"multiples of 4 .*got 18x16"):
        net(x, x, torch.zeros(1))
    with pytest.raises(ValueError, match=r"\(B, 1, H, W\), got \(1, 3, 16, 16\)"):
        net(torch.zeros(1, 3, 16, 16), torch.zeros(1, 3, 16, 16), torch.zeros(1))
    with pytest.raises(ValueError, match=r"no preset 'celebA'; there are celeba, afhq"):
        UNet.preset("celebA")
    with pytest.raises(ValueError, match="ch must be even"):
        UNet(ch=7)


def test_noise_level_input_is_asked_for_and_only_then_taken():
    x, t = torch.zeros(1, 1, 16, 16), torch.zeros(1)
    with pytest.raises(ValueError, match="needs sigma"):
        UNet(1, noise_level=True, **TINY)(x, x, t)
    with pytest.raises(ValueError, match="noise_level=False"):
        UNet(1, **TINY)(x, x, t, t)
    assert UNet(1, noise_level=True, **TINY)(x, x, t, t).isfinite().all()  # sigma = 0 is a level too


def test_the_time_scale_is_a_setting():
    x, x_t = torch.randn(2, 1, 1, 16, 16)
    slow, fast = (UNet(1, time_scale=scale, **TINY) for scale in (1.0, 1000.0))
    fast.load_state_dict(stirred(slow).state_dict())
    torch.testing.assert_close(slow(x, x_t, torch.tensor([0.5])), fast(x, x_t, torch.tensor([0.0005])))


def test_samples_do_not_depend_on_the_batch():
    net = stirred(UNet(1, **TINY))
    x, x_t, t = torch.randn(3, 1, 16, 16), torch.randn(3, 1, 16, 16), torch.rand(3)
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(net(x[order], x_t[order], t[order]), net(x, x_t, t)[order])


def test_starts_almost_at_zero():
    x = torch.randn(1, 3, 32, 32)
    assert UNet(ch=8, mult=(1, 2), blocks=1, attention=())(x, x, torch.tensor([0.5])).abs().max() < 1e-3
