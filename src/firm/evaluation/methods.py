"""What can be evaluated. A method is one function, ``method(op, y, sigma, generator) -> images``.

FIRM, the baselines of the paper and functions of the user's own all have this form; with a label, a fingerprint and a
number of network calls each of them is a row of the tables, a `NamedMethod`. `methods_for` makes the rows from names.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from firm._model import Firm, bundled, bundled_for_images, fingerprint
from firm._model import load as load_model
from firm._sampling import Generators, sample
from firm._sampling import Method as Integrator
from firm._util.checks import require
from firm._util.custom import CustomCodeError, custom_code, is_custom, load_function, place
from firm._util.text import did_you_mean
from firm.operators import LinearOperator, data_consistency
from firm.restoration.own_network import network_class
from firm.tasks import BaseTask

if TYPE_CHECKING:
    from firm.baselines.methods import Networks

# Operator, measurements, noise level, one generator per image (or one for all): restored images (B, C, H, W).
Method = Callable[[LinearOperator, Tensor, float, Generators], Tensor]
T = TypeVar("T")


@dataclass(frozen=True)
class NamedMethod:
    """A method with what its row in the tables needs.

    Parameters
    ----------
    label
        The name of the row.
    run
        The method itself.
    nfe
        Network calls for one image; None where they depend on the image.
    fingerprint
        A hash of weights and settings, so that results of another model are not taken for those of this one.
    settle
        Where the settings depend on the task: finds the method of a task, None where it does not do the task.
    """

    label: str
    run: Method
    nfe: int | None = 0
    fingerprint: str = ""
    settle: Callable[[BaseTask], NamedMethod | None] | None = None

    def on(self, task: BaseTask) -> NamedMethod | None:
        """Return the method with the settings that it has in a task; None where it does not do the task."""
        return self if self.settle is None else self.settle(task)


def degraded(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
    """Return the measurement itself or, where it is not an image (subsampled, Fourier), its zero-filled adjoint."""
    x = op.A_adjoint(y)
    return x if y.is_complex() or y.shape != x.shape else y


def plain_solve(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
    """Return (A'A + rho I)^-1 A'y with the paper's rho = 0.01: data consistency and nothing learned."""
    return data_consistency(op, torch.zeros_like(op.A_adjoint(y)), y, 0.01)


def plain_methods() -> list[NamedMethod]:
    """Return the first two rows of every table, which need no model."""
    return [NamedMethod("degraded", degraded), NamedMethod("data-consistency", plain_solve)]


def firm_method(model: Firm, steps: int, name: str = "FIRM", integrator: Integrator = "euler") -> NamedMethod:
    """Return FIRM with N = `steps` of an `integrator`; of several models in a table, `name` tells which."""

    def run(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
        with custom_code(network=network_class(model)):
            return sample(model, op, y, steps, sigma=sigma, generator=generator, method=integrator)

    label, print_ = f"{name} N={steps}", model.fingerprint()
    if integrator != "euler":  # the paper's, which goes without saying
        label, print_ = f"{label} {integrator}", f"{print_}-{integrator}"
    return NamedMethod(label, run, model.calls(steps, integrator), print_)


def custom_method(name: str) -> NamedMethod:
    """Return the user's function ``file.py:function``, called as ``function(op, y, sigma, *, generator)``.

    It returns images (B, C, H, W). `generator` is a list, one generator for each image. The fingerprint follows from
    the file, so that a function that was edited is evaluated anew.
    """
    custom = load_function(name, "method")
    where = place(custom.files[-1], custom.line, f"method {custom.name}")
    try:
        inspect.signature(custom.call).bind(None, None, 0.0, generator=None)
    except TypeError as error:
        called = f"it is called as {custom.name}(op, y, sigma, generator=...)"
        raise CustomCodeError(f"{where}: {called}: {error}") from error

    def run(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
        with custom_code(method=custom):
            x = custom.call(op, y.clone(), sigma, generator=generator)  # a copy: the next method has the same y
        found = f"a tensor of {x.dtype} on {x.device}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        good = isinstance(x, Tensor) and x.is_floating_point() and x.device == y.device
        wanted = f"it must return images (B, C, H, W), floats in [-1, 1] on {y.device}"
        require(good, f"{where}: it returned {found}; {wanted}", CustomCodeError)
        images: Tensor = x.detach().float()
        return images

    return NamedMethod(custom.name, run, None, fingerprint(None, f"own method {custom.name} {custom.digest()}"))


@dataclass(frozen=True)
class Methods:
    """The rows of a table.

    Parameters
    ----------
    rows
        The methods, in the order of the table.
    models
        The models among them, by their names in the table.
    stem
        What a folder of results is called by.
    """

    rows: list[NamedMethod]
    models: dict[str, Firm]
    stem: str

    def shared(self, find: Callable[[Firm], T], otherwise: T, what: str, cure: str) -> T:
        """Return what `find` gives for all models, `otherwise` without a model; where they differ, say the `cure`."""
        found = {name: find(model) for name, model in self.models.items()}
        each = ", ".join(f"{name} {value}" for name, value in found.items())
        require(len(set(found.values())) < 2, f"the models differ in {what} ({each}): {cure}")
        return next(iter(found.values()), otherwise)


def methods_for(
    names: Iterable[str],
    steps: Sequence[int] = (),
    *,
    integrator: Integrator = "euler",
    load: Callable[[str], Firm] = load_model,
    networks: Networks | None = None,
) -> Methods:
    """Return the rows for what is named: the two of every table, then baselines, functions and models.

    Parameters
    ----------
    names
        Models, baselines (``pnp-flow1``; ``pnp-flow`` and ``all`` are groups), functions ``file.py:function``,
        ``degraded`` and ``data-consistency``; said twice they count once.
    steps, integrator
        Models have one row for each number of steps N of the integrator.
    load
        How the name of a model becomes the model, on its device.
    networks
        The networks of the baselines; default: those of faces, on the CPU.
    """
    from firm.baselines.methods import BASELINES, GROUPS, Networks, baseline_methods

    names = list(dict.fromkeys(names))
    rows = plain_methods()
    known = [name for name in names if name in BASELINES or name in GROUPS]
    custom = [name for name in names if name.endswith(".py") or (is_custom(name) and not Path(name).exists())]
    files = [name for name in names if name not in (*known, *custom, *(row.label for row in rows))]
    if known:
        rows += baseline_methods(",".join(known), networks or Networks("cpu"))
    functions = _functions(custom, [row.label for row in rows])
    loaded = []
    for name in files:
        try:
            loaded.append(load(name))
        except FileNotFoundError as error:
            there = [*GROUPS, *BASELINES]
            near = did_you_mean(name, [*there, *bundled_for_images(), *(row.label for row in plain_methods())])
            raise ValueError(f"{error}; baselines are {', '.join(there)}{near}") from error
    prints = [model.fingerprint() for model in loaded]
    _refuse_copies(files, prints, "model")
    about = list(zip(files, prints, [model.card for model in loaded], strict=True))
    models = dict(zip(_distinct([_names_of_model(*each) for each in about]), loaded, strict=True))
    shown = models if len(models) > 1 else dict(zip(["FIRM"], loaded, strict=False))
    rows += functions
    rows += [firm_method(model, N, name, integrator) for name, model in shown.items() for N in steps]
    parts = [*(folder_name(*each) for each in about), *known, *(f.label.replace(":", "_") for f in functions)]
    return Methods(rows, models, _joined(parts or names))


def _functions(names: Sequence[str], taken: Sequence[str]) -> list[NamedMethod]:
    """The user's functions, labeled by their names; where two share one, by their files' names too."""
    found = [custom_method(name) for name in names]
    _refuse_copies(names, [f.fingerprint for f in found], "function")
    longer = [f"{_plain(Path(name.rpartition(':')[0]).stem)}:{f.label}" for name, f in zip(names, found, strict=True)]
    each = [[f.label, long, f"{long}-{f.fingerprint[:8]}"] for f, long in zip(found, longer, strict=True)]
    return [replace(f, label=label) for f, label in zip(found, _distinct(each, taken), strict=True)]


def _refuse_copies(names: Sequence[str], prints: Sequence[str], what: str) -> None:
    for i, (name, print_) in enumerate(zip(names, prints, strict=True)):
        first = names[prints.index(print_)]
        require(prints.index(print_) == i, f"{first} and {name} are the same {what}: leave one of them out")


def folder_name(name: str, fingerprint: str, card: dict[str, Any]) -> str:
    """Return a folder's name for a model, also different for models whose files are called the same."""
    return f"{_plain(_name_in(card) or Path(name).stem)}-{fingerprint[:8]}"


def _joined(parts: Iterable[str], longest: int = 150) -> str:
    """Names joined for a folder; more than `longest` bytes, which a file system may refuse, end in a hash of all."""
    whole = "+".join(parts)
    if len(whole.encode()) <= longest:
        return whole
    start = whole.encode()[: longest - 9].decode(errors="ignore")
    return f"{start}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _names_of_model(name: str, fingerprint: str, card: dict[str, Any]) -> list[str]:
    """What a model may be called in a table, from the shortest name to one that no other model has.

    `name` is what the user gave: a bundled model, a file, or the folder of a training run, after which the
    model.safetensors in it is called as well.
    """
    path = Path(name).absolute()
    path = path.parent if path.name == "model.safetensors" else path
    stem = path.stem if path.suffix == ".safetensors" else path.name
    short = _plain(_name_in(card) or stem)
    longer = [] if name in bundled() else [f"{_plain(path.parent.name)}/{_plain(stem)}"]
    return [short, *longer, f"{short}-{fingerprint[:8]}"]


def _distinct(candidates: Sequence[Sequence[str]], taken: Iterable[str] = ()) -> list[str]:
    """The first name of each that no other one has and that is not `taken`; its last, if there is none."""
    used, names = set(taken), []
    for i, mine in enumerate(candidates):
        others = {name for j, other in enumerate(candidates) if j != i for name in other[:-1]}
        names.append(next((name for name in mine if name not in used and name not in others), mine[-1]))
    return names


def _plain(text: str) -> str:
    """The first 60 letters of a name, without what folders and tables do not take."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)[:60]


def _name_in(card: dict[str, Any]) -> str:
    """The name in a model's card; empty where it has none."""
    return card["name"] if isinstance(card.get("name"), str) else ""
