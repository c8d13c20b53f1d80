"""The right side of the page: the result, the comparison of numbers of steps, and the trajectory, a tab each."""

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from firm.demo.restorer import MAX_TRAJECTORY_STEPS, Comparison, Outcome, Preview, Several, Trajectory

_SCORES = {"psnr": ("PSNR, dB ↑", 2), "ssim": ("SSIM ↑", 3), "lpips": ("LPIPS ↓", 3)}
_HIDDEN: dict[str, Any] = {"visible": False, "interactive": False}  # until there is something to show
_IMAGE: dict[str, Any] = {**_HIDDEN, "format": "png"}
_GALLERY: dict[str, Any] = {**_IMAGE, "height": "auto", "object_fit": "contain"}
_DOWNLOADABLE: dict[str, Any] = {"buttons": ["fullscreen", "download"]}


LOUPE = """<figure><div data-side="0"></div><figcaption>before</figcaption></figure>
<figure><div data-side="1"></div><figcaption>after</figcaption></figure>
<p>The place under your pointer, at <b></b></p>"""


class ResultTab:
    """The restored picture, how sure it is, and what to take away."""

    def __init__(self) -> None:
        first = "Choose a picture and press **Restore**. What is wrong with it, it finds by itself."
        self.status = gr.Markdown(first, elem_id="status")
        with gr.Row():
            files = {
                "same": "Download", "png16": "As PNG, 16 bit", "archive": "Download all", "settings": "Settings, JSON",
                "mask": "Mask",
            }  # fmt: skip
            self.same, self.png16, self.archive, self.settings, self.mask = (
                gr.DownloadButton(label, visible=False, size="md", elem_id=name) for name, label in files.items()
            )
        self.slider = gr.ImageSlider(
            label="Before and after", type="filepath", elem_id="slider", buttons=["fullscreen"], **_IMAGE
        )
        self.loupe = gr.HTML(LOUPE, visible=False, elem_id="loupe")
        self.pictures = gr.Gallery(
            label="Your pictures, restored", columns=3, elem_id="pictures", **_GALLERY, buttons=["fullscreen"]
        )
        with gr.Row():
            self.mean = gr.Image(
                label="Average of the results", elem_id="mean", alt_text="Average of the results", **_IMAGE,
                **_DOWNLOADABLE,
            )  # fmt: skip
            self.heat_map = gr.Image(
                label="How sure: bright where the results differ", elem_id="heat-map", **_IMAGE, **_DOWNLOADABLE,
                alt_text="Heat map of the standard deviation of the results, with a scale in levels of 255",
            )  # fmt: skip
        self.scores = gr.Markdown(visible=False, elem_id="scores")
        self.gallery = gr.Gallery(
            label="Different results that fit the picture", columns=4, elem_id="gallery", **_GALLERY, **_DOWNLOADABLE
        )
        self.command = gr.Code(
            label="The same on the command line", language=None, wrap_lines=True, lines=1, show_line_numbers=False,
            elem_id="command", buttons=["copy"], **_HIDDEN,
        )  # fmt: skip
        self.outputs = list(vars(self).values())

    def show(self, found: Outcome | Preview | Several) -> dict[Any, Any]:
        """Return new values of the components; those without a value are hidden."""
        values = dict.fromkeys(self.outputs[1:])
        if isinstance(found, Preview):
            status, compared = None, tuple(found)
        elif isinstance(found, Several):
            status, compared = f"**Done: {len(found.pictures)} restored.**\n\n" + "\n\n".join(found.notes), ()
            values |= {self.pictures: found.pictures, self.archive: found.archive}
        else:
            about, files = found.settings, found.files
            status, compared = found.summary(), (files["before"], files["after"])
            rows = [(["restored"], about["scores"]), (["average"], about.get("scores of the mean"))]
            values |= {part: files.get(name) for name, part in vars(self).items() if name != "outputs"} | {
                self.status: None, self.command: about["command"],
                self.scores: _score_table([""], [(cells, scores) for cells, scores in rows if scores]),
                self.gallery: [(path, f"Result {i}") for i, path in enumerate(found.samples, start=1)],
            }  # fmt: skip
        values |= {self.slider: compared or None, self.loupe: LOUPE if compared else None}
        updates = {part: gr.update(value=value, visible=bool(value)) for part, value in values.items()}
        middle = "The middle, at full size; the whole picture follows"
        label = middle if isinstance(found, Preview) else "Before and after"
        updates[self.slider] = gr.update(value=compared or None, visible=bool(compared), label=label)
        return updates if status is None else updates | {self.status: status}


class StepsTab:
    """Few steps against many."""

    def __init__(self) -> None:
        gr.Markdown(
            "Few steps give the picture with the least error, an average of all that fit. More steps give detail that "
            "looks real, and is partly made up. Below, the picture on the left is restored with 1, 2, 4, 10 and 25 "
            "steps from the same noise. Choose *It is clean* to see scores as well."
        )
        self.button = gr.Button("Compare steps", variant="primary", elem_id="compare")
        self.status = gr.Markdown("", elem_id="steps-status")
        self.gallery = gr.Gallery(
            label="Restored with N steps", columns=3, elem_id="steps-gallery", **_GALLERY, **_DOWNLOADABLE
        )
        self.table = gr.Markdown(visible=False, elem_id="steps-table")
        self.plot = gr.Image(
            label="Distortion against perception", elem_id="steps-plot", buttons=["fullscreen"], **_IMAGE,
            alt_text="PSNR against LPIPS, a point for every number of steps",
        )  # fmt: skip
        self.outputs = [self.status, self.gallery, self.table, self.plot]

    def show(self, comparison: Comparison) -> dict[Any, Any]:
        """Return new values of the components."""
        found, plot = comparison
        rows = [([str(row["N"]), str(row["calls"]), f"{row['seconds']:.1f}"], row) for row in found]
        return {
            self.status: f"**Done in {sum(row['seconds'] for row in found):.1f} s.**",
            self.gallery: gr.update(value=[row["picture"] for row in found], visible=True),
            self.table: gr.update(value=_score_table(["N", "network calls", "seconds"], rows), visible=True),
            self.plot: gr.update(value=plot, visible=bool(plot)),
        }


class TrajectoryTab:
    """The way of one sample from noise to a picture."""

    def __init__(self) -> None:
        gr.Markdown(
            "A sample starts as noise, x at t = 0, and moves in N steps to a picture, x at t = 1. In every step a "
            "small solver alternates K times between what fits the measurement (x, k) and what the network makes of it "
            "(z, k)."
        )
        self.step = gr.Slider(1, MAX_TRAJECTORY_STEPS, value=1, step=1, label="Show the solver in step", elem_id="step")
        self.button = gr.Button("Show the trajectory", variant="primary", elem_id="follow")
        self.status = gr.Markdown("", elem_id="trajectory-status")
        shared = {**_GALLERY, "buttons": ["fullscreen"]}
        self.states = gr.Gallery(label="The flow, x at time t", columns=3, elem_id="states", **shared)
        self.iterates = gr.Gallery(label="The solver's iterates", columns=4, elem_id="iterates", **shared)
        self.outputs = [self.status, self.states, self.iterates]

    def show(self, trajectory: Trajectory) -> dict[Any, Any]:
        """Return new values of the components."""
        states, iterates = trajectory
        return {
            self.status: f"**{len(states) - 1} steps**; the solver takes {len(iterates) // 2} iterations in each.",
            self.states: gr.update(value=states, visible=True),
            self.iterates: gr.update(value=iterates, visible=bool(iterates)),
        }


def _score_table(heads: Sequence[str], rows: Sequence[tuple[Sequence[str], Mapping[str, Any]]]) -> str:
    """Write a table in Markdown: `heads` and the cells below them, then PSNR, SSIM and LPIPS where they are known."""
    if not rows:
        return ""
    scored = _SCORES if "psnr" in rows[0][1] else {}
    lines = [[*heads, *(head for head, _ in scored.values())], ["---"] * (len(heads) + len(scored))]
    for cells, scores in rows:
        numbers = (f"{scores[key]:.{digits}f}" if key in scores else "-" for key, (_, digits) in scored.items())
        lines.append([*cells, *numbers])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
