"""What the commands share: options with the same checks, and errors told in a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer


def _seed(value: int) -> int:
    from firm._util.seeds import require_seed  # it loads torch

    return require_seed(value, typer.BadParameter)


def _seconds(value: float) -> float:
    if not 0 <= value <= 3600 or math.isnan(value):
        raise typer.BadParameter(f"must be from 0 to 3600 seconds, got {value}")
    return value


def whole_number(least: int) -> Callable[[object], int]:
    """The parser of an option that takes whole numbers from `least` on; typer's own message speaks of an int range."""

    def parse(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = least - 1
        if number < least:
            raise typer.BadParameter(f"must be a whole number of at least {least}, got {value}")
        return number

    return parse


Device = Annotated[
    str | None, typer.Option(help="cpu, cuda or cuda:N (the N-th GPU, from 0); default: the GPU if there is one.")
]
MaxMegapixels = Annotated[
    float, typer.Option(min=0, help="Larger pictures are refused before they are read: they may fill the memory.")
]
Key = Annotated[str | None, typer.Option(help="Arrays: the name of the array to read, in files that hold several.")]
SEED = _seed  # callbacks of options
SECONDS = _seconds


def told(error: Exception) -> str:
    """An error as a sentence for the user; what the system says of a full disk does not say what to do."""
    from firm._util.files import is_full

    if not is_full(error):
        return str(error)
    return (
        "there is no room left on the disk for the results. What was written before is whole: "
        "make room, then give the same command again"
    )


@contextmanager
def in_words(out: Path | None = None) -> Iterator[None]:
    """Tell what the user can mend in a sentence, without a traceback; hold the folder `out` meanwhile."""
    from firm._util.locks import folder_lock

    try:
        with folder_lock(out):
            yield
    except (ValueError, OSError) as error:
        raise typer.BadParameter(told(error)) from error
    except (MemoryError, RuntimeError) as error:
        from firm._util.device import lacks_memory
        from firm.evaluation.run import EvaluationError

        if isinstance(error, EvaluationError):
            raise typer.BadParameter(str(error)) from error
        if not lacks_memory(error):
            raise
        raise typer.BadParameter("there is not enough memory for this: try smaller images or batches") from error
