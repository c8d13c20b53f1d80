"""Faster evaluation of a model: bfloat16 where the machine has it, and on a GPU Algorithm 3 as one CUDA graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from firm._model import Firm, Solver
from firm._posterior_mean import vector
from firm.acceleration.fused import has_fused
from firm.acceleration.graphs import recorded
from firm.acceleration.recordings import Recordings, structure
from firm.networks.estimator import Estimator
from firm.networks.gradient_step import Step
from firm.networks.norm_swish import NormSwish
from firm.networks.res_unet import Level
from firm.operators.base import LinearOperator

Precision = Literal["auto", "bf16", "float32"]


def fast(model: Firm, precision: Precision = "auto") -> Firm:
    """A copy of the model for restoring, not for training: the same settings, the network made quick.

    The data-consistency step stays in float32; only the network's features are bfloat16, in channels_last. On a GPU
    what stands between two convolutions is one kernel, and the first call with a new shape of images, or a new kind of
    operator, records a CUDA graph, which later calls replay.

    Parameters
    ----------
    model
        With a `UNet` or `ResUNet`; it is not changed. Move it to its device first. A `tiled` model becomes fast inside
        its tiles; with other networks, which have nothing to gain, the model itself is returned.
    precision
        "auto": bfloat16 where the device computes in it (`has_bf16`). "float32" rounds like the model itself.
    """
    net = fast_network(model.estimator, precision)
    if net is model.estimator:
        return model
    kind = FastFirm if isinstance(net, FastNetwork) else Firm
    return kind(net, model.solver, model.card)


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
        self.stride, self.images = net.stride, net.images
        self.recordings = Recordings()

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
        if not self.graphs or not recorded(given[0].device):
            return self._call(given)
        kind = (tuple(given[0].shape), given[0].dtype)
        return self.recordings(kind, given, lambda places: lambda: self._call(places))

    def _call(self, inputs: list[Tensor]) -> Tensor:
        n = self.images
        # what is no batch of images has no channels_last: the network refuses it in words
        layout = torch.channels_last if inputs[0].ndim == 4 else torch.preserve_format
        images = (v.to(self.dtype, memory_format=layout) for v in inputs[:n])
        out: Tensor = self.net(*images, *inputs[n:])
        return out.to(inputs[0].dtype, memory_format=torch.contiguous_format)


class FastFirm(Firm):
    """A model with a `FastNetwork`. On a GPU, Algorithm 3 as a whole is one graph: K solves and K network calls.

    A graph serves all operators of one `structure`, for example all blurs by kernels of one size. Where an operator has
    none (the user's own, `Compose`, conjugate gradients that look at their residual), only the network is a graph.
    """

    def __init__(self, estimator: nn.Module, solver: Solver, card: dict[str, Any]) -> None:
        super().__init__(estimator, solver, card)
        self.recordings = Recordings()

    @torch.no_grad()
    def posterior_mean(
        self,
        op: LinearOperator,
        x_t: Tensor,
        t: float | Tensor,
        y: Tensor,
        *,
        sigma: float | Tensor | None = None,
        callback: Callable[[int, Tensor, Tensor], None] | None = None,
    ) -> Tensor:
        """As of every model."""
        kind = structure(op) if recorded(x_t.device) and callback is None else None
        buffers: list[Tensor] = [] if kind is None else list(op.buffers())  # type: ignore[attr-defined]
        if kind is None or any(b.device != x_t.device for b in buffers):
            return super().posterior_mean(op, x_t, t, y, sigma=sigma, callback=callback)
        t, level = vector(t, x_t), None if sigma is None else vector(sigma, x_t)
        given = [x_t, t, y, *buffers] if level is None else [x_t, t, y, *buffers, level]

        def work(places: list[Tensor]) -> Callable[[], Tensor]:
            x_t, t, y, *others = places
            level = None if sigma is None else others.pop()
            held = copy.deepcopy(op, {id(b): place for b, place in zip(buffers, others, strict=True)})
            return lambda: super(FastFirm, self).posterior_mean(held, x_t, t, y, sigma=level)

        shapes = [(tuple(v.shape), v.dtype) for v in (x_t, y)]
        return self.recordings((kind, self.solver, x_t.device, *shapes, level is None), given, work)
