"""How long one large picture still takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from firm._model import Firm
from firm._sampling import Integrator
from firm._util.progress import progress_bar
from firm.restoration.tiling import Tiled

PATIENCE = 2.0  # seconds before a bar appears


@contextmanager
def tile_bar(
    model: Firm, size: tuple[int, int], steps: int, batches: list[int], integrator: Integrator = "euler"
) -> Iterator[None]:
    """A bar over all network calls on all tiles of a picture, with the step and the time left, on a terminal.

    Parameters
    ----------
    model
        With a `Tiled` estimator; of another nothing is shown.
    size
        Height and width of the image that is restored.
    steps, batches, integrator
        N, how many samples are drawn at a time, and how the flow is integrated.
    """
    estimator = model.estimator
    if not isinstance(estimator, Tiled):
        yield
        return
    tiles, calls = estimator.count(*size), model.calls(steps, integrator)
    of_a_step = model.calls(2, integrator) - model.calls(1, integrator)  # Heun's last step has fewer
    total = tiles * calls * len(batches)

    def advance() -> None:
        batch, call = divmod(int(bar.n) // tiles, calls)
        step = f"step {call // of_a_step + 1} of {steps}"
        drawn = f"sample {sum(batches[:batch]) + 1} of {sum(batches)}, " if sum(batches) > 1 else ""
        bar.set_description(drawn + step, refresh=False)
        bar.update()

    with progress_bar(total=total, unit="tile", delay=PATIENCE, leave=False) as bar:
        estimator.on_tile = advance
        try:
            yield
        finally:
            estimator.on_tile = None
