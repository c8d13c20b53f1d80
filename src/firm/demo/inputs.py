"""The left side of the page: the picture, what is wrong with it, and how to restore it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firm.data.picture import read_picture
from firm.data.picture_file import PictureError
from firm.demo.components import Upload, painting_class, picture_class
from firm.demo.examples import Example
from firm.demo.folder import Workspace
from firm.demo.models import label
from firm.demo.pictures import GRAY_LEVELS, fitted, save_shown
from firm.demo.request import Limits, Request
from firm.demo.wording import for_visitors
from firm.restoration import estimate_blur, estimate_noise

CANVAS = 768  # pixels of the longer side of what is painted on, so that a brush is as thick on all pictures
TROUBLES = [
    ("Noise", "noise"), ("Blur", "blur"), ("Too small", "small"), ("Scratches and holes", "holes"),
    ("Lost pixels", "pixels"),
]  # fmt: skip
# Of a clean picture that is degraded here: near the paper's.
USUAL_NOISE = {"noise": 25.0, "blur": 6.0, "small": 6.0, "holes": 1.5, "pixels": 1.5}
DAMAGED, CLEAN = "damaged", "clean"


@dataclass(frozen=True)
class Inputs:
    """The components, in the order of `values`."""

    picture: Any
    state: Any
    trouble: Any
    estimated: Any
    noise: Any
    blur: Any
    scale: Any
    painting: Any
    color: Any
    missing: Any
    strokes: Any
    model: Any
    steps: Any
    samples: Any
    seed: Any

    @property
    def values(self) -> list[Any]:
        """What `request_from` takes."""
        return [getattr(self, name) for name in self.__dataclass_fields__]


def request_from(folder: Path, values: Sequence[Any]) -> Request | None:
    """The request that the components make; None without a picture. A painted mask is written to `folder`."""
    from PIL import Image

    (
        upload,
        state,
        trouble,
        estimated,
        noise,
        blur,
        scale,
        mask,
        color,
        missing,
        strokes,
        model,
        steps,
        samples,
        seed,
    ) = values
    if upload is None:
        return None
    clean, file = state == CLEAN, None
    if mask is not None and trouble == "holes" and not clean:
        file = folder / "painted.png"
        Image.fromarray(mask).convert("L").save(file)
    return Request(
        upload.path, upload.name, model, clean, trouble, None if estimated and not clean else float(noise),
        float(blur), int(scale), file, color, float(missing) / 100, int(strokes), int(steps), int(samples),
        int(seed or 0),
    )  # fmt: skip


def describe(upload: Upload | None, limits: Limits) -> tuple[str, float | None]:
    """A line on a picture: its size, how noisy and how blurred it seems, or what is wrong with the file.

    The width of the blur comes with it, None where it cannot be told.
    """
    if upload is None:
        return "", None
    try:
        image = read_picture(upload.path, max_megapixels=limits.megapixels)
    except PictureError as error:
        return f"**{for_visitors(str(error).replace(str(upload.path), upload.name))}**", None
    line = f"{image.shape[-1]} x {image.shape[-2]} pixels."
    with suppress(ValueError):  # too few pixels to tell
        line += f" Noise: about {estimate_noise(image) * GRAY_LEVELS:.1f} of 255 gray levels."
    try:
        blur = estimate_blur(image[None])
    except ValueError:
        return line, None
    return f"{line} Blur: about {blur.width:.1f} ± {blur.error:.1f} pixels.", blur.width


def canvas(upload: Upload | None, limits: Limits, folder: Path) -> str | None:
    """The file to paint on: the picture, made smaller or larger for it; None if it cannot be read."""
    if upload is None:
        return None
    try:
        image = read_picture(upload.path, max_megapixels=limits.megapixels)[None]
    except PictureError:
        return None
    return save_shown(folder / "canvas.png", fitted(image, CANVAS))


def build_inputs(models: Sequence[str], limits: Limits, examples: Sequence[Example], workspace: Workspace) -> Inputs:
    """Lay the components out, with what makes them appear and go."""
    import gradio as gr

    picture = picture_class()(
        label="Your picture", type="filepath", image_mode=None, sources=["upload", "clipboard"], height=300,
        elem_id="picture", buttons=["fullscreen"], alt_text="Your picture",
    )  # fmt: skip
    about = gr.Markdown("", elem_id="about-picture")
    dataset = gr.Dataset(
        label="Or an example", components=[gr.Image(visible=False, type="filepath")],
        samples=[[str(e.file)] for e in examples], sample_labels=[e.label for e in examples],
        type="index", layout="gallery", elem_id="examples",
    )  # fmt: skip
    state = gr.Radio(
        [("It is damaged: restore it", DAMAGED), ("It is clean: damage it first, then restore it", CLEAN)],
        value=DAMAGED, label="The picture", elem_id="state",
    )  # fmt: skip
    trouble = gr.Radio(TROUBLES, value="noise", label="What is wrong with it", elem_id="trouble")
    blur = gr.Slider(
        0.3, 5, value=1.0, step=0.1, label="Width of the blur", info="Standard deviation, in pixels", visible=False,
        elem_id="blur",
    )  # fmt: skip
    scale = gr.Radio([("2x", 2), ("3x", 3), ("4x", 4)], value=2, label="Enlarge", visible=False, elem_id="scale")
    painting = painting_class()(
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
    model = gr.Dropdown([(label(name), name) for name in models], value=models[0], label="Model", elem_id="model")
    steps = gr.Slider(
        1, limits.steps, value=2, step=1, label="Steps N", elem_id="steps",
        info="1 or 2: faithful, least error … 10 and more: detailed, looks more real",
    )  # fmt: skip
    samples = gr.Slider(
        1, limits.samples, value=4, step=1, label="Samples", elem_id="samples",
        info="Different pictures that fit; two or more show what is uncertain",
    )  # fmt: skip
    with gr.Accordion("More", open=False):
        seed = gr.Number(0, label="Seed", info="Another one gives other samples", precision=0, minimum=0)
    inputs = Inputs(
        picture, state, trouble, estimated, noise, blur, scale, painting, color, missing, strokes, model, steps,
        samples, seed,
    )  # fmt: skip
    _connect(inputs, about, dataset, limits, examples, workspace)
    return inputs


def _connect(
    inputs: Inputs, about: Any, dataset: Any, limits: Limits, examples: Sequence[Example], workspace: Workspace
) -> None:
    """Show what belongs to the choice, and what is known of the picture."""
    import gradio as gr

    def choose(state: str, trouble: str, estimated: bool) -> list[Any]:
        clean = state == CLEAN
        return [
            gr.update(visible=trouble == "blur"),
            gr.update(visible=trouble == "small"),
            gr.update(visible=trouble == "holes" and not clean),
            gr.update(visible=trouble == "pixels" and not clean),
            gr.update(visible=trouble == "pixels" and clean),
            gr.update(visible=trouble == "holes" and clean),
            gr.update(visible=not clean),
            gr.update(visible=clean or not estimated),
        ]

    def usual(state: str, trouble: str) -> Any:
        return gr.update(value=USUAL_NOISE[trouble]) if state == CLEAN else gr.update()

    def paint_on(state: str, trouble: str, upload: Upload | None) -> Iterator[str | None]:
        with workspace.results() as folder:  # gradio has its own copy once it asks for the next value
            yield canvas(upload, limits, folder) if trouble == "holes" and state != CLEAN else None

    def look(upload: Upload | None) -> tuple[str, Any]:
        line, width = describe(upload, limits)
        widest = inputs.blur.maximum
        return line, gr.update() if width is None else gr.update(value=min(max(round(width, 1), 0.3), widest))

    def take(index: int) -> list[Any]:
        example = examples[index]
        return [str(example.file), CLEAN if example.clean else DAMAGED, example.trouble]

    hidden: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    switches = [inputs.blur, inputs.scale, inputs.painting, inputs.color, inputs.missing, inputs.strokes]
    switches += [inputs.estimated, inputs.noise]
    chosen = [inputs.state, inputs.trouble]
    gr.on(
        [inputs.state.change, inputs.trouble.change, inputs.estimated.change], choose, [*chosen, inputs.estimated],
        switches, queue=False, **hidden,
    )  # fmt: skip
    gr.on([inputs.state.change, inputs.trouble.change], usual, chosen, inputs.noise, queue=False, **hidden)
    gr.on(
        [inputs.state.change, inputs.trouble.change, inputs.picture.change], paint_on, [*chosen, inputs.picture],
        inputs.painting, concurrency_id="look", concurrency_limit=1, **hidden,
    )  # fmt: skip
    inputs.picture.change(
        look, inputs.picture, [about, inputs.blur], concurrency_id="look", concurrency_limit=1, **hidden
    )
    dataset.click(take, dataset, [inputs.picture, *chosen], queue=False, **hidden)
