"""What keeps visitors from harm and from harming: uploads stay undecoded, nothing is fetched, browsers stay here."""

import functools
from abc import ABCMeta
from collections import OrderedDict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import gradio as gr
from gradio.blocks import Block

from firm._util.checks import require
from firm.demo.previews import painted
from firm.demo.request import Upload

MAX_PAINTINGS = 64  # that wait to be used
MAX_PAINTING_BYTES = 4_000_000  # of one; a layer is mostly empty
# The page's own scripts and styles are partly written into it, and pictures are shown from memory (data:, blob:).
CONTENT_SECURITY_POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; connect-src 'self' data: blob:; frame-ancestors 'self'"
)


class SecurityMiddleware:
    """An ASGI middleware: it refuses requests that make the server fetch an address, and sends the security policy."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = unquote(str(scope.get("path", ""))).lower()
        if "/file=http" in path or "/proxy=" in path:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"the page fetches nothing from elsewhere"})
            return

        async def send_with_policy(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", CONTENT_SECURITY_POLICY.encode())
                message["headers"] = [*message.get("headers", []), policy, (b"referrer-policy", b"no-referrer")]
            await send(message)

        await self.app(scope, receive, send_with_policy)


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


def _painted_on(self: Any, payload: Any) -> Any:
    """Take the layers of the editor: those that the browser has sent ahead under an id, or else files."""
    if payload is None:
        return None
    if payload.id is not None:
        stored = self.blob_storage.pop(payload.id, None)
        return None if stored is None else painted([layer for layer in stored.layers if layer])
    return painted([_inside(layer.path, self.GRADIO_CACHE).read_bytes() for layer in payload.layers or []])


def _inside(name: str, folder: str) -> Path:
    """Return the path of an uploaded file. A client may name any: gradio checks only those marked as files."""
    path = Path(name).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        raise gr.Error(f"{path.name} was not uploaded to the page", print_exception=False)
    return path


class _Paintings(OrderedDict[str, Any]):
    """Layers that browsers have sent and nobody has asked for yet: the oldest go, and none is large."""

    def __setitem__(self, key: str, value: Any) -> None:
        value.background = value.composite = None  # the page needs what was painted, and no more
        size = sum(len(layer) for layer in value.layers if layer)
        require(size <= MAX_PAINTING_BYTES, "a painting is larger than the page makes them")
        super().__setitem__(key, value)
        while len(self) > MAX_PAINTINGS:
            self.popitem(last=False)


# An image input whose value is an `Upload`: gradio's own decodes pictures, whatever their size.
PictureFile = _derived(gr.Image, "PictureFile", preprocess=_uploaded)
# An editor whose value is where it was painted on, (H, W), or None; what it keeps is bounded, and one for all visitors:
# gradio makes a component anew when it is shown or hidden.
_KEPT = _Paintings()
_STORAGE = property(lambda self: _KEPT, lambda self, value: None)
Painting = _derived(gr.ImageEditor, "Painting", preprocess=_painted_on, blob_storage=_STORAGE)
