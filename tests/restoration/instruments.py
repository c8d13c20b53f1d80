"""Instruments as a user would write them; the tests name this file as ``instruments.py:Class``."""

from types import SimpleNamespace

import torch

from firm.operators import Fourier, as_real, from_functions
from firm.tasks import BaseTask, Parameter


class Window(BaseTask):
    """The outer `rim` pixels are not measured, and the others by how far down they lie in the whole image."""

    sigma = Parameter(float, "noise level", 0.03, low=0)
    rim = Parameter(int, "pixels that are cut off", 2, low=0)

    def build(self, values):
        r = self.rim

        def gain(H):
            return torch.linspace(0.5, 1.5, H)[r : H - r, None]

        op = from_functions(
            lambda x: gain(x.shape[-2]) * x[..., r : x.shape[-2] - r, r : x.shape[-1] - r],
            lambda y: torch.nn.functional.pad(gain(y.shape[-2] + 2 * r) * y, (r,) * 4),
        )
        op.made_for = self.shape
        return op


class Mosaic(BaseTask):
    """One color a pixel, in stripes: y is (B, 1, H, W)."""

    def build(self, values):
        stripes = (torch.arange(self.shape[1]) % 3 == torch.arange(3)[:, None])[:, None]
        return from_functions(lambda x: (stripes * x).sum(1, keepdim=True), lambda y: stripes * y)


class Sums(BaseTask):
    """Sums of rows of all channels: y is (B, C H), a vector; images of 12x10 pixels only."""

    def build(self, values):
        H, W = self.shape
        return from_functions(
            lambda x: x.sum(3).flatten(1) / 3, lambda y: (y / 3).reshape(len(y), -1, H, 1).expand(-1, -1, -1, W)
        )


class Scan(BaseTask):
    """Every other line of the Fourier transform: y is complex. Of complex images where `images` says so."""

    images = Parameter(str, "real or complex", "real", choices=("real", "complex"))

    def build(self, values):
        mask = torch.zeros(self.shape)
        mask[:, ::2] = 1
        return as_real(Fourier(mask, complex_images=True)) if self.images == "complex" else Fourier(mask)


class Square(BaseTask):
    """For images of 32x32 pixels only."""

    def __init__(self, size=32, **settings):
        super().__init__(size, **settings)
        if self.shape != (32, 32):
            raise ValueError("the sensor has 32x32 pixels")

    def build(self, values):
        return from_functions(lambda x: x[..., :20], lambda y: torch.nn.functional.pad(y, (0, 12)))


class Nothing(BaseTask):
    """Whose A forgets to return."""

    def build(self, values):
        return SimpleNamespace(A=lambda x: None, A_adjoint=lambda y: None)


class NoOperator(BaseTask):
    """Whose operator is none."""

    def operator(self, seed=42, indices=(0,)):
        pass
