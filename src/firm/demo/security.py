"""Components that take what visitors send as it is: uploads stay undecoded, paintings bounded, nothing is fetched."""

import functools
from abc import ABCMeta
from collections import OrderedDict
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components.base import server

from firm.demo.previews import MAX_LAYERS, painted
from firm.demo.request import Upload

MAX_PAINTED = 32_000_000  # bytes of all layers that wait to be used


@functools.cache
def fetch_nothing() -> None:
    """Keep gradio, in this process, from fetching addresses that a client sends instead of a file.

    This holds for all components: gradio takes files for any of them, and makes components anew as it likes.
    """
    move = Block.async_move_resource_to_block_cache

    @functools.wraps(move)
    async def move_files_only(self: Any, source: Any) -> Any:
        if str(source).lower().startswith(("http:", "https:")):
            raise gr.Error("the page takes files, not addresses", print_exception=False)
        return await move(self, source)

    Block.async_move_resource_to_block_cache = move_files_only


def _derived(base: Any, name: str, **members: Any) -> Any:
    """Derive a class from `base`, which it still is for the browser.

    ``class Name(base)`` would do the same and also write a .pyi file beside this one: gradio's metaclass does that for
    authors of components. Hence its parent is called.
    """
    members |= {"is_template": True, "__module__": __name__, "__doc__": base.__doc__}
    return ABCMeta.__new__(type(base), name, (base,), members)


def _uploaded(self: Any, payload: Any) -> Upload | None:
    """Take the file as it is."""
    if payload is None or not payload.path:
        return None
    path = _inside(payload.path, self.GRADIO_CACHE)
    return Upload(path, Path(payload.orig_name or path.name).name)


def _several(self: Any, payload: Any) -> list[Upload] | None:
    """Take the files as they are."""
    return [upload for file in payload.root if (upload := _uploaded(self, file))] if payload is not None else None


def _painted_on(self: Any, payload: Any) -> Any:
    """Take the layers of the editor: those that the browser has sent ahead under an id, or else files."""
    if payload is None:
        return None
    if payload.id is not None:
        return painted(list(_layers.pop(payload.id, {}).values()))
    files = [_inside(layer.path, self.GRADIO_CACHE) for layer in (payload.layers or [])[:MAX_LAYERS]]
    return painted([file.read_bytes() for file in files])


@server  # type: ignore[untyped-decorator]
def _keep_layer(self: Any, data: Any) -> None:
    """Keep a layer that a browser sends ahead, and nothing else that it sends; the oldest go."""
    about = data.data
    if about["type"] == "layer" and int(about["index"]) in range(MAX_LAYERS):
        _layers.setdefault(str(about["id"]), {})[int(about["index"])] = data.files[0][1]
    while sum(len(layer) for layers in list(_layers.values()) for layer in list(layers.values())) > MAX_PAINTED:
        _layers.popitem(last=False)


def _inside(name: str, folder: str) -> Path:
    """Return the path of an uploaded file. A client may name any: gradio checks only those marked as files."""
    path = Path(name).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        raise gr.Error(f"{path.name} was not uploaded to the page", print_exception=False)
    return path


# An image input whose value is an `Upload`: gradio's own decodes pictures, whatever their size.
PictureFile = _derived(gr.Image, "PictureFile", preprocess=_uploaded)
# A button that takes several.
PictureFiles = _derived(gr.UploadButton, "PictureFiles", preprocess=_several)
# An editor whose value is where it was painted on, (H, W), or None. One store of the layers that browsers have sent
# serves all visitors: gradio makes a component anew when it is shown or hidden.
_layers: OrderedDict[str, dict[int, bytes]] = OrderedDict()
Painting = _derived(gr.ImageEditor, "Painting", preprocess=_painted_on, accept_blobs=_keep_layer)
