"""``firm demo``: the web page."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from firm.cli.options import Device


def demo(
    host: Annotated[
        str, typer.Option(help="Address to serve on: 127.0.0.1 is this machine alone, 0.0.0.0 lets others in.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Default: the first free one from 7860 on.")
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(metavar="NAME:PASSWORD", envvar="FIRM_DEMO_AUTH", help="Ask visitors for a name and a password."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model of your own to offer first, a .safetensors file; may be repeated.")
    ] = None,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; more are turned away.")] = 64,
    max_megapixels: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Larger pictures and results are refused; each megapixel takes up to 0.23 GB of memory. Default: 64 "
            "on this machine alone, 2.1 where others are let in.",
        ),
    ] = None,
    max_calls: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Calls of the network that one request may make, one for each tile. Default: 5000 where others "
            "are let in, else any number.",
        ),
    ] = None,
    max_minutes: Annotated[
        float | None,
        typer.Option(
            min=0, help="Minutes that one request may compute. Default: 15 where others are let in, else any number."
        ),
    ] = None,
    max_uploads: Annotated[
        int, typer.Option(min=1, help="Megabytes of visitors' files, a fifth of them for each; the oldest go first.")
    ] = 1000,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A further host name that visitors reach the page by, as of a proxy; may be repeated."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Device = None,
) -> None:
    """Serve a web page on this machine that restores pictures; first: pip install -e ".\\[demo]" -c constraints.txt."""
    from firm._util.checks import require
    from firm._util.machine import choose_device
    from firm.data.opening import MAX_MEGAPIXELS
    from firm.demo.app import serve
    from firm.demo.request import Limits

    try:
        user, _, password = (auth or "").partition(":")
        require(auth is None or (user and password), "--auth takes NAME:PASSWORD")
        alone = host in ("127.0.0.1", "localhost", "::1") and not name
        usual = Limits(MAX_MEGAPIXELS, calls=math.inf, minutes=math.inf) if alone else Limits()
        megapixels, calls, minutes = (
            own if own is not None else default
            for own, default in zip(
                (max_megapixels, max_calls, max_minutes), (usual.megapixels, usual.calls, usual.minutes), strict=True
            )
        )
        with serve(
            host,
            port,
            auth=(user, password) if auth else None,
            browser=open_browser,
            models=model or (),
            device=choose_device(device),
            limits=Limits(megapixels, uploads=max_uploads, calls=calls, minutes=minutes, waiting=queue),
            names=name or (),
        ) as page:
            typer.echo(f"FIRM is ready at {page.local_url} (Ctrl-C ends it)")
            if not alone and auth is None:
                typer.echo("note: others on the network can use it; --auth NAME:PASSWORD asks them who they are")
            page.block_thread()
    except (ModuleNotFoundError, ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
