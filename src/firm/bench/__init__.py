"""How fast this machine trains and restores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table


def table(title: str, columns: Mapping[str, str], results: Mapping[str, Any]) -> Table:
    """Lay measurements out as a table, the first column to the left and numbers to the right.

    Parameters
    ----------
    title, columns
        What is written above, before the machine; the keys of the rows, and in which format their values are shown.
        What no row has is left out.
    results
        The rows, and the machine that they were measured on.
    """
    machine, rows = results["machine"], results["rows"]
    shown = {key: form for key, form in columns.items() if any(key in row for row in rows)}
    made = Table(title=f"{title}, {machine.get('gpu', machine['cpu'])}", title_justify="left")
    for column in shown:
        made.add_column(column, justify="left" if column == "mode" else "right")
    for row in rows:
        made.add_row(*(format(row[key], form) if key in row else "" for key, form in shown.items()))
    return made
