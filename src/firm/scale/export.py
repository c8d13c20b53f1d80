"""Files for other runtimes: a model's network, or all of Algorithm 2 for an operator with a closed form.

Every file is run after it was written, and compared with torch. An ONNX file is made of two traces, that of the network
and that of the sampler around it, which are then joined: tracing N K copies of the network would take minutes.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional as F

from firm import __version__
from firm._model import Firm, channels_of
from firm._model_file import underlying
from firm._sampling import Quality, integrate
from firm._util.checks import is_whole, require
from firm.operators import Blur, Downsample, Identity, LinearOperator, Mask, Subsample
from firm.scale.fourier import REAL

TASKS = ("denoising", "inpainting", "deblurring", "super-resolution")
KERNEL = 25  # pixels a side: smaller kernels are given with zeros around them
TOLERANCE = 1e-4  # of images in [-1, 1]
MISSING = (
    'an ONNX file needs {}: pip install onnx onnxscript onnxruntime, or in a checkout pip install -e ".[export]" '
    "-c constraints.txt"
)
EXTRA_INPUTS = {"previous": ["z"], "context": ["measured", "seen"], "iteration": []}


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from torch."""

    path: Path
    inputs: dict[str, str]  # name -> shape
    difference: float  # the largest of all pixels, in units of images in [-1, 1]
    megabytes: float


def export_model(
    model: Firm, path: str | Path, task: str | None = None, *, steps: int | None = None, iterations: int | None = None,
    quality: Quality | None = None, scale: int = 2, filter: str = "bicubic", compiled: bool = False,
) -> Exported:  # fmt: skip
    """Write a file that runs without FIRM, run it, and compare it with the model.

    Batch, height and width are free in it. Both sides of an image are multiples of the network's stride, in
    super-resolution of the scale too; they have 16 pixels at least, and no fewer than the kernel. All numbers are
    float32. Results that differ from torch's by more than 1e-4 are refused with RuntimeError, and no file is left.

    Parameters
    ----------
    model
        The model, on the CPU, as `firm.load` returns it.
    path
        ``.onnx``, or ``.pt2``, the file of `torch.export`.
    task
        None writes the network alone, one call of R_theta of equation (78). Else all N steps of Algorithm 2, from
        measurement and noise to image: "denoising", "inpainting" (with the mask of seen pixels as an input),
        "deblurring" (circular, with a kernel of 25x25 pixels as an input) or "super-resolution".
    steps, iterations, quality
        N and K, which are fixed in the file, as in `firm.sample`.
    scale, filter
        Of super-resolution, as in `firm.operators.Downsample`; the filter "stride" is `firm.operators.Subsample`.
    compiled
        Compile the .pt2 file for this machine with AOTInductor, which needs a C++ compiler.
    """
    path = Path(path)
    require(path.suffix in (".onnx", ".pt2"), f"{path}: the file must end in .onnx or .pt2")
    require(task is None or task in TASKS, f"a file can hold {', '.join(TASKS)} or the network alone, not {task!r}")
    require(not compiled or path.suffix == ".pt2", "compiled files end in .pt2: AOTInductor makes no ONNX file")
    require(is_whole(scale, 2, 16), f"the scale must be a whole number from 2 to 16, got {scale}")
    onnx = path.suffix == ".onnx"
    for package in ("onnx", "onnxscript", "onnxruntime") if onnx else ():
        require(importlib.util.find_spec(package), MISSING.format(package), ModuleNotFoundError)
    model, N = model.at(quality, steps, iterations)
    model = Firm(underlying(model.estimator), model.solver, model.card).eval().requires_grad_(False)
    stride = getattr(model.estimator, "stride", 1)
    net = _Network(model.estimator, stride, channels_of(model))
    work = net if task is None else _Sampler(model, stride, N, task, scale, filter, channels_of(model))
    about = {
        "firm": __version__, "model": str(model.card.get("name", "")), "what": task or "network",
        "value_range": "[-1, 1]", "stride": str(stride), "license": str(model.card.get("notice", "")),
        "card": json.dumps(model.card),
    }  # fmt: skip
    if isinstance(work, _Sampler):
        about |= {"steps": str(N), "iterations": str(model.solver.K)}
        about |= {"scale": str(scale), "filter": filter} if task == "super-resolution" else {}
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of the tracers, on their own internals
            run = (_write_onnx if onnx else _write_pt2)(work, net, partial, about, compiled)
        difference = max(_difference(run, work, size) for size in work.sizes)
        if difference > TOLERANCE:
            raise RuntimeError(
                f"the results of the exported file differ from torch's by {difference:.1e}, more than {TOLERANCE:.0e}: "
                "nothing was written"
            )
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    shapes = {name: " x ".join(map(str, shape)) for name, shape in work.shapes.items()}
    return Exported(path, shapes, difference, path.stat().st_size / 1e6)


class _Work(nn.Module):
    """What a file computes, with the names and shapes of its inputs; a subclass makes inputs for the trace."""

    names: list[str]
    shapes: dict[str, tuple[Any, ...]]

    def __init__(self, multiple: int, least: int = 16) -> None:
        super().__init__()
        self.multiple, self.least = multiple, math.ceil(least / multiple)
        n = multiple * self.least
        self.sizes = [(2, 2 * n, 3 * n), (1, 3 * n, 2 * n)]  # the first is traced, both are compared

    def example(self, batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """Inputs for images of a size, drawn from a fixed seed."""
        raise NotImplementedError

    def dynamic(self) -> dict[str, tuple[dict[int, Any], ...]]:
        """What torch.export is told of the sizes: batch, height and width are free."""
        batch, rows, columns = Dim("batch", min=1), Dim("rows", min=self.least), Dim("columns", min=self.least)
        first = self.example(*self.sizes[0])
        B, H, W = self.sizes[0]

        def of(value: Tensor) -> dict[int, Any]:
            free: dict[int, Any] = {0: batch} if value.shape[0] == B else {}
            if value.ndim == 4:
                free |= {
                    2: self.multiple * value.shape[2] // H * rows,
                    3: self.multiple * value.shape[3] // W * columns,
                }
            return free

        return {"inputs": tuple(of(value) for value in first)}


class _Network(_Work):
    """One call of the estimator R_theta, equation (78)."""

    def __init__(self, estimator: nn.Module, stride: int, channels: int) -> None:
        super().__init__(stride)
        self.estimator, self.channels = estimator, channels
        config = getattr(estimator, "config", {})
        extra = config.get("extra", ())
        images = ["x", "x_t", *(name for key in extra for name in EXTRA_INPUTS[key])]
        scalars = ["t", *(["sigma"] if config.get("noise_level") else []), *(["k"] if "iteration" in extra else [])]
        self.shapes = dict.fromkeys(images, ("batch", channels, "height", "width"))
        self.shapes |= dict.fromkeys(scalars, ("batch",))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the network."""
        return self.estimator(*inputs)

    def example(self, batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """Images in the range of real ones, and times, levels and iterations that occur."""
        g = Generator().manual_seed(0)
        values = {"t": 0.5, "sigma": 0.1, "k": 1.0}
        return tuple(
            torch.full((batch,), values[name]) if name in values
            else 0.5 * torch.randn(batch, self.channels, height, width, generator=g)
            for name in self.shapes
        )  # fmt: skip


class _Sampler(_Work):
    """All steps of Algorithm 2: measurement, noise, noise level and, where there is one, mask or kernel in."""

    def __init__(self, model: Firm, stride: int, steps: int, task: str, scale: int, filter: str, channels: int) -> None:
        self.scale = scale if task == "super-resolution" else 1
        kernel = {"deblurring": KERNEL, "super-resolution": 4 * scale}.get(task, 0)
        super().__init__(math.lcm(stride, self.scale), max(16, kernel))
        self.stride = stride
        self.model, self.steps, self.task, self.filter, self.channels = model, steps, task, filter, channels
        small = "" if self.scale == 1 else f" / {self.scale}"
        image = ("batch", channels, "height", "width")
        self.shapes = {"y": ("batch", channels, f"height{small}", f"width{small}"), "noise": image, "sigma": ("batch",)}
        if task == "inpainting":
            self.shapes["mask"] = ("batch", 1, "height", "width")
        if task == "deblurring":
            self.shapes["kernel"] = (KERNEL, KERNEL)

    def operator(self, *pattern: Tensor) -> LinearOperator:
        """The operator A of these inputs."""
        if self.task == "inpainting":
            return Mask(*pattern, check=False)
        if self.task == "deblurring":
            return Blur(*pattern, check=False)
        if self.task == "super-resolution":
            plain = self.filter == "stride"
            return Subsample(self.scale) if plain else Downsample(self.scale, self.filter, check=False)
        return Identity()

    def forward(self, *inputs: Tensor) -> Tensor:
        """Restore."""
        y, noise, sigma, *pattern = inputs
        return integrate(self.model, self.operator(*pattern), y, noise, self.steps, sigma=sigma)

    def example(self, batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """A smooth image, measured."""
        g = Generator().manual_seed(0)
        x = F.interpolate(torch.rand(batch, self.channels, 4, 4, generator=g) * 2 - 1, (height, width), mode="bicubic")
        pattern = []
        if self.task == "inpainting":
            pattern = [(torch.rand(batch, 1, height, width, generator=g) > 0.5).float()]
        if self.task == "deblurring":
            distance = torch.arange(KERNEL) - KERNEL // 2
            bell = (-(distance**2) / 2).exp()
            pattern = [torch.outer(bell, bell) / bell.sum() ** 2]
        y = self.operator(*pattern).A(x)
        y = y + 0.05 * torch.randn(y.shape, generator=g)
        return y, torch.randn(x.shape, generator=g), torch.full((batch,), 0.05), *pattern


Run = Callable[[Sequence[Tensor]], Tensor]


def _difference(run: Run, work: _Work, size: tuple[int, int, int]) -> float:
    """The largest difference between a file and the model it was made of, on images of a size."""
    inputs = work.example(*size)
    with torch.no_grad():
        wanted = work(*inputs)
    return float((run(inputs) - wanted).abs().max() / wanted.abs().max().clamp(min=1))


def _traced(work: _Work) -> ExportedProgram:
    return torch.export.export(work, work.example(*work.sizes[0]), dynamic_shapes=work.dynamic())


# torch.export


def _write_pt2(work: _Work, net: _Network, path: Path, about: dict[str, str], compiled: bool) -> Run:
    program = _traced(work)
    if compiled:
        settings: dict[str, Any] = {"aot_inductor.metadata": about}
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=settings)
        package = torch._inductor.aoti_load_package(str(path))
        return lambda inputs: package(*inputs)
    torch.export.save(program, path, extra_files={"firm.json": json.dumps(about)})
    loaded = torch.export.load(path).module()
    return lambda inputs: loaded(*inputs)


# ONNX


class _Symbol(nn.Module):
    """Stands for the network in the trace of a sampler."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config

    def forward(self, *inputs: Tensor) -> Tensor:
        """One node, which `_joined` replaces."""
        x = inputs[0]
        return torch.onnx.ops.symbolic("firm::Network", inputs, dtype=x.dtype, shape=x.shape, version=1)


def _write_onnx(work: _Work, net: _Network, path: Path, about: dict[str, str], compiled: bool) -> Run:
    import numpy as np
    import onnxruntime

    network = _onnx(net)
    if isinstance(work, _Sampler):
        symbol = _Symbol(getattr(net.estimator, "config", {}))
        outline = _Sampler(
            Firm(symbol, work.model.solver), work.stride, work.steps, work.task, work.scale, work.filter, work.channels
        )
        whole = _joined(_onnx(outline), network)
    else:
        whole = network
    whole.metadata_props.update(about)
    import onnx_ir

    onnx_ir.save(whole, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Sequence[Tensor]) -> Tensor:
        given = {name: value.numpy() for name, value in zip(work.shapes, inputs, strict=True)}
        return torch.from_numpy(np.asarray(session.run(None, given)[0]))

    return run


def _onnx(work: _Work) -> Any:
    """The trace of a piece of work as an ONNX model; Fourier transforms are products with matrices."""
    program = _traced(work).run_decompositions(REAL)
    made = torch.onnx.export(
        program, (), dynamo=True, input_names=list(work.shapes), output_names=["image"], verbose=False
    )
    assert made is not None
    return made.model


def _joined(outline: Any, network: Any) -> Any:
    """Put the network, whose weights are there once, in the place of every node that stands for it."""
    import onnx_ir as ir
    from onnx_ir.passes.common import InlinePass, RemoveUnusedOpsetsPass

    graph, body = outline.graph, network.graph
    weights = list(body.initializers.values())
    body.initializers.clear()
    body.inputs.extend(weights)  # of a function, which sees nothing but its inputs
    shared = [
        ir.Value(name=f"network.{v.name}", shape=v.shape, type=v.type, const_value=v.const_value) for v in weights
    ]
    for value in shared:
        graph.register_initializer(value)
    for value in weights:
        value.const_value = None
    for node in [node for node in graph if node.domain == "firm"]:
        call = ir.Node("firm", "Network", [*node.inputs, *shared], num_outputs=1)
        ir.convenience.replace_nodes_and_values(graph, node, [node], [call], node.outputs, call.outputs)
    function = ir.Function("firm", "Network", graph=body, attributes=[])
    outline.functions[function.identifier()] = function
    InlinePass()(outline)
    RemoveUnusedOpsetsPass()(outline)
    return outline
