"""Faster evaluation of a model: bfloat16 where the machine has it, and on a GPU Algorithm 2 as one CUDA graph."""

from __future__ import annotations

import copy
import functools
import importlib.util
import warnings
from collections.abc import Callable, Hashable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from firm._model import Firm, Solver
from firm._posterior_mean import Sigma, vector
from firm._sampling import Integrator
from firm.acceleration import graphs
from firm.acceleration.graphs import Recordings, recorded, structure
from firm.acceleration.tiling import Tiled
from firm.networks import Estimator, Step
from firm.networks.res_unet import Level, PlainBlock
from firm.networks.unet import Attention, NormSwish
from firm.noise.base import Noise
from firm.operators.base import LinearOperator

Precision = Literal["auto", "bf16", "float32"]
MOST_CALLS = 32  # of the network in one CUDA graph, each about 90 kernels


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
        "auto": bfloat16 where the device computes faster in it. "float32" rounds like the model itself.
    """
    net = fast_network(model.estimator, precision)
    if net is model.estimator:
        return model
    kind = _FastFirm if isinstance(net, FastNetwork) else Firm
    return kind(net, model.solver, model.card)


def fast_network(net: nn.Module, precision: Precision = "auto", graphs: bool = True) -> nn.Module:
    """Make a network by itself quick, such as a prior. Without `graphs` its calls can be part of a larger graph."""
    if precision not in ("auto", "bf16", "float32"):
        raise ValueError(f'fast: precision must be "auto", "bf16" or "float32", got {precision!r}')
    if isinstance(net, Tiled):
        inside = fast_network(net.estimator, precision, graphs)
        return net if inside is net.estimator else Tiled(inside, net.tile, net.overlap)
    if isinstance(net, FastNetwork) and precision not in ("auto", {torch.bfloat16: "bf16"}.get(net.dtype, "float32")):
        net = net.underlying()
    if not isinstance(net, Estimator) or isinstance(net, Step):
        return net  # nothing to gain for other networks; a `Step` needs gradients inside
    net = copy.deepcopy(net).requires_grad_(False).eval()
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    device = next(net.parameters()).device
    if precision == "bf16" or (precision == "auto" and _has_bf16(device)):
        for part in net.children():
            if part is not net.conditioning:  # a function of t, which needs more digits
                part.to(torch.bfloat16)
    for module in net.modules():
        if isinstance(module, NormSwish | Level):
            module.fused = _has_fused(device)
        elif isinstance(module, PlainBlock):
            module.in_place = device.type == "cpu"
        elif isinstance(module, Attention):
            module.in_parts = device.type == "cpu"
    return FastNetwork(net, graphs)


def _has_bf16(device: torch.device) -> bool:
    """Tell whether the device computes in bfloat16 faster than in float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@functools.cache
def _has_fused(device: torch.device) -> bool:
    """Tell whether the device runs the fused kernels: those of `NormSwish`, and those between the blocks of `ResUNet`.

    They need a GPU, Triton (with torch for CUDA on Linux) and a C compiler.
    """
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    one = torch.ones(1, device=device)
    try:
        from firm.networks.triton_kernel import norm_swish, shifted_swish

        norm_swish(one[:, None, None, None], None, one, one, 1, 1e-6)
        with torch.cuda.device_of(one):
            shifted_swish(one.clone()[:, None, None, None], one, one[:, None])
    except Exception as error:  # whatever it is that this machine lacks, there is the slower way
        warnings.warn(f"normalization is not fused, restoring takes longer: {error}", stacklevel=2)
        return False
    return True


def network_class(model: Firm) -> type[nn.Module]:
    """Return the class of a model's network, which may be a custom one, inside what makes it fast or any size."""
    net: nn.Module = model.estimator
    while isinstance(net, Tiled | FastNetwork):
        net = net.estimator if isinstance(net, Tiled) else net.net
    return type(net)


class FastNetwork(nn.Module):
    """Calls a network in its own precision; on a GPU, replays a graph recorded for the shape of the images."""

    def __init__(self, net: Estimator, graphs: bool = True) -> None:
        super().__init__()
        self.net, self.graphs = net, graphs
        self.config: dict[str, Any] = net.config
        self.stride, self.images = net.stride, net.images

    @functools.cached_property
    def recordings(self) -> Recordings:
        """The CUDA graphs of this module, made at the first use on a GPU."""
        return Recordings()

    def underlying(self) -> nn.Module:
        """Return the network to save, with the model's own weights; refuse where they were rounded."""
        if self.dtype != torch.float32:
            raise ValueError(
                f"a fast model in {str(self.dtype).removeprefix('torch.')} has rounded weights: save the model that "
                'firm.fast was given, or make it with firm.fast(model, "float32")'
            )
        return self.net

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the features: float32 or bfloat16."""
        return self.net.stem.conv.weight.dtype

    @torch.no_grad()
    def forward(self, *inputs: Tensor | None) -> Tensor:
        """Call the network: images (B, C, H, W) and scalars (B,) in, one image out, in the dtype of the first."""
        given = [value for value in inputs if value is not None]
        device = given[0].device
        if not self.graphs or device.type != graphs.DEVICE or not recorded(device):
            return self._call(given)
        kind = (tuple(given[0].shape), given[0].dtype)
        return self.recordings(kind, given, lambda places: lambda: self._call(places))

    def _call(self, inputs: list[Tensor]) -> Tensor:
        out: Tensor = self.net(*inputs)  # its stem takes the images to its precision and layout
        return out.to(inputs[0].dtype, memory_format=torch.contiguous_format)


class _FastFirm(Firm):
    """A model with a `FastNetwork`. On a GPU, Algorithm 2 as a whole is one graph: N times K solves and network calls.

    A graph serves all operators of one `structure`, for example all blurs by kernels of one size. Where an operator has
    none (the user's own, `Compose`, conjugate gradients that look at their residual), only the network is a graph;
    where there are more than `MOST_CALLS` calls, Algorithm 3 is one, which every step replays.
    """

    def __init__(self, estimator: nn.Module, solver: Solver, card: dict[str, Any]) -> None:
        super().__init__(estimator, solver, card)
        self.recordings = Recordings()  # `with_iterations` shares them, so that a depth is recorded once

    @torch.no_grad()
    def posterior_mean(
        self,
        op: LinearOperator,
        x_t: Tensor,
        t: float | Tensor,
        y: Tensor,
        *,
        sigma: Sigma = None,
        callback: Callable[[int, Tensor, Tensor], None] | None = None,
        depths: Tensor | None = None,
    ) -> Tensor:
        """Run Algorithm 3 as `Firm.posterior_mean` does, as one graph where the operator allows it."""
        if callback is not None or depths is not None:
            return super().posterior_mean(op, x_t, t, y, sigma=sigma, callback=callback, depths=depths)

        def work(op: LinearOperator, y: Tensor, x_t: Tensor, t: Tensor, sigma: Tensor | Noise | None) -> Tensor:
            return super(_FastFirm, self).posterior_mean(op, x_t, t, y, sigma=sigma)

        noise = sigma.on(op, y, x_t) if isinstance(sigma, Noise) else None if sigma is None else vector(sigma, x_t)
        return self._replayed(work, "posterior mean", op, y, x_t, vector(t, x_t), noise)

    @torch.no_grad()
    def replay(
        self,
        flow: Callable[..., Tensor],
        how: tuple[int, Integrator],
        op: LinearOperator,
        *inputs: Tensor | Noise | None,
    ) -> Tensor:
        """Run ``flow(op, *inputs)``, all steps of Algorithm 2, as one graph where the operator allows it.

        `how` are the number of steps and the integrator: all that the flow depends on beside the model and its inputs.
        """
        if self.calls(*how) > MOST_CALLS:
            return flow(op, *inputs)
        return self._replayed(flow, how, op, *inputs)

    def _replayed(
        self, work: Callable[..., Tensor], kind: Hashable, op: LinearOperator, *inputs: Tensor | Noise | None
    ) -> Tensor:
        """Run ``work(op, *inputs)``: from a graph of its `kind` where there can be one.

        The first input is y. What the buffers of the operator and of a noise model hold is copied to their places, like
        the other inputs.
        """
        tensors = [v for v in inputs if isinstance(v, Tensor)]
        noise = next((v for v in inputs if isinstance(v, Noise)), None)
        device = tensors[0].device
        known = structure(op, noise, tensors[0]) if recorded(device) else None
        modules: list[Any] = [op] if noise is None else [op, noise]
        buffers: list[Tensor] = [] if known is None else [b for m in modules for b in m.buffers()]
        if known is None or any(b.device != device for b in buffers):
            return work(op, *inputs)

        def recording(places: list[Tensor]) -> Callable[[], Tensor]:
            left = iter(places)
            memo = {id(b): next(left) for b in buffers}
            there = [next(left) if isinstance(v, Tensor) else v for v in inputs]
            held = copy.deepcopy(op, memo)
            there = [copy.deepcopy(v, memo) if v is noise else v for v in there]
            return lambda: work(held, *there)

        shapes = tuple((tuple(v.shape), v.dtype) if isinstance(v, Tensor) else None for v in inputs)
        return self.recordings((known, self.solver, device, kind, shapes), [*buffers, *tensors], recording)
