"""How far long work has come: a bar on a terminal or in a notebook; in pipes and logs only now and then."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

EVERY = 120.0  # seconds between two signs of life in a log


def on_terminal() -> bool:
    """Whether somebody may be looking at what goes to stderr; a notebook's stream does not call itself a terminal."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def progress_bar(work: Any = None, *, shown: bool = True, **options: Any) -> tqdm[Any]:
    """tqdm's bar, over `work` or by hand; hidden unless `shown`. In a log it moves every two minutes.

    Where it may be seen nothing is said of ``disable``: what the caller says would overrule TQDM_DISABLE=1.
    """
    how: dict[str, Any] = {} if shown else {"disable": True}
    if not on_terminal():
        how |= {"delay": EVERY, "mininterval": EVERY, "maxinterval": EVERY}
    return tqdm(work, **{**options, **how})
