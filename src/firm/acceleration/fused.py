"""Whether this machine runs the fused kernels: those of `NormSwish`, and those between the blocks of `ResUNet`."""

from __future__ import annotations

import functools
import importlib.util
import warnings

import torch

from firm.networks.blocks import fused_norm_swish


@functools.cache
def has_fused(device: torch.device) -> bool:
    """They need a GPU, Triton (with torch for CUDA on Linux) and a C compiler."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    one = torch.ones(1, device=device)
    try:
        fused_norm_swish(one[:, None, None, None], None, 1, one, one)
        from firm.networks.triton_kernel import shifted_swish

        with torch.cuda.device_of(one):
            shifted_swish(one.clone()[:, None, None, None], one, one[:, None])
    except Exception as error:  # whatever it is that this machine lacks, there is the slower way
        warnings.warn(f"normalization is not fused, restoring takes longer: {error}", stacklevel=2)
        return False
    return True
