"""What can be evaluated. A method is one function, ``method(op, y, sigma, generator) -> images``.

FIRM, the baselines of the paper and functions of the user's own all have this form; with a label, a fingerprint and a
number of network calls each of them is a row of the tables, a `NamedMethod`. `methods_for` makes the rows from names.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from firm._model import Firm, bundled, bundled_for_images, fingerprint
from firm._model import load as load_model
from firm._posterior_mean import Sigma
from firm._prepare import Generators
from firm._sampling import Integrator, Quality, sample
from firm._util.checks import did_you_mean
from firm._util.custom import custom_code, load_function
from firm.acceleration._fast import network_class
from firm.operators import LinearOperator, data_consistency
from firm.tasks import BaseTask

if TYPE_CHECKING:
    from firm.baselines.weights import Networks

# Operator, measurements, noise level, one generator per image (or one for all): restored images (B, C, H, W). Those
# that take noise models are given one instead of the level where the task has one.
Method = Callable[[LinearOperator, Tensor, Any, Generators], Tensor]


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
    takes_noise
        Whether it takes models of noise (`firm.noise`) where the noise is not of one level; others get its average.
    """

    label: str
    run: Method
    nfe: int | None = 0
    fingerprint: str = ""
    settle: Callable[[BaseTask], NamedMethod | None] | None = None
    takes_noise: bool = False

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


def firm_method(
    model: Firm, steps: int, name: str = "FIRM", integrator: Integrator = "euler", fingerprint: str = ""
) -> NamedMethod:
    """Return FIRM with N steps as a row of the tables.

    Parameters
    ----------
    model, steps, integrator
        What samples: N = `steps` of the integrator.
    name
        The beginning of the label; of several models in a table, it tells which one it is.
    fingerprint
        The model's, where it is known already.
    """
    network = network_class(model)

    def run(op: LinearOperator, y: Tensor, sigma: Sigma, generator: Generators) -> Tensor:
        with custom_code(network=network):
            return sample(model, op, y, steps, sigma=sigma, generator=generator, integrator=integrator)

    label, print_ = f"{name} N={steps}", fingerprint or model.fingerprint()
    if integrator != "euler":  # the paper's, which goes without saying
        label, print_ = f"{label} {integrator}", f"{print_}-{integrator}"
    return NamedMethod(label, run, model.calls(steps, integrator), print_, takes_noise=True)


def custom_method(name: str) -> NamedMethod:
    """Return the user's function ``file.py:function``, called as ``function(op, y, sigma, *, generator)``.

    It returns images (B, C, H, W). `generator` is a list, one generator for each image. The fingerprint follows from
    the file, so that a function that was edited is evaluated anew.
    """
    custom = load_function(name, "method")
    try:
        inspect.signature(custom.call).bind(None, None, 0.0, generator=None)
    except TypeError as error:
        raise custom.error("method", f"it is called as {custom.name}(op, y, sigma, generator=...): {error}") from error

    def run(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
        with custom_code(method=custom):
            x = custom.call(op, y.clone(), sigma, generator=generator)  # a copy: the next method has the same y
        if isinstance(x, Tensor) and x.is_floating_point() and x.device == y.device:
            return x.detach().float()
        found = f"a tensor of {x.dtype} on {x.device}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        wanted = f"it must return images (B, C, H, W), floats in [-1, 1] on {y.device}"
        raise custom.error("method", f"it returned {found}; {wanted}")

    return NamedMethod(custom.name, run, None, fingerprint(None, f"own method {custom.name} {custom.digest()}"))


@dataclass(frozen=True)
class Methods:
    """The rows of a table, in its order."""

    rows: list[NamedMethod]
    models: dict[str, Firm]  # those among them, by their names in the table
    stem: str  # what a folder of results is called by


def methods_for(
    names: Iterable[str],
    steps: Sequence[int] | None = (),
    *,
    integrator: Integrator = "euler",
    iterations: int | None = None,
    quality: Quality | None = None,
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
        Models have one row for each number of steps N of the integrator; None is that of the quality.
    iterations, quality
        K of the models, or what names N and K, see `Firm.at`: where either is given, their labels name K.
    load
        How the name of a model becomes the model, on its device.
    networks
        The networks of the baselines; default: those of faces, on the CPU.
    """
    from firm.baselines.catalog import BASELINES, GROUPS

    names, rows, catalog = list(dict.fromkeys(names)), plain_methods(), [*GROUPS, *BASELINES]
    plain = [row.label for row in rows]
    known = [name for name in names if name in catalog]
    custom = [name for name in names if name.endswith(".py") or (":" in name and not Path(name).exists())]
    files = [name for name in names if name not in (*known, *custom, *plain)]
    if known:
        from firm.baselines.weights import Networks, baseline_methods

        rows += baseline_methods(",".join(known), networks or Networks("cpu"))
    functions = [custom_method(name) for name in custom]
    _refuse_copies(custom, [function.fingerprint for function in functions], "function")
    models: list[Firm] = []
    for name in files:
        try:
            models.append(load(name))
        except FileNotFoundError as error:
            near = did_you_mean(name, [*catalog, *bundled_for_images(), *plain])
            raise ValueError(f"{error}; baselines are {', '.join(catalog)}{near}") from error
    at = [model.at(quality, None, iterations) for model in models]
    models, counts = [model for model, _ in at], [[N] if steps is None else steps for _, N in at]
    prints = [model.fingerprint() for model in models]
    _refuse_copies(files, prints, "model")
    called = [_names_of_function(*each) for each in zip(custom, functions, strict=True)]
    labels = _distinct(called, [row.label for row in rows])
    rows += [replace(function, label=label) for function, label in zip(functions, labels, strict=True)]
    candidates = [_names_of_model(*each) for each in zip(files, prints, models, strict=True)]
    chosen = dict(zip(_distinct(candidates), models, strict=True))
    depth = iterations is not None or quality is not None
    for (name, model), print_, each in zip(chosen.items(), prints, counts, strict=True):
        shown = (name if len(models) > 1 else "FIRM") + (f" K={model.solver.K}" if depth else "")
        rows += [firm_method(model, N, shown, integrator, print_) for N in each]
    parts = [*(mine[-1] for mine in candidates), *known, *(label.replace(":", "_") for label in labels)]
    return Methods(rows, chosen, _joined(parts or names))


def _refuse_copies(names: Sequence[str], prints: Sequence[str], what: str) -> None:
    """Raise ValueError where two of the `names` have one fingerprint; `what` they are is said in the message."""
    first: dict[str, str] = {}
    for name, print_ in zip(names, prints, strict=True):
        if first.setdefault(print_, name) != name:
            raise ValueError(f"{first[print_]} and {name} are the same {what}: leave one of them out")


def _names_of_function(name: str, function: NamedMethod) -> list[str]:
    """Return what a function may be called in a table, from the shortest name to one that no other function has."""
    longer = f"{_plain(Path(name.rpartition(':')[0]).stem)}:{function.label}"
    return [function.label, longer, f"{longer}-{function.fingerprint[:8]}"]


def _names_of_model(name: str, fingerprint: str, model: Firm) -> list[str]:
    """Return what a model may be called in a table, from the shortest name to one that no other model has.

    `name` is what the user gave: a bundled model, a file, or the folder of a training run, after which the
    model.safetensors in it is called as well. The last name is also that of the folder of results.
    """
    path = Path(name).absolute()
    path = path.parent if path.name == "model.safetensors" else path
    stem = _plain(path.stem if path.suffix == ".safetensors" else path.name)
    given: Any = model.card.get("name")
    short = _plain(given) if given and isinstance(given, str) else stem
    longer = [] if name in bundled() else [f"{_plain(path.parent.name)}/{stem}"]
    return [short, *longer, f"{short}-{fingerprint[:8]}"]


def _distinct(candidates: Sequence[Sequence[str]], taken: Iterable[str] = ()) -> list[str]:
    """Return the first name of each that no other one has and that is not `taken`; its last, if there is none."""
    counts = Counter([*taken, *(name for mine in candidates for name in set(mine))])
    return [next((name for name in mine if counts[name] == 1), mine[-1]) for mine in candidates]


def _joined(parts: Iterable[str], longest: int = 150) -> str:
    """Join names for a folder; more than `longest` bytes, which a file system may refuse, end in a hash of all."""
    whole = "+".join(parts).encode()
    short = f"{whole[: longest - 9].decode(errors='ignore')}-{hashlib.sha256(whole).hexdigest()[:8]}"
    return whole.decode() if len(whole) <= longest else short


def _plain(text: str) -> str:
    """Return the first 60 letters of a name, without what folders and tables do not take."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)[:60]
