"""The distinct blocks of a network as training calls them, and how to compile one of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from firm.acceleration.compiled import COMPILED
from firm.networks.blocks import Stem


@dataclass(frozen=True)
class Signature:
    """What a compiled block depends on: its kind, and its inputs."""

    kind: str
    shapes: tuple[tuple[int, ...] | None, ...]
    strides: tuple[tuple[int, ...] | None, ...]
    dtypes: tuple[torch.dtype | None, ...]
    gradients: tuple[bool, ...]  # which inputs need one in training


def signatures(net: nn.Module, inputs: tuple[Tensor, ...], bf16: bool) -> dict[Signature, nn.Module]:
    """The distinct blocks of the network as training calls it on `inputs`, each with a module that has it.

    None where an operator is among the inputs: those blocks are compiled as they come.
    """
    found: dict[Signature, nn.Module] = {}
    if not all(isinstance(value, Tensor) for value in inputs):
        return found

    def record(module: nn.Module, given: tuple[Tensor | None, ...]) -> None:
        # Gradients flow through all inputs but t, sigma, x_t and the context; x^{k+1} and z^k have none at first. The
        # stem gets [x, x_t], [x, x_t, z], [x, x_t, context, context] or all five: z^k is the third of an odd number.
        stem = isinstance(module, Stem)
        for later in (False, True) if stem and len(given) > 1 else (not stem,):
            images = [v is not None and v.ndim == 4 for v in given]
            through = {0, 2} if len(given) % 2 else {0}
            gradients = tuple(later and i in through for i in range(len(given))) if stem else tuple(images)
            shapes = tuple(None if v is None else tuple(v.shape) for v in given)
            strides = tuple(None if v is None else v.stride() for v in given)
            dtypes = tuple(None if v is None else v.dtype for v in given)
            kind = f"{type(module).__name__} {[tuple(p.shape) for p in module.parameters()]}"
            found.setdefault(Signature(kind, shapes, strides, dtypes, gradients), module)

    hooks = [m.register_forward_pre_hook(record) for m in net.modules() if isinstance(m, COMPILED)]
    with torch.no_grad(), torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=bf16):
        net(*inputs)
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
