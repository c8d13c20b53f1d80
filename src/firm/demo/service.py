"""The page's work for programs: an HTTP service that OpenAPI describes, with batches, limits, health and metrics.

It takes the same requests as the page, with the same checks. FastAPI writes the description and reads the forms; it is
what the page's own library stands on, so that nothing new is installed beside it.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from fastapi import FastAPI, File, Form, HTTPException, UploadFile
from fastapi import Request as Http
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import Headers

from firm import __version__
from firm._sampling import Quality
from firm.demo.batching import Batcher, Job
from firm.demo.gate import Site
from firm.demo.jobs import CanceledError
from firm.demo.models import Models
from firm.demo.previews import GRAY_LEVELS
from firm.demo.request import Color, Limits, Request, Trouble, for_visitors
from firm.demo.restorer import Restorer
from firm.restoration.advice import advice
from firm.restoration.output import write_picture

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)  # upper ends of the histogram of answers
IMAGES = (1, 2, 4, 8, 16, 32)  # and of that of batches
READING = 2  # pictures that are read, or written, at the same time
POLL = 0.5  # seconds between two looks whether the client is still there


class Metrics:
    """Numbers since the start, in Prometheus' text format."""

    def __init__(self) -> None:
        self.answers = Counter[int]()  # by status
        self.found: dict[str, list[float]] = {"seconds": [], "images": []}  # counts of the buckets, then sum and count
        self.ends = {"seconds": SECONDS, "images": IMAGES}
        for key, ends in self.ends.items():
            self.found[key] = [0.0] * (len(ends) + 2)
        self.open = 0  # requests that are being answered
        self._lock = threading.Lock()

    def observe(self, key: Literal["seconds", "images"], value: float) -> None:
        """Count the seconds of an answer, or the images of a batch."""
        with self._lock:
            found = self.found[key]
            for i, end in enumerate(self.ends[key]):
                found[i] += value <= end
            found[-2], found[-1] = found[-2] + value, found[-1] + 1

    def text(self, waiting: int) -> str:
        """Return all of it as Prometheus reads it."""
        lines = ["# TYPE firm_requests_total counter"]
        lines += [f'firm_requests_total{{status="{status}"}} {n}' for status, n in sorted(self.answers.items())]
        for key, name in (("seconds", "firm_request_seconds"), ("images", "firm_batch_images")):
            *counts, total, count = self.found[key]
            lines.append(f"# TYPE {name} histogram")
            lines += [f'{name}_bucket{{le="{end:g}"}} {n:.0f}' for end, n in zip(self.ends[key], counts, strict=True)]
            lines += [f'{name}_bucket{{le="+Inf"}} {count:.0f}', f"{name}_sum {total:g}", f"{name}_count {count:.0f}"]
        for name, value in (("firm_requests_open", self.open), ("firm_requests_waiting", waiting)):
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        return "\n".join(lines) + "\n"


class Door:
    """An ASGI middleware: who is answered, how large and how many requests may be; it counts the answers.

    Refused, before a byte of them is read, are requests under a foreign name or from another site's page, without a
    length, larger than a picture and a mask may be, and more than may wait.
    """

    def __init__(self, app: Any, site: Site, limits: Limits, metrics: Metrics) -> None:
        self.app, self.site, self.limits, self.metrics = app, site, limits, metrics

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, posted, start = Headers(scope=scope), scope["method"] == "POST", time.monotonic()

        async def counting(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.metrics.answers[message["status"]] += 1
            await send(message)

        refusal = self._refusal(scope, headers, posted)
        if refusal is not None:
            more = {"retry-after": "1"} if refusal[0] == 503 else {}
            body = {"detail": refusal[1]}
            await JSONResponse(body, refusal[0], {"connection": "close", **more})(scope, receive, counting)
            return
        self.metrics.open += posted
        try:
            await self.app(scope, receive, counting)
        finally:
            self.metrics.open -= posted
            if posted:
                self.metrics.observe("seconds", time.monotonic() - start)

    def _refusal(self, scope: dict[str, Any], headers: Headers, posted: bool) -> tuple[int, str] | None:
        foreign = self.site.refusal(scope, headers)
        if foreign is not None:
            return 403, foreign.replace("the page", "the service").replace("firm demo", "firm serve")
        if not posted:
            return None
        length = headers.get("content-length", "")
        if not length.isdecimal():
            return 411, "the length of the request is missing"
        if int(length) > (2 * self.limits.megabytes + 1) * 1e6:
            return 413, f"the request is larger than two files of {self.limits.megabytes} MB, a picture and a mask"
        if self.metrics.open >= self.limits.waiting:
            return 503, f"{self.metrics.open} requests are being answered, the most that may be: try again"
        return None


def service(
    models: Sequence[str], device: torch.device, limits: Limits, most: int = 32, host: str = "127.0.0.1",
    names: Sequence[str] = (),
) -> FastAPI:  # fmt: skip
    """Make the ASGI application.

    Parameters
    ----------
    models
        Custom models to offer first: names or files. The first model is loaded at the start.
    device, limits
        Where to compute, and the limits of requests; `limits.minutes` counts from the arrival of a request.
    most
        Images in a batch; 1 restores one request after the other.
    host, names
        The address that is served, and further names under which it is reached.
    """
    metrics = Metrics()
    restorer = Restorer(Models(models, device), limits)

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        app.state.batcher = Batcher(most, limits.minutes, lambda images: metrics.observe("images", images))
        app.state.reading = asyncio.Semaphore(READING)
        await asyncio.to_thread(restorer.models.get, restorer.models.names[0])
        yield
        await asyncio.to_thread(app.state.batcher.close)  # what has arrived is answered

    app = FastAPI(title="FIRM", version=__version__, summary="Restores pictures.", lifespan=living, docs_url=None,
                  redoc_url=None)  # fmt: skip
    app.add_middleware(Door, site=Site(host, names), limits=limits, metrics=metrics)

    @app.exception_handler(RequestValidationError)  # type: ignore[untyped-decorator]
    async def in_words(http: Http, error: RequestValidationError) -> JSONResponse:
        told = [f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg'][:1].lower()}{e['msg'][1:]}" for e in error.errors()]
        return JSONResponse({"detail": "; ".join(told)}, 422)

    @app.post(  # type: ignore[untyped-decorator]
        "/v1/restore", response_class=Response, responses={
        200: {"content": {"image/png": {}}, "description": "The picture; the header firm-settings says how, in JSON."},
        400: {"description": "The picture, or a setting, is not one that can be used; detail says why."},
        413: {"description": "Too large."}, 503: {"description": "Too many requests at once."},
        504: {"description": "The time was over."},
    })  # fmt: skip
    async def restore(
        http: Http,
        picture: Annotated[UploadFile, File(description="PNG, JPEG, TIFF, WEBP and the like.")],
        mask: Annotated[UploadFile | None, File(description="For holes: a picture, white where it is missing.")] = None,
        trouble: Annotated[Trouble, Form(description="What is wrong with it.")] = "noise",
        noise: Annotated[float | None, Form(description="In gray levels, 0 to 255; estimated if left out.")] = None,
        blur: Annotated[float, Form(description="For blur: its standard deviation in pixels.")] = 1.0,
        scale: Annotated[int, Form(description="For small: how many times larger it becomes.")] = 2,
        color: Annotated[Color, Form(description="For pixels: the color of those that are missing.")] = "black",
        model: Annotated[str | None, Form(description="One of /v1/models; the first if left out.")] = None,
        quality: Annotated[Quality, Form(description="A pair of steps and iterations.")] = "faithful",
        steps: Annotated[int | None, Form(description="N.")] = None,
        iterations: Annotated[int | None, Form(description="K.")] = None,
        seed: Annotated[int, Form(description="Of the noise that the sample starts from.")] = 0,
        format: Annotated[Literal["png", "png16"], Form(description="8 or 16 bits a channel.")] = "png",
    ) -> Response:
        """Restore a picture."""
        end = time.monotonic() + 60 * limits.minutes
        with tempfile.TemporaryDirectory(prefix="firm-serve-") as name:
            folder = Path(name)
            files = folder / "picture", folder / "given-mask"
            for upload, path in zip((picture, mask), files, strict=True):
                if upload is not None:
                    path.write_bytes(await upload.read())
            asked = Request(
                files[0], Path(picture.filename or "picture").name, model or restorer.models.names[0],
                trouble=trouble, noise=noise, blur=blur, scale=scale, mask=None if mask is None else files[1],
                color=color, quality=quality, steps=steps, iterations=iterations, seed=seed,
            )  # fmt: skip
            try:
                async with app.state.reading:
                    prepared = await asyncio.to_thread(restorer.prepare, asked, folder)
                job = Job(asked, prepared)
                image = await answered(http, job, app.state.batcher, end)
                out = folder / "restored.png"
                async with app.state.reading:
                    await asyncio.to_thread(write_picture, out, image, format, prepared.problem.alpha)
                content = out.read_bytes()
            except HTTPException:
                raise
            except CanceledError as error:
                raise HTTPException(499, "the client has gone") from error
            except Exception as error:
                words = asked.explain(error)
                known = isinstance(error, ValueError)
                raise HTTPException(400 if known else 500, words) from error
        notes = [for_visitors(note) for note in (*prepared.problem.notes, *advice(prepared.model, prepared.problem))]
        sigma = float(prepared.problem.settings["sigma"])
        told = {
            "model": asked.model, "steps": prepared.steps, "iterations": prepared.model.solver.K, "seed": seed,
            "noise": round(sigma * GRAY_LEVELS, 2), "estimated": noise is None, "notes": notes,
        }  # fmt: skip
        return Response(content, media_type="image/png", headers={"firm-settings": json.dumps(told)})

    @app.get("/v1/models")  # type: ignore[untyped-decorator]
    async def offered() -> dict[str, list[str]]:
        """The models that requests may name, the default first."""
        return {"models": restorer.models.names}

    @app.get("/health")  # type: ignore[untyped-decorator]
    async def health() -> JSONResponse:
        """Whether requests are answered."""
        fine = app.state.batcher.alive
        return JSONResponse({"status": "ok" if fine else "not computing", "version": __version__}, 200 if fine else 503)

    @app.get("/metrics", response_class=PlainTextResponse)  # type: ignore[untyped-decorator]
    async def prometheus() -> PlainTextResponse:
        """Numbers for Prometheus."""
        return PlainTextResponse(metrics.text(app.state.batcher.waiting), media_type="text/plain; version=0.0.4")

    return app


async def answered(http: Http, job: Job, batcher: Batcher, end: float) -> torch.Tensor:
    """Wait for a job's picture, as long as the client is there and its time is not over."""
    future = asyncio.wrap_future(batcher.submit(job))
    try:
        while not (await asyncio.wait({future}, timeout=POLL))[0]:
            if await http.is_disconnected():
                raise CanceledError
            if time.monotonic() > end:
                raise HTTPException(504, "the time for this request is over: send a smaller picture, or try later")
        return future.result()
    finally:
        if not future.done():
            job.gone.set()
            job.done.cancel()
