"""``firm serve``: the HTTP service for programs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from firm.cli.options import Device, user_errors


@user_errors()
def serve(
    host: Annotated[
        str, typer.Option(help="Address to serve on: 127.0.0.1 is this machine alone, 0.0.0.0 lets others in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 8000,
    model: Annotated[
        list[str] | None, typer.Option(help="A model of your own to offer first, a .safetensors file; may be repeated.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Images that are restored together at most; 1: one by one.")] = 32,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may be open; more are turned away.")] = 64,
    max_megapixels: Annotated[float, typer.Option(min=0, help="Larger pictures and results are refused.")] = 2.1,
    max_megabytes: Annotated[int, typer.Option(min=1, help="Larger files are refused.")] = 30,
    max_calls: Annotated[
        int, typer.Option(min=1, help="Calls of the network that one request may make, one for each tile.")
    ] = 5000,
    max_minutes: Annotated[float, typer.Option(min=0, help="Minutes until a request is given up.")] = 5,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A further host name that the service is reached by, as of a proxy; may be repeated."),
    ] = None,
    device: Device = None,
) -> None:
    """Serve restoration over HTTP to programs; first: pip install -e ".\\[serve]" -c constraints.txt.

    The description for programs is at /openapi.json; /health and /metrics are for whoever watches it.
    """
    import signal

    from firm._util.checks import require
    from firm._util.extras import extra
    from firm._util.machine import choose_device
    from firm.demo.app import return_freed_memory
    from firm.demo.request import Limits

    for package in ("fastapi", "uvicorn", "python_multipart"):
        extra(package, "The service", "serve")
    import uvicorn

    from firm.demo.service import service

    require(max_minutes > 0, "--max-minutes must be more than 0")
    limits = Limits(max_megapixels, max_megabytes, calls=max_calls, minutes=max_minutes, waiting=queue)
    return_freed_memory()
    app = service(model or (), choose_device(device), limits, batch, host, name or ())

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                typer.echo(f"FIRM is ready at http://{host}:{port} (Ctrl-C ends it)")

    settings = uvicorn.Config(
        app, host, port, log_level="warning", server_header=False, timeout_graceful_shutdown=round(60 * max_minutes),
        timeout_keep_alive=30, forwarded_allow_ips="",
    )  # fmt: skip
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn ends at either, and raises it again when it has ended
        signal.signal(number, signal.SIG_IGN)
    Server(settings).run()
