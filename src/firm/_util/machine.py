"""The machine: which device computes, how much memory there is, and the processes that torchrun started."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# Ranks wait for the validation of the main one, or for large pictures of another: NCCL would give up after 10 minutes.
PATIENCE = timedelta(days=1)


def default_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose_device(name: str | None) -> torch.device:
    """Return the device that ``--device`` names, "cpu", "cuda" or "cuda:N", and make it the current one.

    None takes the GPU if there is one. A device that is not there is a ValueError.
    """
    if name is None:
        return default_device()
    if not re.fullmatch(r"cpu|cuda(:\d{1,4})?", name):
        raise ValueError(f"--device takes cpu, cuda or cuda:N (the N-th GPU, from 0), got {name!r}")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            why = f"there are {count} GPUs here, cuda:0 to cuda:{count - 1}"
            if not count:
                why = "this torch is built for CPUs only" if torch.version.cuda is None else "torch finds no GPU here"
                why += "; leave the option out, or give --device cpu"
            raise ValueError(f"--device {name}: {why}")
        if device.index is not None:
            torch.cuda.set_device(device)  # memory is counted, and graphs are recorded, on the current one
    return device


def wait(device: torch.device) -> None:
    """Wait until the device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def lacks_memory(error: Exception) -> bool:
    """Tell whether memory ran out: torch has an exception of its own for the GPU, and none for the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def describe_machine(device: torch.device | None = None) -> dict[str, Any]:
    """Describe processor, cores, the GPU if there is one and `device` is not the CPU, and the versions that matter."""
    from firm import __version__

    about: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "firm": __version__,
    }
    if _on_gpu(device):
        about["gpu"] = torch.cuda.get_device_name(device)
    return about


def peak_megabytes(device: torch.device | None = None) -> float:
    """Return the peak memory so far: of the GPU if there is one and `device` is not the CPU, else of this process.

    It is 0 where the system does not tell.
    """
    if _on_gpu(device):
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    if sys.platform == "win32":
        return 0.0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def free_memory() -> int | None:
    """Return the bytes of memory that this process could still get; None where the system does not tell."""
    found = []
    meminfo, limit = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    if meminfo.is_file():
        found += [1024 * int(line.split()[1]) for line in meminfo.read_text().splitlines() if "MemAvailable" in line]
    if limit.is_file():  # of a container
        text = limit.read_text().strip()
        found += [int(text)] if text.isdigit() else []
    return min(found, default=None)


def _on_gpu(device: torch.device | None) -> bool:
    return torch.cuda.is_available() and (device is None or device.type == "cuda")


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@dataclass(frozen=True)
class Ranks:
    """This process among all that work together."""

    rank: int  # from 0
    world: int  # how many there are
    device: torch.device  # where it computes

    @property
    def main(self) -> bool:
        """Whether this process is the one that prints and writes."""
        return self.rank == 0


@contextmanager
def ranks(device_name: str | None = None) -> Iterator[Ranks]:
    """Join the processes that torchrun started (NCCL on GPUs, gloo on CPUs), or be the only one.

    A single process computes where `choose_device` says. Several take one GPU each, or are all put on the CPU by the
    name "cpu".
    """
    if "WORLD_SIZE" not in os.environ:
        yield Ranks(0, 1, choose_device(device_name))
        return
    if device_name not in (None, "cpu"):
        raise ValueError(
            f"--device {device_name}: under torchrun each process takes a GPU of its own, or all --device cpu"
        )
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
    """Return the largest value among the ranks, so that they decide alike; all ranks must ask together.

    Parameters
    ----------
    value, device
        The value of this rank, and where it computes: NCCL speaks between GPUs only.
    """
    if not joined():
        return value
    shared = torch.tensor(value, device=device, dtype=torch.float64)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return float(shared.item())


def average(value: Tensor) -> Tensor:
    """Return the mean of a tensor over the ranks, of the same shape; all ranks must ask together."""
    if not joined():
        return value
    total = value.clone()
    dist.all_reduce(total, dist.ReduceOp.SUM)
    return total / dist.get_world_size()
