"""Algorithm 3: the operator-aware estimate of E[x_1 | x_t, y], and the flow-only ablation beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from firm.noise.base import Noise
from firm.operators.base import LinearOperator, data_consistency

Output = Literal["direct", "correction"]
Estimator = Callable[..., Tensor]  # (x, x_t, t) or, for noise-conditioned networks, (x, x_t, t, sigma)
Sigma = float | Tensor | Noise | None  # the noise of y: its level, one for each sample, (B,), or a model of it


class PosteriorMean(Protocol):
    """What sampling and training ask of a model: an estimate of E[x_1 | x_t, y]."""

    def posterior_mean(
        self, op: LinearOperator, x_t: Tensor, t: float | Tensor, y: Tensor, *, sigma: Sigma = None,
    ) -> Tensor:  # fmt: skip
        """Estimate the clean images, (B, ...), at state `x_t` and time `t`, a float or (B,)."""
        ...


def posterior_mean(
    estimator: Estimator, op: LinearOperator, x_t: Tensor, t: float | Tensor, y: Tensor, K: int = 5,
    rho: float | Tensor = 0.01, beta: float = 0.5, *, output: Output = "direct",
    sigma: Sigma = None, extra: Sequence[str] = (), told: bool = True,
    callback: Callable[[int, Tensor, Tensor], None] | None = None, depths: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Estimate E[x_1 | x_t, y] by K steps of half-quadratic splitting (Algorithm 3), differentiable throughout.

    Parameters
    ----------
    estimator
        The network R_theta, called as ``estimator(x, x_t, t)``, or with `sigma` as a fourth argument where given.
    op
        The forward operator A.
    x_t, t
        State of the flow, (B, ...), and its time in [0, 1), a float or (B,).
    y
        Measurements.
    K, rho, beta
        Number of iterations, coupling of the data-consistency step, and damping in [0, 1].
    output
        "direct" is the paper's: the network returns the estimate. "correction": it returns what to add to x^{k+1}.
    sigma
        Noise level of y, a float or (B,), for networks that take it; or a model of the noise (`firm.noise`), whose
        likelihood the data-consistency step then solves with, and whose level such networks are told.
    extra
        What the network sees in addition to the paper's inputs, see `firm.UNet`: "previous", "context", "iteration",
        "noise".
    told
        Whether the network takes the noise level, where `sigma` is given.
    callback
        Called with (k + 1, x^{k+1}, z^{k+1}) after every iteration.
    depths
        For training: a number of iterations for every sample, (B,), from 1 to K. Returns the iterate z^k of that
        number, with gradients through its own iteration alone: those before it run without. No callback is called.

    Returns
    -------
    The estimate z^K, in the shape of `x_t`. The measurements are trusted: `firm.prepare` is what checks them.
    """
    if not (K >= 1 and 0 <= beta <= 1):
        raise ValueError(f"posterior_mean: need K >= 1 (flow_only is K = 0) and beta in [0, 1], got {K} and {beta}")
    t, z = vector(t, x_t), x_t
    noise, sigma = _noise_and_level(sigma, op, y, x_t, told)
    context = _context(op, y, x_t, rho, noise, extra)

    def iteration(z: Tensor, k: int | Tensor) -> tuple[Tensor, Tensor]:
        x = data_consistency(op, z, y, rho, noise)
        z_hat = _estimate(estimator, x, x_t, t, sigma, output, extra, z, context, k)
        return x, torch.lerp(x, z_hat.to(x.dtype), beta)  # (1 - beta) x + beta z_hat, in one kernel

    if depths is None:
        for k in range(K):
            x, z = iteration(z, k)
            if callback is not None:
                callback(k + 1, x, z)
        return z
    with torch.no_grad():
        iterates = [z]
        for k in range(K - 1):
            iterates.append(iteration(iterates[-1], k)[1])
        z = torch.stack(iterates)[depths - 1, torch.arange(len(z), device=z.device)]
    return iteration(z, depths - 1)[1]


def flow_only(
    estimator: Estimator, op: LinearOperator, x_t: Tensor, t: float | Tensor, y: Tensor, *,
    output: Output = "direct", sigma: Sigma = None, rho: float | Tensor = 0.01, extra: Sequence[str] = (),
    told: bool = True,
) -> Tensor:  # fmt: skip
    """One network call on [A'y, x_t], no solver: the ablation of Appendix E, and the warm start of training.

    `rho` is used for the context only, in networks that see it.
    """
    t = vector(t, x_t)
    noise, sigma = _noise_and_level(sigma, op, y, x_t, told)
    context = _context(op, y, x_t, rho, noise, extra)
    with torch.autocast(y.device.type, enabled=False):  # a user's A' would be rounded to bfloat16
        Aty = op.A_adjoint(y)
    return _estimate(estimator, Aty, x_t, t, sigma, output, extra, x_t, context, 0)


def _noise_and_level(
    sigma: Sigma, op: LinearOperator, y: Tensor, like: Tensor, told: bool
) -> tuple[Noise | None, Tensor | None]:
    """The noise model to solve with, if any, and the level of every sample, (B,), for a network that is told it."""
    if not isinstance(sigma, Noise):
        return None, None if sigma is None or not told else vector(sigma, like)
    with torch.autocast(y.device.type, enabled=False):
        noise = sigma.on(op, y, like)
        return noise, noise.level(y).to(like.dtype) if told else None


def _context(
    op: LinearOperator, y: Tensor, like: Tensor, rho: float | Tensor, noise: Noise | None, extra: Sequence[str]
) -> list[Tensor]:
    """Images that tell the network what was measured.

    They are (A'A + rho I)^-1 A'y, and where: the same with A 1 for y ("context"); and where it is how noisy ("noise",
    see `firm.noise.Noise.relative`), which is 0 everywhere for noise of one level.
    """
    images = []
    with torch.autocast(y.device.type, enabled=False):  # a user's A would be rounded to bfloat16
        if "context" in extra:
            zero, Aone = torch.zeros_like(like), op.A(torch.ones_like(like))
            images = [data_consistency(op, zero, y, rho), data_consistency(op, zero, Aone, rho)]
        if "noise" in extra:
            images.append(torch.zeros_like(like) if noise is None else noise.relative(op, y, like))
    return images


def vector(value: float | Tensor, x: Tensor) -> Tensor:
    """One value per sample of `x` (B, ...), as a tensor (B,)."""
    if not isinstance(value, Tensor):  # filled in, not copied: nothing waits, and a CUDA graph cannot copy from the CPU
        return x.new_full((x.shape[0],), float(value))
    value = value.to(x.device, x.dtype)
    if value.ndim > 0 and value.shape != (x.shape[0],):
        raise ValueError(f"expected a number or one per sample, ({len(x)},), got shape {tuple(value.shape)}")
    return value.expand(x.shape[0])


def _estimate(
    estimator: Estimator, x: Tensor, x_t: Tensor, t: Tensor, sigma: Tensor | None, output: Output,
    extra: Sequence[str], z: Tensor, context: Sequence[Tensor], k: int | Tensor,
) -> Tensor:  # fmt: skip
    """R_theta of equation (78), Appendix B.2; images first, then a number for each sample."""
    images = [x, x_t, *([z] if "previous" in extra else []), *context]
    scalars = [t] if sigma is None else [t, sigma]
    if "iteration" in extra:
        scalars.append(k.to(t.dtype) if isinstance(k, Tensor) else torch.full_like(t, k))
    r = estimator(*images, *scalars)
    if r.shape != x.shape:  # it would be broadcast
        raise ValueError(f"the estimator returned {tuple(r.shape)}, where the images are {tuple(x.shape)}")
    if output not in ("direct", "correction"):
        raise ValueError(f'output must be "direct" or "correction", got {output!r}')
    return r if output == "direct" else x + r
