"""The learned estimator R_theta(x^{k+1}, x_t, t) of equation (78): the paper's U-Net (Appendix D).

The layout is that of the flow priors the paper compares with: residual blocks with GroupNorm and Swish, strided
convolutions down, nearest-neighbor up, single-head attention at chosen resolutions and always in the middle. It
reproduces the published parameter counts to the unit.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from firm._util.checks import require
from firm.networks.blocks import Attention, Block, Conditioning, Head, Stem, Upsample
from firm.networks.estimator import Estimator, OneImage

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
        kind = type(self).__name__
        require(ch % 2 == 0, f"{kind}: ch must be even, got {ch}: only with ch even do sines and cosines come in pairs")
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
                self.up.append(Upsample(h))
                resolution *= 2

        self.head = Head(h, pixels, groups, unshuffle)
        widths = [layer.outputs for layer in [*self.down, *self.middle, *self.up] if isinstance(layer, Block)]
        self.conditioning = Conditioning(ch, widths, time_scale, noise_level, "iteration" in extra)
        _initialize(self)

    @classmethod
    def preset(cls, preset: str) -> UNet:
        """Build one of the paper's networks (Table 7): "celeba", "afhq" or "afhq-deblurring"."""
        require(preset in PRESETS, f"UNet: no preset {preset!r}; there are {', '.join(PRESETS)}")
        return cls(**PRESETS[preset])

    def _run(self, images: tuple[Tensor, ...], shifts: tuple[Tensor, ...]) -> Tensor:
        left = iter(shifts)  # one a block, in the order of the blocks
        h = self.stem(*images)
        skips = [h]
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
    last: set[nn.Module] = {net.head.conv}
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
