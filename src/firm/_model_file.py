"""The file of a model: tensors, settings and card as JSON, and a digest of both. Nothing in it is taken on trust."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from firm._util.checks import require
from firm._util.files import write_atomically
from firm._util.finite import finite
from firm.networks import NETWORKS
from firm.networks.settings import is_number, is_whole, short

FORMAT = 1  # of the saved file; raise it when an older library could misread a newer file


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
    """What is saved about a network, checked, and its weights as saved."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(
            f"{path} cannot be read as safetensors: damaged, cut short or another format ({error})"
        ) from error
    about = _about(path, metadata)
    original = metadata["firm"].rpartition(', "digest": "')[0] + "}"
    require(
        metadata["firm"] == signed(original, weights),
        f"{path} is damaged or was changed after it was saved: its digest does not fit; copy or download it again",
    )
    return about, weights


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
        bad = 0 if finite(value) else int((~value.isfinite()).sum())
        require(bad == 0, f"{path}: {bad} of the {value.numel()} weights {key!r} are NaN or infinite")
    for key, value in net.state_dict().items():
        fits = key not in state or value.is_floating_point() == state[key].is_floating_point()
        require(fits, f"{path}: the weights do not fit {type(net).__name__}: {key} is {state.get(key, value).dtype}")
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
    require(is_whole(version, 1), f"{path} is a safetensors file, but not of a FIRM model (no valid 'firm' metadata)")
    readable = version <= FORMAT
    require(readable, f"{path} has format {short(version)}, newer than this library reads ({FORMAT}): update firm")
    wanted = {"estimator", "config", "card", "kind" if "kind" in about else "solver"}
    require(wanted <= about.keys(), f"{path}: its FIRM metadata is incomplete: {sorted(about)}")
    kinds = {"estimator": str, "config": dict | None, "card": dict, "solver": dict, "kind": str}
    for key in kinds.keys() & about.keys():
        kind = type(about[key]).__name__
        require(isinstance(about[key], kinds[key]), f"{path}: its FIRM metadata is not valid: {key!r} is a {kind}")
    card = about["card"]
    valid = {  # of the card, what restoring uses; all other entries are free
        "size": lambda v: is_whole(v, 1, 65536),
        "channels": lambda v: is_whole(v, 1, 4096),
        "value_range": lambda v: v in (None, []) or (isinstance(v, list) and len(v) == 2 and all(map(is_number, v))),
        "trained_for": lambda v: v is None or isinstance(v, str) or (isinstance(v, list) and all(map(_is_task, v))),
    }
    for key in valid.keys() & card.keys():
        shown = repr(str(card[key])[:60])
        require(valid[key](card[key]), f"{path}: the card of the model is not valid: {key!r} is {shown}")
    return about


def _is_task(entry: Any) -> bool:
    return isinstance(entry, str) or (isinstance(entry, dict) and isinstance(entry.get("name"), str))


def _build(path: Path, about: dict[str, Any], custom: type[nn.Module] | None) -> nn.Module:
    """A network of the saved kind, or of the user's `custom` class; ours without memory for its weights yet."""
    name, config = about["estimator"], about["config"] or {}
    how = f"load(path, estimator={name}), or --network file.py:{name} on the command line"
    known = custom is not None or name in NETWORKS
    require(known, f"{path} was saved with the network class {name!r}: name it, {how}")
    if custom is not None and custom.__name__ != name:  # its file may be another: it may have been moved
        wanted = "leave estimator= or --network out" if name in NETWORKS else f"name that one, {how}"
        raise ValueError(f"{path} was saved with the network class {name!r}, not with {custom.__name__!r}: {wanted}")
    try:
        if custom is not None:
            return custom(**config)
        with torch.device("meta"):
            return NETWORKS[name](**config)
    except Exception as error:  # whatever a class makes of settings it was not written for
        raise ValueError(f"{path}: its network settings are not valid: {error}") from error
