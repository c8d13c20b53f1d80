"""Where to compute: what ``--device`` names, or the GPU if there is one."""

from __future__ import annotations

import re

import torch


class DeviceError(ValueError):
    """A device that is not there, or cannot be chosen; the message says why."""


def default_device() -> torch.device:
    """The GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose_device(name: str | None) -> torch.device:
    """The device called cpu, cuda or cuda:N, made the current one; None chooses. One that is not there is an error."""
    if name is None:
        return default_device()
    if not re.fullmatch(r"cpu|cuda(:\d{1,4})?", name):
        raise DeviceError(f"--device takes cpu, cuda or cuda:N (the N-th GPU, from 0), got {name!r}")
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            why = "this torch is built for CPUs only" if torch.version.cuda is None else "torch finds no GPU here"
            raise DeviceError(f"--device {name}: {why}; leave the option out, or give --device cpu")
        if device.index is not None:
            if device.index >= count:
                raise DeviceError(f"--device {name}: there are {count} GPUs here, cuda:0 to cuda:{count - 1}")
            torch.cuda.set_device(device)  # memory is counted, and graphs are recorded, on the current one
    return device


def wait(device: torch.device) -> None:
    """Until the device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def lacks_memory(error: Exception) -> bool:
    """Whether memory ran out: torch has an exception of its own for the GPU, and none for the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
