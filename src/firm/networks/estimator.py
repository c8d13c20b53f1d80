"""What the learned estimators R_theta(x^{k+1}, x_t, t) of equation (78) share: how they are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from firm.networks.blocks import Conditioning, Stem
from firm.networks.settings import require_number, short

# What a network may see beside x^{k+1} and x_t, and how many further images that is.
EXTRA = {"previous": 1, "context": 2, "iteration": 0}


class Estimator(nn.Module):
    """Called as ``net(x, x_t, t)`` with images (B, C, H, W) and times (B,); a network defines `_run`.

    With ``noise_level=True`` it is called as ``net(x, x_t, t, sigma)``, sigma (B,) the noise level of the measurements.
    The images of ``extra`` stand after x_t, the iteration, (B,), comes last.
    """

    images = 2  # that it sees: x^{k+1} and x_t
    adamw_only = ("stem.", "head.", "conditioning.")  # no maps between features: parameters that Muon leaves to AdamW
    config: dict[str, Any]  # the arguments that it was built with
    stem: Stem
    conditioning: Conditioning

    def _prepare(self, levels: int, unshuffle: int, time_scale: float, noise_level: bool, extra: Sequence[str]) -> None:
        """What all of them have to know before their layers are built; settings that make no sense are refused."""
        kind = type(self).__name__
        require_number(kind, "time_scale", time_scale, 1e6)
        if not isinstance(noise_level, bool):
            raise ValueError(f"{kind}: noise_level must be true or false, got {short(noise_level)}")
        known = isinstance(extra, list | tuple) and all(name in EXTRA for name in extra)
        if not known or len(set(extra)) < len(extra):
            raise ValueError(f"{kind}: extra is a list out of {', '.join(EXTRA)}, got {short(extra)}")
        if extra and type(self).images == 1:
            raise ValueError(f"{kind} sees one image: it takes no extra, got {short(extra)}")
        self.images = type(self).images + sum(EXTRA[name] for name in extra)
        self.levels, self.unshuffle = levels, unshuffle
        self.stride = unshuffle * 2 ** (levels - 1)  # sides of the images are multiples of it

    def forward(self, x: Tensor, x_t: Tensor, *others: Tensor | None) -> Tensor:
        """Estimate from the data-consistent iterate `x` and the flow state `x_t`, both (B, C, H, W), and t, (B,)."""
        kind, images, scalars = type(self).__name__, (x, x_t, *others[: self.images - 2]), others[self.images - 2 :]
        for image in images[1:]:
            if image is None or image.shape != x.shape:
                shape = None if image is None else tuple(image.shape)
                extra = ", ".join(name for name in self.config.get("extra", ()) if EXTRA[name])
                also = f" (x, x_t and those of extra: {extra}; Firm.posterior_mean passes them)" if extra else ""
                raise ValueError(
                    f"{kind} takes {self.images} images of one shape{also}, got {tuple(x.shape)} and {shape}"
                )
        counts = "iteration" in self.config.get("extra", ())
        most = 2 + counts  # t, sigma (whose absence has a message of its own), k
        if not most - 1 <= len(scalars) <= most:
            wanted = " and then the iteration" if counts else ""
            raise ValueError(
                f"{kind} takes {self.images} images, then t, then sigma with noise_level=True{wanted}; "
                f"got {2 + len(others)} inputs"
            )
        t, *more = scalars
        k = more.pop() if counts else None
        return self._checked(images, t, more[0] if more else None, k)  # type: ignore[arg-type]

    def _run(self, images: tuple[Tensor, ...], shifts: tuple[Tensor, ...]) -> Tensor:
        """The network itself: images (B, C, H, W) and one shift (B, width, 1, 1) a block in, one image out."""
        raise NotImplementedError

    def _checked(
        self, images: tuple[Tensor, ...], t: Tensor, sigma: Tensor | None = None, k: Tensor | None = None
    ) -> Tensor:
        kind, x = type(self).__name__, images[0]
        if x.ndim != 4 or x.shape[1] != self.config["channels"]:
            raise ValueError(f"{kind} takes images (B, {self.config['channels']}, H, W), got {tuple(x.shape)}")
        if x.shape[-2] % self.stride or x.shape[-1] % self.stride:
            raise ValueError(
                f"{kind}: height and width must be multiples of {self.stride} "
                f"({self.levels} levels, unshuffle {self.unshuffle}), got {x.shape[-2]}x{x.shape[-1]}"
            )
        if (sigma is None) == self.config["noise_level"]:
            raise ValueError(
                f"{kind}: this network was built with noise_level=True and needs sigma, the noise of the measurements"
                if sigma is None
                else f"{kind}: sigma was given, but this network was built with noise_level=False"
            )
        return self._run(images, self.conditioning(t, sigma, k))


class OneImage(Estimator):
    """An estimator's network on one image: the velocity v(x, t) of an unconditional flow."""

    images = 1

    def forward(self, x: Tensor, t: Tensor, sigma: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Velocity at `x` (B, C, H, W) and `t` (B,)."""
        return self._checked((x,), t, sigma)
