"""The file of a model: tensors, settings and card as JSON, and a digest of both. Nothing in it is taken on trust."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from firm._util.checks import finite, is_number, is_whole, short
from firm._util.files import write_atomically
from firm.networks import NETWORKS, build

FORMAT = 1  # of the saved file; raise it when an older library could misread a newer file


def write(path: str | Path, net: nn.Module, about: dict[str, Any], dtype: torch.dtype) -> None:
    """Write a network's weights as `dtype`, with what there is to say `about` it."""
    net = underlying(net)
    about = {"format": FORMAT, "estimator": type(net).__name__, "config": getattr(net, "config", None), **about}
    weights = {
        key: (value.to(dtype) if value.is_floating_point() else value).contiguous()
        for key, value in net.state_dict().items()
    }
    text = signed(json.dumps(about), weights)  # one entry: safetensors writes several in an order of its own
    write_atomically(path, safetensors.torch.save(weights, metadata={"firm": text}))


def attach_to_card(path: Path, entries: Mapping[str, Any]) -> None:
    """Add entries to the card in a model's file, in place of those of the same names; its weights stay as they are."""
    about, weights = read(path)
    about = {key: value for key, value in about.items() if key != "digest"}
    text = signed(json.dumps(about | {"card": {**about["card"], **entries}}), weights)
    write_atomically(path, safetensors.torch.save(weights, metadata={"firm": text}))


def underlying(net: nn.Module) -> nn.Module:
    """Return the network that a file can hold: itself, or the one inside a wrapper such as that of `fast` or `tiled`.

    A wrapper says so by a method ``underlying``, which raises ValueError where the weights are no longer the original.
    """
    inside: Callable[[], nn.Module] | None = getattr(net, "underlying", None)
    return net if inside is None else underlying(inside())


def signed(text: str, weights: Mapping[str, Tensor]) -> str:
    """Return the settings, a JSON object, with the digest as the last entry."""
    return f'{text.removesuffix("}")}, "digest": "{digest(text, weights)}"}}'


def digest(text: str, weights: Mapping[str, Tensor]) -> str:
    """Return a hash of the settings as written, and of every tensor: name, dtype, shape, bytes."""
    found = hashlib.sha256(text.encode())
    for key, value in sorted(weights.items()):
        found.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return f"sha256 {found.hexdigest()}"


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a saved network: what its file says about it, checked, and its weights as they were saved."""
    text, about, _ = _header(path)
    weights = safetensors.torch.load_file(path)
    if text != signed(text.rpartition(', "digest": "')[0] + "}", weights):
        raise ValueError(
            f"{path} is damaged or was changed after it was saved: its digest does not fit; copy or download it again"
        )
    kinds = {"estimator": str, "config": dict | None, "card": dict, "kind": str, "solver": dict}
    wanted = {"estimator", "config", "card", "kind" if "kind" in about else "solver"}
    for key in kinds.keys() & (wanted | about.keys()):
        if key not in about or not isinstance(about[key], kinds[key]):
            wrong = f"{key!r} is {short(about.get(key))}"
            raise ValueError(f"{path}: its FIRM metadata is incomplete or not valid: {wrong}")
    card: dict[str, Any] = about["card"]
    valid_card: dict[str, Callable[[Any], bool]] = {  # what restoring uses of it; all other entries are free
        "size": lambda v: is_whole(v, 1, 65536),
        "channels": lambda v: is_whole(v, 1, 4096),
        "value_range": lambda v: v in (None, []) or (isinstance(v, list) and len(v) == 2 and all(map(is_number, v))),
        "depths": lambda v: isinstance(v, list) and all(is_whole(k, 0, 1000) for k in v),
        "presets": _are_presets,
        "calibrations": lambda v: isinstance(v, list),
        "trained_for": lambda v: v is None or isinstance(v, str) or (isinstance(v, list) and all(map(_is_task, v))),
    }  # fmt: skip
    for key in valid_card.keys() & card.keys():
        if not valid_card[key](card[key]):
            raise ValueError(f"{path}: the card of the model is not valid: {key!r} is {short(card[key])}")
    return about, weights


def _header(path: Path) -> tuple[str, dict[str, Any], list[list[int]]]:
    """The settings of a model's file, as written and as read, and the shapes of its tensors, which are not read."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            text: str = (file.metadata() or {})["firm"]
            shapes = [file.get_slice(key).get_shape() for key in file.keys()]  # noqa: SIM118 (not a dict)
        about: dict[str, Any] = json.loads(text)
        version = about["format"]
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} cannot be read as safetensors of a FIRM model: damaged, cut short or another format ({error})"
        ) from error
    if not is_whole(version, 1, FORMAT):
        raise ValueError(f"{path} has format {short(version)}, newer than this library reads ({FORMAT}): update firm")
    return text, about, shapes


def _are_presets(entry: Any) -> bool:
    """Whether a card's ``presets`` are one pair (N, K) for each quality."""
    whole = isinstance(entry, dict) and set(entry) == {"fast", "faithful", "detailed"}
    return whole and all(
        isinstance(pair, list) and len(pair) == 2 and all(is_whole(n, 1, 1000) for n in pair) for pair in entry.values()
    )


def _is_task(entry: Any) -> bool:
    return isinstance(entry, str) or (isinstance(entry, dict) and isinstance(entry.get("name"), str))


def network(
    path: Path, about: dict[str, Any], weights: Mapping[str, Tensor], estimator: nn.Module | type[nn.Module] | None
) -> nn.Module:
    """Build the saved network with its weights, finite, as float32; of the user's class or instance where given."""
    name, config = about["estimator"], about["config"] or {}
    custom = estimator if isinstance(estimator, type) else None
    how = f"load(path, estimator={name}), or --network file.py:{name} on the command line"
    if estimator is None and name not in NETWORKS:
        raise ValueError(f"{path} was saved with the network class {name!r}: name it, {how}")
    if custom is not None and custom.__name__ != name:  # its file may be another: it may have been moved
        wanted = "leave estimator= or --network out" if name in NETWORKS else f"name that one, {how}"
        raise ValueError(f"{path} was saved with the network class {name!r}, not with {custom.__name__!r}: {wanted}")
    state = {  # copies: tensors of a mapped file are not aligned, and kernels then round differently
        key: value.to(torch.float32 if value.is_floating_point() else value.dtype, copy=True)
        for key, value in weights.items()
    }
    for key, value in state.items():
        if not finite(value):
            bad = int((~value.isfinite()).sum())
            raise ValueError(f"{path}: {bad} of the {value.numel()} weights {key!r} are NaN or infinite")
    try:
        if isinstance(estimator, nn.Module):
            net = estimator
        elif custom is not None:
            net = custom(**config)
        else:
            with torch.device("meta"):  # without memory for its weights yet
                net = build(NETWORKS[name], config)
        for key, value in net.state_dict().items():
            if key in state and value.is_floating_point() != state[key].is_floating_point():
                raise ValueError(f"{key} is {state[key].dtype}")
        net.load_state_dict(state, assign=True)
    except Exception as error:  # whatever a class makes of settings it was not written for
        raise ValueError(
            f"{path}: its network settings are not valid, or its weights do not fit {name}: {error}"
        ) from error
    if not hasattr(net, "config") and about["config"] is not None:
        net.config = about["config"]  # as in training, which tells by it whether the network takes the noise level
    return net


def read_facts(path: Path) -> dict[str, Any]:
    """Return what a model's file says of itself: kind, network, number of parameters, settings, card.

    Only the header of the file is read, so that a list of models is quick.
    """
    _, about, shapes = _header(path)
    card = about.get("card", {})
    if not isinstance(card, dict):
        raise ValueError(f"{path}: its FIRM metadata is not valid: 'card' is {short(card)}")
    return {
        "file": str(path),
        "kind": about.get("kind", "firm"),
        "network": about.get("estimator"),
        "parameters": sum(map(math.prod, shapes)),
        "MB": round(path.stat().st_size / 1e6, 1),
        **{key: about[key] for key in ("config", "solver") if about.get(key)},
        "card": card,
    }
