"""A FIRM model: the estimator, the solver's settings, and a card that says what it was trained for."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from firm._posterior_mean import Output, coupling, flow_only, posterior_mean, vector
from firm._sampling import Method, evaluations
from firm._util.files import write_atomically
from firm.networks import NETWORKS
from firm.operators.base import LinearOperator

FORMAT = 1  # of the saved file; raise it when an older library could misread a newer file


@dataclass(frozen=True)
class Solver:
    """Settings of Algorithm 3; the defaults are the paper's. K = 0 leaves the solver out (flow-only)."""

    K: int = 5
    rho: float = 0.01
    beta: float = 0.5
    output: Output = "direct"
    # "noise", ours: rho grows with the noise level late in the flow, see `firm._posterior_mean.coupling`
    coupling: Literal["constant", "noise"] = field(default="constant", repr=False)

    def __post_init__(self) -> None:
        if self.coupling not in ("constant", "noise"):
            raise ValueError(f'coupling must be "constant" or "noise", got {self.coupling!r}')
        if self.K < 0 or self.rho <= 0 or not 0 <= self.beta <= 1 or self.output not in ("direct", "correction"):
            raise ValueError(f'need K >= 0, rho > 0, beta in [0, 1] and output "direct" or "correction": {self}')


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
        self,
        op: LinearOperator,
        x_t: Tensor,
        t: float | Tensor,
        y: Tensor,
        *,
        sigma: float | Tensor | None = None,
        check: bool = True,
    ) -> Tensor:
        """Estimate E[x_1 | x_t, y] with this model's settings (Algorithm 3, or one call if K = 0)."""
        s, rho = self.solver, self.rho(x_t, t, sigma)
        config: dict[str, Any] = getattr(self.estimator, "config", {})
        sigma = sigma if config.get("noise_level", False) else None
        extra = config.get("extra", ())
        if s.K == 0:
            return flow_only(self.estimator, op, x_t, t, y, output=s.output, sigma=sigma, rho=rho, extra=extra)
        return posterior_mean(
            self.estimator, op, x_t, t, y, s.K, rho, s.beta, output=s.output, sigma=sigma, extra=extra, check=check
        )

    def rho(self, x_t: Tensor, t: float | Tensor, sigma: float | Tensor | None) -> float | Tensor:
        """The coupling of the data-consistency step at time `t`."""
        if self.solver.coupling == "constant":
            return self.solver.rho
        if sigma is None:
            raise ValueError("this model's solver follows the noise level: sigma must be given")
        return coupling(self.solver.rho, vector(sigma, x_t), vector(t, x_t))

    def calls(self, steps: int, method: Method = "euler") -> int:
        """Network calls (NFE) of a sample."""
        return evaluations(steps, method) * max(self.solver.K, 1)

    def fingerprint(self) -> str:
        """A hash of the weights, the network's and the solver's settings: what the results depend on."""
        further = "" if self.solver.coupling == "constant" else self.solver.coupling  # hashes of older models stay
        return fingerprint(self.estimator, repr(self.solver) + further)

    def save(self, path: str | Path, dtype: torch.dtype = torch.float32) -> None:
        """Write one .safetensors file: the weights as `dtype`, settings and card as JSON in its metadata."""
        _save(path, self.estimator, {"solver": dataclasses.asdict(self.solver), "card": self.card}, dtype)


def fingerprint(net: nn.Module | None, about: str) -> str:
    """A hash of a network's weights and settings, and of `about`, what else results depend on."""
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
    """Write a trained network that is no FIRM model, such as a prior; `kind` says what. See `load_network`."""
    _save(path, net, {"kind": kind, "card": card}, dtype)


def _save(path: str | Path, net: nn.Module, about: dict[str, Any], dtype: torch.dtype) -> None:
    about = {
        "format": FORMAT,
        "estimator": type(net).__name__,
        "config": getattr(net, "config", None),
        **about,
    }
    weights = {
        key: (value.to(dtype) if value.is_floating_point() else value).contiguous()
        for key, value in net.state_dict().items()
    }
    write_atomically(path, safetensors.torch.save(weights, metadata={"firm": json.dumps(about)}))


def load(name_or_path: str | Path, estimator: nn.Module | type[nn.Module] | None = None) -> Firm:
    """Load a bundled model by name, or a saved one by path.

    The weights come back as float32 on the CPU, in evaluation mode. `estimator` is needed only for a model saved
    with a network class of your own: pass the class, or an instance, whose weights are replaced. (A file never says
    which code to run.)
    """
    path = find(name_or_path)
    net, about = _load(path, estimator)
    if about.get("kind", "firm") != "firm":
        raise ValueError(f"{path} holds a {about['kind']}, not a FIRM model: read it with firm.load_network")
    model = Firm(net, Solver(**about["solver"]), about["card"])
    return model.requires_grad_(False).eval()


def load_network(name_or_path: str | Path, estimator: nn.Module | type[nn.Module] | None = None) -> nn.Module:
    """Load the network of any saved model: a prior v(x, t), say. Its card is the attribute ``card``."""
    net, about = _load(find(name_or_path), estimator)
    net.card = about["card"]
    return net.requires_grad_(False).eval()


def _load(path: Path, estimator: nn.Module | type[nn.Module] | None) -> tuple[nn.Module, dict[str, Any]]:
    """The network with its weights, and what is saved about it."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as safetensors: damaged, cut short or another format ({error})"
        ) from error
    about = _about(path, metadata)
    net = estimator if isinstance(estimator, nn.Module) else _build(path, about, estimator)
    if not hasattr(net, "config") and about["config"] is not None:
        net.config = about["config"]  # as in training, which tells by it whether the network takes the noise level
    weights = {  # copies: tensors of a mapped file are not aligned, and kernels then round differently
        key: value.to(torch.float32 if value.is_floating_point() else value.dtype, copy=True)
        for key, value in weights.items()
    }
    try:
        net.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ValueError(f"{path}: the weights do not fit {type(net).__name__}: {error}") from error
    return net, about


def bundled() -> list[str]:
    """Names of the models that come with the package."""
    folder = resources.files("firm") / "assets"
    return sorted(Path(f.name).stem for f in folder.iterdir() if f.name.endswith(".safetensors"))


def find(name_or_path: str | Path) -> Path:
    """The file of a bundled model, or the path itself; an error if there is neither."""
    path = Path(name_or_path)
    if path.is_file():
        return path
    if str(name_or_path) in bundled():
        return Path(str(resources.files("firm") / "assets" / f"{name_or_path}.safetensors"))
    raise FileNotFoundError(
        f"no model {str(name_or_path)!r}: neither a file nor a bundled model ({', '.join(bundled()) or 'none yet'})"
    )


def _about(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """The settings saved with a model, checked."""
    try:
        about: dict[str, Any] = json.loads(metadata["firm"])
        version = int(about["format"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is a safetensors file, but not of a FIRM model (no valid 'firm' metadata)") from error
    if version > FORMAT:
        raise ValueError(f"{path} has format {version}, newer than this library reads ({FORMAT}): update firm")
    fields = {f.name for f in dataclasses.fields(Solver)}
    wanted = {"estimator", "config", "card", *(() if "kind" in about else ("solver",))}
    if not wanted <= about.keys() or (
        "solver" in wanted and not fields - {"coupling"} <= set(about["solver"]) <= fields
    ):
        raise ValueError(f"{path}: its FIRM metadata is incomplete: {sorted(about)}")
    return about


def _build(path: Path, about: dict[str, Any], own: type[nn.Module] | None) -> nn.Module:
    """A network of the saved kind, or of the user's `own` class; ours without memory for its weights yet."""
    name, config = about["estimator"], about["config"] or {}
    if own is None and name not in NETWORKS:
        raise ValueError(
            f"{path} was saved with the network class {name!r}: name it, load(path, estimator={name}), "
            f"or --network file.py:{name} on the command line"
        )
    try:
        if own is not None:
            return own(**config)
        with torch.device("meta"):
            return NETWORKS[name](**config)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: its network settings are not valid: {error}") from error
