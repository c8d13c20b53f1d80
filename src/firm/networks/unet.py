"""The learned estimator R_theta(x^{k+1}, x_t, t) of eq. learned_z_update: the paper's U-Net (Appendix D).

The layout is that of the flow priors the paper compares with: residual blocks with GroupNorm and Swish, strided
convolutions down, nearest-neighbour up, single-head attention at chosen resolutions and always in the middle. It
reproduces the published parameter counts to the unit.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm.networks.norm_swish import GroupNorm, NormSwish
from firm.networks.settings import require_number, short, whole, wholes

PRESETS: dict[str, dict[str, Any]] = {  # Table "Hyperparameters" of the paper
    "celeba": dict(side=128, ch=32, mult=(1, 2, 4, 8), blocks=6, attention=(16, 8)),  # 34,474,531
    "afhq": dict(side=256, ch=32, mult=(1, 2, 4, 8, 8), blocks=6, attention=(32, 16)),  # 59,918,883
    "afhq-deblurring": dict(side=256, ch=64, mult=(1, 2, 4, 8, 8), blocks=6, attention=(32, 16)),  # 239,412,291
}


EXTRA = {"previous": 1, "context": 2, "iteration": 0}  # what a network may see beside x^{k+1} and x_t: images of it
ITERATIONS = 8  # of the solver that a network tells apart; later ones count as the last


class UNet(nn.Module):
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

    images = 2  # that it sees: x^{k+1} and x_t
    adamw_only = ("stem.", "head.", "conditioning.")  # no maps between features: parameters that Muon leaves to AdamW

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
        kind = type(self).__name__
        channels, unshuffle = whole(kind, "channels", channels, 4096), whole(kind, "unshuffle", unshuffle, 64)
        side, ch = whole(kind, "side", side, 65536), whole(kind, "ch", ch, 8192)
        groups = whole(kind, "groups", groups, 65536)
        mult = wholes(kind, "mult", mult, 256, 12)
        attention = wholes(kind, "attention", attention, 65536, 32, least=0)
        one = not isinstance(blocks, list | tuple)
        each = (whole(kind, "blocks", blocks, 100),) * len(mult) if one else wholes(kind, "blocks", blocks, 100, 12)
        require_number(kind, "time_scale", time_scale, 1e6)
        if ch % 2:
            raise ValueError(f"{kind}: ch must be even, got {ch}: only with ch even do sines and cosines come in pairs")
        if not isinstance(noise_level, bool):
            raise ValueError(f"{kind}: noise_level must be true or false, got {short(noise_level)}")
        self.config: dict[str, Any] = dict(
            channels=channels, side=side, ch=ch, mult=mult, blocks=blocks if one else each, attention=attention,
            groups=groups, unshuffle=unshuffle, time_scale=time_scale, noise_level=noise_level,
        )  # fmt: skip
        if len(each) != len(mult):
            raise ValueError(f"{kind}: blocks must be one number or one a level, got {short(blocks)} for {len(mult)}")
        if not isinstance(extra, list | tuple) or any(name not in EXTRA for name in extra):
            raise ValueError(f"{kind}: extra is a list out of {', '.join(EXTRA)}, got {short(extra)}")
        if extra:
            self.config["extra"] = tuple(extra)  # the paper's networks are saved without it, as before
        self.images = type(self).images + sum(EXTRA[name] for name in extra)
        self.unshuffle = unshuffle
        self.stride = unshuffle * 2 ** (len(mult) - 1)
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
                self.up.append(Upsample(h))
                resolution *= 2

        self.head = Head(h, pixels, groups, unshuffle)
        widths = [layer.outputs for layer in [*self.down, *self.middle, *self.up] if isinstance(layer, Block)]
        self.conditioning = Conditioning(ch, widths, time_scale, noise_level, "iteration" in extra)
        _initialise(self)

    @classmethod
    def preset(cls, preset: str) -> UNet:
        """The paper's networks: "celeba", "afhq" and "afhq-deblurring"."""
        if preset not in PRESETS:
            raise ValueError(f"UNet: no preset {preset!r}; there are {', '.join(PRESETS)}")
        return cls(**PRESETS[preset])

    def forward(self, x: Tensor, x_t: Tensor, *others: Tensor | None) -> Tensor:
        """Estimate from the data-consistent iterate `x` and the flow state `x_t`, both (B, C, H, W), and t, (B,).

        Called as ``net(x, x_t, t)``; with ``noise_level=True`` as ``net(x, x_t, t, sigma)``, sigma (B,) the noise level
        of the measurements. The images of `extra` stand after x_t, the iteration, (B,), comes last.
        """
        images, scalars = (x, x_t, *others[: self.images - 2]), others[self.images - 2 :]
        for image in images[1:]:
            if image is None or image.shape != x.shape:
                shape = None if image is None else tuple(image.shape)
                raise ValueError(f"UNet takes {self.images} images of one shape, got {tuple(x.shape)} and {shape}")
        if not scalars:
            raise ValueError(f"UNet takes {self.images} images, then t, got {self.images} inputs")
        t, *more = scalars
        k = more.pop() if more and "iteration" in self.config.get("extra", ()) else None
        return self._run(images, t, more[0] if more else None, k)  # type: ignore[arg-type]

    def _run(
        self, images: tuple[Tensor, ...], t: Tensor, sigma: Tensor | None = None, k: Tensor | None = None
    ) -> Tensor:
        self._check(images[0], sigma)
        shifts = iter(self.conditioning(t, sigma, k))  # one a block, in the order of the blocks
        h = self.stem(*images)
        skips = [h]
        for layer in self.down:
            h = layer(h, next(shifts)) if isinstance(layer, Block) else layer(h)
            skips.append(h)
        for layer in self.middle:
            h = layer(h, next(shifts))
        for layer in self.up:
            h = layer(h, next(shifts), skips.pop()) if isinstance(layer, Block) else layer(h)
        out: Tensor = self.head(h)
        return out

    def _check(self, x: Tensor, sigma: Tensor | None) -> None:
        kind = type(self).__name__
        if x.ndim != 4 or x.shape[1] != self.config["channels"]:
            raise ValueError(f"{kind} takes images (B, {self.config['channels']}, H, W), got {tuple(x.shape)}")
        if x.shape[-2] % self.stride or x.shape[-1] % self.stride:
            raise ValueError(
                f"{kind}: height and width must be multiples of {self.stride} "
                f"({len(self.config['mult'])} levels, unshuffle {self.unshuffle}), got {x.shape[-2]}x{x.shape[-1]}"
            )
        if (sigma is None) == self.config["noise_level"]:
            raise ValueError(
                f"{kind}: this network was built with noise_level=True and needs sigma, the noise of the measurements"
                if sigma is None
                else f"{kind}: sigma was given, but this network was built with noise_level=False"
            )


class PriorUNet(UNet):
    """The same network on one image: the velocity v(x, t) of an unconditional flow.

    With the "celeba" preset it is the prior of the paper's comparisons, 34,473,667 parameters.
    """

    images = 1

    def forward(self, x: Tensor, t: Tensor, sigma: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Velocity at `x` (B, C, H, W) and `t` (B,)."""
        if self.images != 1:
            raise ValueError("PriorUNet sees one image: it takes no extra")
        return self._run((x,), t, sigma)


class Conditioning(nn.Module):
    """What t, and the noise level where the network takes it, add between the convolutions of every block.

    The blocks' linear maps are one matrix: one product serves all blocks.
    """

    def __init__(
        self, ch: int, widths: list[int], time_scale: float, noise_level: bool, iteration: bool = False
    ) -> None:
        super().__init__()
        self.ch, self.widths, self.time_scale = ch, widths, time_scale
        self.time = _embedding(ch, 4 * ch)
        self.noise = _embedding(ch, 4 * ch) if noise_level else None
        self.iteration = nn.Parameter(torch.zeros(ITERATIONS, 4 * ch)) if iteration else None  # one row for each k
        self.project = nn.Linear(4 * ch, sum(widths))

    def forward(self, t: Tensor, sigma: Tensor | None, k: Tensor | None = None) -> tuple[Tensor, ...]:
        """Map t, sigma and the iteration k, all (B,), to one shift (B, width, 1, 1) a block."""
        embedding: Tensor = self.time(_sinusoid(t * self.time_scale, self.ch))
        if self.noise is not None and sigma is not None:
            level = sigma.clamp(min=1e-4).log() / math.log(1e-4)  # 1 at 1e-4, 0 at 1
            embedding = embedding + self.noise(_sinusoid(level * self.time_scale, self.ch))
        if self.iteration is not None and k is not None:
            embedding = embedding + self.iteration[k.long().clamp(max=ITERATIONS - 1)]
        shifts: Tensor = self.project(F.silu(embedding))
        return shifts[:, :, None, None].split(self.widths, dim=1)


class Block(nn.Module):
    """Residual block with a shift added between its two convolutions, and attention after it where asked."""

    def __init__(self, inputs: int, outputs: int, groups: int, attend: bool = False) -> None:
        super().__init__()
        self.outputs = outputs
        self.norm1, self.conv1 = NormSwish(inputs, groups), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = NormSwish(outputs, groups), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.attention = Attention(outputs, groups) if attend else nn.Identity()

    def forward(self, x: Tensor, shift: Tensor, skip: Tensor | None = None) -> Tensor:
        """Map `x`, joined with `skip`, (B, inputs, H, W) to (B, outputs, H, W); `shift` is (B, outputs, 1, 1)."""
        x = x if skip is None else torch.cat([_dense_gradient(x), _dense_gradient(skip)], dim=1)
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
        """Return the input."""
        last = x.is_contiguous(memory_format=torch.channels_last)
        ctx.layout = torch.channels_last if last else torch.contiguous_format
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Return the gradient in memory of its own, in the input's layout."""
        return grad.contiguous(memory_format=ctx.layout)


def _dense_gradient(x: Tensor) -> Tensor:
    out: Tensor = _DenseGradient.apply(x)  # type: ignore[no-untyped-call]
    return out


class Attention(nn.Module):
    """Single-head self-attention over the pixels, residual."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = GroupNorm(channels, groups)
        self.query, self.key, self.value, self.project = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to the same shape."""
        h = self.norm(x)
        q, k, v = (f(h).flatten(2).transpose(1, 2)[:, None] for f in (self.query, self.key, self.value))
        h = F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).unflatten(2, x.shape[2:])
        out: Tensor = x + self.project(h)
        return out


class Upsample(nn.Module):
    """Nearest-neighbour doubling and a convolution."""

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


class Stem(nn.Module):
    """The first convolution, on all images together, with their pixels folded into channels."""

    def __init__(self, inputs: int, outputs: int, unshuffle: int) -> None:
        super().__init__()
        self.conv, self.unshuffle = nn.Conv2d(inputs, outputs, 3, padding=1), unshuffle

    def forward(self, *images: Tensor) -> Tensor:
        """Map one or two batches (B, C, H, W) to features."""
        joined = images[0] if len(images) == 1 else torch.cat(images, dim=1)
        out: Tensor = self.conv(F.pixel_unshuffle(joined, self.unshuffle))
        return out


class Head(nn.Module):
    """Normalisation, Swish, and the convolution to the output's channels, unfolded into pixels."""

    def __init__(self, inputs: int, outputs: int, groups: int, unshuffle: int) -> None:
        super().__init__()
        self.norm, self.conv = NormSwish(inputs, groups), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.unshuffle = unshuffle

    def forward(self, x: Tensor) -> Tensor:
        """Map features to images (B, C, H, W)."""
        return F.pixel_shuffle(self.conv(self.norm(x)), self.unshuffle)


def _embedding(ch: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(ch, width), nn.SiLU(), nn.Linear(width, width))


def _sinusoid(t: Tensor, width: int) -> Tensor:
    """Sines and cosines of `t` (B,) at width/2 frequencies from 1 down to 1e-4, (B, width)."""
    half = width // 2
    k = torch.arange(half, device=t.device, dtype=torch.float32)
    phase = t.float()[:, None] * torch.exp(-k * (math.log(10_000) / max(half - 1, 1)))
    return torch.cat([phase.sin(), phase.cos()], dim=1).to(t.dtype)


def _initialise(net: UNet) -> None:
    """Uniform, variance 1/fan_out; the last layer of each residual branch and the head start almost at zero."""
    last = {net.head.conv}
    for module in net.modules():
        if isinstance(module, Block):
            last.add(module.conv2)
        elif isinstance(module, Attention):
            last.add(module.project)
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            parts = net.conditioning.widths if module is net.conditioning.project else [len(module.weight)]
            for part in module.weight.detach().split(parts):  # the blocks' maps are drawn as the separate ones they are
                fan_out = len(part) * part[0, 0].numel()
                bound = math.sqrt(3 * (1e-10 if module in last else 1) / fan_out)
                nn.init.uniform_(part, -bound, bound)
            assert module.bias is not None
            nn.init.zeros_(module.bias)
