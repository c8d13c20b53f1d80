"""How the learned estimators R_theta(x^{k+1}, x_t, t) of equation (78) are called, and the smallest one of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from firm._util.checks import require, short
from firm.networks.blocks import Conditioning, Stem

# What a network may see beside x^{k+1} and x_t, and how many further images that is.
EXTRA = {"previous": 1, "context": 2, "iteration": 0}


class Estimator(nn.Module):
    """Base of the U-Nets, called as ``net(x, x_t, t)`` with images (B, C, H, W) and times (B,).

    With ``noise_level=True`` a network is called as ``net(x, x_t, t, sigma)``, where sigma (B,) is the noise level of
    the measurements. The images of ``extra`` stand after x_t, and the iteration, (B,), comes last.

    A subclass builds its layers, `stem` and `conditioning` among them, and defines `_run`.
    """

    images = 2  # that it sees: x^{k+1} and x_t
    adamw_only = ("stem.", "head.", "conditioning.")  # no maps between features: parameters that Muon leaves to AdamW
    config: dict[str, Any]  # the arguments that it was built with
    stem: Stem
    conditioning: Conditioning

    def _prepare(self, levels: int, unshuffle: int, extra: Sequence[str]) -> None:
        """Set what follows from the settings before there are layers: the images it sees and its stride."""
        kind = type(self).__name__
        known = set(extra) <= EXTRA.keys() and len(set(extra)) == len(extra)
        require(known, f"{kind}: extra is a list out of {', '.join(EXTRA)}, got {short(extra)}")
        require(not extra or self.images > 1, f"{kind} sees one image: it takes no extra, got {short(extra)}")
        self.images = type(self).images + sum(EXTRA[name] for name in extra)
        self.levels, self.unshuffle = levels, unshuffle
        self.stride = unshuffle * 2 ** (levels - 1)  # the sides of the images are multiples of it

    def forward(self, x: Tensor, x_t: Tensor, *others: Tensor | None) -> Tensor:
        """Estimate the clean images from the data-consistent iterate and the state of the flow.

        Parameters
        ----------
        x, x_t
            x^{k+1} and x_t of Algorithm 3, (B, C, H, W).
        others
            The further images of ``extra``, (B, C, H, W); then t, (B,); then, if the network was built to take them,
            sigma and the iteration k, (B,).

        Returns
        -------
        The estimate, (B, C, H, W).
        """
        counts = "iteration" in self.config.get("extra", ())
        images, scalars = (x, x_t, *others[: self.images - 2]), list(others[self.images - 2 :])
        if any(image is None or image.shape != x.shape for image in images):
            shapes = [None if image is None else tuple(image.shape) for image in images]
            extra = ", ".join(name for name in self.config.get("extra", ()) if EXTRA[name])
            also = f" (x, x_t and those of extra: {extra}; Firm.posterior_mean passes them)" if extra else ""
            raise ValueError(f"{type(self).__name__} takes {self.images} images of one shape{also}, got {shapes}")
        if not 1 + counts <= len(scalars) <= 2 + counts:  # t, sigma (whose absence has a message of its own), k
            raise ValueError(
                f"{type(self).__name__} takes {self.images} images, then t, then sigma with noise_level=True"
                f"{' and then the iteration' if counts else ''}; got {2 + len(others)} inputs"
            )
        k = scalars.pop() if counts else None
        return self._checked(images, *scalars, k=k)  # type: ignore[arg-type]

    def _run(self, images: tuple[Tensor, ...], shifts: tuple[Tensor, ...]) -> Tensor:
        """The network itself: images (B, C, H, W) and one shift (B, width, 1, 1) a block in, one image out."""
        raise NotImplementedError

    def _checked(
        self, images: tuple[Tensor, ...], t: Tensor, sigma: Tensor | None = None, k: Tensor | None = None
    ) -> Tensor:
        """Run the network on images that it can take, with a noise level if and only if it was built for one."""
        check_images(self, images[0], f"{self.levels} levels, unshuffle {self.unshuffle}")
        if (sigma is None) == self.config["noise_level"]:
            raise ValueError(
                f"{type(self).__name__}: this network was built with noise_level=True and needs sigma, the noise of "
                "the measurements"
                if sigma is None
                else f"{type(self).__name__}: sigma was given, but this network was built with noise_level=False"
            )
        return self._run(images, self.conditioning(t, sigma, k))


class OneImage(Estimator):
    """Mixin that makes an estimator's network one on a single image: the velocity v(x, t) of an unconditional flow."""

    images = 1

    def forward(self, x: Tensor, t: Tensor, sigma: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Return the velocity, (B, C, H, W), at the states `x` (B, C, H, W) and times `t` (B,)."""
        return self._checked((x,), t, sigma)


class MLP(nn.Module):
    """The estimator of the toy problem, for points of the plane: a perceptron on [x, x_t, t].

    Parameters
    ----------
    width, depth
        Features of a hidden layer, and the number of hidden layers.
    """

    def __init__(self, width: int = 128, depth: int = 3) -> None:
        super().__init__()
        self.config: dict[str, Any] = dict(width=width, depth=depth)
        sizes = [5] + [width] * depth
        hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.SiLU())]
        self.layers = nn.Sequential(*hidden, nn.Linear(width, 2))

    def forward(self, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Estimate from the points `x` and `x_t`, both (B, 2), and the times `t`, (B,); returns (B, 2)."""
        if x.ndim != 2 or x.shape[1] != 2:
            raise ValueError(f"the toy problem's model takes points of the plane, (B, 2), got {tuple(x.shape)}")
        out: Tensor = self.layers(torch.cat([x, x_t, t[:, None]], dim=1))
        return out


def check_images(net: nn.Module, x: Tensor, scales: str = "") -> None:
    """Raise ValueError unless the network takes images of the shape of `x`, which is to be (B, C, H, W).

    C has to be the ``channels`` of its ``config``, H and W multiples of its ``stride``, of which `scales` says why.
    Messages are made only where they are needed: forming them would fix the sizes of a network that is exported.
    """
    kind, channels, stride = type(net).__name__, net.config["channels"], getattr(net, "stride", 1)  # type: ignore[index]
    if x.ndim != 4 or x.shape[1] != channels:
        raise ValueError(f"{kind} takes images (B, {channels}, H, W), got {tuple(x.shape)}")
    if x.shape[2] % stride or x.shape[3] % stride:
        raise ValueError(
            f"{kind}: height and width must be multiples of {stride} ({scales}), got {x.shape[2]}x{x.shape[3]}"
        )
