"""A FIRM model: the estimator, the solver's settings, and a card that says what it was trained for."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from firm import _hub
from firm._model_file import network, read, write
from firm._posterior_mean import Output, Sigma, flow_only, posterior_mean
from firm._sampling import Integrator, Quality
from firm._util.checks import is_number, is_whole, short, warn
from firm.operators.base import LinearOperator

MOST_ITERATIONS = 1000  # the paper has 5; a file that asks for many more is not what it seems


@dataclass(frozen=True)
class Solver:
    """Settings of Algorithm 3; the defaults are the paper's. K = 0 leaves the solver out (flow-only)."""

    K: int = 5
    rho: float = 0.01
    beta: float = 0.5
    output: Output = "direct"

    def __post_init__(self) -> None:
        # They may come from a file of unknown origin.
        numbers = is_whole(self.K, 0, MOST_ITERATIONS) and is_number(self.rho) and is_number(self.beta)
        fits = numbers and 1e-12 <= self.rho <= 1e12 and 0 <= self.beta <= 1
        if not (fits and self.output in ("direct", "correction")):
            raise ValueError(
                'need K >= 0, rho > 0, beta in [0, 1] and output "direct" or "correction", K whole and at most '
                f"{MOST_ITERATIONS}, rho from 1e-12 to 1e12, got {short(self)}"
            )


class Firm(nn.Module):
    """Estimator and solver settings: what `sample`, `restore` and `velocity_loss` take.

    Parameters
    ----------
    estimator
        The network R_theta: a `UNet`, or any module called as ``estimator(x, x_t, t)``. If its attribute
        ``config["noise_level"]`` is true, it is called with the noise level as a fourth argument.
    solver
        Settings of Algorithm 3.
    card
        What the model was trained for and how, in plain JSON types; saved with it.
    """

    def __init__(self, estimator: nn.Module, solver: Solver | None = None, card: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.estimator = estimator
        self.solver = solver or Solver()
        self.card = dict(card or {})

    def posterior_mean(
        self, op: LinearOperator, x_t: Tensor, t: float | Tensor, y: Tensor, *, sigma: Sigma = None,
        callback: Callable[[int, Tensor, Tensor], None] | None = None, depths: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Estimate E[x_1 | x_t, y] with this model's settings (Algorithm 3, or one call if K = 0).

        `callback` sees the solver's iterates, and `depths` chooses among them in training, as in `firm.posterior_mean`.
        """
        s = self.solver
        config: dict[str, Any] = getattr(self.estimator, "config", {})
        told, extra = config.get("noise_level", False), config.get("extra", ())
        if s.K == 0:
            return flow_only(
                self.estimator, op, x_t, t, y, output=s.output, sigma=sigma, rho=s.rho, extra=extra, told=told
            )
        return posterior_mean(
            self.estimator, op, x_t, t, y, s.K, s.rho, s.beta,
            output=s.output, sigma=sigma, extra=extra, told=told, callback=callback, depths=depths,
        )  # fmt: skip

    def with_iterations(self, K: int) -> Firm:
        """The same model with K iterations of Algorithm 3 in every evaluation; the weights are shared.

        A network estimates well after the numbers of iterations that it was trained for. Its card names them as
        ``depths``; without that entry it is the K of the model alone. A warning says so where K is another one.
        """
        if K == self.solver.K:
            return self
        if not is_whole(K, 1, MOST_ITERATIONS):
            raise ValueError(f"iterations must be a whole number from 1 to {MOST_ITERATIONS}, got {short(K)}")
        trained = self.card.get("depths") or [self.solver.K]
        if K not in trained:
            name, known = self.card.get("name", "this model"), " or ".join(map(str, trained))
            warn(
                f"{name} was trained for {known} iterations, not for {K}: the image will be worse (iterate_weights "
                "trains a model whose iterations can be chosen)"
            )
        other = copy.copy(self)
        other.solver = dataclasses.replace(self.solver, K=int(K))
        return other

    def with_estimator(self, estimator: nn.Module) -> Firm:
        """The same settings and card with another network, such as one that calls this model's own in another way."""
        return Firm(estimator, self.solver, self.card)

    def at(
        self, quality: Quality | None = None, steps: int | None = None, iterations: int | None = None
    ) -> tuple[Firm, int]:
        """The model with the iterations K, and the steps N, that a quality stands for.

        "fast" is a first look, "faithful" the least error for its time, and "detailed" a picture that looks more real,
        with more error. A model's card has the pairs (N, K) of its ``presets``, chosen by measurement on validation
        images; without that entry they are 1, 2 and 25 steps with the model's own K.

        Parameters
        ----------
        quality
            The name of a pair; None stands for the steps of "faithful" and the model's own K.
        steps, iterations
            N or K in place of those. A warning says if the model was not trained for this K.
        """
        if quality is not None and quality not in get_args(Quality):
            raise ValueError(f"quality must be one of {', '.join(get_args(Quality))}, got {short(quality)}")
        own = self.solver.K
        presets = self.card.get("presets") or {"fast": (1, own), "faithful": (2, own), "detailed": (25, own)}
        N, K = presets[quality or "faithful"]
        if iterations is not None or quality is None:
            K = own if iterations is None else iterations
        return self.with_iterations(K), N if steps is None else steps

    def calls(self, steps: int, integrator: Integrator = "euler") -> int:
        """Network calls (NFE) of a sample."""
        velocities = {"euler": steps, "churn": steps, "midpoint": 2 * steps, "heun": 2 * steps - 1}
        return velocities[integrator] * max(self.solver.K, 1)

    def fingerprint(self) -> str:
        """Return a hash of all that results depend on: the weights, the network's settings and the solver's."""
        return fingerprint(self.estimator, repr(self.solver))

    def save(self, path: str | Path, dtype: torch.dtype = torch.float32) -> None:
        """Write one .safetensors file: the weights as `dtype`, settings and card as JSON in its metadata, a digest.

        What `fast` (in float32) and `tiled` make of a model is saved as the model itself. In bfloat16 its weights are
        rounded: save the model that `fast` was given.
        """
        write(path, self.estimator, {"solver": dataclasses.asdict(self.solver), "card": self.card}, dtype)

    def save_pretrained(
        self, save_directory: str | Path, *, push_to_hub: bool = False, repo_id: str | None = None,
        model_card_kwargs: Mapping[str, Any] | None = None, **options: Any,
    ) -> str | None:  # fmt: skip
        """Write the folder that `from_pretrained` reads: model.safetensors, config.json, and the card as README.md.

        Parameters
        ----------
        save_directory
            The folder, which is made if need be.
        push_to_hub, repo_id, options
            Upload it too, as `push_to_hub` does; the repository has the folder's name if none is given.
        model_card_kwargs
            Metadata of the README, such as license and datasets, in place of what the model's card says.
        """
        _hub.write_folder(self, Path(save_directory), model_card_kwargs)
        name = repo_id or Path(save_directory).name
        return self.push_to_hub(name, model_card_kwargs=model_card_kwargs, **options) if push_to_hub else None

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, *, estimator: nn.Module | type[nn.Module] | None = None,
        device: str | torch.device | None = None, **options: Any,
    ) -> Firm:  # fmt: skip
        """Load a model from a folder that `save_pretrained` wrote, or else from the hub, by its name ``owner/name``.

        `estimator` and `device` are those of `load`, `options` those of ``huggingface_hub.hf_hub_download``, such as
        revision, token, cache_dir and local_files_only.
        """
        folder = Path(pretrained_model_name_or_path)
        there = folder if folder.is_dir() else _hub.fetch(str(pretrained_model_name_or_path), **options)
        return load(there, estimator, device)

    def push_to_hub(
        self, repo_id: str, *, commit_message: str = "Push model using firm",
        model_card_kwargs: Mapping[str, Any] | None = None, **options: Any,
    ) -> str:  # fmt: skip
        """Upload the model to a repository of the hub, and return the address of the commit.

        `options` are token, private, branch and create_pr.
        """
        return _hub.push(self, repo_id, commit_message, model_card_kwargs, **options)


def fingerprint(net: nn.Module | None, about: str) -> str:
    """Return a hash of a network's weights and settings, and of `about`, what else results depend on."""
    settings = json.dumps(getattr(net, "config", None), sort_keys=True, default=str)
    digest = hashlib.sha256(f"{about} {settings}".encode())
    for key, value in sorted(net.state_dict().items() if net is not None else ()):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        flat = value.detach().cpu().clone(memory_format=torch.contiguous_format).view(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def save_network(
    path: str | Path, net: nn.Module, kind: str, card: dict[str, Any], dtype: torch.dtype = torch.float32
) -> None:
    """Write a trained network that is not a FIRM model, such as a prior; `kind` says what it is. See `load_network`."""
    write(path, net, {"kind": kind, "card": card}, dtype)


def load(
    name_or_path: str | Path, estimator: nn.Module | type[nn.Module] | None = None,
    device: str | torch.device | None = None,
) -> Firm:  # fmt: skip
    """Load a bundled model by name, or a saved one by path: its file, or the folder of its training run.

    ``hf://owner/name`` fetches a model from the Hugging Face hub, or takes it from the hub's cache; nothing else does.
    The name of a bundled model, as text, always means that model; a file or folder of the same name is ``./face-128``
    or a `Path`. A file that is damaged (its digest is missing or does not fit), has weights that are not finite, or
    settings that are not valid is refused with ValueError.

    The weights come back as float32 in evaluation mode and frozen (``requires_grad`` is false), on the CPU or on
    `device`, such as "cuda". `estimator` is needed only for a model saved with a network class of your own: pass the
    class, of the same name, or an instance, of any class, whose weights are replaced. (A file never says which code to
    run.)
    """
    path = find(name_or_path)
    about, weights = read(path)
    if about.get("kind", "firm") != "firm" or "solver" not in about:
        raise ValueError(f"{path} holds a {about['kind']}, not a FIRM model: read it with firm.load_network")
    settings = about["solver"]
    if settings.keys() != {field.name for field in dataclasses.fields(Solver)}:
        raise ValueError(f"{path}: its FIRM metadata is incomplete: solver {sorted(settings)}")
    try:
        solver = Solver(**settings)
    except ValueError as error:
        raise ValueError(f"{path}: its settings are not valid: {error}") from error
    model = Firm(network(path, about, weights, estimator), solver, about["card"])
    return model.requires_grad_(False).eval().to(device or "cpu")


def load_network(
    name_or_path: str | Path, estimator: nn.Module | type[nn.Module] | None = None,
    device: str | torch.device | None = None,
) -> nn.Module:  # fmt: skip
    """Load the network of any saved model, for example a prior v(x, t), as `load` does; its attribute ``card`` too."""
    path = find(name_or_path)
    about, weights = read(path)
    net = network(path, about, weights, estimator)
    net.card = about["card"]
    return net.requires_grad_(False).eval().to(device or "cpu")


def bundled() -> list[str]:
    """Return the names of the models that come with the package."""
    folder = resources.files("firm") / "assets"
    return sorted(Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".safetensors"))


def bundled_for_images() -> list[str]:
    """Return the names of the bundled models that restore images: all but the toy, which knows points in the plane."""
    return [name for name in bundled() if name != "toy"]


def find(name_or_path: str | Path) -> Path:
    """Find the file of a bundled model, of a path, or of a run's folder, where it is model.safetensors.

    Raises FileNotFoundError, with the names that are known, if there is none. See `load` on names.
    """
    path, name = Path(name_or_path), str(name_or_path)
    if name.startswith(_hub.PREFIX):
        return _hub.fetch(name)
    saved = next((p for p in (path, path / "model.safetensors") if p.is_file()), None)  # the folder of a run has one
    if name in bundled() and (isinstance(name_or_path, str) or saved is None):
        return Path(str(resources.files("firm") / "assets" / f"{name}.safetensors"))
    if saved is not None:
        return saved
    folder = "a folder without model.safetensors, " if path.is_dir() else ""
    known = ", ".join(bundled_for_images()) or "none yet"
    raise FileNotFoundError(f"no model {name!r}: {folder}neither a file nor a bundled model ({known})")


def channels_of(model: Firm) -> int:
    """Return how many channels the images have that a model restores, as its network or else its card says."""
    config: dict[str, Any] = getattr(model.estimator, "config", None) or {}
    channels: int | None = config.get("channels", model.card.get("channels"))
    if channels is None:
        name = model.card.get("name", "this model")
        raise ValueError(f"{name} does not restore images: neither its network nor its card names their channels")
    return channels
