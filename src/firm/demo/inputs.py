"""The left side of the page: the picture, what is wrong with it, and how to restore it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from firm.data.opening import PictureError
from firm.data.picture import read_picture
from firm.demo.previews import CANVAS, save_canvas
from firm.demo.request import SCALES, TROUBLES, Limits, Request, Trouble, Upload
from firm.demo.restorer import Models
from firm.demo.security import Painting, PictureFile
from firm.demo.workspace import Example, Workspace

DAMAGED, CLEAN = "damaged", "clean"


def build_inputs(
    models: Sequence[str], limits: Limits, examples: Sequence[Example], workspace: Workspace
) -> dict[str, Any]:
    """Lay the components out, and connect those that make others appear and go.

    Parameters
    ----------
    models
        The names of the models to choose from; the first one is chosen when the page opens.
    limits
        How many steps and samples the sliders offer at most, and how large a picture may be.
    examples
        The pictures that are offered beside the visitor's own, see `Workspace.examples`.
    workspace
        It gives a folder to the copy of the picture that a visitor paints on.

    Returns
    -------
    dict
        The components by name; `request_from` takes their values by the same names.
    """
    picture = PictureFile(
        label="Your picture", type="filepath", image_mode=None, sources=["upload", "clipboard"], height=300,
        elem_id="picture", buttons=["fullscreen"], alt_text="Your picture",
    )  # fmt: skip
    about = gr.Markdown("", elem_id="about-picture")
    dataset = gr.Dataset(
        label="Or an example", components=[gr.Image(visible=False, type="filepath")],
        samples=[[file] for file, *_ in examples], sample_labels=[label for _, label, *_ in examples],
        type="index", layout="gallery", elem_id="examples",
    )  # fmt: skip
    state = gr.Radio(
        [("It is damaged: restore it", DAMAGED), ("It is clean: damage it first, then restore it", CLEAN)],
        value=DAMAGED, label="The picture", elem_id="state",
    )  # fmt: skip
    kinds = [(label, key) for key, (label, *_) in TROUBLES.items()]
    trouble = gr.Radio(kinds, value="noise", label="What is wrong with it", elem_id="trouble")
    blur = gr.Slider(
        0.3, 5, value=1.0, step=0.1, label="Width of the blur", info="Standard deviation, in pixels", visible=False,
        elem_id="blur",
    )  # fmt: skip
    scale = gr.Radio([(f"{n}x", n) for n in SCALES], value=2, label="Enlarge", visible=False, elem_id="scale")
    painting = Painting(
        label="Paint over what is missing", type="numpy", sources=[], transforms=[], layers=False, visible=False,
        brush=gr.Brush(default_size=14, colors=["#ff2d2d"], color_mode="fixed"), elem_id="painting",
        eraser=gr.Eraser(default_size=28), format="png", canvas_size=(CANVAS, CANVAS), height=420,
    )  # fmt: skip
    color = gr.Radio(
        ["black", "white"], value="black", label="Lost pixels are", visible=False, elem_id="color",
        info="Every pixel of exactly this color is filled in",
    )  # fmt: skip
    missing = gr.Slider(5, 95, value=50, step=5, label="Pixels to lose, in percent", visible=False, elem_id="missing")
    strokes = gr.Slider(1, 30, value=8, step=1, label="Scratches to draw", visible=False, elem_id="strokes")
    estimated = gr.Checkbox(True, label="Estimate how noisy it is", elem_id="estimated")
    noise = gr.Slider(
        0, 128, value=25, step=0.5, label="Noise level", info="In gray levels, of 255", visible=False, elem_id="noise"
    )
    choices = [(Models.label(name), name) for name in models]
    model = gr.Dropdown(choices, value=models[0], label="Model", elem_id="model")
    quality = gr.Radio(
        [("Fast", "fast"), ("Faithful", "faithful"), ("Detailed", "detailed")], value="faithful", label="Quality",
        info="A first look, the least error, or a picture that looks more real", elem_id="quality",
    )  # fmt: skip
    samples = gr.Slider(
        1, limits.samples, value=1, step=1, label="Samples", elem_id="samples",
        info="Different pictures that fit; two or more show what is uncertain",
    )  # fmt: skip
    with gr.Accordion("More", open=False):
        steps = gr.Slider(
            0, limits.steps, value=0, step=1, label="Steps N", info="0: those of the quality", elem_id="steps"
        )
        iterations = gr.Slider(
            0, limits.iterations, value=0, step=1, label="Iterations K in each step", elem_id="iterations",
            info="0: those of the quality",
        )  # fmt: skip
        seed = gr.Number(0, label="Seed", info="Another one gives other samples", precision=0, minimum=0)

    def show_controls(state: str, trouble: str, estimated: bool) -> dict[Any, Any]:
        clean = state == CLEAN
        visible = {
            blur: trouble == "blur", scale: trouble == "small",
            painting: trouble == "holes" and not clean, strokes: trouble == "holes" and clean,
            color: trouble == "pixels" and not clean, missing: trouble == "pixels" and clean,
            estimated_box: not clean, noise: clean or not estimated,
        }  # fmt: skip
        return {component: gr.update(visible=shown) for component, shown in visible.items()}

    def set_usual_noise(state: str, trouble: Trouble) -> Any:
        return gr.update(value=TROUBLES[trouble][3]) if state == CLEAN else gr.update()

    def lay_canvas(state: str, trouble: str, upload: Upload | None) -> Iterator[str | None]:
        file = None
        with workspace.results() as folder:
            if upload is not None and trouble == "holes" and state != CLEAN:
                with suppress(PictureError):  # what is wrong with the file is said below the picture
                    image = read_picture(upload.path, max_megapixels=limits.megapixels)[None]
                    file = save_canvas(folder / "canvas.png", image)
            yield file  # gradio has its own copy once it asks for the next value

    def describe_picture(upload: Upload | None) -> tuple[str, Any]:
        line, width = ("", None) if upload is None else upload.describe(limits)
        return line, gr.update() if width is None else min(max(round(width, 1), blur.minimum), blur.maximum)

    def take_example(index: int) -> list[Any]:
        file, _, clean, trouble = examples[index]
        return [file, CLEAN if clean else DAMAGED, trouble]

    estimated_box, chosen, changed = estimated, [state, trouble], [state.change, trouble.change]
    quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    reading: dict[str, Any] = {"concurrency_id": "look", "concurrency_limit": 1, **quiet}
    controls = [blur, scale, painting, strokes, color, missing, estimated, noise]
    gr.on([*changed, estimated.change], show_controls, [*chosen, estimated], controls, queue=False, **quiet)
    gr.on(changed, set_usual_noise, chosen, noise, queue=False, **quiet)
    gr.on([*changed, picture.change], lay_canvas, [*chosen, picture], painting, **reading)
    picture.change(describe_picture, picture, [about, blur], **reading)
    dataset.click(take_example, dataset, [picture, *chosen], queue=False, **quiet)
    return {
        "picture": picture, "state": state, "trouble": trouble, "estimated": estimated, "noise": noise, "blur": blur,
        "scale": scale, "painting": painting, "color": color, "missing": missing, "strokes": strokes, "model": model,
        "quality": quality, "steps": steps, "iterations": iterations, "samples": samples, "seed": seed,
    }  # fmt: skip


def request_from(values: Mapping[str, Any], folder: Path) -> Request | None:
    """Make a request of the values of the inputs; None without a picture. A painted mask is written to `folder`."""
    given = dict(values)
    upload, state, estimated, painting = (given.pop(key) for key in ("picture", "state", "estimated", "painting"))
    if upload is None:
        return None
    clean = state == CLEAN
    if estimated and not clean:
        given["noise"] = None
    if painting is not None and given["trouble"] == "holes" and not clean:
        given["mask"] = folder / "painted.png"
        Image.fromarray(painting).convert("L").save(given["mask"])
    given["missing"] /= 100  # percent
    for key in ("steps", "iterations"):
        given[key] = given[key] or None  # 0 is what the quality says
    return Request.from_controls(upload, given | {"clean": clean})
