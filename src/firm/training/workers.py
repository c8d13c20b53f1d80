"""Compile the network's blocks in several processes at once; training then finds them in the compiler's cache.

torch.compile works through blocks one after the other, on one core. The distinct ones, a dozen or two, are independent.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tqdm import tqdm

from firm._util.distributed import Ranks
from firm.acceleration.compiled import compile_blocks
from firm.acceleration.precompile import compile_signature, signatures
from firm.training.config import TrainConfig, dump_config, load_config
from firm.training.objectives import objective_class


def compile_beforehand(config: TrainConfig, ranks: Ranks) -> None:
    """Fill the compiler's cache with what this run will compile, if it will; on failure say so, and lose only time."""
    if ranks.device.type != "cuda" or ranks.world > 1 or not config.compile or not config.compile_workers:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(dump_config(config))
        if not precompile(path, config.compile_workers, str(ranks.device)):
            tqdm.write("compiling beforehand failed; the blocks are compiled as they come")


def precompile(config_file: Path, workers: int, device: str) -> bool:
    """Fill the compiler's cache for the configuration in `workers` processes; returns whether all succeeded."""
    threads = max(1, (os.cpu_count() or 1) // workers)
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(threads), "OMP_NUM_THREADS": "1"}
    program = "import sys; from firm.training.workers import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", program, str(config_file), device]
    running = [
        subprocess.Popen([*command, str(i), str(workers)], env=environment, stderr=subprocess.DEVNULL)
        for i in range(workers)
    ]
    codes = [process.wait() for process in running]
    return not any(codes)


def main(config_file: str, device_name: str, worker: str, workers: str) -> None:
    """Compile every `workers`-th distinct block, for one device."""
    config, device = load_config(config_file), torch.device(device_name)
    objective = objective_class(config.objective)(config)
    net = objective.build().to(device)
    if config.channels_last:
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = objective.inputs(config.batch // config.accumulate, device)
    found = sorted(signatures(net, inputs, config.bf16).items(), key=lambda item: str(item[0]))
    compile_blocks(net, lean=config.recompute == "pointwise")
    for signature, module in found[int(worker) :: int(workers)]:
        compile_signature(signature, module, config.bf16)
