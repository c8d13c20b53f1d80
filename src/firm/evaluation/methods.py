"""What can be evaluated. A method is one function, ``method(op, y, sigma, generator) -> images``; all share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from firm._model import Firm
from firm._sampling import Generators, Integrator, sample
from firm._util.custom import custom_code
from firm.operators import LinearOperator, data_consistency
from firm.restoration.own_network import network_class
from firm.tasks import BaseTask

# Operator, measurements, noise level, one generator per image (or one for all): restored images (B, C, H, W).
Method = Callable[[LinearOperator, Tensor, float, Generators], Tensor]


@dataclass(frozen=True)
class NamedMethod:
    """A method with the label of its row in the tables, its network calls per image, and what tells it from others.

    The fingerprint is a hash of weights and settings: results of another model under the same label are not its own.
    """

    label: str
    run: Method
    nfe: int | None = 0  # None where it depends on the image
    fingerprint: str = ""
    settle: Callable[[BaseTask], NamedMethod | None] | None = None  # where settings depend on the task: see `on`

    def on(self, task: BaseTask) -> NamedMethod | None:
        """The method with the settings it has in a task; None where it does not do the task."""
        return self if self.settle is None else self.settle(task)


def degraded(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
    """The measurement itself or, where it is not an image (subsampled, Fourier), its zero-filled adjoint."""
    x = op.A_adjoint(y)
    return x if y.is_complex() or y.shape != x.shape else y


def plain_solve(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
    """(A'A + rho I)^-1 A'y with the paper's rho = 0.01: data consistency and nothing learned."""
    return data_consistency(op, torch.zeros_like(op.A_adjoint(y)), y, 0.01)


def plain_methods() -> list[NamedMethod]:
    """The first two rows of every table; they need no model."""
    return [NamedMethod("degraded", degraded), NamedMethod("data-consistency", plain_solve)]


def firm_method(model: Firm, steps: int, name: str = "FIRM", integrator: Integrator = "euler") -> NamedMethod:
    """FIRM with N = `steps` of an `integrator`, as in `firm.sample`; `name` tells several models in a table apart."""

    def run(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
        with custom_code(network=network_class(model)):
            return sample(model, op, y, steps, sigma=sigma, generator=generator, integrator=integrator)

    label, fingerprint = f"{name} N={steps}", model.fingerprint()
    if integrator != "euler":  # which is the paper's: its rows are called as they were
        label, fingerprint = f"{label} {integrator}", f"{fingerprint}-{integrator}"
    return NamedMethod(label, run, model.calls(steps, integrator), fingerprint)
