"""Serve the page: on this machine alone unless told otherwise, and without a word to any other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from firm.demo.folder import Workspace
from firm.demo.models import Models, offered
from firm.demo.request import Limits
from firm.demo.restoring import Restorer

MISSING = 'the page needs gradio: pip install gradio, or in a checkout pip install -e ".[demo]" -c constraints.txt'


@dataclass(frozen=True)
class Place:
    """Where the page is served, and for whom."""

    host: str = "127.0.0.1"
    port: int | None = None  # None takes a free one, from 7860 on
    auth: tuple[str, str] | None = None  # name and password
    browser: bool = False  # open it in one


class Page:
    """A page that is being served; `close` it, or use it with ``with``."""

    def __init__(self, blocks: Any, url: str, workspace: Workspace, restorer: Restorer) -> None:
        self.blocks, self.url, self.workspace, self.restorer = blocks, url, workspace, restorer

    def wait(self) -> None:
        """Until Ctrl-C."""
        self.blocks.block_thread()

    def close(self) -> None:
        """Stop serving, and remove all files."""
        self.blocks.close(verbose=False)
        self.workspace.remove()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(
    place: Place | None = None,
    *,
    models: list[str] | None = None,
    device: torch.device | None = None,
    limits: Limits | None = None,
    temporary: Path | None = None,
) -> Page:
    """Start the page and return; ModuleNotFoundError, with what to do, where gradio is missing.

    Parameters
    ----------
    place
        Host, port, name and password.
    models
        Models of your own to offer first: names or files.
    device
        Where to compute; the CPU if not given.
    limits
        Of requests.
    temporary
        Folder for uploads and results; the system's if not given.
    """
    place, limits = place or Place(), limits or Limits()
    workspace = Workspace(temporary)
    # gradio reads these when it is imported
    os.environ["GRADIO_TEMP_DIR"] = str(workspace.cache)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        restorer = Restorer(Models(offered(models or []), device or torch.device("cpu")), limits)
        if find_spec("gradio") is None:
            raise ModuleNotFoundError(MISSING, name="gradio")
        # The first model is read while gradio is imported; what may go wrong with it is told to who asks for it.
        first = restorer.models.names[0]
        threading.Thread(target=_try, args=(restorer.models.get, first), daemon=True).start()
        return _launch(place, restorer, workspace)
    except BaseException:
        workspace.remove()
        raise


def _try(load: Callable[[str], object], name: str) -> None:
    with suppress(Exception):
        load(name)


def _launch(place: Place, restorer: Restorer, workspace: Workspace) -> Page:
    from starlette.middleware import Middleware

    from firm.demo.guard import Guard
    from firm.demo.page import build_page
    from firm.demo.theme import HEAD, make_theme

    page = build_page(restorer, workspace)
    page.queue(max_size=restorer.limits.waiting, default_concurrency_limit=4, api_open=False)
    _, url, _ = page.launch(
        server_name=place.host, server_port=place.port, auth=place.auth, inbrowser=place.browser, quiet=True,
        prevent_thread_lock=True, share=False, show_error=True, max_file_size=restorer.limits.megabytes * 1_000_000,
        theme=make_theme(), head=HEAD, footer_links=[], run_history=False, enable_monitoring=False, ssr_mode=False,
        pwa=False, mcp_server=False, blocked_paths=[], allowed_paths=[], app_kwargs={"middleware": [Middleware(Guard)]},
    )  # fmt: skip
    return Page(page, url, workspace, restorer)
