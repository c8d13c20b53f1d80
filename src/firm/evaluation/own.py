"""A method of the user's own: a function in a file, evaluated like all others."""

from __future__ import annotations

import inspect

from torch import Tensor

from firm._model import fingerprint
from firm._sampling import Generators
from firm._util.custom import CustomCodeError, CustomFunction, custom_code, load_function, place
from firm.evaluation.methods import NamedMethod
from firm.operators import LinearOperator


def own_method(name: str) -> NamedMethod:
    """The function ``file.py:function``, which is called as ``function(op, y, sigma, *, generator)``; its code is run.

    It returns images (B, C, H, W). `generator` is a list, one generator for each image. The fingerprint follows from
    the file, so that a function that was edited is evaluated anew.
    """
    own = load_function(name, "method")
    _require_arguments(own)

    def run(op: LinearOperator, y: Tensor, sigma: float, generator: Generators) -> Tensor:
        with custom_code(method=own):
            x = own.call(op, y.clone(), sigma, generator=generator)  # a copy: the next method has the same y
        _require_images(own, x, y)
        images: Tensor = x.detach().float()
        return images

    return NamedMethod(own.name, run, None, fingerprint(None, f"own method {own.name} {own.digest()}"))


def _require_arguments(own: CustomFunction) -> None:
    try:
        inspect.signature(own.call).bind(None, None, 0.0, generator=None)
    except TypeError as error:
        raise _wrong(own, f"it is called as {own.name}(op, y, sigma, generator=...): {error}") from error


def _require_images(own: CustomFunction, x: object, y: Tensor) -> None:
    """Refuse what is no tensor of real numbers where y is; whoever evaluates it looks at its shape and values."""
    if not isinstance(x, Tensor):
        what = "None" if x is None else f"something of type {type(x).__name__}"
        raise _wrong(own, f"it returned {what}; it must return images (B, C, H, W), a torch tensor")
    if not x.is_floating_point():
        raise _wrong(own, f"it returned a tensor of {x.dtype}; images (B, C, H, W) are floats, in [-1, 1]")
    if x.device != y.device:
        raise _wrong(own, f"it returned images on {x.device}; they must be where y is, on {y.device}")


def _wrong(own: CustomFunction, message: str) -> CustomCodeError:
    return CustomCodeError(f"{place(own.files[-1], own.line, f'method {own.name}')}: {message}")
