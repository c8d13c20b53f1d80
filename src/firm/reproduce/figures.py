"""What the studies' figures share."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from firm._util.files import write_atomically


def save(figure: Any, path: Path) -> None:
    """Write a matplotlib figure as PNG and close it."""
    import matplotlib.pyplot as plt

    picture = io.BytesIO()
    figure.savefig(picture, dpi=130, format="png")
    plt.close(figure)
    write_atomically(path, picture.getvalue())
