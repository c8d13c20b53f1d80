"""Total variation: argmin_x 1/2 |W (A x - y)|^2 + weight TV(x), with x between -1 and 1; what CT is compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from firm.operators import LinearOperator


def total_variation(
    op: LinearOperator, y: Tensor, W: float | Tensor, weight: float, x: Tensor, iterations: int = 300
) -> Tensor:
    """Find the minimum by the primal-dual method of Chambolle and Pock (2011), preconditioned as Pock and Chambolle do.

    Step sizes are elementwise: 1 over the sums of the rows of K = (W A, gradient) for the dual variables, and of its
    columns for the primal one (their Lemma 2 with alpha = 1), which copes with weights of any range. A must have no
    negative entry.

    Parameters
    ----------
    op, y, W
        The operator, its measurements, and the root of their weights, 1 / standard deviation.
    weight
        Of the total variation (isotropic, of images in [-1, 1]).
    x
        Where to start, (B, C, H, W).
    iterations
        How many to make.
    """
    one = torch.ones_like(x)
    of_rays = W * op.A(one)
    sigma = torch.where(of_rays > 0, 1 / of_rays.clamp(min=1e-9), 0)
    tau = 1 / (op.A_adjoint(W * torch.ones_like(y)) + 4)  # four differences hold a pixel
    p, q, ahead = torch.zeros_like(y), x.new_zeros(2, *x.shape), x
    for _ in range(iterations):
        p = (p + sigma * W * (op.A(ahead) - y)) / (1 + sigma)
        q = q + gradient(ahead) / 2  # two entries of size 1 in a row
        q = q / (q.square().sum(0).sqrt() / weight).clamp(min=1)
        new = (x - tau * (op.A_adjoint(W * p) - divergence(q))).clamp(-1, 1)
        x, ahead = new, 2 * new - x
    return x


def objective(op: LinearOperator, y: Tensor, W: float | Tensor, weight: float, x: Tensor) -> float:
    """Return what `total_variation` makes small."""
    misfit = (W * (op.A(x) - y)).square().sum() / 2
    return float(misfit + weight * gradient(x).square().sum(0).sqrt().sum())


def gradient(x: Tensor) -> Tensor:
    """Differences to the pixel below and to the right, (2, B, C, H, W); 0 at the rim."""
    down, right = torch.zeros_like(x), torch.zeros_like(x)
    down[..., :-1, :] = x[..., 1:, :] - x[..., :-1, :]
    right[..., :-1] = x[..., 1:] - x[..., :-1]
    return torch.stack([down, right])


def divergence(q: Tensor) -> Tensor:
    """The negative adjoint of `gradient`."""
    down, right = q
    out = torch.zeros_like(down)
    out[..., :-1, :] += down[..., :-1, :]
    out[..., 1:, :] -= down[..., :-1, :]
    out[..., :-1] += right[..., :-1]
    out[..., 1:] -= right[..., :-1]
    return out
