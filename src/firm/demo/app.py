"""How the page is served: on this machine alone unless told otherwise, and gone with its files at the end."""

import ctypes
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from firm._util.checks import require
from firm.demo.models import Models
from firm.demo.request import Limits
from firm.demo.restorer import Restorer
from firm.demo.workspace import Workspace

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
MISSING = 'the page needs gradio: pip install gradio, or in a checkout pip install -e ".[demo]" -c constraints.txt'


@contextmanager
def serve(
    host: str,
    port: int | None,
    *,
    auth: tuple[str, str] | None,
    browser: bool,
    models: Sequence[str],
    device: torch.device,
    limits: Limits,
    names: Sequence[str],
) -> Iterator[Any]:
    """Serve the page until the ``with`` block is left, and remove all its files then.

    Parameters
    ----------
    host, port
        Address to serve on: 127.0.0.1 is this machine alone. Without a port, the first free one from 7860 on.
    auth
        Name and password that visitors are asked for.
    browser
        Open the page in a browser.
    models
        Custom models to offer first: names or files.
    device, limits
        Where to compute, and the limits of requests.
    names
        Further host names under which visitors reach the page, such as that of a proxy.

    Yields
    ------
    gradio.Blocks
        The page: `local_url` is its address, and `block_thread()` waits for Ctrl-C.

    Raises
    ------
    ModuleNotFoundError
        Where gradio is missing; the message says how to install it.
    """
    workspace = Workspace(megabytes=limits.uploads)
    streams = Counter[str]()  # on which clients listen
    try:
        # gradio reads these when it is imported
        os.environ["GRADIO_TEMP_DIR"] = str(workspace.cache)
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("FORWARDED_ALLOW_IPS", "")  # a visitor cannot give another address than its own
        return_freed_memory()
        restorer = Restorer(Models(models, device), limits)
        require(find_spec("gradio"), MISSING, ModuleNotFoundError)
        # The first model is read while gradio is imported; whoever asks for it is told what goes wrong with it.
        ThreadPoolExecutor(1).submit(restorer.models.get, restorer.models.names[0])
        import gradio as gr
        from starlette.middleware import Middleware

        from firm.demo.gate import Gate
        from firm.demo.page import build_page

        page = build_page(restorer, workspace, streams)
        gate = Middleware(Gate, host=host, names=names, limits=limits, workspace=workspace, streams=streams)
        fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}  # none from elsewhere
        theme = gr.themes.Default(primary_hue="blue", neutral_hue="slate", **fonts)
        page.queue(max_size=limits.waiting, default_concurrency_limit=4, api_open=False)
        page.launch(
            server_name=host, server_port=port, auth=auth, inbrowser=browser, quiet=True, prevent_thread_lock=True,
            share=False, show_error=True, max_file_size=limits.megabytes * 1_000_000, theme=theme,
            head=f"<style>{_beside('page.css')}</style><script>{_beside('page.js')}</script>", footer_links=[],
            run_history=False, enable_monitoring=False, ssr_mode=False, pwa=False, mcp_server=False, blocked_paths=[],
            allowed_paths=[], app_kwargs={"middleware": [gate]},
        )  # fmt: skip
        try:
            yield page
        finally:
            page.close(verbose=False)
    finally:
        workspace.remove()


def _beside(name: str) -> str:
    """Read a file of the page."""
    return Path(__file__).with_name(name).read_text()


def return_freed_memory() -> None:
    """Have glibc give the memory of pictures back to the system as soon as they are freed.

    Else its heaps, one or more for each thread, keep pictures of less than 32 MB that they held: 40 requests of two
    megapixels took 3 GB, and take 1.2 GB.
    """
    with suppress(OSError, TypeError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 4_000_000)
        mallopt(M_TRIM_THRESHOLD, 4_000_000)
        mallopt(M_ARENA_MAX, 2)
