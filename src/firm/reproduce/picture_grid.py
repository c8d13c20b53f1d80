"""Pictures in rows under their titles, standard deviations in colours that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from firm.reproduce.figures import save

SIDE = 1.45  # inches of a panel


@dataclass(frozen=True)
class Panel:
    """An image (C, H, W) in [-1, 1], or a standard deviation (H, W), with what stands above and below it."""

    picture: Tensor
    title: str = ""
    below: str = ""


def write_grid(path: Path, rows: Sequence[Sequence[Panel | None]], labels: Sequence[str] = ()) -> None:
    """Write the panels, a list a row; None leaves a place empty, `labels` stand on the left of the rows.

    All standard deviations have the colours of one scale, from 0 to the largest of them, shown as a bar on the right.
    """
    import matplotlib.pyplot as plt

    columns = max(len(row) for row in rows)
    maps = [p.picture for row in rows for p in row if p is not None and p.picture.ndim == 2]
    top = max((float(values.max()) for values in maps), default=0.0)
    size = (SIDE * columns + (0.9 if maps else 0.2), (SIDE + 0.4) * len(rows))
    figure, axes = plt.subplots(len(rows), columns, figsize=size, layout="constrained", squeeze=False)
    drawn = None
    for i, row in enumerate(rows):
        for j in range(columns):
            axis, panel = axes[i, j], row[j] if j < len(row) else None
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            if panel is None:
                continue
            picture = panel.picture.detach().cpu().float()
            if picture.ndim == 2:
                drawn = axis.imshow(picture.numpy(), cmap="inferno", vmin=0, vmax=top)
            else:
                axis.imshow(((picture.clamp(-1, 1) + 1) / 2).permute(1, 2, 0).numpy())
            axis.set_title(panel.title, fontsize=9)
            axis.set_xlabel(panel.below, fontsize=8)
        if i < len(labels):
            axes[i, 0].set_ylabel(labels[i], fontsize=9)
    if drawn is not None:
        figure.colorbar(drawn, ax=axes, shrink=min(1.0, 2 / len(rows) + 0.2), aspect=25, label="standard deviation")
    save(figure, path)
