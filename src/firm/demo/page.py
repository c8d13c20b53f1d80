"""The page: its layout, what happens when a button is pressed, and its endpoint for programs."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from inspect import Parameter, Signature
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import gradio as gr
from gradio.context import LocalContext

from firm._util.checks import require
from firm.demo.inputs import build_inputs, requests_from
from firm.demo.jobs import CanceledError, Progress
from firm.demo.request import Request, RequestError
from firm.demo.restorer import Restorer
from firm.demo.results import ResultTab, StepsTab, TrajectoryTab
from firm.demo.security import PictureFile, fetch_nothing
from firm.demo.workspace import Workspace
from firm.restoration.look import NothingToDoError

HEADER = "# FIRM: restore a picture\nEverything is computed on this machine; no picture leaves it."
TELL = 0.4  # seconds between two lines of the progress
PATIENCE = 3.0  # seconds that a job runs on when nobody listens to it: its client may be on the way
FILES_STAY = 3600  # seconds that a visitor's files stay
NO_PICTURE = "choose a picture first, or one of the examples"
WAITING = "Waiting for its turn"
CANCELED = "**Stopped.**"
PRIVATE: dict[str, Any] = {"api_visibility": "private"}  # the page's own events; programs use those of `_add_api`
QUIET: dict[str, Any] = {**PRIVATE, "queue": False, "show_progress": "hidden"}
ONE_AT_A_TIME: dict[str, Any] = {"concurrency_id": "restore", "concurrency_limit": 1}


def build_page(restorer: Restorer, workspace: Workspace, streams: Counter[str]) -> Any:
    """Build the page, a ``gradio.Blocks`` that is ready to be launched.

    Errors are told in the status of the tab that was to show the result, and the rest of the tab stays as it was.

    Parameters
    ----------
    restorer
        What computes, with the models and the limits that the page shows.
    workspace
        Where the files of the page lie: the examples, and what is made for each request.
    streams
        How many streams are listened to, by session and by event, as `Gate` counts them. A job to which nobody has
        listened for `PATIENCE` seconds is stopped.
    """
    fetch_nothing()
    running: list[tuple[str, threading.Event]] = []  # the jobs of each visitor, with the flag that cancels them
    examples = workspace.examples()
    with gr.Blocks(title="FIRM: restore a picture", analytics_enabled=False, delete_cache=(300, FILES_STAY)) as page:
        gr.Markdown(HEADER, elem_id="header")
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=320):
                limits = restorer.limits
                inputs, start, cancel = build_inputs(restorer.models.names, limits, examples, workspace)
            with gr.Column(scale=3, min_width=320), gr.Tabs():
                with gr.Tab("Result"):
                    result = ResultTab()
                with gr.Tab("Fast or detailed"):
                    comparison = StepsTab()
                with gr.Tab("How it works"):
                    trajectory = TrajectoryTab()

        def run(button: Any, tab: Any, work: Callable[..., Any], *more: Any) -> None:
            """Let `button` do `work`, which gets the values of the components `more` as well, and show it in `tab`.

            It computes in a thread of its own, while the lines of its progress are the status.
            """

            def handle(visitor: gr.Request, *values: Any) -> Iterator[Any]:
                requests, job = list[Request](), (str(visitor.session_hash), threading.Event())
                running.append(job)  # a list's append, remove and copy cannot be interrupted by other threads
                found, line = Queue[Any](), ["Reading the picture"]
                gone = _client_has_gone(page, streams)
                progress = Progress(_keep(line), lambda: job[1].is_set() or gone())

                def compute(folder: Path) -> None:
                    for part in work(requests, progress, folder, *values[len(inputs) :]):
                        found.put(part)

                try:
                    with workspace.results() as folder, ThreadPoolExecutor(1) as thread, _set_at_the_end(job[1]):
                        requests = requests_from(dict(zip(inputs, values, strict=False)), folder)
                        require(requests, NO_PICTURE, RequestError)
                        too_many = f"at most {limits.pictures} pictures at once: firm restore FOLDER takes any number"
                        require(len(requests) <= limits.pictures, too_many, RequestError)
                        done = thread.submit(compute, folder)
                        while not (done.done() and found.empty()):
                            try:  # the folder of the files goes when gradio has taken them and comes back
                                yield {tab.status: line[0]} | tab.show(found.get(timeout=TELL))
                            except Empty:
                                yield {tab.status: line[0]}
                        done.result()
                except CanceledError:
                    yield {tab.status: CANCELED}
                except Exception as error:
                    text = requests[0].explain(error) if requests else str(error)
                    nothing = isinstance(error, NothingToDoError)
                    yield {tab.status: f"**{'Left as it is' if nothing else 'Not restored'}:** {text}"}
                finally:
                    running.remove(job)

            clear = {cancel: gr.update(interactive=True), tab.status: WAITING}
            cleared = button.click(lambda: clear, None, [cancel, tab.status], **QUIET)
            event = cleared.then(
                handle, [*inputs.values(), *more], tab.outputs, show_progress="hidden",
                **ONE_AT_A_TIME, **PRIVATE,
            )  # fmt: skip
            event.then(lambda: gr.update(interactive=False), None, cancel, **QUIET)

        def restore(requests: list[Request], progress: Progress, folder: Path) -> Iterator[Any]:
            if len(requests) == 1:
                yield from restorer.stages(requests[0], progress, folder)
            else:
                yield restorer.several(requests, progress, folder)

        def one(work: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
            """Make a function of one picture that yields its one result."""

            def of_one(requests: list[Request], *more: Any) -> Iterator[Any]:
                yield work(requests[0], *more)

            return of_one

        def cancel_jobs(visitor: gr.Request) -> dict[Any, Any]:
            """Stop what runs at its next network call."""
            for name, canceled in running.copy():
                if name == visitor.session_hash:
                    canceled.set()
            return {cancel: gr.update(interactive=False)}

        run(start, result, restore)
        run(comparison.button, comparison, one(restorer.compare_steps))
        run(trajectory.button, trajectory, one(restorer.trajectory), trajectory.step)
        # Not by gradio's `cancels`, which leaves the place in the queue taken.
        cancel.click(cancel_jobs, None, [cancel], **QUIET)
        _add_api(page, restorer, workspace, streams)
    workspace.keep_what_is_there()
    return page


def _client_has_gone(page: Any, streams: Counter[str]) -> Callable[[], bool]:
    """Return a function that says whether nobody has listened to the event that is being handled for a while.

    Clients listen to a stream of their session, or of the event; they may be on the way when it comes into the queue.
    """
    event = page._queue.event_ids_to_events[LocalContext.event_id.get()]
    heard = event.enqueue_time

    def has_gone() -> bool:
        nonlocal heard
        if streams[event.session_hash] or streams[event._id]:
            heard = time.monotonic()
        return bool(time.monotonic() - heard > PATIENCE)

    return has_gone


def _add_api(page: Any, restorer: Restorer, workspace: Workspace, streams: Counter[str]) -> None:
    """Add the one endpoint for programs, ``/restore``, to the page that is being built; nothing of it is shown."""
    with gr.Row(visible=False):
        defaults = {
            "trouble": gr.Textbox("noise"), "clean": gr.Checkbox(False), "noise": gr.Number(None),
            "blur": gr.Number(1.0), "scale": gr.Number(2), "mask": PictureFile(type="filepath"),
            "color": gr.Textbox("black"), "missing": gr.Number(0.5), "strokes": gr.Number(8),
            "model": gr.Textbox(restorer.models.names[0]), "quality": gr.Textbox("faithful"), "steps": gr.Number(None),
            "iterations": gr.Number(None), "samples": gr.Number(1), "seed": gr.Number(0), "strength": gr.Number(1.0),
            "length": gr.Number(10.0), "angle": gr.Number(0.0), "pattern": gr.Textbox("rggb"),
        }  # fmt: skip
        inputs = {"picture": PictureFile(type="filepath"), **defaults}
        for name, component in inputs.items():
            component.label = name
        outputs = [gr.File(label="same"), gr.File(label="png16"), gr.File(label="more", file_count="multiple"),
                   gr.JSON(label="settings")]  # fmt: skip
        button = gr.Button("restore")

    def restore(bar: Any, *values: Any) -> Iterator[tuple[str, str, list[str], dict[str, Any]]]:
        """Restore a picture: the file in its own format, a PNG of 16 bits, files on uncertainty, and the settings."""
        given = dict(zip(inputs, values, strict=True))
        upload, mask = given.pop("picture"), given.pop("mask")
        if upload is None:
            raise gr.Error("a picture is needed")
        request = Request.from_controls(upload, given | {"mask": mask and mask.path})
        problem = ""
        with workspace.results() as folder:
            try:
                outcome = restorer.restore(request, Progress(_report_to(bar), _client_has_gone(page, streams)), folder)
                files = outcome.files
                more = [files[name] for name in ("mean", "heat_map") if name in files] + outcome.samples
                yield files["same"], files["png16"], more, outcome.settings
            except CanceledError:
                problem = "stopped: the client has gone"
            except Exception as error:
                problem = request.explain(error)
        if problem:  # raised here, it does not keep the pictures in the frames that failed
            raise gr.Error(problem, print_exception=False)

    # gradio's clients take the names of the parameters from the signature, and their defaults from the components
    parameters = [Parameter("bar", Parameter.POSITIONAL_OR_KEYWORD, default=gr.Progress())]
    parameters += [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in inputs]
    restore.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    button.click(restore, list(inputs.values()), outputs, api_name="restore", **ONE_AT_A_TIME)


def _report_to(bar: Any) -> Callable[[int, int, str], None]:
    """Show progress to a program."""
    return lambda done, total, line: bar((done, total), desc=line, unit="network calls")


def _keep(lines: list[str]) -> Callable[[int, int, str], None]:
    """Keep the last line of the progress."""

    def keep(done: int, total: int, line: str) -> None:
        lines[0] = line

    return keep


@contextmanager
def _set_at_the_end(event: threading.Event) -> Iterator[None]:
    """Set an event when the block is left, for whatever reason."""
    try:
        yield
    finally:
        event.set()
