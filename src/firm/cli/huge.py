"""``firm restore ARRAY --out NAME.zarr``: an array that need not fit into memory, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from firm._util.checks import counted, in_both_units
from firm._util.terminal import printable
from firm.cli.options import Precision, user_errors


@user_errors()
def restore_huge(
    arrays: Sequence[Path], out: Path, others: Mapping[str, Any], *, sigma: str | None, value_range: str | None,
    precision: Precision, workers: str | None, device: str | None, task: str | None, **how: Any,
) -> None:  # fmt: skip
    """Restore one array by `firm.scale.restore_array`, and say what was done.

    Parameters
    ----------
    arrays, out
        What was named: a single array, and the zarr array to write.
    others
        Options of pictures that have no meaning here, by name; those that were given are refused.
    sigma, value_range, precision, workers, device, task, how
        As the command line has them.
    """
    from firm._util.checks import noise_level
    from firm._util.machine import choose_device
    from firm.cli.models import range_of
    from firm.scale import restore_array
    from firm.scale.urls import place

    given = [name for name, value in others.items() if value not in (None, False)]
    if given:
        raise ValueError(f"{given[0]} is for pictures, and not for an array that is restored block by block")
    if len(arrays) != 1 or task is None:
        raise ValueError(f"--out {out} restores one array block by block: name one, and its --task")
    source, target = place(arrays[0]), place(out)
    report = restore_array(
        source, target, task=task, sigma=None if sigma is None else noise_level(sigma),
        value_range=None if value_range is None else range_of(value_range, {}, arrays[0]),
        precision="float32" if precision == "auto" else precision,  # blocks agree to its rounding
        workers=int(workers) if workers is not None and workers.isdecimal() else workers,
        device=choose_device(device), **{key: value for key, value in how.items() if value is not None},
    )  # fmt: skip
    level = report["sigma"]
    done = f"{counted(report['now'], 'block')} of {report['blocks']} restored by {task}"
    words = f"{done}; noise {in_both_units(level, level)}; the array is {target}"
    Console(markup=False, soft_wrap=True).print(printable(words))
