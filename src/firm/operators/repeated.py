"""One operator for a batch that holds its images several times: many samples of one posterior."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from firm.operators.base import LinearOperator, Operator
from firm.operators.checks import name


def repeated(op: LinearOperator, batch: int) -> LinearOperator:
    """The operator of `batch` images for several runs of them; one for a single image serves any number as it is."""
    if batch == 1:
        return op
    return RepeatedProx(op, batch) if hasattr(op, "prox_l2") else Repeated(op, batch)


class Repeated(Operator):
    """The operator of B images, applied to n B of them, run by run, so that masks of single samples fit."""

    def __init__(self, op: LinearOperator, batch: int) -> None:
        super().__init__()
        self.op: Any = op
        self.batch = batch
        for setting in ("cg_tol", "cg_iterations"):
            if hasattr(op, setting):
                setattr(self, setting, getattr(op, setting))

    def A(self, x: Tensor) -> Tensor:
        """Measure every run of images."""
        return torch.cat([self.op.A(part) for part in x.split(self.batch)])

    def A_adjoint(self, y: Tensor) -> Tensor:
        """The adjoint of every run of measurements."""
        return torch.cat([self.op.A_adjoint(part) for part in y.split(self.batch)])

    def __repr__(self) -> str:
        return name(self.op)  # messages are about the user's operator


class RepeatedProx(Repeated):
    """The same of an operator with a closed form."""

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        """The closed form of every run."""
        runs = len(z) // self.batch
        gammas = gamma.split(self.batch) if isinstance(gamma, Tensor) and gamma.ndim else [gamma] * runs
        parts = zip(z.split(self.batch), y.split(self.batch), gammas, strict=True)
        return torch.cat([self.op.prox_l2(z_i, y_i, gamma_i) for z_i, y_i, gamma_i in parts])
