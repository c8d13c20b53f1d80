"""The file of a model: tensors, settings and card as JSON, and a digest of both. Nothing in it is taken on trust."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from firm._util.files import write_atomically
from firm._util.finite import finite
from firm.networks import NETWORKS
from firm.networks.settings import is_number, is_whole

FORMAT = 1  # of the saved file; raise it when an older library could misread a newer file
log = logging.getLogger("firm")


def write(path: str | Path, net: nn.Module, about: dict[str, Any], dtype: torch.dtype) -> None:
    """Write a network's weights as `dtype`, with what there is to say `about` it."""
    net = underlying(net)
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
    text = signed(json.dumps(about), weights)  # one entry: safetensors writes several in an order of its own
    write_atomically(path, safetensors.torch.save(weights, metadata={"firm": text}))


def underlying(net: nn.Module) -> nn.Module:
    """The network that a file can hold: itself, or the one inside a wrapper such as that of `fast` or `tiled`.

    A wrapper says so by a method ``underlying``, which raises ValueError where the weights are no longer the original.
    """
    inside: Callable[[], nn.Module] | None = getattr(net, "underlying", None)
    return net if inside is None else underlying(inside())


def signed(text: str, weights: Mapping[str, Tensor]) -> str:
    """The settings, a JSON object, with the digest as the last entry."""
    return f'{text.removesuffix("}")}, "digest": "{digest(text, weights)}"}}'


def digest(text: str, weights: Mapping[str, Tensor]) -> str:
    """A hash of the settings as written, and of every tensor: name, dtype, shape, bytes."""
    found = hashlib.sha256(text.encode())
    for key, value in sorted(weights.items()):
        found.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return f"sha256 {found.hexdigest()}"


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What is saved about a network, checked, and its weights as saved.

    A file of an older version has no digest. It is read all the same, with a note in the log "firm" (level INFO).
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as safetensors: damaged, cut short or another format ({error})"
        ) from error
    about = _about(path, metadata)
    _check_digest(path, metadata["firm"], about, weights)
    return about, weights


def _check_digest(path: Path, text: str, about: dict[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError if the digest does not fit, byte by byte; where there is none, leave a note."""
    hashes = [value for value in about.values() if isinstance(value, str) and value.startswith("sha256 ")]
    if "digest" not in about and not hashes:  # a damaged name leaves the hash
        log.info("%s was saved by an older version of firm, without a digest: damage to it cannot be seen", path)
        return
    original = text.rpartition(', "digest": "')[0] + "}"
    if text != signed(original, weights):
        raise ValueError(
            f"{path} is damaged or was changed after it was saved: its digest does not fit; copy or download it again"
        )


def network(
    path: Path, about: dict[str, Any], weights: Mapping[str, Tensor], estimator: nn.Module | type[nn.Module] | None
) -> nn.Module:
    """The saved network with its weights, finite, as float32; of the user's own class or instance where given."""
    net = estimator if isinstance(estimator, nn.Module) else _build(path, about, estimator)
    if not hasattr(net, "config") and about["config"] is not None:
        net.config = about["config"]  # as in training, which tells by it whether the network takes the noise level
    state = {  # copies: tensors of a mapped file are not aligned, and kernels then round differently
        key: value.to(torch.float32 if value.is_floating_point() else value.dtype, copy=True)
        for key, value in weights.items()
    }
    for key, value in state.items():
        if not finite(value):
            bad = int((~value.isfinite()).sum())
            raise ValueError(f"{path}: {bad} of the {value.numel()} weights {key!r} are NaN or infinite")
    for key, value in net.state_dict().items():
        if key in state and value.is_floating_point() != state[key].is_floating_point():
            raise ValueError(f"{path}: the weights do not fit {type(net).__name__}: {key} is {state[key].dtype}")
    try:
        net.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise ValueError(f"{path}: the weights do not fit {type(net).__name__}: {error}") from error
    return net


def _about(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The settings saved with a model, checked."""
    try:
        about = json.loads(metadata["firm"])
    except (KeyError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is a safetensors file, but not of a FIRM model (no valid 'firm' metadata)") from error
    version: Any = about.get("format") if isinstance(about, dict) else None
    if not is_whole(version, 1):
        raise ValueError(f"{path} is a safetensors file, but not of a FIRM model (no valid 'firm' metadata)")
    if version > FORMAT:
        raise ValueError(f"{path} has format {version:.6g}, newer than this library reads ({FORMAT}): update firm")
    wanted = {"estimator", "config", "card", "kind" if "kind" in about else "solver"}
    if not wanted <= about.keys():
        raise ValueError(f"{path}: its FIRM metadata is incomplete: {sorted(about)}")
    kinds = {"estimator": str, "config": dict | None, "card": dict, "solver": dict, "kind": str}
    for key in kinds.keys() & about.keys():
        if not isinstance(about[key], kinds[key]):
            raise ValueError(f"{path}: its FIRM metadata is not valid: {key!r} is a {type(about[key]).__name__}")
    _check_card(path, about["card"])
    return about


def _check_card(path: Path, card: dict[str, Any]) -> None:
    """Raise ValueError for entries of the wrong type that restoring uses; all others are free."""
    valid = {
        "size": lambda v: is_whole(v, 1, 65536),
        "channels": lambda v: is_whole(v, 1, 4096),
        "value_range": lambda v: v in (None, []) or (isinstance(v, list) and len(v) == 2 and all(map(is_number, v))),
        "trained_for": lambda v: v is None or isinstance(v, str) or (isinstance(v, list) and all(map(_is_task, v))),
    }
    for key in valid.keys() & card.keys():
        if not valid[key](card[key]):
            raise ValueError(f"{path}: the card of the model is not valid: {key!r} is {str(card[key])[:60]!r}")


def _is_task(entry: Any) -> bool:
    return isinstance(entry, str) or (isinstance(entry, dict) and isinstance(entry.get("name"), str))


def _build(path: Path, about: dict[str, Any], own: type[nn.Module] | None) -> nn.Module:
    """A network of the saved kind, or of the user's `own` class; ours without memory for its weights yet."""
    name, config = about["estimator"], about["config"] or {}
    how = f"load(path, estimator={name}), or --network file.py:{name} on the command line"
    if own is None and name not in NETWORKS:
        raise ValueError(f"{path} was saved with the network class {name!r}: name it, {how}")
    if own is not None and own.__name__ != name:  # its file may be another: it may have been moved
        wanted = "leave estimator= or --network out" if name in NETWORKS else f"name that one, {how}"
        raise ValueError(f"{path} was saved with the network class {name!r}, not with {own.__name__!r}: {wanted}")
    try:
        if own is not None:
            return own(**config)
        with torch.device("meta"):
            return NETWORKS[name](**config)
    except Exception as error:  # whatever a class makes of settings it was not written for
        raise ValueError(f"{path}: its network settings are not valid: {error}") from error


def read_facts(path: Path) -> dict[str, Any]:
    """Return what a model's file says of itself: kind, network, number of parameters, settings, card.

    Only the header of the file is read, so that a list of models is quick.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            about: Any = json.loads((file.metadata() or {})["firm"])
            shapes = [file.get_slice(key).get_shape() for key in file.keys()]  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a FIRM model, or is damaged ({error})") from error
    if not isinstance(about, dict) or not isinstance(about.get("card", {}), dict):
        raise ValueError(f"{path}: its FIRM metadata is not valid")
    return {
        "file": str(path),
        "kind": about.get("kind", "firm"),
        "network": about.get("estimator"),
        "parameters": sum(math.prod(shape) for shape in shapes),
        "MB": round(path.stat().st_size / 1e6, 1),
        **{key: about[key] for key in ("config", "solver") if about.get(key)},
        "card": about.get("card", {}),
    }
