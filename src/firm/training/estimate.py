"""Before a run: what it will need, counted on the meta device, and its blocks compiled in several processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

from firm._util.custom import custom_code
from firm._util.machine import Ranks, describe_machine, wait
from firm.acceleration.compiled import compile_blocks, compile_signature, signatures
from firm.training.config import TrainConfig, dump_config, load_config

# The share of the rate of matrix products that training reaches: 140 of 680 TFLOP/s on one H200 in bf16 with all
# switches on (docs/performance.md), and about as much elsewhere.
SHARE = 0.2
# Peak memory over the activations that an eager step saves (2 bytes each in bf16), measured on one H200: float32 1.01
# and 1.02; bf16, where autocast keeps float32 in places, 1.23 to 1.30; recompute=pointwise 0.36 to 0.40.
BF16, POINTWISE = 1.27, 0.37


def estimate(config: TrainConfig, device: torch.device) -> dict[str, Any]:
    """Say what a run will need, counted on the meta device.

    Parameters
    ----------
    config, device
        The run, and where it would train: the rate of matrix products is measured there.

    Returns
    -------
    Parameters, FLOP of a network call and of a training image, gigabytes, and hours, each under its name for the user.
    """
    kind = config.objective_class
    custom = {"objective": kind, "network": config.network_class()}
    with torch.device("meta"), custom_code(**custom):
        objective = kind(config)
        net = objective.build()
        inputs = objective.inputs(1, "meta")
    parameters = sum(p.numel() for p in net.parameters())
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            saved[tensor.untyped_storage()._cdata] = tensor.numel() * (2 if config.bf16 else 4)
        return tensor

    keeping = torch.autograd.graph.saved_tensors_hooks(pack, lambda v: v)
    with FlopCounterMode(display=False) as counter, keeping, custom_code(**custom):
        out = net(*inputs)
    activations = sum(saved.values())
    del out
    calls = objective.calls()
    learning = 1 if config.iterate_weights else calls  # those that gradients pass through: twice the forward pass
    flop = counter.get_total_flops() * (calls + 2 * learning)
    kept: float = 1 if config.recompute == "calls" else learning
    if config.recompute == "pointwise":
        kept *= POINTWISE
    elif config.bf16:
        kept *= BF16
    # weights, gradient, AdamW, EMA
    memory = parameters * 20 + activations * kept * config.batch_size / config.accumulation_steps
    machine, images = describe_machine(device), config.total_steps * config.batch_size
    where = machine.get("gpu") or f"{machine['cpu']}, {machine['threads']} threads"
    hours = config.max_minutes / 60 or images * flop / (SHARE * matrix_rate(device, config.bf16)) / 3600
    about = {
        "parameters": parameters,
        "GFLOP per network call": counter.get_total_flops() / 1e9,
        "TFLOP a training image": flop / 1e12,
        "GB of memory": memory / 1e9,
        f"hours on one {where}, roughly": hours,
    }
    return {key: float(f"{value:.3g}") if isinstance(value, float) else value for key, value in about.items()}


def matrix_rate(device: torch.device, bf16: bool = True) -> float:
    """Measure the FLOP/s of a product of random matrices on this device: the ceiling of training."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = torch.randn(2, n, n, device=device, dtype=torch.bfloat16 if bf16 else torch.float32)
    for _ in range(3):
        a @ b
    wait(device)
    start = time.perf_counter()
    for _ in range(10):
        a @ b
    wait(device)
    return 10 * 2 * n**3 / (time.perf_counter() - start)


def compile_beforehand(config: TrainConfig, ranks: Ranks) -> None:
    """Fill the compiler's cache with what this run will compile, if it will; on failure say so, and lose only time.

    torch.compile works through blocks one after the other, on one core. The distinct ones, a dozen or two, are
    independent.
    """
    if ranks.device.type != "cuda" or ranks.world > 1 or not config.compile or not config.compile_workers:
        return
    workers = config.compile_workers
    threads = max(1, (os.cpu_count() or 1) // workers)
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(threads), "OMP_NUM_THREADS": "1"}
    program = "import sys; from firm.training.estimate import _compile_share; _compile_share(*sys.argv[1:])"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(dump_config(config))
        command = [sys.executable, "-c", program, str(path), str(ranks.device)]
        running = [
            subprocess.Popen([*command, str(i), str(workers)], env=environment, stderr=subprocess.DEVNULL)
            for i in range(workers)
        ]
        codes = [process.wait() for process in running]
    if any(codes):
        tqdm.write("compiling beforehand failed; the blocks are compiled as they come")


def _compile_share(config_file: str, device_name: str, worker: str, workers: str) -> None:
    """Compile every `workers`-th distinct block, for one device."""
    config, device = load_config(config_file), torch.device(device_name)
    objective = config.objective_class(config)
    net = objective.build().to(device)
    if config.channels_last:
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = objective.inputs(config.batch_size // config.accumulation_steps, device)
    found = sorted(signatures(net, inputs, config.bf16).items(), key=lambda item: str(item[0]))
    compile_blocks(net, lean=config.recompute == "pointwise")
    for signature, module in found[int(worker) :: int(workers)]:
        compile_signature(signature, module, config.bf16)
