"""Several processes, started by torchrun: who am I, and where do I compute?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from firm._util.checks import require
from firm._util.machine import DeviceError, choose_device

# Ranks wait for the validation of the main one, or for large pictures of another: NCCL would give up after 10 minutes.
PATIENCE = timedelta(days=1)


@dataclass(frozen=True)
class Ranks:
    """This process among all that work together.

    Parameters
    ----------
    rank, world
        Its number, from 0, and how many there are.
    device
        Where it computes.
    """

    rank: int
    world: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this process is the one that prints and writes."""
        return self.rank == 0


@contextmanager
def ranks(device_name: str | None = None) -> Iterator[Ranks]:
    """Join the processes that torchrun started (NCCL on GPUs, gloo on CPUs), or be the only one.

    Parameters
    ----------
    device_name
        Where a single process computes: as for `choose_device`. Several take one GPU each, or are all put on the CPU by
        the name "cpu".
    """
    if "WORLD_SIZE" not in os.environ:
        yield Ranks(0, 1, choose_device(device_name))
        return
    alone = f"--device {device_name}: under torchrun each process takes a GPU of its own, or all --device cpu"
    require(device_name in (None, "cpu"), alone, DeviceError)
    cuda = torch.cuda.is_available() and device_name is None
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), device)
        dist.barrier()  # the others may leave only when the main process has validated and saved
    finally:
        dist.destroy_process_group()


def joined() -> bool:
    """Tell whether this process works together with others."""
    return dist.is_available() and dist.is_initialized()


def largest(value: float, device: torch.device) -> float:
    """Return the largest value among the ranks, so that they decide alike; all ranks must ask together."""
    if not joined():
        return value
    shared = torch.tensor(value, device=device, dtype=torch.float64)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return float(shared.item())


def average(value: Tensor) -> Tensor:
    """Return the mean of a tensor over the ranks; all ranks must ask together."""
    if not joined():
        return value
    total = value.clone()
    dist.all_reduce(total, dist.ReduceOp.SUM)
    return total / dist.get_world_size()
