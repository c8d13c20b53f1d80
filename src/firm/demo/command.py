"""The command line that does what a request does."""

from __future__ import annotations

import shlex

from firm.demo.problem import settings_of, task_of
from firm.demo.request import Request

TILE = 256  # what firm restore takes, if not told


def arguments(request: Request, tile: int = TILE, mask: str | None = None, picture: str | None = None) -> list[str]:
    """The words after ``firm``; `picture` and `mask` are files, by default as the visitor calls them."""
    words = ["restore", picture or _file(request.name)]
    words += ["--simulate" if request.clean else "--task", task_of(request)]
    for key, value in settings_of(request).items():
        words += [f"--{key}", str(value)]
    if request.sigma is not None:
        words += ["--sigma", f"{request.sigma:g}"]
    if mask is not None:
        words += ["--mask", mask]
    words += ["--model", request.model, "--steps", str(request.steps), "--samples", str(request.samples)]
    words += ["--seed", str(request.seed)]
    return words if tile == TILE else [*words, "--tile", str(tile)]


def command(request: Request, tile: int = TILE, mask: str | None = None) -> str:
    """The same as one line for a shell."""
    return "firm " + shlex.join(arguments(request, tile, mask))


def _file(name: str) -> str:
    """A name that no command takes for an option."""
    return f"./{name}" if name.startswith("-") else name
