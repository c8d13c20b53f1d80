"""Compile the network's blocks in several processes at once; training then finds them in the compiler's cache.

torch.compile works through blocks one after the other, on one core. The distinct ones, a dozen or two, are independent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from firm._util.distributed import Ranks
from firm.acceleration.compiled import COMPILED, compile_blocks
from firm.networks.unet import Stem, UNet
from firm.training.config import TrainConfig, dump_config, load_config


@dataclass(frozen=True)
class Signature:
    """What a compiled block depends on: its kind, and its inputs."""

    kind: str
    shapes: tuple[tuple[int, ...] | None, ...]
    strides: tuple[tuple[int, ...] | None, ...]
    dtypes: tuple[torch.dtype | None, ...]
    gradients: tuple[bool, ...]  # which inputs need one in training


def compile_beforehand(config: TrainConfig, ranks: Ranks) -> None:
    """Fill the compiler's cache with what this run will compile, if it will; on failure say so, and lose only time."""
    if ranks.device.type != "cuda" or ranks.world > 1 or not config.compile or not config.compile_workers:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(dump_config(config))
        if not precompile(path, config.compile_workers):
            tqdm.write("compiling beforehand failed; the blocks are compiled as they come")


def precompile(config_file: Path, workers: int) -> bool:
    """Fill the compiler's cache for the configuration in `workers` processes; returns whether all succeeded."""
    threads = max(1, (os.cpu_count() or 1) // workers)
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(threads), "OMP_NUM_THREADS": "1"}
    program = "import sys; from firm.acceleration.precompile import main; main(sys.argv[1], *map(int, sys.argv[2:]))"
    command = [sys.executable, "-c", program, str(config_file)]
    running = [
        subprocess.Popen([*command, str(i), str(workers)], env=environment, stderr=subprocess.DEVNULL)
        for i in range(workers)
    ]
    codes = [process.wait() for process in running]
    return not any(codes)


def signatures(net: UNet, config: TrainConfig, batch: int) -> dict[Signature, nn.Module]:
    """The distinct blocks of the network as training calls them, each with a module that has it."""
    device = next(net.parameters()).device
    found: dict[Signature, nn.Module] = {}

    def record(module: nn.Module, inputs: tuple[Tensor | None, ...]) -> None:
        # Gradients flow through all inputs but t, sigma and x_t; x^{k+1} has none in the first iteration.
        stem = isinstance(module, Stem)
        for first in (False, True) if stem else (True,):
            images = [v is not None and v.ndim == 4 for v in inputs]
            gradients = (first, False) if stem else tuple(images)
            shapes = tuple(None if v is None else tuple(v.shape) for v in inputs)
            strides = tuple(None if v is None else v.stride() for v in inputs)
            dtypes = tuple(None if v is None else v.dtype for v in inputs)
            kind = f"{type(module).__name__} {[tuple(p.shape) for p in module.parameters()]}"
            found.setdefault(Signature(kind, shapes, strides, dtypes, gradients), module)

    hooks = [m.register_forward_pre_hook(record) for m in net.modules() if isinstance(m, COMPILED)]
    x = torch.zeros(batch, config.channels, config.size, config.size, device=device)
    t = torch.full((batch,), 0.5, device=device)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=config.bf16):
        net(x, x, t, t) if net.config["noise_level"] else net(x, x, t)
    for hook in hooks:
        hook.remove()
    return found


def compile_signature(signature: Signature, module: nn.Module, bf16: bool) -> None:
    """Run a compiled block forward and backward on inputs of this signature."""
    device = next(module.parameters()).device
    inputs: list[Tensor | None] = []
    for shape, stride, dtype, needed in zip(
        signature.shapes, signature.strides, signature.dtypes, signature.gradients, strict=True
    ):
        if shape is None or stride is None:
            inputs.append(None)
        else:
            values = torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
            inputs.append(values.requires_grad_(needed))
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        out = module(*inputs)
    outputs = out if isinstance(out, tuple) else (out,)
    torch.autograd.backward(outputs, [torch.zeros_like(v) for v in outputs])


def main(config_file: str, worker: int, workers: int) -> None:
    """Compile every `workers`-th distinct block."""
    config = load_config(config_file)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = UNet(**config.unet_arguments()).to(device)
    if config.channels_last:
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = sorted(signatures(net, config, config.batch // config.accumulate).items(), key=lambda item: str(item[0]))
    compile_blocks(net, lean=config.recompute == "pointwise")
    for signature, module in found[worker::workers]:
        compile_signature(signature, module, config.bf16)
