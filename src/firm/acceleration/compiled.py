"""torch.compile for the networks, block by block; and their blocks one by one, to compile them beforehand.

The modules that are compiled say so by ``compiled_alone = True``, a custom network's too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from firm.networks.estimator import Stem


def compile_blocks(net: nn.Module, backend: str = "inductor", lean: bool = False) -> None:
    """Compile the network block by block: those of one shape share their code, so it takes a fraction of the time.

    `lean` keeps convolutions' outputs for the backward pass and nothing that follows from them by pointwise
    operations: a quarter of the memory, a little slower.
    """
    import torch._dynamo
    import torch._functorch.config

    torch._functorch.config.aggressive_recomputation = lean
    torch._dynamo.config.cache_size_limit = max(torch._dynamo.config.cache_size_limit, 256)
    for module in net.modules():
        if getattr(module, "compiled_alone", False):
            module.compile(dynamic=False, backend=backend)


class _Input(NamedTuple):
    """One input of a block, as compiled code depends on it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    gradient: bool  # whether training needs its gradient


# What a compiled block depends on: its kind, and its inputs; None stands for one that is not given.
_Signature = tuple[str, tuple[_Input | None, ...]]


def signatures(net: nn.Module, inputs: tuple[Tensor, ...], bf16: bool) -> dict[_Signature, nn.Module]:
    """Find the distinct blocks of the network as training calls it on `inputs`, each with a module that has it.

    There are none where an operator is among the inputs: those blocks are compiled as they come.
    """
    found: dict[_Signature, nn.Module] = {}
    if not all(isinstance(value, Tensor) for value in inputs):
        return found

    def note(module: nn.Module, given: tuple[Tensor | None, ...]) -> None:
        # Gradients flow through all inputs but t, sigma, x_t and the context; x^{k+1} and z^k have none at first. The
        # stem gets x and x_t first, then z^k where the network sees it.
        stem = isinstance(module, Stem)
        for later in (False, True) if stem and len(given) > 1 else (not stem,):
            through = {0, 2} if "previous" in getattr(net, "config", {}).get("extra", ()) else {0}
            kinds = tuple(
                None if v is None
                else _Input(tuple(v.shape), v.stride(), v.dtype, later and i in through if stem else v.ndim == 4)
                for i, v in enumerate(given)
            )  # fmt: skip
            kind = f"{type(module).__name__} {[tuple(p.shape) for p in module.parameters()]}"
            found.setdefault((kind, kinds), module)

    hooks = [m.register_forward_pre_hook(note) for m in net.modules() if getattr(m, "compiled_alone", False)]
    with torch.no_grad(), torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=bf16):
        net(*inputs)
    for hook in hooks:
        hook.remove()
    return found


def compile_signature(signature: _Signature, module: nn.Module, bf16: bool) -> None:
    """Run a compiled block forward and backward on inputs of this signature."""
    device = next(module.parameters()).device
    inputs = [
        None if i is None
        else torch.empty_strided(i.shape, i.stride, dtype=i.dtype, device=device).zero_().requires_grad_(i.gradient)
        for i in signature[1]
    ]  # fmt: skip
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        out = module(*inputs)
    outputs = out if isinstance(out, tuple) else (out,)
    torch.autograd.backward(outputs, [torch.zeros_like(v) for v in outputs])
