"""The settings of every method, for each task and data set; what is not here is a function's default.

They are the published ones, but where our networks need others: the first level of PnP-HQS, PnP-GS's steps in random
inpainting of faces.

Sources: the published code of PnP-Flow, Flower and their forks as they stood in November 2026, and the paper's
Appendix D. CelebA's stand for images below 256 pixels, AFHQ's from there on, as with the tasks.
"""

from __future__ import annotations

from typing import Any

from firm.baselines._pnp_hqs import FIRST

TASKS = ("denoising", "deblurring", "super-resolution", "random-inpainting", "box-inpainting")
Table = dict[str, dict[str, Any]]  # task -> settings


def _table(**columns: tuple[Any, ...]) -> Table:
    """One column a setting, with a value for each of `TASKS`; a method does not do a task where a value is None."""
    rows = zip(TASKS, zip(*columns.values(), strict=True), strict=True)
    return {task: dict(zip(columns, values, strict=True)) for task, values in rows if None not in values}


def _same(**values: Any) -> Table:
    return {task: dict(values) for task in TASKS}


def _joined(table: Table, **values: Any) -> Table:
    return {task: row | values for task, row in table.items()}


_ALPHA = (0.8, 0.01, 0.3, 0.01, 0.5)
_OT_ODE = dict(schedule=("sqrt", "sqrt", "constant", "constant", "sqrt"), spread=(1.0, 1.0, 100.0, 1.0, 1.0))
_FLOW_PRIORS = _table(rate=(0.01, 0.01, 0.1, 0.01, 0.01), weight=(100.0, 1000.0, 10000.0, 10000.0, 10000.0))
# DiffPIR's published lambda is 1, 1000, 100, 1. Its code solves with rho = 2 lambda sigma^4 / s^2 (in denoising
# 2 lambda sigma^2 / s^2), so that our weight, of rho = weight sigma^2 / s^2, is 2 lambda sigma^2 (2 lambda).
_DIFFPIR = _table(weight=(2.0, 5.0, 0.5, 2e-4, None), zeta=(1.0, 1.0, 1.0, 1.0, None))
# The published first level of PnP-HQS, 0.38, is for DRUNet. Our denoiser fills missing pixels only from a higher one
# (fifty validation faces, from 0.38, 0.7, 1 and 2.5: random inpainting 28.27, 33.89, 33.92, 33.97 dB; deblurring 33.74,
# 33.93, 34.02, 34.22; super-resolution 32.86, 32.72, 32.60, 32.18).
_HQS = _table(steps=(1, 24, 24, 100, None), first=(FIRST, 2.5, FIRST, 2.5, None))
# The paper does not say how many steps its I2SB takes. With more of them PSNR falls, and LPIPS falls up to here (our
# bridge, 100 validation faces: deblurring .0128 with 10, .0123 with 20; super-resolution .0235 with 10, .0204 with 50,
# .0201 with 100; random inpainting .0131 with 10, .0128 with 20, .0132 with 50; box inpainting .0472 with 10).
_I2SB = _table(beta_max=(None, 1.0, 0.3, 1.0, 1.0), ode=(None, True, False, True, True), steps=(None, 10, 100, 20, 10))

CELEBA: dict[str, Table] = {
    "pnp-flow": _table(alpha=_ALPHA),
    "flower": _same(steps=100),
    "ot-ode": _table(start=(0.3, 0.4, 0.1, 0.1, 0.1), **_OT_ODE),
    "d-flow": _joined(_table(outer=(3, 7, 10, 20, 9)), regularization=0.001, blend=0.1),
    "flow-priors": _FLOW_PRIORS,
    "pnp-gs": _table(
        steps=(1, 35, 20, 80, None),
        # Published: 20 steps that fill, and none after them. Ours fills more slowly, and steps at the noise's own level
        # then sharpen (four validation faces: 22.9 dB after 20 steps, 27.8 after 60, 29.7 with 20 of the others).
        filling=(20, 20, 20, 60, None),
        step_length=(1.0, 2.0, 2.0, 1.0, None),
        relaxation=(1.0, 0.5, 1.0, 1.0, None),
        factor=(1.0, 1.8, 1.8, 1.0, None),
    ),
    "pnp-hqs": _HQS,
    "diffpir": _DIFFPIR,
    "ista-net": {task: {} for task in TASKS[1:4]},
    "i2sb": _I2SB,
}
AFHQ: dict[str, Table] = {
    "pnp-flow": _table(alpha=(0.8, 0.01, 0.01, 0.01, 0.5), steps=(100, 500, 500, 200, 100)),
    "flower": _table(steps=(100, 500, 500, 200, 100)),
    "ot-ode": _table(start=(0.3, 0.3, 0.1, 0.1, 0.1), **_OT_ODE),
    "d-flow": _table(
        outer=(3, 20, 20, 20, 9), regularization=(0.001, 0.01, 0.001, 0.001, 0.01), blend=(0.1, 0.5, 0.1, 0.1, 0.1)
    ),
    "flow-priors": _FLOW_PRIORS,
    "pnp-gs": _table(
        steps=(1, 60, 50, 23, None),
        step_length=(1.0, 2.0, 2.0, 1.0, None),
        relaxation=(1.0, 0.3, 1.0, 1.0, None),
        factor=(1.0, 1.8, 5.0, 1.0, None),
    ),
    "pnp-hqs": _HQS,
    "diffpir": _DIFFPIR,
    "ista-net": {task: {} for task in TASKS[1:4]},
    "i2sb": _I2SB,
}


def settings(method: str, task: str, size: int = 128) -> dict[str, Any] | None:
    """Keyword arguments for a method in a task at images of side `size`; None where it does not do the task.

    A task outside the paper's tables has no settings of its own: the function's defaults are used.

    >>> settings("ot-ode", "deblurring")
    {'start': 0.4, 'schedule': 'sqrt', 'spread': 1.0}
    """
    tables = AFHQ if size >= 256 else CELEBA
    if method not in tables:
        raise ValueError(f"no settings for the method {method!r}; there are {', '.join(tables)}")
    if task not in TASKS:
        return {}
    return tables[method].get(task)
