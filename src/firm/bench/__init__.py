"""How fast this machine trains and restores."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Lay rows out as a table, the first column to the left and numbers to the right."""
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, justify="left" if column == columns[0] else "right", no_wrap=True)
    for row in rows:
        made.add_row(*map(str, row))
    return made
