"""The page for programs: one endpoint, ``/restore``, for gradio's client."""

# No `from __future__ import annotations`: see handlers.py.

from collections.abc import Iterator
from typing import Any, cast

from firm.demo.components import Upload, picture_class
from firm.demo.folder import Workspace
from firm.demo.request import Color, Request, Trouble, in_words
from firm.demo.restoring import Restorer
from firm.demo.watch import Watch


def build_api(restorer: Restorer, workspace: Workspace) -> None:
    """Add the endpoint to the page that is being built; its components are not shown."""
    import gradio as gr

    def restore(
        bar: Any = gr.Progress(),  # noqa: B008 (how gradio finds it)
        picture: Upload | None = None,
        trouble: str = "noise",
        clean: bool = False,
        noise: float | None = None,
        blur: float = 1.0,
        scale: float = 2,
        mask: Upload | None = None,
        color: str = "black",
        missing: float = 0.5,
        strokes: float = 8,
        model: str = "",
        steps: float = 2,
        samples: float = 1,
        seed: float = 0,
    ) -> Iterator[tuple[str, str, list[str], dict[str, Any]]]:
        """Restore a picture: the files of 8 and 16 bits, those of the samples' mean and spread, and the settings."""
        if picture is None:
            raise gr.Error("a picture is needed")
        request = Request(
            picture.path, picture.name, model, bool(clean), cast(Trouble, trouble), noise, blur, int(scale),
            None if mask is None else mask.path, cast(Color, color), missing, int(strokes), int(steps), int(samples),
            int(seed or 0),
        )  # fmt: skip
        watch = Watch(tell=lambda done, total, text: bar((done, total), desc=text, unit="network calls"))
        with workspace.results() as folder:
            try:
                outcome = restorer.restore(request, watch, folder)
            except Exception as error:
                raise gr.Error(in_words(error, request), print_exception=False) from error
            more = [path for path in (outcome.mean, outcome.heat_map, *outcome.samples) if path]
            yield outcome.png8, outcome.png16, more, outcome.settings

    picture = picture_class()
    with gr.Row(visible=False):
        inputs = [
            picture(label="picture", type="filepath"), gr.Textbox("noise", label="trouble"),
            gr.Checkbox(False, label="clean"), gr.Number(None, label="noise"), gr.Number(1.0, label="blur"),
            gr.Number(2, label="scale"), picture(label="mask", type="filepath"), gr.Textbox("black", label="color"),
            gr.Number(0.5, label="missing"), gr.Number(8, label="strokes"),
            gr.Textbox(restorer.models.names[0], label="model"), gr.Number(2, label="steps"),
            gr.Number(1, label="samples"), gr.Number(0, label="seed"),
        ]  # fmt: skip
        outputs = [gr.File(label="png8"), gr.File(label="png16"), gr.File(label="more", file_count="multiple"),
                   gr.JSON(label="settings")]  # fmt: skip
        gr.Button("restore").click(
            restore, inputs, outputs, api_name="restore", concurrency_id="restore", concurrency_limit=1
        )
