"""torch.compile for the networks, block by block."""

from __future__ import annotations

from torch import nn

from firm.networks.blocks import Block, Conditioning, Head, Stem, Upsample
from firm.networks.denoisers import ResidualBlock
from firm.networks.ista_net import Proximal
from firm.networks.res_unet import PlainBlock

# What torch.compile works on.
COMPILED = (Conditioning, Stem, Block, Upsample, Head, PlainBlock, ResidualBlock, Proximal)


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
        if isinstance(module, COMPILED):
            module.compile(dynamic=False, backend=backend)
