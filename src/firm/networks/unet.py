"""The learned estimator R_theta(x^{k+1}, x_t, t) of equation (78): the paper's U-Net (Appendix D).

The layout is that of the flow priors the paper compares with: residual blocks with GroupNorm and Swish, strided
convolutions down, nearest-neighbor up, single-head attention at chosen resolutions and always in the middle. It
reproduces the published parameter counts to the unit.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm.networks.estimator import Conditioning, Estimator, OneImage, Stem

PART = 1024  # pixels that look at all others at a time, on a CPU

PRESETS: dict[str, dict[str, Any]] = {  # Table 7, "Hyperparameters" of the paper
    "celeba": dict(side=128, ch=32, mult=(1, 2, 4, 8), blocks=6, attention=(16, 8)),  # 34,474,531
    "afhq": dict(side=256, ch=32, mult=(1, 2, 4, 8, 8), blocks=6, attention=(32, 16)),  # 59,918,883
    "afhq-deblurring": dict(side=256, ch=64, mult=(1, 2, 4, 8, 8), blocks=6, attention=(32, 16)),  # 239,412,291
}


class UNet(Estimator):
    """U-Net on the concatenation of x^{k+1} and x_t, conditioned on t; returns an image.

    `PriorUNet` is the same on one image.

    Parameters
    ----------
    channels
        C of the images.
    side
        Image side the attention sides refer to. The network itself runs at any size that its strides divide.
    ch, mult
        Width of level l is ``ch * mult[l]``; each level halves the resolution of the one before.
    blocks
        Residual blocks per level going down (one more going up): a number, or one for each level.
    attention
        Feature-map sides (at image side `side`) with self-attention after each block.
    groups
        Of GroupNorm, where they divide the width (else their greatest common divisor). A group of one channel cancels
        the embedding added before it: so it is in the first level of the paper's networks with ch = 32, and small
        networks should take fewer groups.
    unshuffle
        Fold ``unshuffle x unshuffle`` pixels into channels before the first level and back after the last: a
        compact network for large images. 1 is the paper's.
    time_scale
        Factor on t before the sinusoidal embedding. 1 feeds t in [0, 1] itself, as the priors' network does; the
        paper does not state its own. Diffusion code often uses 1000.
    noise_level
        Also condition on the measurement noise sigma, so that one model serves many noise levels.
    extra
        What else it sees, beyond the paper: "previous", the iterate z^k before this one; "context", two images that
        tell what was measured, (A'A + rho I)^-1 A'y and (A'A + rho I)^-1 A'A 1; "iteration", the number k.
    """

    def __init__(
        self,
        channels: int = 3,
        *,
        side: int = 128,
        ch: int = 32,
        mult: tuple[int, ...] = (1, 2, 4, 8),
        blocks: int | tuple[int, ...] = 6,
        attention: tuple[int, ...] = (16, 8),
        groups: int = 32,
        unshuffle: int = 1,
        time_scale: float = 1.0,
        noise_level: bool = False,
        extra: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        if ch % 2:
            raise ValueError(f"{type(self).__name__}: ch must be even, for sines and cosines in pairs, got {ch}")
        each = self._prepare(blocks, len(mult), unshuffle, extra)
        self.config = dict(
            channels=channels, side=side, ch=ch, mult=tuple(mult),
            blocks=each if isinstance(blocks, list | tuple) else blocks, attention=tuple(attention),
            groups=groups, unshuffle=unshuffle, time_scale=time_scale, noise_level=noise_level,
        )  # fmt: skip
        if extra:
            self.config["extra"] = tuple(extra)  # the paper's is saved without
        pixels = channels * unshuffle**2
        self.stem = Stem(self.images * pixels, ch, unshuffle)

        # Down: the stem, every block and every strided convolution leave a skip connection.
        self.down, skips, h, resolution = nn.ModuleList(), [ch], ch, side // unshuffle
        for level, m in enumerate(mult):
            for _ in range(each[level]):
                self.down.append(Block(h, ch * m, groups, attend=resolution in attention))
                h = ch * m
                skips.append(h)
            if level < len(mult) - 1:
                self.down.append(nn.Conv2d(h, h, 3, stride=2, padding=1))
                skips.append(h)
                resolution //= 2

        self.middle = nn.ModuleList([Block(h, h, groups, attend=True), Block(h, h, groups)])

        # Up: one block more than down, each on the concatenation with a skip.
        self.up = nn.ModuleList()
        for level, m in reversed(list(enumerate(mult))):
            for _ in range(each[level] + 1):
                self.up.append(Block(h + skips.pop(), ch * m, groups, attend=resolution in attention))
                h = ch * m
            if level > 0:
                self.up.append(_Upsample(h))
                resolution *= 2

        self.head = _Head(h, pixels, groups, unshuffle)
        widths = [layer.outputs for layer in [*self.down, *self.middle, *self.up] if isinstance(layer, Block)]
        self.conditioning = Conditioning(ch, widths, time_scale, noise_level, "iteration" in extra)
        _initialize(self)

    @classmethod
    def preset(cls, preset: str) -> UNet:
        """Build one of the paper's networks (Table 7): "celeba", "afhq" or "afhq-deblurring"."""
        if preset not in PRESETS:
            raise ValueError(f"UNet: no preset {preset!r}; there are {', '.join(PRESETS)}")
        return cls(**PRESETS[preset])

    def _run(self, h: Tensor, shifts: tuple[Tensor, ...]) -> Tensor:
        left, skips = iter(shifts), [h]  # one shift a block, in the order of the blocks
        for layer in self.down:
            h = layer(h, next(left)) if isinstance(layer, Block) else layer(h)
            skips.append(h)
        for layer in self.middle:
            h = layer(h, next(left))
        for layer in self.up:
            h = layer(h, next(left), skips.pop()) if isinstance(layer, Block) else layer(h)
        out: Tensor = self.head(h)
        return out


class PriorUNet(OneImage, UNet):
    """The same network on one image: the velocity v(x, t) of an unconditional flow.

    With the "celeba" preset it is the prior of the paper's comparisons, 34,473,667 parameters.
    """


def _initialize(net: UNet) -> None:
    """Uniform, variance 1/fan_out; the last layer of each residual branch and the head start almost at zero."""
    last = {net.head.conv, *(module.conv2 for module in net.modules() if isinstance(module, Block))}
    last |= {module.project for module in net.modules() if isinstance(module, Attention)}
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            parts = net.conditioning.widths if module is net.conditioning.project else [len(module.weight)]
            for part in module.weight.detach().split(parts):  # the blocks' maps are drawn as the separate ones they are
                fan_out = len(part) * part[0, 0].numel()
                bound = math.sqrt(3 * (1e-10 if module in last else 1) / fan_out)
                nn.init.uniform_(part, -bound, bound)
            assert module.bias is not None
            nn.init.zeros_(module.bias)


class Block(nn.Module):
    """Residual block with a shift added between its two convolutions, and attention after it where asked."""

    compiled_alone = True

    def __init__(self, inputs: int, outputs: int, groups: int, attend: bool = False) -> None:
        super().__init__()
        self.outputs = outputs
        self.norm1, self.conv1 = NormSwish(inputs, groups), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = NormSwish(outputs, groups), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.attention = Attention(outputs, groups) if attend else nn.Identity()

    def forward(self, x: Tensor, shift: Tensor, skip: Tensor | None = None) -> Tensor:
        """Map `x`, joined with `skip`, (B, inputs, H, W) to (B, outputs, H, W); `shift` is (B, outputs, 1, 1)."""
        if skip is not None:
            x = torch.cat([_DenseGradient.apply(x), _DenseGradient.apply(skip)], dim=1)  # type: ignore[no-untyped-call]
        h = self.conv1(self.norm1(x))
        h = self.conv2(self.norm2(h, shift))
        out: Tensor = self.attention(self.shortcut(x) + h)
        return out


class _DenseGradient(torch.autograd.Function):
    """The identity. Its backward pass copies the gradient out of that of a concatenation.

    Compiled, the copy is part of the kernel that makes the gradient; without it, views with holes are handed to the
    blocks before, which copy and add them slowly.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the input, and remember its layout."""
        last = x.is_contiguous(memory_format=torch.channels_last)
        ctx.layout = torch.channels_last if last else torch.contiguous_format
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Return the gradient in memory of its own, in the input's layout."""
        return grad.contiguous(memory_format=ctx.layout)


class GroupNorm(nn.GroupNorm):
    """Group normalization, in float32; of `groups` groups where they divide the channels, else of as many as do both.

    Compiled, it sums each channel over the pixels first, then over the group. torch's own decomposition copies to the
    (B, C, H, W) layout and back around every convolution in channels_last; sums over pixels need no copies, and the
    scaling joins the neighboring operations.
    """

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__(math.gcd(groups, channels), channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize features (B, C, H, W)."""
        if not torch.compiler.is_compiling():
            return super().forward(x)
        wide = x.float()
        pixels = x.shape[2] * x.shape[3] * (x.shape[1] // self.num_groups)
        sums = torch.stack([wide.sum((2, 3)), wide.square().sum((2, 3))])  # (2, B, C)
        mean, square = sums.unflatten(2, (self.num_groups, -1)).sum(-1) / pixels
        scale = torch.rsqrt((square - mean.square()).clamp(min=0) + self.eps)
        mean, scale = (v.repeat_interleave(x.shape[1] // self.num_groups, 1)[:, :, None, None] for v in (mean, scale))
        out = (wide - mean) * (scale * self.weight[:, None, None]) + self.bias[:, None, None]
        return out.to(torch.promote_types(x.dtype, self.weight.dtype))


class Attention(nn.Module):
    """Single-head self-attention over the pixels, added to its input."""

    in_parts = False  # set by `firm.fast` on a CPU; no gradients

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = GroupNorm(channels, groups)
        self.query, self.key, self.value, self.project = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        h = self.norm(x)
        q, k, v = (f(h).flatten(2).transpose(1, 2)[:, None] for f in (self.query, self.key, self.value))
        quick = self.in_parts and not x.is_cuda and not torch.compiler.is_compiling()
        h = _attention_in_parts(q, k, v) if quick else F.scaled_dot_product_attention(q, k, v)
        h = h[:, 0].transpose(1, 2).unflatten(2, x.shape[2:])
        out: Tensor = x + self.project(h)
        return out


def _attention_in_parts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k' / sqrt(C)) v of (B, 1, pixels, C), for `PART` queries at a time.

    torch's own kernel for CPUs takes three times as long for one head of 256 channels.
    """
    scale, k = q.shape[-1] ** -0.5, k.transpose(-1, -2).contiguous()
    return torch.cat([((part * scale) @ k).softmax(-1) @ v for part in q.split(PART, dim=2)], dim=2)


class NormSwish(GroupNorm):
    """Group normalization of ``x + shift``, then Swish."""

    fused = False  # set by `firm.fast` on a GPU with Triton; no gradients

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        """Map `x` (B, C, H, W), with `shift` (B, C, 1, 1) added first, to the same shape."""
        if self.fused and x.is_cuda and not torch.compiler.is_compiling():
            from firm.networks.triton_kernel import norm_swish

            return norm_swish(x, shift, self.weight, self.bias, self.num_groups, self.eps)
        return F.silu(super().forward(x if shift is None else x + shift.to(x.dtype)))


class _Upsample(nn.Module):
    """Double both sides by repeating pixels, then convolve."""

    compiled_alone = True

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, 2H, 2W)."""
        B, C, H, W = x.shape
        if torch.compiler.is_compiling():  # by broadcasting: a sum in the backward pass, where an index scatters
            x = x[:, :, :, None, :, None].expand(B, C, H, 2, W, 2).reshape(B, C, 2 * H, 2 * W)
        else:
            x = F.interpolate(x, scale_factor=2)
        out: Tensor = self.conv(x)
        return out


class _Head(nn.Module):
    """Normalization, Swish, and the convolution to the output's channels, unfolded into pixels."""

    compiled_alone = True

    def __init__(self, inputs: int, outputs: int, groups: int, unshuffle: int) -> None:
        super().__init__()
        self.norm, self.conv = NormSwish(inputs, groups), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.unshuffle = unshuffle

    def forward(self, x: Tensor) -> Tensor:
        """Map features to images (B, C, H, W)."""
        return F.pixel_shuffle(self.conv(self.norm(x)), self.unshuffle)
