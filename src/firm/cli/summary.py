"""What ``firm restore`` prints when it is done: a table of the pictures, notes, and one line on what was done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from firm._util.checks import counted, in_both_units
from firm._util.terminal import printable
from firm.restoration.calibration import in_words
from firm.restoration.earlier import Row

GRAY_LEVELS = 127.5  # of 255, in a unit of pixels in [-1, 1]
DIGITS = {"blur": 2, "sigma": 4, "noise": 1, "seconds": 2, "psnr": 2, "ssim": 3, "lpips": 3}  # of the table's numbers
PLAIN = {"blur": "blur (pixels)", "noise": "noise (of 255)", "N": "steps"}  # what columns are called for photographs
OTHERWISE = "not as you like it? --strength 2 smooths more, --strength 0.5 keeps more; --task says what else is wrong"


def print_results(rows: Sequence[Row], out: Path, notes: Sequence[str], plainly: bool, looked: bool) -> None:
    """Print the table of all pictures, what was noticed, what failed, and in one line what was done and where it is.

    `plainly`: of photographs, in words that need no explanation. `looked`: what was done to them, a look has found.
    """
    console = Console(markup=False, soft_wrap=True)  # names may hold what looks like markup
    done = [row for row in rows if "error" not in row and "nothing" not in row]
    advice = sorted({told for row in done for told in row.get("advice", [])})
    lines = [f"{Path(row['picture']).name}: {row['read']}" for row in done if "read" in row]
    lines += [f"note: {told}" for told in [*notes, *advice]]
    lines += [f"{Path(row['picture']).name}: {row['nothing']}" for row in rows if "nothing" in row]
    lines += [f"not restored: {row['error']}" for row in rows if "error" in row]
    if done:
        console.print(_table(done, plainly), soft_wrap=False)
        lines += [OTHERWISE] if looked and not all(row.get("earlier") for row in done) else []
        look = [f"see before and after in {p}" for row in done for p in row["written"] if p.endswith("_compare.png")]
        scales = [row["std multiplied by"] for row in done if "std multiplied by" in row][:1]
        calibrated = [f"standard deviations multiplied by {in_words(scale)}" for scale in scales]
        lines.append("; ".join([_done(done), _noise(done, plainly), *calibrated, *look[:1], f"results are in {out}"]))
    elif not any("nothing" in row for row in rows):
        lines.append(f"none of the {counted(len(rows), 'picture')} could be restored")
    for line in lines:
        console.print(printable(line).replace("\n", "\\n"))  # a name of a file may hold a line break


def _done(done: Sequence[Row]) -> str:
    """How many pictures were restored now, and how many before."""
    earlier = sum(bool(row.get("earlier")) for row in done)
    if earlier == len(done):
        count = counted(earlier, "picture")
        return f"nothing to do: {count} restored by {done[0]['task']} in an earlier run (--force does that again)"
    seconds = sum(row["seconds"] for row in done if not row.get("earlier"))
    again = f", {earlier} by an earlier run (--force does them again)" if earlier else ""
    return f"{counted(len(done) - earlier, 'picture')} restored by {done[0]['task']} in {seconds:.1f} s{again}"


def _noise(done: Sequence[Row], plainly: bool) -> str:
    """The noise, in both units or `plainly` in gray levels, and the blur where it was estimated.

    Of scans how well results fit the measurements.
    """
    if "slices" in done[0]:
        worst = max((row["residual"] for row in done if "residual" in row), default=0)
        return f"the result fits the measurements to {worst:.2f} times their noise"
    levels, widths = [row["sigma"] for row in done], [row["blur"] for row in done if "blur_error" in row]
    estimated = "estimated " if any(row["estimated"] for row in done) else ""
    least, most = (f"{GRAY_LEVELS * level:.3g}" for level in (min(levels), max(levels)))
    plain = f"of {least if least == most else f'{least} to {most}'} of 255 levels"
    noise = f"{estimated}noise {plain if plainly else in_both_units(min(levels), max(levels))}"
    photons = [key for key in ("peak", "gain", "read") if f"{key}_error" in done[0]]
    if photons and len(done) == 1:
        found = (f"{key} {done[0][key]:.3g} ± {done[0][f'{key}_error']:.1g}" for key in photons)
        noise = f"{noise} ({', '.join(found)})"
    if not widths:
        return noise
    width = f"{widths[0]:.2f} ± {done[0]['blur_error']:.2f}"
    return f"{noise}, estimated blur {width if len(done) == 1 else f'{min(widths):.2f} to {max(widths):.2f}'} pixels"


def _table(done: Sequence[Row], plainly: bool) -> Table:
    """A table with one line a picture."""

    def cell(row: Row, column: str) -> str:
        value = GRAY_LEVELS * row["sigma"] if column == "noise" else row.get(column, "")
        text = f"{value:.{DIGITS[column]}f}" if column in DIGITS and value != "" else str(value)
        if column == "blur" and "blur_error" in row:
            return f"{text} ± {row['blur_error']:.2f} (est.)"
        return f"{text} (est.)" if column in ("sigma", "noise") and row["estimated"] else text

    columns = ["blur"] * any("blur" in row for row in done)
    columns += ["noise", "N", "seconds"] if plainly else ["sigma", "nfe", "seconds"]
    columns = [*["slices"] * any("slices" in row for row in done), *columns]
    columns += ["psnr", "ssim", "lpips"] * any("psnr" in row for row in done)
    named = PLAIN if plainly else {"blur": "blur", "sigma": "sigma"}
    table = Table("picture")
    for column in columns:
        table.add_column(named.get(column, column if column == "seconds" else column.upper()), justify="right")
    for row in done:
        table.add_row(Text(printable(Path(row["picture"]).name)), *(cell(row, column) for column in columns))
    return table
