"""Which studies there are, and which have been run in a folder. Loads no torch: a list should be there at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from firm.reproduce.catalogue import STUDIES, Study

RESULTS = "results.json"  # what every study writes to its folder


def overview(out: Path) -> None:
    """Print every study: of the paper, what it needs, how long it takes, whether it has been run in `out`."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("name", "paper", "shows", "needs", "--quick", "in full", "run here"):
        table.add_column(column, no_wrap=column in ("name", "--quick", "in full"))
    for study in STUDIES:
        needs = ", ".join([*study.data, *study.after]) or "-"
        table.add_row(
            study.name, study.paper, study.title, needs, minutes(study.quick), minutes(study.full), _was_run(study, out)
        )
    console = Console()
    console.print(table)
    console.print("--quick: ten images, two cores of an AMD EPYC. In full: one H200, trainings included.")


def _was_run(study: Study, out: Path) -> str:
    try:
        found = read_record(out / study.name)
    except ValueError:
        return "damaged"
    if found is None:
        return "-"
    return f"{'quick' if found['quick'] else 'full'}, {minutes(found['seconds'] / 60)}"


def minutes(value: float) -> str:
    """A time as people say it."""
    return f"{value * 60:.0f} s" if value < 0.95 else f"{value:.0f} min" if value < 90 else f"{value / 60:.1f} h"


def read_record(folder: Path) -> dict[str, Any] | None:
    """The results in a study's folder; None where it has not been run; a damaged file is an error that says so."""
    path = folder / RESULTS
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict) or not {"study", "tables", "figures", "notes", "machine"} <= found.keys():
        raise ValueError(f"{path} is damaged, or of another version of firm: run the study again")
    return found
