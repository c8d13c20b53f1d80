"""How far long work has come: a bar on a terminal or in a notebook, and nothing in pipes and logs."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def on_terminal() -> bool:
    """Whether somebody may be looking at what goes to stderr; a notebook's stream does not call itself a terminal."""
    return sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)


def progress_bar(work: Any = None, *, shown: bool = True, **options: Any) -> tqdm[Any]:
    """tqdm's bar, over `work` or by hand; hidden unless `shown`, and where nobody looks.

    Where it may be seen nothing is said of ``disable``: what the caller says would overrule TQDM_DISABLE=1.
    """
    hidden: dict[str, Any] = {} if shown and on_terminal() else {"disable": True}
    return tqdm(work, **options, **hidden)
