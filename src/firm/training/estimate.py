"""What a configuration will need, counted on the meta device: parameters, arithmetic, memory, time."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from firm._util.custom import custom_code
from firm.training.config import TrainConfig
from firm.training.objectives import objective_class

RATE = 140e12  # FLOP/s that training reaches on one H200 with all switches on (docs/performance.md)
# Peak memory over the activations that an eager step saves (2 bytes each in bf16), measured on one H200: float32 1.01
# and 1.02; bf16, where autocast keeps float32 in places, 1.23 to 1.30; recompute=pointwise 0.36 to 0.40.
BF16, POINTWISE = 1.27, 0.37


def estimate(config: TrainConfig) -> dict[str, Any]:
    """Parameters, FLOP an image, gigabytes and hours of a run."""
    kind = objective_class(config.objective)
    own = {"objective": kind, "network": config.network_class()}
    with torch.device("meta"), custom_code(**own):
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
    with FlopCounterMode(display=False) as counter, keeping, custom_code(**own):
        out = net(*inputs)
    activations = sum(saved.values())
    del out
    calls = objective.calls()
    flop = counter.get_total_flops() * calls * 3  # the backward pass costs twice the forward pass
    kept: float = 1 if config.recompute == "calls" else calls
    if config.recompute == "pointwise":
        kept *= POINTWISE
    elif config.bf16:
        kept *= BF16
    memory = parameters * 20 + activations * kept * config.batch / config.accumulate  # weights, gradient, AdamW, EMA
    hours = config.max_minutes / 60 or config.total_steps * config.batch * flop / RATE / 3600
    return {
        "parameters": parameters,
        "GFLOP per network call": _short(counter.get_total_flops() / 1e9),
        "TFLOP a training image": _short(flop / 1e12),
        "GB of memory": _short(memory / 1e9),
        "hours on one H200 in bf16": _short(hours),
    }


def _short(value: float) -> float:
    """Three digits, also of small numbers."""
    return float(f"{value:.3g}")
