"""Several processes, started by torchrun: who am I, and where do I compute?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """This process among all of them."""

    rank: int
    world: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this process prints and writes."""
        return self.rank == 0


@contextmanager
def ranks() -> Iterator[Ranks]:
    """Join the processes that torchrun started (NCCL on GPUs, gloo on CPUs), or be the only one."""
    cuda = torch.cuda.is_available()
    if "WORLD_SIZE" not in os.environ:
        yield Ranks(0, 1, torch.device("cuda" if cuda else "cpu"))
        return
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), device)
        dist.barrier()  # the others may leave only when the main process has validated and saved
    finally:
        dist.destroy_process_group()


def joined() -> bool:
    """Whether this process works together with others."""
    return dist.is_available() and dist.is_initialized()


def largest(value: float, device: torch.device) -> float:
    """The largest value among the ranks, so that they decide alike; all ranks must ask together."""
    if not joined():
        return value
    shared = torch.tensor(value, device=device, dtype=torch.float64)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return float(shared.item())


def average(value: Tensor) -> Tensor:
    """The mean of a tensor over the ranks; all ranks must ask together."""
    if not joined():
        return value
    total = value.clone()
    dist.all_reduce(total, dist.ReduceOp.SUM)
    return total / dist.get_world_size()
