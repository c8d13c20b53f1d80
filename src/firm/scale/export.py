"""Files for other runtimes: a model's network, or all of Algorithm 2 for an operator with a closed form.

Every file is run after it was written, and compared with torch.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firm import __version__
from firm._model import Firm, channels_of
from firm._model_file import underlying
from firm._sampling import Quality
from firm._util.checks import is_whole, require
from firm._util.extras import extra
from firm.scale.to_onnx import onnx_model
from firm.scale.traced import Network, Sampler, Work, traced

TASKS = ("denoising", "inpainting", "deblurring", "super-resolution")
TOLERANCE = 1e-4  # of images in [-1, 1]


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
    super-resolution of the scale too; they have 16 pixels at least. All numbers are
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
        extra(package, "An ONNX file", "export")
    model, N = model.at(quality, steps, iterations)
    model = Firm(underlying(model.estimator), model.solver, model.card).eval().requires_grad_(False)
    require(task is None or model.solver.K >= 1, "a model without a solver (K = 0) is exported as a network alone")
    stride = getattr(model.estimator, "stride", 1)
    net = Network(model.estimator, stride, channels_of(model))
    work = net if task is None else Sampler(model, stride, N, task, scale, filter, channels_of(model))
    about = {
        "firm": __version__, "model": str(model.card.get("name", "")), "what": task or "network",
        "value_range": "[-1, 1]", "stride": str(stride), "license": str(model.card.get("notice", "")),
        "card": json.dumps(model.card),
    }  # fmt: skip
    if isinstance(work, Sampler):
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


Run = Callable[[Sequence[Tensor]], Tensor]


def _difference(run: Run, work: Work, size: tuple[int, int, int]) -> float:
    """The largest difference between a file and the model it was made of, on images of a size."""
    inputs = work.example(*size)
    with torch.no_grad():
        wanted = work(*inputs)
    return float((run(inputs) - wanted).abs().max() / wanted.abs().max().clamp(min=1))


def _write_pt2(work: Work, net: Network, path: Path, about: dict[str, str], compiled: bool) -> Run:
    program = traced(work)
    if compiled:
        settings: dict[str, Any] = {"aot_inductor.metadata": about}
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=settings)
        package = torch._inductor.aoti_load_package(str(path))
        return lambda inputs: package(*inputs)
    torch.export.save(program, path, extra_files={"firm.json": json.dumps(about)})
    loaded = torch.export.load(path).module()
    return lambda inputs: loaded(*inputs)


def _write_onnx(work: Work, net: Network, path: Path, about: dict[str, str], compiled: bool) -> Run:
    import numpy as np
    import onnx_ir
    import onnxruntime

    model = onnx_model(work, net)
    model.metadata_props.update(about)
    onnx_ir.save(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Sequence[Tensor]) -> Tensor:
        given = {name: value.numpy() for name, value in zip(work.shapes, inputs, strict=True)}
        return torch.from_numpy(np.asarray(session.run(None, given)[0]))

    return run
