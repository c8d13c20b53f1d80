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
    from firm._util.device import choose_device
    from firm.demo.request import Limits
    from firm.demo.serve import Place, serve

    try:
        where = choose_device(device)
        place = Place(host, port, _name_and_password(auth), open_browser)
        limits = Limits(megapixels=max_megapixels, waiting=queue)
        page = serve(place, models=model, device=where, limits=limits)
    except (ModuleNotFoundError, ValueError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    with page:
        typer.echo(f"FIRM is ready at {page.url} (Ctrl-C ends it)")
        if host not in ("127.0.0.1", "localhost", "::1") and auth is None:
            typer.echo("note: others on the network can use it; --auth NAME:PASSWORD asks them who they are")
        page.wait()


def _name_and_password(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, separator, password = text.partition(":")
    if not (separator and name and password):
        raise ValueError("--auth takes NAME:PASSWORD")
    return name, password
