"""The page: its layout, what happens when a button is pressed, and its endpoint for programs."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from typing import Any

import gradio as gr
from gradio.context import LocalContext

from firm.demo.inputs import build_inputs, request_from
from firm.demo.jobs import CanceledError, Progress
from firm.demo.request import Request
from firm.demo.restorer import Restorer
from firm.demo.results import ResultTab, StepsTab, TrajectoryTab
from firm.demo.security import PictureFile, fetch_nothing
from firm.demo.workspace import Workspace

HEADER = (
    "# FIRM: restore a picture\n"
    "Noise, blur, lost pixels, scratches, low resolution. Everything is computed on this machine; no picture leaves it."
)
PATIENCE = 3.0  # seconds that a job runs on when nobody listens to it: its client may be on the way
FILES_STAY = 3600  # seconds that a visitor's files stay
NO_PICTURE = "**Choose a picture first**, or one of the examples."
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
                inputs = build_inputs(restorer.models.names, restorer.limits, examples, workspace)
                with gr.Row():
                    start = gr.Button("Restore", variant="primary", elem_id="restore")
                    cancel = gr.Button("Cancel", elem_id="cancel", interactive=False)
            with gr.Column(scale=3, min_width=320), gr.Tabs():
                with gr.Tab("Result"):
                    result = ResultTab()
                with gr.Tab("Number of steps"):
                    comparison = StepsTab()
                with gr.Tab("Trajectory"):
                    trajectory = TrajectoryTab()

        def run(button: Any, tab: Any, work: Callable[..., Any], *more: Any) -> Any:
            """Let `button` do `work`, which gets the values of the components `more` as well, and show it in `tab`."""

            def handle(visitor: gr.Request, bar: Any = gr.Progress(), *values: Any) -> Iterator[Any]:  # noqa: B008
                request, job = None, (str(visitor.session_hash), threading.Event())
                running.append(job)  # a list's append, remove and copy cannot be interrupted by other threads
                try:
                    with workspace.results() as folder:
                        request = request_from(dict(zip(inputs, values, strict=False)), folder)
                        if request is None:
                            yield {tab.status: NO_PICTURE}
                        else:  # the folder of the files goes when gradio has taken them and comes back
                            gone = _client_has_gone(page, streams)
                            progress = Progress(_report_to(bar), lambda: job[1].is_set() or gone())
                            yield tab.show(work(request, progress, folder, *values[len(inputs) :]))
                except CanceledError:
                    yield {tab.status: CANCELED}
                except Exception as error:
                    text = str(error) if request is None else request.explain(error)
                    yield {tab.status: f"**Not restored:** {text}"}
                finally:
                    running.remove(job)

            clear = {cancel: gr.update(interactive=True), tab.status: ""}  # the progress is shown where the status was
            cleared = button.click(lambda: clear, None, [cancel, tab.status], **QUIET)
            event = cleared.then(
                handle, [*inputs.values(), *more], tab.outputs, show_progress_on=[tab.status], scroll_to_output=True,
                **ONE_AT_A_TIME, **PRIVATE,
            )  # fmt: skip
            event.then(lambda: gr.update(interactive=False), None, cancel, **QUIET)
            return event

        def cancel_jobs(visitor: gr.Request) -> dict[Any, Any]:
            """Stop what runs at its next network call; what waits in the queue, gradio takes out."""
            for name, canceled in running.copy():
                if name == visitor.session_hash:
                    canceled.set()
            return {cancel: gr.update(interactive=False), result.status: CANCELED}

        runs = [
            run(start, result, restorer.restore),
            run(comparison.button, comparison, restorer.compare_steps),
            run(trajectory.button, trajectory, restorer.trajectory, trajectory.step),
        ]
        cancel.click(cancel_jobs, None, [cancel, result.status], cancels=runs, **QUIET)
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
            "iterations": gr.Number(None), "samples": gr.Number(1), "seed": gr.Number(0),
        }  # fmt: skip
        inputs = {"picture": PictureFile(type="filepath"), **defaults}
        for name, component in inputs.items():
            component.label = name
        outputs = [gr.File(label="png8"), gr.File(label="png16"), gr.File(label="more", file_count="multiple"),
                   gr.JSON(label="settings")]  # fmt: skip
        button = gr.Button("restore")

    def restore(bar: Any, *values: Any) -> Iterator[tuple[str, str, list[str], dict[str, Any]]]:
        """Restore a picture: the files of 8 and 16 bits, those of the samples' mean and spread, and the settings."""
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
                yield files["png8"], files["png16"], more, outcome.settings
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
    """Show progress in a bar of gradio."""
    return lambda done, total, line: bar((done, total), desc=line, unit="network calls")
