"""What ``firm restore`` says when it has finished: a table, notes, and one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from firm._util.checks import counted, in_both_units
from firm._util.terminal import printable
from firm.restoration.calibration import in_words
from firm.restoration.earlier import Row

TITLES = {"nfe": "NFE", "psnr": "PSNR", "ssim": "SSIM", "lpips": "LPIPS"}
DIGITS = {"blur": 2, "sigma": 4, "seconds": 2, "psnr": 2, "ssim": 3, "lpips": 3}


def print_results(rows: Sequence[Row], out: Path, notes: Sequence[str] = ()) -> None:
    """Print the table of all pictures, what was noticed, what failed, and where to look.

    Parameters
    ----------
    rows
        One of each picture, as `firm.restoration.run.restore_files` returns them.
    out
        The folder of the results.
    notes
        What else the user should know.
    """
    console = Console(markup=False, soft_wrap=True)  # names may hold what looks like markup
    done = [row for row in rows if "error" not in row]
    advice = sorted({sentence for row in done for sentence in row.get("advice", [])})
    lines = [f"note: {sentence}" for sentence in [*notes, *advice]]
    lines += [f"not restored: {row['error']}" for row in rows if "error" in row]
    if done:
        console.print(_table(done), soft_wrap=False)
    for line in [*lines, _line(rows, done, out)]:
        console.print(printable(line).replace("\n", "\\n"))  # a name of a file may hold a line break


def _line(rows: Sequence[Row], done: Sequence[Row], out: Path) -> str:
    """What was done and how to look at it, in one line."""
    if not done:
        return f"none of the {counted(len(rows), 'picture')} could be restored"
    look = [f"see before and after in {p}" for row in done for p in row["written"] if p.endswith("_compare.png")][:1]
    scales = [row["std multiplied by"] for row in done if "std multiplied by" in row][:1]
    calibrated = [f"standard deviations multiplied by {in_words(scale)}" for scale in scales]
    return "; ".join([_done(done), _degradation(done), *calibrated, *look, f"results are in {out}"])


def _done(done: Sequence[Row]) -> str:
    """How many pictures were restored now, and how many before."""
    earlier = sum(bool(row.get("earlier")) for row in done)
    seconds = sum(row["seconds"] for row in done if not row.get("earlier"))
    task, count = done[0]["task"], counted(len(done) - earlier, "picture")
    if not earlier:
        return f"{count} restored by {task} in {seconds:.1f} s"
    if earlier == len(done):
        count = counted(earlier, "picture")
        return f"nothing to do: {count} restored by {task} in an earlier run (--force does that again)"
    again = f"{earlier} by an earlier run (--force does them again)"
    return f"{count} restored by {task} in {seconds:.1f} s, {again}"


def _degradation(done: Sequence[Row]) -> str:
    """The noise in both units, and the blur where it was estimated."""
    levels, widths = [row["sigma"] for row in done], [row["blur"] for row in done if "blur_error" in row]
    estimated = "estimated " if any(row["estimated"] for row in done) else ""
    noise = f"{estimated}noise {in_both_units(min(levels), max(levels))}"
    if not widths:
        return noise
    if len(done) == 1:
        return f"{noise}, estimated blur {widths[0]:.2f} ± {done[0]['blur_error']:.2f} pixels"
    return f"{noise}, estimated blur {min(widths):.2f} to {max(widths):.2f} pixels"


def _table(done: Sequence[Row]) -> Table:
    """One line a picture."""
    table = Table()
    table.add_column("picture")
    columns = ["blur"] * any("blur" in row for row in done) + ["sigma", "nfe", "seconds"]
    columns += ["psnr", "ssim", "lpips"] if any("psnr" in row for row in done) else []
    for column in columns:
        table.add_column(TITLES.get(column, column), justify="right")
    for row in done:
        table.add_row(Text(printable(Path(row["picture"]).name)), *(_cell(row, column) for column in columns))
    return table


def _cell(row: Row, column: str) -> str:
    value: Any = row.get(column, "")
    text = f"{value:.{DIGITS[column]}f}" if column in DIGITS and column in row else str(value)
    if column == "blur" and "blur_error" in row:
        return f"{text} ± {row['blur_error']:.2f} (est.)"
    return f"{text} (est.)" if column == "sigma" and row["estimated"] else text
