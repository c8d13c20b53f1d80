"""What the library warns of while it restores, as sentences for the user of the command line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBRARY = Path(__file__).parents[1]


@contextmanager
def warnings_as_notes() -> Iterator[list[str]]:
    """A list that has the library's own warnings when the block ends; those of other code stay warnings.

    The same sentence with other numbers is told once: a solver that warns does so in every step.
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", module=r"firm\.")  # for every picture, not only for the first
        yield notes
    told = set()
    for said in caught:
        text = str(said.message)
        words = re.sub(r"\d\S*", "", text)
        if not Path(said.filename).is_relative_to(LIBRARY):
            warnings.warn_explicit(said.message, said.category, said.filename, said.lineno)
        elif words not in told:
            notes.append(text)
            told.add(words)
