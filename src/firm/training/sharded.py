"""Weights, gradients, averages and the optimizer's moments split among the processes: FSDP2, for large networks.

Every block holds its share of each tensor, and gathers the whole only while it computes. What is saved is whole, so
that a run may go on with another number of processes, or without splitting.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from firm._util.machine import Ranks
from firm.networks.estimator import Conditioning


def split_network(net: nn.Module, ranks: Ranks) -> None:
    """Split a network among all processes, block by block: the modules that are compiled alone, then what is left.

    `Conditioning` returns views, which FSDP2 does not follow: its weights are split with what is left.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    for module in list(net.modules()):
        if getattr(module, "compiled_alone", False) and not isinstance(module, Conditioning):
            fully_shard(module, mesh=mesh)
    fully_shard(net, mesh=mesh)


def local(tensor: Tensor) -> Tensor:
    """Return this process's share of a tensor that is split; others as they are."""
    shared: Any = tensor
    return shared.to_local() if _is_split(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Gather a tensor that is split; all processes must ask together."""
    shared: Any = tensor
    return shared.full_tensor() if _is_split(tensor) else tensor


def gathered(tree: Any) -> Any:
    """Gather every tensor in nested dictionaries and lists, in memory of the CPU; all processes must ask together."""
    return tree_map(lambda v: whole(v).cpu() if isinstance(v, Tensor) and _is_split(v) else v, tree)


def split_like(tensors: dict[str, Tensor], now: dict[str, Tensor]) -> dict[str, Tensor]:
    """Split whole tensors as those of the same name are; nothing is sent, each process takes its share."""
    return {key: _split(value, now[key]) for key, value in tensors.items()}


def split_moments(saved: dict[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """Split the state of an optimizer as its parameters are; how it computes stays its own affair."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    state = {
        index: {key: _moment(v, params[index]) for key, v in moments.items()}
        for index, moments in saved["state"].items()
    }
    own = [{key: group[key] for key in ("fused", "foreach") if key in group} for group in optimizer.param_groups]
    groups = [{**group, **kept} for group, kept in zip(saved["param_groups"], own, strict=True)]
    return {"state": state, "param_groups": groups}


def _moment(value: Any, param: Tensor) -> Any:
    """Split a moment as its parameter is, in the same layout of memory: fused kernels go through both as they lie."""
    if not isinstance(value, Tensor) or value.shape != param.shape:
        return value
    if _is_split(param):
        return _split(value, param)
    return (
        value if value.stride() == param.stride() else torch.empty_like(param.detach(), dtype=value.dtype).copy_(value)
    )


def _split(value: Tensor, like: Tensor) -> Tensor:
    from torch.distributed.tensor import distribute_tensor

    shared: Any = like
    if not _is_split(like):
        return value
    return distribute_tensor(value.to(like.device), shared.device_mesh, shared.placements, src_data_rank=None)


def _is_split(tensor: Tensor) -> bool:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False  # without importing what splits tensors
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)
