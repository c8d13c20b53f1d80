"""Operators whose adjoint is none."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import torch
from commands import Result


def operators(folder: Path, rng: random.Random, count: int = 50) -> Result:
    """Wrong operators, from 16 to 1024 pixels: each must be refused."""
    from firm.operators import Blur, dot_test, from_functions, gaussian_kernel

    blur = Blur(gaussian_kernel(9, 1.5))
    skewed = Blur(torch.rand(5, 5, generator=torch.Generator().manual_seed(0)))
    faults: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
        "factor 2": (blur.A, lambda y: 2 * blur.A_adjoint(y)),
        "sign": (blur.A, lambda y: -blur.A_adjoint(y)),
        "not transposed": (skewed.A, skewed.A),
        "affine": (lambda x: blur.A(x) + 0.1, blur.A_adjoint),
        "non-linear": (lambda x: blur.A(x).abs(), blur.A_adjoint),
        "NaN": (lambda x: blur.A(x) * float("nan"), blur.A_adjoint),
        "shape": (blur.A, lambda y: blur.A_adjoint(y)[..., :-1]),
        "shifted": (blur.A, lambda y: blur.A_adjoint(y).roll(1, -1)),
        "zero": (blur.A, lambda y: 0 * y),
        "one pixel": (blur.A, lambda y: _one_off(blur.A_adjoint(y))),
    }
    wrong = []
    for i in range(count):
        name, (A, adjoint) = list(faults.items())[i % len(faults)]
        side = (16, 64, 128, 512, 1024)[i // len(faults) % 5]
        torch.manual_seed(rng.randrange(2**31))
        try:
            dot_test(from_functions(A, adjoint), (1, 1, side, side))
        except ValueError:
            continue
        except BaseException as error:
            wrong.append(f"{name} at {side}: {type(error).__name__}: {error}")
            continue
        wrong.append(f"{name} at {side} passed")
    return count - len(wrong), count, wrong


def _one_off(x: torch.Tensor) -> torch.Tensor:
    """The image with its first row doubled."""
    x = x.clone()
    x[..., 0, :] *= 2
    return x
