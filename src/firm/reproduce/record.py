"""What a study leaves: results.json with everything that the report shows, its tables as Markdown and LaTeX."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm.reproduce.listing import RESULTS
from firm.reproduce.settings import SEED, Settings
from firm.reproduce.tables import Table, latex, markdown, terminal


@dataclass(frozen=True)
class Figure:
    """A picture of a study, in its folder; whether it may be shown to others (faces and cats of data sets may not)."""

    file: str
    title: str
    free: bool = False


class Clock:
    """Seconds since a study began."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def seconds(self) -> float:
        """So far, to a tenth."""
        return round(time.perf_counter() - self.start, 1)


def record(
    settings: Settings,
    study: str,
    clock: Clock,
    *,
    images: int | None = None,
    model: str | None = None,
    tables: Sequence[Table] = (),
    figures: Sequence[Figure] = (),
    notes: Sequence[str] = (),
    numbers: dict[str, Any] | None = None,
    seed: int = SEED,
    quick: bool | None = None,
) -> dict[str, Any]:
    """Write ``results.json``, ``table.md`` and ``table.tex`` to the study's folder, and print the tables.

    `notes` say what differs from the paper and why; `numbers` is whatever else was measured. `quick` is False in
    studies that do all they can with --quick too.
    """
    out = settings.folder(study)
    results: dict[str, Any] = {
        "study": study, "command": settings.command, "quick": settings.quick if quick is None else quick,
        "images": images, "model": model,
        "seed": seed, "seconds": clock.seconds(), "machine": describe_machine(settings.device),
        "tables": [table.as_json() for table in tables], "figures": [asdict(figure) for figure in figures],
        "notes": list(notes), "numbers": numbers or {},
    }  # fmt: skip
    if tables:
        text = [f"**{table.title}**\n\n{markdown(table)}" if len(tables) > 1 else markdown(table) for table in tables]
        write_atomically(out / "table.md", "\n".join(text))
        write_atomically(out / "table.tex", "\n".join(latex(table) for table in tables))
    write_atomically(out / RESULTS, json.dumps(results, indent=1))
    console = Console(highlight=False)
    for table in tables:
        console.print(terminal(table))
    for note in notes:
        console.print(f"* {note}", markup=False)
    kinds = [*(["table.md, table.tex"] if tables else []), *[figure.file for figure in figures], RESULTS]
    console.print(f"{study}: {clock.seconds():.0f} s; {', '.join(kinds)} in {out}", markup=False)
    return results
