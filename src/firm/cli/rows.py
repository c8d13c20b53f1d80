"""The rows of an evaluation's tables: what the command line names, as models, baselines and functions of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

    from firm._model import Firm
    from firm.cli.choices import Integrator, Precision
    from firm.evaluation import NamedMethod

T = TypeVar("T")


@dataclass(frozen=True)
class Loading:
    """How models and networks are loaded."""

    device: torch.device
    precision: Precision
    network: str | None  # of the user's own, ``file.py:Class``
    weights: Path | None  # folder of the baselines' networks
    images: str  # whose networks the baselines take, "face" or "cat"


@dataclass(frozen=True)
class Rows:
    """The methods to evaluate, the models among them by their names in the tables, and what a folder is called by."""

    methods: list[NamedMethod]
    models: dict[str, Firm]
    stem: str

    def shared(self, find: Callable[[Firm], T], otherwise: T, what: str, cure: str) -> T:
        """What all models have in common, `otherwise` without a model; where they differ, an error with the `cure`."""
        found: dict[str, T] = {}
        for name, model in self.models.items():
            try:
                found[name] = find(model)
            except ValueError as error:
                raise ValueError(f"{name}: {error}" if len(self.models) > 1 else str(error)) from error
        if len(set(found.values())) > 1:
            each = ", ".join(f"{name} {value}" for name, value in found.items())
            raise ValueError(f"the models differ in {what} ({each}): {cure}")
        return next(iter(found.values()), otherwise)

    def notes(self, tasks: Sequence[Any]) -> list[str]:
        """Where a task is not what a model was trained for: one sentence for each."""
        from firm import advice

        named = [(f" with {name}" if len(self.models) > 1 else "", model) for name, model in self.models.items()]
        found = [(f"{task.name}{which}", advice(model, task)) for task in tasks for which, model in named]
        return [f"{where}: {'; '.join(sentences)}" for where, sentences in found if sentences]


def rows_for(names: Sequence[str], steps: Sequence[int], integrator: Integrator, how: Loading) -> Rows:
    """The rows for what was named: first the two that every table begins with, then baselines, functions, models.

    Models have one for each number of `steps` of the `integrator`.
    """
    from firm._util.custom import is_custom
    from firm.baselines.catalog import BASELINES, GROUPS
    from firm.baselines.weights import Networks, baseline_methods
    from firm.evaluation import firm_method, plain_methods
    from firm.evaluation.names import folder_name, joined, names_of_model, told_apart

    names = list(dict.fromkeys(names))
    rows = plain_methods()
    known = [name for name in names if name in BASELINES or name in GROUPS]
    own = [name for name in names if name.endswith(".py") or (is_custom(name) and not Path(name).exists())]
    files = [name for name in names if name not in (*known, *own, *(row.label for row in rows))]
    if known:
        rows += baseline_methods(",".join(known), Networks(how.device, how.precision, how.weights, how.images))
    functions = _functions(own, [row.label for row in rows])
    loaded = [_load(name, how, several=len(files) > 1) for name in files]
    prints = [model.fingerprint() for model in loaded]
    _refuse_copies(files, prints, "model")
    about = list(zip(files, prints, [model.card for model in loaded], strict=True))
    models = dict(zip(told_apart([names_of_model(*each) for each in about]), loaded, strict=True))
    rows += functions
    shown = {name if len(models) > 1 else "FIRM": model for name, model in models.items()}
    rows += [firm_method(model, N, name, integrator) for name, model in shown.items() for N in steps]
    parts = [*(folder_name(*each) for each in about), *known, *(f.label.replace(":", "_") for f in functions)]
    return Rows(rows, models, joined(parts or names))


def _functions(names: Sequence[str], taken: Sequence[str]) -> list[NamedMethod]:
    """The functions of the user's own, labeled by their names; where two share one, by their files' names too."""
    from firm.evaluation.names import plain, told_apart
    from firm.evaluation.own import own_method

    found = [own_method(name) for name in names]
    _refuse_copies(names, [f.fingerprint for f in found], "function")
    longer = [f"{plain(Path(name.rpartition(':')[0]).stem)}:{f.label}" for name, f in zip(names, found, strict=True)]
    each = [[f.label, long, f"{long}-{f.fingerprint[:8]}"] for f, long in zip(found, longer, strict=True)]
    return [replace(f, label=label) for f, label in zip(found, told_apart(each, taken), strict=True)]


def _load(name: str, how: Loading, several: bool) -> Firm:
    """A model; of several, the network of the user's own serves those that were saved with it."""
    from firm._model import bundled_for_images
    from firm._util.text import did_you_mean
    from firm.baselines.catalog import BASELINES, GROUPS
    from firm.cli.models import load_model
    from firm.evaluation import plain_methods

    try:
        if several and how.network is not None:
            with suppress(ValueError):
                return load_model(name, None, how.device, how.precision)
        return load_model(name, how.network, how.device, how.precision)
    except FileNotFoundError as error:
        known = [*GROUPS, *BASELINES]
        near = did_you_mean(name, [*known, *bundled_for_images(), *(row.label for row in plain_methods())])
        raise ValueError(f"{error}; baselines are {', '.join(known)}{near}") from error


def _refuse_copies(names: Sequence[str], prints: Sequence[str], what: str) -> None:
    first: dict[str, str] = {}
    for name, print_ in zip(names, prints, strict=True):
        if print_ in first:
            raise ValueError(f"{first[print_]} and {name} are the same {what}: leave one of them out")
        first[print_] = name
