"""ISTA-Net+: iterations of ISTA unrolled into a network, with learned transforms (Zhang and Ghanem, 2018)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from firm.operators.base import LinearOperator
from firm.operators.subsample import first_guess


class ISTANet(nn.Module):
    """Restores images from measurements alone, ``net(op, y)``, in phases that share no weights.

    From x = A'y (super-resolution: the bicubic interpolation of y), in every phase k:

        r = x - lambda_k A'(A x - y)                                                   gradient step
        x = r + G B(soft(F(D r), theta_k))                                             learned proximal step

    D and G are convolutions into and out of the features, the transforms F and B two convolutions with a ReLU between
    them. B is trained towards the left inverse of F: |B(F(D r)) - D r|^2 is the symmetry residual of the phase.
    The defaults have 347,346 parameters, as in the paper's comparisons.

    Parameters
    ----------
    channels
        C of the images.
    phases
        Iterations.
    features
        Channels between the convolutions.
    """

    def __init__(self, channels: int = 3, phases: int = 9, features: int = 32) -> None:
        super().__init__()
        self.config: dict[str, Any] = dict(channels=channels, phases=phases, features=features)
        self.phases = nn.ModuleList(_Phase(channels, features) for _ in range(phases))
        # No maps between features: parameters that Muon leaves to AdamW.
        self.adamw_only = tuple(f"phases.{k}.proximal.{conv}." for k in range(phases) for conv in "DG")

    def forward(self, op: LinearOperator, y: Tensor, symmetry: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Images (B, C, H, W) from `y`, the measurements of any operator.

        With `symmetry`, also the symmetry residuals: mean squares, summed over the phases, (B,).
        """
        with _float32(y):
            y = y.to(torch.promote_types(y.dtype, torch.float32))
            x = first_guess(op, y)
        total = x.new_zeros(len(x))
        for phase in self.phases:
            x, residual = phase(op, x, y, symmetry)
            total = total if residual is None else total + residual
        return (x, total) if symmetry else x


class _Phase(nn.Module):
    """One iteration: a gradient step on |A x - y|^2 / 2 and the learned proximal step."""

    def __init__(self, channels: int, features: int) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.tensor(0.5))  # lambda_k
        self.proximal = _Proximal(channels, features)

    def forward(self, op: LinearOperator, x: Tensor, y: Tensor, symmetry: bool) -> tuple[Tensor, Tensor | None]:
        """The next iterate (B, C, H, W), and its symmetry residual (B,) where asked for."""
        with _float32(x):
            r = x - self.step * op.A_adjoint(op.A(x) - y)
        out: tuple[Tensor, Tensor | None] = self.proximal(r, symmetry)
        return out


class _Proximal(nn.Module):
    """r + G B(soft(F(D r), theta)); all convolutions 3x3, without bias."""

    compiled_alone = True

    def __init__(self, channels: int, features: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(0.01))
        self.D, self.G = _convolution(channels, features), _convolution(features, channels)
        self.F, self.B = _transform(features), _transform(features)

    def forward(self, r: Tensor, symmetry: bool) -> tuple[Tensor, Tensor | None]:
        """Map `r` (B, C, H, W) to the same shape; with the mean square of B(F(D r)) - D r where asked for, (B,)."""
        Dr = self.D(r)
        FDr = self.F(Dr)
        soft = FDr.sign() * F.relu(FDr.abs() - self.theta)  # every entry moves towards zero by theta, not beyond
        x = r + self.G(self.B(soft))
        if not symmetry:
            return x, None
        residual = (self.B(FDr) - Dr).to(r.dtype)  # summed up in float32, also where autocast made it bfloat16
        return x, residual.square().mean(dim=(1, 2, 3))


def _float32(x: Tensor) -> AbstractContextManager[Any]:
    """No autocast: operators have Fourier transforms, which need float32. (The meta device knows no autocast.)"""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def _transform(features: int) -> nn.Sequential:
    return nn.Sequential(_convolution(features, features), nn.ReLU(), _convolution(features, features))


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.xavier_normal_(convolution.weight)
    return convolution
