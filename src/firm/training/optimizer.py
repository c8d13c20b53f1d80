"""Optimizers: AdamW as in the paper, or Muon for the matrices and AdamW for the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from firm.training.config import TrainConfig


class Muon(Optimizer):
    """Momentum whose update is orthogonalized: every direction of a weight matrix is learned at the same pace.

    Convolutions count as matrices, outputs x (inputs * kernel), transposed ones as inputs x (outputs * kernel). Updates
    are scaled to the size that AdamW's have (0.2 * sqrt(larger side)), so that both share one lr. Matrices of one
    shape are worked on together.

    A step is skipped, on the device, where the attribute ``found_inf`` is 1, as in torch's fused AdamW.

    Parameters
    ----------
    params
        Weights of two dimensions or more.
    lr, momentum, weight_decay
        As in `torch.optim.Muon`: of the update, of the running mean of gradients, and of the weights.
    """

    found_inf: Tensor | None = None

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float = 1e-3, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every matrix from its gradient."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    if not self.state[p]:
                        self.state[p]["momentum"] = torch.zeros_like(p)
                    shapes.setdefault(_as_matrix(p).shape, []).append(p)
            for shape, params in shapes.items():
                self._update(shape, params, group)

    def _update(self, shape: torch.Size, params: list[nn.Parameter], group: dict[str, Any]) -> None:
        gradients = torch.stack([_as_matrix(p.grad) for p in params if p.grad is not None])
        buffers = [self.state[p]["momentum"] for p in params]
        before = torch.stack([_as_matrix(b) for b in buffers])
        after = before.lerp(gradients, 1 - group["momentum"])
        scale = group["lr"] * 0.2 * max(shape) ** 0.5
        update = scale * _orthogonalize(gradients.lerp(after, group["momentum"]))  # Nesterov's look ahead
        decay: float | Tensor = group["lr"] * group["weight_decay"]
        if self.found_inf is not None:
            bad = self.found_inf.bool()
            after, update = torch.where(bad, before, after), torch.where(bad, 0, update)
            decay = torch.where(bad, 0, decay)
        # Of the parameters' shape and layout, so that the loops below are one kernel each.
        updates, moments = ([_like(m, p) for m, p in zip(ms, params, strict=True)] for ms in (update, after))
        weights: list[Tensor] = list(params)
        torch._foreach_copy_(buffers, moments)
        torch._foreach_mul_(weights, 1 - decay)
        torch._foreach_add_(weights, updates, alpha=-1)


def _as_matrix(weight: Tensor) -> Tensor:
    """Make a weight (first dimension) x (all others): in channels_last a view, with columns in another order."""
    return weight if weight.ndim == 2 else weight.movedim(1, -1).flatten(1)


def _like(matrix: Tensor, weight: Tensor) -> Tensor:
    """Undo `_as_matrix` for a matrix of the shape of `weight`."""
    if weight.ndim == 2:
        return matrix
    outputs, inputs, *kernel = weight.shape
    return matrix.reshape(outputs, *kernel, inputs).movedim(-1, 1)


def _orthogonalize(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Set all singular values of (n, rows, columns) to about 1 (0.7 to 1.2), by a quintic Newton-Schulz iteration.

    The coefficients trade exactness for speed: small singular values grow 3.4-fold an iteration. In bfloat16 on a GPU.
    """
    X = matrices.bfloat16() if matrices.is_cuda else matrices
    wide = X.shape[-2] <= X.shape[-1]
    X = X if wide else X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315), X, beta=3.4445)
    return (X if wide else X.mT).to(matrices.dtype)


def make_optimizers(config: TrainConfig, net: nn.Module) -> list[Optimizer]:
    """Make the optimizers of a configuration; between them they hold every parameter once.

    Parameters
    ----------
    config
        The configuration, of which `optimizer`, `lr`, `betas`, `weight_decay` and `fused` count here.
    net
        The network. Its attribute ``adamw_only``, if any, holds the beginnings of the names that Muon leaves to AdamW.

    Returns
    -------
    AdamW, and after it Muon where that is asked for and there are matrices for it.
    """
    apart: tuple[str, ...] = getattr(net, "adamw_only", ())
    matrices = [
        p for name, p in net.named_parameters()
        if config.optimizer == "muon" and p.ndim >= 2 and not name.startswith(apart)
    ]  # fmt: skip
    chosen = {id(p) for p in matrices}
    adamw = torch.optim.AdamW(
        [p for p in net.parameters() if id(p) not in chosen], lr=config.lr, betas=(config.betas[0], config.betas[1]),
        weight_decay=config.weight_decay, fused=config.fused, foreach=None if config.fused else False,
    )  # fmt: skip
    if not matrices:
        return [adamw]
    return [adamw, Muon(matrices, lr=config.lr, weight_decay=config.weight_decay)]
