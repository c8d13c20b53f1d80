"""A FIRM model as a reconstructor of DeepInverse (`deepinv`), for its evaluations. See docs/deepinv.md."""

from __future__ import annotations

import functools
from typing import Any
from weakref import WeakKeyDictionary

from torch import Generator, Tensor

from firm._posterior_mean import PosteriorMean
from firm._prepare import prepare
from firm._restore import check_seed
from firm._sampling import Quality, at_quality, integrate
from firm.operators.interop import DeepinvOperator, checked_operator, deepinv_package


def as_reconstructor(
    model: PosteriorMean, steps: int | None = None, seed: int = 0, unit_range: bool | None = None, *,
    iterations: int | None = None, quality: Quality | None = None, sigma: float = 0.005,
) -> Any:  # fmt: skip
    """Make a model a ``deepinv.models.Reconstructor``: ``rec(y, physics)`` gives images like those of the physics.

    Every sample starts from the noise of `seed`, so that it does not depend on the rest of its batch.

    Parameters
    ----------
    model
        A `firm.Firm`.
    steps, seed, iterations, quality
        As in `firm.restore`.
    unit_range
        As in `from_deepinv`.
    sigma
        Noise level to assume, in the units of the physics, where it has no Gaussian noise model.
    """
    return _reconstructor_class()(*at_quality(model, quality, steps, iterations), seed, unit_range, sigma)


@functools.cache
def _reconstructor_class() -> Any:
    """Return the class that `as_reconstructor` makes."""

    class FirmReconstructor(deepinv_package().models.Reconstructor):  # type: ignore[misc]
        """A model of FIRM behind deepinv's ``model(y, physics)``."""

        def __init__(self, model: PosteriorMean, steps: int, seed: int, unit_range: bool | None, sigma: float) -> None:
            super().__init__()
            self.model, self.steps, self.seed = model, steps, seed
            self.unit_range, self.assumed_sigma = unit_range, sigma
            self._known: WeakKeyDictionary[Any, tuple[bool, bool]] = WeakKeyDictionary()  # physics checked before

        def forward(self, y: Tensor, physics: Any, **kwargs: Any) -> Tensor:
            op = self._operator(y, physics)
            sigma = op.sigma if op.sigma is not None else self.assumed_sigma * (2 if op.unit_range else 1)
            given = prepare(self.model, op, op.measurement(y), sigma)
            x_0 = given.start([Generator().manual_seed(self.seed) for _ in y])
            check_seed(given, x_0, self.seed)
            runs = given.runs(1)
            x = given.together(integrate(given.model, runs.op, runs.y, x_0, self.steps, sigma=runs.noise))
            given.check_result(x)
            given.settle()
            return op.image(x)

        def _operator(self, y: Tensor, physics: Any) -> DeepinvOperator:
            """The live physics, since y was measured with it just now; its checks run once."""
            if physics not in self._known:
                op = checked_operator(physics, self.unit_range, complex=False, y=y)
                self._known[physics] = op.unit_range, op.closed_form
            unit_range, closed_form = self._known[physics]
            return DeepinvOperator(physics, unit_range, complex=False, closed_form=closed_form)

    return FirmReconstructor
