"""Which machine and versions a number was measured with, and how much memory it took."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch


def describe_machine(device: torch.device | None = None) -> dict[str, Any]:
    """Processor, cores, GPU if there is one and `device` is not the CPU, and the versions that matter."""
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
    """Peak memory so far: of the GPU if there is one and `device` is not the CPU, else of this process.

    0 where the system does not tell.
    """
    if _on_gpu(device):
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def free_memory() -> int | None:
    """Bytes of memory that this process could still get; None where the system does not tell."""
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
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
