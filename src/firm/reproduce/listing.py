"""Which studies there are, and which have been run in a folder. Loads no torch: a list should be there at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from firm.reproduce.catalog import LAYOUTS, STUDIES, Study

RESULTS = "results.json"  # what every study writes to its folder
KEYS = {  # what is in it
    "study": str, "command": str, "quick": bool, "images": int | None, "model": str | None, "seed": int,
    "seconds": float | int, "machine": dict, "tables": list, "figures": list, "notes": list, "numbers": dict,
}  # fmt: skip
DATA_OPTIONS = {"celeba": "--data", "afhq": "--afhq"}


def overview(out: Path) -> None:
    """Print every study: what it is in the paper, how long it takes, whether it was run in `out`, what it shows."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file, not the folder of the studies")
    console = Console(highlight=False)
    rows = [("name", "in the paper", "--quick", "in full", "run here")]
    rows += [(s.name, s.paper, minutes(s.quick), in_full(s), _was_run(s, out)) for s in STUDIES]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    below = ["", *[f"    {study.title}{_needs(study)}" for study in STUDIES]]
    for (name, paper, *times, run), shown in zip(rows, below, strict=True):
        cells = [name.ljust(widths[0]), paper.ljust(widths[1]), *map(str.rjust, times, widths[2:4]), run]
        console.print(Text("  ".join(cells), "" if shown else "bold").append(shown and f"\n{shown}", "dim"))
    elsewhere = ", ".join(study.name for study in STUDIES if study.measured == "EPYC")
    console.print(
        "\n--quick: ten images, measured on two cores of an AMD EPYC. In full: for one H200, with trainings; ~ is an "
        f"estimate, the others were measured beside other work ({elsewhere} on the two cores). Studies marked + D-Flow "
        "take longer in full than the time shown, which does not include that method: it is slow, and was not timed in "
        "them. To leave it out, name the others with --methods."
    )
    for layout in LAYOUTS.values():
        console.print(layout)


def _needs(study: Study) -> str:
    needs = [DATA_OPTIONS[dataset] for dataset in study.data]
    needs += [f"the results of {' and '.join(study.after)}"] if study.after else []
    said = [*(["trains"] if study.trains else []), *([f"needs {', '.join(needs)}"] if needs else [])]
    said += [f"+ {study.without}"] if study.without else []
    return f" ({'; '.join(said)})" if said else ""


def _was_run(study: Study, out: Path) -> str:
    try:
        found = read_record(out / study.name)
    except ValueError:
        return "damaged"
    if found is None:
        return "-"
    return f"{'quick' if found['quick'] else 'full'}, {minutes(found['seconds'] / 60)}"


def in_full(study: Study) -> str:
    """How long a study takes in full; ~ where nobody has measured it."""
    return f"{'' if study.measured else '~'}{minutes(study.full)}"


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
    if not isinstance(found, dict) or not all(isinstance(found.get(key, ...), kind) for key, kind in KEYS.items()):
        raise ValueError(f"{path} is damaged, or of another version of firm: run the study again")
    return found
