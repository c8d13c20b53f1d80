"""``firm demo``: the web page."""

from __future__ import annotations

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
    max_megapixels: Annotated[float, typer.Option(min=0, help="Larger pictures and results are refused.")] = 64,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Device = None,
) -> None:
    """Serve a web page on this machine that restores pictures; first: pip install -e ".\\[demo]" -c constraints.txt."""
    from firm._util.checks import require
    from firm._util.machine import choose_device
    from firm.demo.app import serve
    from firm.demo.request import Limits

    try:
        name, separator, password = (auth or "").partition(":")
        require(auth is None or (name and separator and password), "--auth takes NAME:PASSWORD")
        with serve(
            host,
            port,
            auth=(name, password) if auth else None,
            browser=open_browser,
            models=model,
            device=choose_device(device),
            limits=Limits(megapixels=max_megapixels, waiting=queue),
        ) as page:
            typer.echo(f"FIRM is ready at {page.local_url} (Ctrl-C ends it)")
            if host not in ("127.0.0.1", "localhost", "::1") and auth is None:
                typer.echo("note: others on the network can use it; --auth NAME:PASSWORD asks them who they are")
            page.block_thread()
    except (ModuleNotFoundError, ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
