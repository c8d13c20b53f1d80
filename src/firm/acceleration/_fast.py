"""Faster evaluation of a model: bfloat16 where the machine has it, and on a GPU the network as a CUDA graph."""

from __future__ import annotations

import copy
import threading
from typing import Any, Literal

import torch
from torch import Tensor, nn

from firm._model import Firm
from firm.acceleration.fused import has_fused
from firm.acceleration.graphs import record
from firm.networks.estimator import Estimator
from firm.networks.gradient_step import Step
from firm.networks.norm_swish import NormSwish
from firm.networks.res_unet import Level

SHAPES = 8  # graphs kept, each with its memory; a folder of many sizes drops the oldest
GRAPHS = threading.Lock()  # one for all networks: no other may record or replay while one does
Precision = Literal["auto", "bf16", "float32"]


def fast(model: Firm, precision: Precision = "auto") -> Firm:
    """A copy of the model for restoring, not for training: the same settings, the network made quick.

    The data-consistency step stays in float32; only the network's features are bfloat16, in channels_last. On a GPU
    what stands between two convolutions is one kernel, the first call with a new shape of images records the network
    as a CUDA graph, and later calls replay it.

    Parameters
    ----------
    model
        With a `UNet` or `ResUNet`; it is not changed. Move it to its device first. A `tiled` model becomes fast inside
        its tiles; with other networks, which have nothing to gain, the model itself is returned.
    precision
        "auto": bfloat16 where the device computes in it (`has_bf16`). "float32" rounds like the model itself.
    """
    net = fast_network(model.estimator, precision)
    return model if net is model.estimator else Firm(net, model.solver, model.card)


def fast_network(net: nn.Module, precision: Precision = "auto", graphs: bool = True) -> nn.Module:
    """The same for a network by itself, such as a prior. Without `graphs` its calls can be part of a larger graph."""
    if precision not in ("auto", "bf16", "float32"):
        raise ValueError(f'fast: precision must be "auto", "bf16" or "float32", got {precision!r}')
    wrapper: Any = net
    if hasattr(net, "around"):  # that of `tiled`
        inside = fast_network(wrapper.estimator, precision, graphs)
        return net if inside is wrapper.estimator else wrapper.around(inside)
    if isinstance(net, FastNetwork) and precision not in ("auto", {torch.bfloat16: "bf16"}.get(net.dtype, "float32")):
        net = net.underlying()
    if not isinstance(net, Estimator) or isinstance(net, Step):
        return net  # nothing to gain for other networks; a `Step` needs gradients inside
    net = copy.deepcopy(net).requires_grad_(False).eval()
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    device = next(net.parameters()).device
    if precision == "bf16" or (precision == "auto" and has_bf16(device)):
        for part in net.children():
            if part is not net.conditioning:  # a function of t, which needs more digits
                part.to(torch.bfloat16)
    for module in net.modules():
        if isinstance(module, NormSwish | Level):
            module.fused = has_fused(device)
    return FastNetwork(net, graphs)


def has_bf16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 faster than in float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


class FastNetwork(nn.Module):
    """Calls a network in its own precision; on a GPU, replays a graph recorded for the shape of the images."""

    def __init__(self, net: Estimator, graphs: bool = True) -> None:
        super().__init__()
        self.net, self.graphs = net, graphs
        self.config: dict[str, Any] = net.config
        self.stride = net.stride
        self._recorded: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}
        self._done: torch.cuda.Event | None = None  # the last replay

    def underlying(self) -> nn.Module:
        """The network to save, with the model's own weights; ValueError where they were rounded."""
        if self.dtype != torch.float32:
            raise ValueError(
                f"a fast model in {str(self.dtype).removeprefix('torch.')} has rounded weights: save the model that "
                'firm.fast was given, or make it with firm.fast(model, "float32")'
            )
        return self.net

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the features."""
        return self.net.stem.conv.weight.dtype

    @torch.no_grad()
    def forward(self, *inputs: Tensor | None) -> Tensor:
        """As the network: images (B, C, H, W) and scalars (B,) in, one image out, in the dtype of the first."""
        given = [value for value in inputs if value is not None]
        if not given[0].is_cuda or not self.graphs:
            return self._call(given)
        with torch.cuda.device_of(given[0]):  # graphs are recorded and replayed on the current device
            return self._replay(given)

    def _call(self, inputs: list[Tensor]) -> Tensor:
        n = self.net.images
        images = (v.to(self.dtype, memory_format=torch.channels_last) for v in inputs[:n])
        out: Tensor = self.net(*images, *inputs[n:])
        return out.to(inputs[0].dtype, memory_format=torch.contiguous_format)

    def _replay(self, inputs: list[Tensor]) -> Tensor:
        """Threads take turns: they share the buffers of a graph, and a recording takes down what others launch.

        Each also waits, on the device, for the one before, which may have worked on another stream.
        """
        with GRAPHS:
            key = tuple(inputs[0].shape)
            if self._done is not None:
                torch.cuda.current_stream().wait_event(self._done)
            if key not in self._recorded:
                if len(self._recorded) >= SHAPES:
                    del self._recorded[next(iter(self._recorded))]
                self._recorded[key] = self._record(inputs)
            graph, static, out = self._recorded[key]
            for held, given in zip(static, inputs, strict=True):
                held.copy_(given)
            graph.replay()
            result = out.clone()  # the next replay overwrites it
            self._done = torch.cuda.current_stream().record_event() if result.is_cuda else None
            return result

    def _record(self, inputs: list[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]:
        static = [v.clone(memory_format=torch.contiguous_format) for v in inputs]
        graph, out = record(lambda: self._call(static))
        return graph, static, out
