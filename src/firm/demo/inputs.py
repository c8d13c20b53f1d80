"""The left side of the page: the picture, what is wrong with it, and how to restore it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from firm.data.opening import PictureError
from firm.data.picture import read_picture
from firm.demo.models import Models
from firm.demo.previews import CANVAS, save_canvas
from firm.demo.request import SCALES, TROUBLES, Limits, Request, Trouble, Upload
from firm.demo.security import Painting, PictureFile, PictureFiles
from firm.demo.workspace import Example, Workspace
from firm.tasks.demosaicing import BAYER

HOW_SURE = 4  # results that show where they differ


def build_inputs(
    models: Sequence[str], limits: Limits, examples: Sequence[Example], workspace: Workspace
) -> tuple[dict[str, Any], Any, Any]:
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
    The components by name, of which `requests_from` takes the values by the same names; and the buttons to restore and
    to cancel.
    """
    picture = PictureFile(
        label="Your picture", type="filepath", image_mode=None, sources=["upload", "clipboard"], height=230,
        elem_id="picture", buttons=["fullscreen"], alt_text="Your picture",
    )  # fmt: skip
    about = gr.Markdown("", elem_id="about-picture")
    kinds = [(label, key) for key, (label, *_) in TROUBLES.items()]
    trouble = gr.Radio(kinds, value="fix", label="What is wrong with it?", elem_id="trouble")
    blur = gr.Slider(
        0, 5, value=0, step=0.1, label="Width of the blur", info="In pixels; 0: as wide as it seems", visible=False,
        elem_id="blur",
    )  # fmt: skip
    length = gr.Slider(1, 60, value=10, step=1, label="How far it moved, in pixels", visible=False, elem_id="length")
    angle = gr.Slider(
        0, 180, value=0, step=5, label="In which direction, in degrees", visible=False, elem_id="angle",
        info="0: from left to right; 45: from bottom left to top right; 90: up or down",
    )  # fmt: skip
    scale = gr.Radio([(f"{n}x", n) for n in SCALES], value=2, label="Enlarge", visible=False, elem_id="scale")
    painting = Painting(
        label="Paint over what is missing", type="numpy", sources=[], transforms=[], layers=False, visible=False,
        brush=gr.Brush(default_size=3, colors=["#ff2d2d"], color_mode="fixed"), elem_id="painting",
        eraser=gr.Eraser(default_size=12), format="png", canvas_size=(CANVAS, CANVAS), height=460,
    )  # fmt: skip
    color = gr.Radio(
        ["black", "white"], value="black", label="Lost pixels are", visible=False, elem_id="color",
        info="Every pixel of exactly this color is filled in",
    )  # fmt: skip
    pattern = gr.Radio(
        list(BAYER), value=BAYER[0], label="Colors of its first four pixels", visible=False, elem_id="pattern",
        info="The gray picture of a sensor, each pixel of which has seen red (r), green (g) or blue (b)",
    )  # fmt: skip
    with gr.Row():
        start = gr.Button("Restore", variant="primary", elem_id="restore")
        cancel = gr.Button("Cancel", elem_id="cancel", interactive=False)
    quality = gr.Radio(
        [("Fast", "fast"), ("Faithful", "faithful"), ("Detailed", "detailed")], value="faithful", elem_id="quality",
        label="Time and detail", info="Detailed looks more real, is partly made up, and takes longer",
    )  # fmt: skip
    sure = gr.Checkbox(
        False, label="How sure is it?", info=f"Restores it {HOW_SURE} times, and shows where the results differ",
        elem_id="sure",
    )  # fmt: skip
    several = PictureFiles(
        "Several pictures at once", file_count="multiple", file_types=["image"], size="sm", elem_id="several"
    )
    dataset = gr.Dataset(
        label="Or an example", components=[gr.Image(visible=False, type="filepath")],
        samples=[[file] for file, *_ in examples], sample_labels=[label for _, label, *_ in examples],
        type="index", layout="gallery", elem_id="examples",
    )  # fmt: skip
    with gr.Accordion("More", open=False):
        strength = gr.Slider(
            0.25, 4, value=1, step=0.05, label="Strength", elem_id="strength",
            info="1: as much as the noise that was found; more smooths more",
        )  # fmt: skip
        estimated = gr.Checkbox(True, label="Estimate how noisy it is", elem_id="estimated")
        noise = gr.Slider(
            0, 128, value=25, step=0.5, label="Noise level", info="In levels of 255", visible=False, elem_id="noise"
        )
        clean = gr.Checkbox(False, label="It is clean: damage it first, to see how well this works", elem_id="clean")
        missing = gr.Slider(
            5, 95, value=50, step=5, label="Pixels to lose, in percent", visible=False, elem_id="missing"
        )
        strokes = gr.Slider(1, 30, value=8, step=1, label="Scratches to draw", visible=False, elem_id="strokes")
        choices = [(Models.label(name), name) for name in models]
        model = gr.Dropdown(choices, value=models[0], label="Model", elem_id="model")
        samples = gr.Slider(
            1, limits.samples, value=1, step=1, label="Samples", elem_id="samples",
            info="Different pictures that fit; two or more show what is uncertain",
        )  # fmt: skip
        steps = gr.Slider(
            0, limits.steps, value=0, step=1, label="Steps N", info="0: those of the quality", elem_id="steps"
        )
        iterations = gr.Slider(
            0, limits.iterations, value=0, step=1, label="Iterations K in each step", elem_id="iterations",
            info="0: those of the quality",
        )  # fmt: skip
        seed = gr.Number(0, label="Seed", info="Another one gives other samples", precision=0, minimum=0)

    def show_controls(clean: bool, trouble: str, estimated: bool) -> dict[Any, Any]:
        visible = {
            blur: trouble == "blur", length: trouble == "motion", angle: trouble == "motion", scale: trouble == "small",
            painting: trouble == "holes" and not clean, strokes: trouble == "holes" and clean,
            color: trouble == "pixels" and not clean, missing: trouble == "pixels" and clean,
            pattern: trouble == "mosaic", estimated_box: not clean, noise: clean or not estimated,
            strength: not clean and estimated,
        }  # fmt: skip
        return {component: gr.update(visible=shown) for component, shown in visible.items()}

    def set_usual_noise(clean: bool, trouble: Trouble) -> Any:
        return gr.update(value=TROUBLES[trouble][3]) if clean else gr.update()

    def lay_canvas(clean: bool, trouble: str, upload: Upload | None) -> Iterator[str | None]:
        file = None
        with workspace.results() as folder:
            if upload is not None and trouble == "holes" and not clean:
                with suppress(PictureError):  # what is wrong with the file is said below the picture
                    image = read_picture(upload.path, max_megapixels=limits.megapixels)[None]
                    file = save_canvas(folder / "canvas.png", image)
            yield file  # gradio has its own copy once it asks for the next value

    def describe(upload: Upload | None, uploads: list[Upload] | None) -> tuple[str, Any]:
        if upload is not None:
            return upload.describe(limits), None
        names = ", ".join(upload.name for upload in uploads or [])
        return f"**{len(uploads or [])} pictures**: {names}" if uploads else "", gr.update()

    def take_example(index: int) -> list[Any]:
        file, _, clean, trouble = examples[index]
        return [file, clean, trouble]

    estimated_box, chosen, changed = estimated, [clean, trouble], [clean.change, trouble.change]
    quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    reading: dict[str, Any] = {"concurrency_id": "look", "concurrency_limit": 1, **quiet}
    controls = [blur, length, angle, scale, painting, strokes, color, missing, pattern, estimated, noise, strength]
    gr.on([*changed, estimated.change], show_controls, [*chosen, estimated], controls, queue=False, **quiet)
    gr.on(changed, set_usual_noise, chosen, noise, queue=False, **quiet)
    gr.on([*changed, picture.change], lay_canvas, [*chosen, picture], painting, **reading)
    emptied = several.upload(lambda: None, None, picture, queue=False, **quiet)
    picture.change(describe, [picture, several], [about, several], **reading)
    emptied.then(describe, [picture, several], [about, several], **reading)
    sure.change(lambda sure: HOW_SURE if sure else 1, sure, samples, queue=False, **quiet)
    dataset.click(take_example, dataset, [picture, *chosen], queue=False, **quiet)
    inputs = {
        "picture": picture, "several": several, "clean": clean, "trouble": trouble, "estimated": estimated,
        "noise": noise, "strength": strength, "blur": blur, "length": length, "angle": angle, "pattern": pattern,
        "scale": scale, "painting": painting, "color": color, "missing": missing, "strokes": strokes, "model": model,
        "quality": quality, "steps": steps, "iterations": iterations, "samples": samples, "seed": seed,
    }  # fmt: skip
    return inputs, start, cancel


def requests_from(values: Mapping[str, Any], folder: Path) -> list[Request]:
    """Make a request for every picture of the values of the inputs. A painted mask is written to `folder`."""
    given = dict(values)
    upload, several, estimated, painting = (given.pop(key) for key in ("picture", "several", "estimated", "painting"))
    if estimated and not given["clean"]:
        given["noise"] = None
    if painting is not None and given["trouble"] == "holes" and not given["clean"] and upload is not None:
        given["mask"] = folder / "painted.png"
        Image.fromarray(painting).convert("L").save(given["mask"])
    given["missing"] /= 100  # percent
    for key in ("steps", "iterations"):
        given[key] = given[key] or None  # 0 is what the quality says
    uploads = [upload] if upload is not None else several or []
    return [Request.from_controls(one, given) for one in uploads]
