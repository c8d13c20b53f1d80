"""How fast this machine trains and restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table


def table(title: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Lay rows out as a table, the first column to the left and numbers to the right.

    Parameters
    ----------
    title
        What is written above.
    columns
        The keys of the rows, and in which format their values are shown; a missing one is left empty.
    rows
        The measurements.
    """
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="left" if column == "mode" else "right")
    for row in rows:
        made.add_row(*(format(row[key], form) if key in row else "" for key, form in columns.items()))
    return made
