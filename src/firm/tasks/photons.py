"""Photon noise: pictures taken with little light, counted photons, and what a camera's sensor adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from firm.noise import Noise, Poisson, PoissonGaussian
from firm.noise.estimates import fit_photons
from firm.tasks.denoising import Denoising
from firm.tasks.inpainting import RandomInpainting
from firm.tasks.parameter import Parameter

PEAK = Parameter(
    float, "photons counted at white, on average", 30.0, low=0, above=True, high=1e6, drawn="log", picture={}
)  # fmt: skip


class PoissonDenoising(Denoising):
    """Every pixel counts photons, `peak` of them at white: y + 1 = 2 k / peak with k of a Poisson distribution."""

    name, picture, noise_settings = "poisson-denoising", "poisson-denoising", ("peak",)
    table = None  # type: ignore[assignment]
    sigma = None  # type: ignore[assignment]  # it is not the same everywhere
    peak = PEAK

    def noise(self, values: Mapping[str, Tensor], like: Tensor) -> Noise:
        """Return photon noise, whose gain is 2 / peak."""
        return Poisson(2 / values["peak"], check=False)

    @classmethod
    def estimated(cls, picture: Tensor, settings: Mapping[str, Any]) -> dict[str, float]:
        """Estimate the peak from how the variance of smooth parts grows with their brightness."""
        if "peak" in settings:
            return {}
        found = fit_photons(picture, read=False)
        return {"peak": 2 / found.gain, "peak_error": 2 * found.gain_error / found.gain**2}


class PoissonInpainting(RandomInpainting):
    """Photons are counted, and most pixels are missing: those of `random-inpainting` with the noise of photons."""

    name, picture, picture_file, noise_settings = "poisson-inpainting", "", "", ("peak",)
    table = None  # type: ignore[assignment]
    sigma = None  # type: ignore[assignment]
    peak = PEAK

    def noise(self, values: Mapping[str, Tensor], like: Tensor) -> Noise:
        """Return photon noise, whose gain is 2 / peak; where a pixel is missing, no light is seen."""
        return Poisson(2 / values["peak"], check=False)


class CameraDenoising(Denoising):
    """The noise of a phone or a system camera: photons, and read noise, in each channel.

    In units of [0, 1] the variance of raw values x is s x + r. Sensors have s from 0.0001 (base sensitivity) to 0.012
    (a phone in the dark), which is a gain of 2 s here, and a read noise of 2 sqrt(r). White balance multiplies red and
    blue, and with them the gain and the read noise of their channels. Images of other than three channels have none.
    """

    name, picture = "camera-denoising", "camera-denoising"
    noise_settings = ("gain", "read", "red", "blue")
    table = None  # type: ignore[assignment]
    sigma = None  # type: ignore[assignment]
    gain = Parameter(
        float, "what a photon adds to pixels in [-1, 1], in green", 0.01, low=0, above=True, high=2, drawn="log",
        picture={},
    )  # fmt: skip
    read = Parameter(
        float, "standard deviation of the read noise, for pixels in [-1, 1], in green", 0.02, low=0, above=True, high=2,
        drawn="log", picture={},
    )  # fmt: skip
    red = Parameter(
        float, "how much more red is amplified than green", 2.0, low=0.1, high=10, drawn="uniform", picture={}
    )
    blue = Parameter(
        float, "how much more blue is amplified than green", 1.5, low=0.1, high=10, drawn="uniform", picture={}
    )

    def noise(self, values: Mapping[str, Tensor], like: Tensor) -> Noise:
        """Return photon and read noise, of each channel where there are three."""
        gain, read = values["gain"], values["read"]
        if like.shape[1] == 3:
            balance = torch.stack([values["red"], torch.ones_like(gain), values["blue"]], dim=1)[..., None, None]
            gain, read = (v.reshape(-1, 1, 1, 1) * balance for v in (gain, read))
        return PoissonGaussian(gain, read, check=False)

    @classmethod
    def estimated(cls, picture: Tensor, settings: Mapping[str, Any]) -> dict[str, float]:
        """Estimate gain and read noise, of each channel where there are three that differ."""
        if {"gain", "read"} <= settings.keys():
            return {}
        if picture.shape[1] != 3 or bool((picture == picture[:, :1]).all()):
            one = fit_photons(picture[:, :1], read=True)
            found = {"gain": one.gain, "read": one.sigma, "gain_error": one.gain_error, "read_error": one.sigma_error}
            return {**found, "red": 1.0, "blue": 1.0}
        red, green, blue = (fit_photons(picture[:, i : i + 1], read=True) for i in range(3))
        found = {"gain": green.gain, "gain_error": green.gain_error, "read": green.sigma}
        found |= {"read_error": green.sigma_error}
        ratios = {"red": red.gain / green.gain, "blue": blue.gain / green.gain}
        return found | {key: min(max(value, 0.1), 10.0) for key, value in ratios.items()}
