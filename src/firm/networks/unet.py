"""The learned estimator R_theta(x^{k+1}, x_t, t) of eq. learned_z_update: the paper's U-Net (Appendix D).

The layout is that of the flow priors the paper compares with: residual blocks with GroupNorm and Swish, strided
convolutions down, nearest-neighbour up, single-head attention at chosen resolutions and always in the middle. It
reproduces the published parameter counts to the unit.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from firm.networks.blocks import Attention, Block, Conditioning, Head, Stem, Upsample
from firm.networks.fine import Fine
from firm.networks.settings import require_number, short, whole, wholes

PRESETS: dict[str, dict[str, Any]] = {  # Table "Hyperparameters" of the paper
    "celeba": dict(side=128, ch=32, mult=(1, 2, 4, 8), blocks=6, attention=(16, 8)),  # 34,474,531
    "afhq": dict(side=256, ch=32, mult=(1, 2, 4, 8, 8), blocks=6, attention=(32, 16)),  # 59,918,883
    "afhq-deblurring": dict(side=256, ch=64, mult=(1, 2, 4, 8, 8), blocks=6, attention=(32, 16)),  # 239,412,291
}


EXTRA = {"previous": 1, "context": 2, "iteration": 0}  # what a network may see beside x^{k+1} and x_t: images of it


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
    fine
        Beyond the paper too: widths of thin levels around an unshuffled network, the first at full resolution (`Fine`).
    """

    images = 2  # that it sees: x^{k+1} and x_t
    # No maps between features: parameters that Muon leaves to AdamW.
    adamw_only = ("stem.", "head.", "conditioning.", "fine.stem.", "fine.head.")

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
        fine: tuple[int, ...] = (),
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
        fine = wholes(kind, "fine", fine, 8192, 6, least=0)
        if unshuffle % 2 ** len(fine):
            raise ValueError(f"{kind}: {len(fine)} fine levels need unshuffle to be a multiple of {2 ** len(fine)}")
        beyond = {"extra": tuple(extra), "fine": fine}
        self.config.update({name: value for name, value in beyond.items() if value})  # the paper's are saved without
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
        self.fine = Fine(self.images * channels, channels, fine, ch, h, unshuffle, groups) if fine else None
        widths = [layer.outputs for layer in [*self.down, *self.middle, *self.up] if isinstance(layer, Block)]
        widths += [*fine, *fine]  # on the way down, on the way up
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
        every = self.conditioning(t, sigma, k)  # one a block, in the order of the blocks; those of the fine levels last
        n = len(self.config.get("fine", ()))
        shifts, down, up = iter(every), every[len(every) - 2 * n : len(every) - n], every[len(every) - n :]
        h = self.stem(*images)
        levels: list[Tensor] = []
        if self.fine is not None:
            joined, levels = self.fine.descend(images, down)
            h = h + joined
        skips = [h]
        for layer in self.down:
            h = layer(h, next(shifts)) if isinstance(layer, Block) else layer(h)
            skips.append(h)
        for layer in self.middle:
            h = layer(h, next(shifts))
        for layer in self.up:
            h = layer(h, next(shifts), skips.pop()) if isinstance(layer, Block) else layer(h)
        out: Tensor = self.head(h)
        return out if self.fine is None else out + self.fine.ascend(h, levels, up)

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


def _initialise(net: UNet) -> None:
    """Uniform, variance 1/fan_out; the last layer of each residual branch and the head start almost at zero."""
    last: set[nn.Module] = {net.head.conv}
    if net.fine is not None:
        last |= {net.fine.head.conv, net.fine.fold[-1]}
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
