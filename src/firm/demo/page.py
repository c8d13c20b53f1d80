"""The page as a whole: both sides, and what its buttons are connected to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firm.demo.api import build_api
from firm.demo.components import fetch_nothing
from firm.demo.examples import make_examples
from firm.demo.folder import Workspace
from firm.demo.handlers import make_handlers
from firm.demo.inputs import Inputs, build_inputs
from firm.demo.restoring import Restorer
from firm.demo.results import build_result, build_steps, build_trajectory
from firm.demo.watch import Stops

HEADER = (
    "# FIRM: restore a picture\n"
    "Noise, blur, lost pixels, scratches, low resolution. Everything is computed on this machine; no picture leaves it."
)
KEEP = 3600  # seconds that a visitor's files stay
PRIVATE: dict[str, Any] = {"api_visibility": "private"}  # the page's own events; others use those of `build_api`
QUIET: dict[str, Any] = {**PRIVATE, "queue": False, "show_progress": "hidden"}


def build_page(restorer: Restorer, workspace: Workspace) -> Any:
    """The page, ready to be served."""
    import gradio as gr

    fetch_nothing()
    folder = workspace.root / "examples"
    folder.mkdir(exist_ok=True)
    do = make_handlers(restorer, workspace, Stops())
    with gr.Blocks(title="FIRM: restore a picture", analytics_enabled=False, delete_cache=(300, KEEP)) as page:
        gr.Markdown(HEADER, elem_id="header")
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=320):
                inputs = build_inputs(restorer.models.names, restorer.limits, make_examples(folder), workspace)
                with gr.Row():
                    start = gr.Button("Restore", variant="primary", elem_id="restore")
                    cancel = gr.Button("Cancel", elem_id="cancel", interactive=False)
            with gr.Column(scale=3, min_width=320), gr.Tabs():
                with gr.Tab("Result"):
                    result = build_result()
                with gr.Tab("Number of steps"):
                    steps = build_steps()
                with gr.Tab("Trajectory"):
                    way = build_trajectory()
        shown = [steps.status, steps.gallery, steps.table, steps.plot]
        runs = [
            _run(do.restore, start, inputs, [], result.all, cancel),
            _run(do.compare, steps.button, inputs, [], shown, cancel),
            _run(do.follow, way.button, inputs, [way.step], [way.status, way.states, way.iterates], cancel),
        ]
        statuses = [result.status, steps.status, way.status]
        cancel.click(do.cancel, None, [cancel, *statuses], cancels=runs, **QUIET)
        page.unload(do.leave)
        build_api(restorer, workspace)
    return page


def _run(
    handle: Callable[..., Any], button: Any, inputs: Inputs, more: list[Any], outputs: list[Any], cancel: Any
) -> Any:
    """Connect a button that restores: the first of `outputs` is its status, where progress is shown."""
    import gradio as gr

    ready = button.click(lambda: gr.update(interactive=True), None, cancel, **QUIET)
    run = ready.then(
        handle, [*inputs.values, *more], outputs, show_progress_on=[outputs[0]], scroll_to_output=True,
        concurrency_id="restore", concurrency_limit=1, **PRIVATE,
    )  # fmt: skip
    run.then(lambda: gr.update(interactive=False), None, cancel, **QUIET)
    return run
