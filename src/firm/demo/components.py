"""Two inputs of gradio that hand over files as they were sent, so that only the library's reader decodes pictures."""

from __future__ import annotations

import functools
from abc import ABCMeta
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firm.demo.pictures import painted

PAINTINGS = 64  # that wait to be used
PAINTING_BYTES = 4_000_000  # of one; a layer is mostly empty


@dataclass(frozen=True)
class Upload:
    """A file in the page's folder, and what the visitor calls it."""

    path: Path
    name: str


@functools.cache
def picture_class() -> Any:
    """An image input whose value is an `Upload`, not decoded: gradio's own would, whatever its size."""
    import gradio as gr

    return _derived(gr.Image, "PictureFile", preprocess=_uploaded)


@functools.cache
def painting_class() -> Any:
    """An editor whose value is where it was painted on, (H, W), or None; what it keeps is bounded."""
    import gradio as gr

    kept = Paintings()  # one for all visitors: gradio makes a component anew when it is shown or hidden
    storage = property(lambda self: kept, lambda self, value: None)
    return _derived(gr.ImageEditor, "Painting", preprocess=_painted_on, blob_storage=storage)


def _derived(base: Any, name: str, **members: Any) -> Any:
    """A class like `base`, which it still is for the browser.

    ``class Name(base)`` would do the same and also write a .pyi file beside this one: gradio's metaclass does that for
    authors of components. Hence its parent is called.
    """
    members |= {"is_template": True, "__module__": __name__, "__doc__": base.__doc__}
    return ABCMeta.__new__(type(base), name, (base,), members)


def _uploaded(self: Any, payload: Any) -> Upload | None:
    """The file as it is."""
    if payload is None or not payload.path:
        return None
    path = _inside(payload.path, self.GRADIO_CACHE)
    return Upload(path, Path(payload.orig_name or path.name).name)


def _painted_on(self: Any, payload: Any) -> Any:
    """Where it was painted on."""
    if payload is None:
        return None
    if payload.id is not None:
        stored = self.blob_storage.pop(payload.id, None)
        return None if stored is None else painted([layer for layer in stored.layers if layer])
    return painted([_inside(layer.path, self.GRADIO_CACHE).read_bytes() for layer in payload.layers or []])


def _inside(name: str, folder: str) -> Path:
    """The path of an uploaded file. A client may name any: gradio checks only those that say that they are files."""
    import gradio as gr

    path = Path(name).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        raise gr.Error(f"{path.name} was not uploaded to the page", print_exception=False)
    return path


class Paintings(OrderedDict[str, Any]):
    """Layers that browsers have sent and nobody has asked for yet: the oldest go, and none is large."""

    def __setitem__(self, key: str, value: Any) -> None:
        value.background = value.composite = None  # the page needs what was painted, and no more
        if sum(len(layer) for layer in value.layers if layer) > PAINTING_BYTES:
            raise ValueError("a painting is larger than the page makes them")
        super().__setitem__(key, value)
        while len(self) > PAINTINGS:
            self.popitem(last=False)


@functools.cache
def fetch_nothing() -> None:
    """Keep gradio, in this process, from fetching addresses that a client sends instead of a file.

    For all components at once: gradio takes files for any of them, and makes them anew as it likes.
    """
    import gradio as gr
    from gradio.blocks import Block

    move = Block.async_move_resource_to_block_cache

    @functools.wraps(move)
    async def only_files(self: Any, source: Any) -> Any:
        if str(source).lower().startswith(("http:", "https:")):
            raise gr.Error("the page takes files, not addresses", print_exception=False)
        return await move(self, source)

    Block.async_move_resource_to_block_cache = only_files
