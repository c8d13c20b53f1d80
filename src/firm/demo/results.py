"""The right side of the page: the result, the number of steps, and the trajectory, a tab each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firm.demo.restoring import Outcome
from firm.demo.studies import LONGEST, StepsStudy, Trajectory


@dataclass(frozen=True)
class ResultTab:
    """The components of the first tab, in the order of `shown`."""

    status: Any
    slider: Any
    scores: Any
    gallery: Any
    mean: Any
    heat_map: Any
    png8: Any
    png16: Any
    settings: Any
    mask: Any
    command: Any

    @property
    def all(self) -> list[Any]:
        """What `shown` fills."""
        return [getattr(self, name) for name in self.__dataclass_fields__]


def build_result() -> ResultTab:
    """The restored picture, its uncertainty, and what to take away."""
    import gradio as gr

    status = gr.Markdown("Choose a picture, say what is wrong with it, and press **Restore**.", elem_id="status")
    slider = gr.ImageSlider(
        label="Before and after", type="filepath", format="png", interactive=False, visible=False, elem_id="slider",
        buttons=["fullscreen"],
    )  # fmt: skip
    scores = gr.Markdown(visible=False, elem_id="scores")
    gallery = gr.Gallery(
        label="Samples: all of them fit the picture", format="png", columns=4, visible=False, interactive=False,
        elem_id="gallery", height="auto", object_fit="contain", buttons=["fullscreen", "download"],
    )  # fmt: skip
    with gr.Row():
        mean = gr.Image(
            label="Mean of the samples", format="png", visible=False, interactive=False, elem_id="mean",
            buttons=["fullscreen", "download"], alt_text="The mean of the samples",
        )  # fmt: skip
        heat_map = gr.Image(
            label="Uncertainty: bright where the samples differ", format="png", visible=False, interactive=False,
            elem_id="heat-map", buttons=["fullscreen", "download"],
            alt_text="Heat map of the samples' standard deviation, with a scale in gray levels",
        )  # fmt: skip
    with gr.Row():
        downloads = [
            gr.DownloadButton(text, visible=False, size="md", elem_id=name)
            for text, name in (
                ("PNG, 8 bit", "png8"), ("PNG, 16 bit", "png16"), ("Settings, JSON", "settings"), ("Mask", "mask")
            )
        ]  # fmt: skip
    command = gr.Code(
        label="The same on the command line", language=None, interactive=False, visible=False, wrap_lines=True,
        lines=1, show_line_numbers=False, elem_id="command", buttons=["copy"],
    )  # fmt: skip
    png8, png16, settings, mask = downloads
    return ResultTab(status, slider, scores, gallery, mean, heat_map, png8, png16, settings, mask, command)


def shown(outcome: Outcome) -> list[Any]:
    """An outcome as values of the first tab's components."""
    import gradio as gr

    def maybe(value: Any) -> Any:
        return gr.update(value=value, visible=bool(value))

    pictures = [(path, f"Sample {i}") for i, path in enumerate(outcome.samples, start=1)]
    return [
        summary(outcome), gr.update(value=(outcome.before, outcome.after), visible=True), maybe(score_table(outcome)),
        maybe(pictures), maybe(outcome.mean), maybe(outcome.heat_map), maybe(outcome.png8), maybe(outcome.png16),
        maybe(outcome.settings_file), maybe(outcome.mask), maybe(outcome.command),
    ]  # fmt: skip


def summary(outcome: Outcome) -> str:
    """What was done, in a line or two."""
    about = outcome.settings
    noise = f"noise {about['noise (gray levels)']:.1f} of 255" + (" (estimated)" if about["estimated"] else "")
    width, height = about["pixels"]
    line = (
        f"**Done in {about['seconds']:.1f} s** with {about['network calls']} network calls: {width} x {height} pixels, "
        f"{noise}, N = {about['steps']}."
    )
    if "mean uncertainty (gray levels)" in about:
        line += f" The samples differ by {about['mean uncertainty (gray levels)']:.1f} gray levels on average."
    return "\n\n".join([line, *(f"Note: {note}." for note in outcome.notes)])


def score_table(outcome: Outcome) -> str:
    """PSNR, SSIM and LPIPS where the truth is known, as a table; else nothing."""
    rows = [("restored", outcome.settings["scores"]), ("mean of samples", outcome.settings.get("scores of the mean"))]
    lines = [f"| {name} | {_cells(found)} |" for name, found in rows if found]
    if not lines:
        return ""
    return "\n".join(["| | PSNR, dB ↑ | SSIM ↑ | LPIPS ↓ |", "|---|---|---|---|", *lines])


def _cells(found: dict[str, float]) -> str:
    digits = {"psnr": 2, "ssim": 3, "lpips": 3}
    return " | ".join(f"{found[key]:.{n}f}" if key in found else "-" for key, n in digits.items())


@dataclass(frozen=True)
class StepsTab:
    """The components of the second tab."""

    button: Any
    status: Any
    gallery: Any
    table: Any
    plot: Any


def build_steps() -> StepsTab:
    """Few steps against many."""
    import gradio as gr

    gr.Markdown(
        "Few steps give the picture with the least error, an average of all that fit. More steps give detail that "
        "looks real, and is partly made up. Below, the picture on the left is restored with 1, 2, 4, 10 and 25 steps "
        "from the same noise. Choose *It is clean* to see scores as well."
    )
    button = gr.Button("Compare steps", variant="primary", elem_id="compare")
    status = gr.Markdown("", elem_id="steps-status")
    gallery = gr.Gallery(
        label="Restored with N steps", format="png", columns=3, visible=False, interactive=False, height="auto",
        object_fit="contain", elem_id="steps-gallery", buttons=["fullscreen", "download"],
    )  # fmt: skip
    table = gr.Markdown(visible=False, elem_id="steps-table")
    plot = gr.Image(
        label="Distortion against perception", format="png", visible=False, interactive=False, elem_id="steps-plot",
        buttons=["fullscreen"], alt_text="PSNR against LPIPS, a point for every number of steps",
    )  # fmt: skip
    return StepsTab(button, status, gallery, table, plot)


def shown_steps(study: StepsStudy) -> list[Any]:
    """A study as values of status, gallery, table and plot."""
    import gradio as gr

    seconds = sum(row["seconds"] for row in study.rows)
    return [
        f"**Done in {seconds:.1f} s.**", gr.update(value=study.pictures, visible=True),
        gr.update(value=steps_table(study.rows), visible=True), gr.update(value=study.plot, visible=bool(study.plot)),
    ]  # fmt: skip


def steps_table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for every number of steps."""
    scored = "psnr" in rows[0]
    head = "| N | network calls | seconds |" + (" PSNR, dB ↑ | SSIM ↑ | LPIPS ↓ |" if scored else "")
    lines = [head, "|---" * (6 if scored else 3) + "|"]
    for row in rows:
        lines.append(
            f"| {row['N']} | {row['calls']} | {row['seconds']:.1f} |" + (f" {_cells(row)} |" if scored else "")
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class TrajectoryTab:
    """The components of the third tab."""

    step: Any
    button: Any
    status: Any
    states: Any
    iterates: Any


def build_trajectory() -> TrajectoryTab:
    """The way of one sample."""
    import gradio as gr

    gr.Markdown(
        "A sample starts as noise, x at t = 0, and moves in N steps to a picture, x at t = 1. In every step a small "
        "solver alternates K times between what fits the measurement (x, k) and what the network makes of it (z, k)."
    )
    step = gr.Slider(1, LONGEST, value=1, step=1, label="Show the solver in step", elem_id="step")
    button = gr.Button("Show the trajectory", variant="primary", elem_id="follow")
    status = gr.Markdown("", elem_id="trajectory-status")
    common: dict[str, Any] = {
        "format": "png", "visible": False, "interactive": False, "height": "auto", "object_fit": "contain",
        "buttons": ["fullscreen"],
    }  # fmt: skip
    states = gr.Gallery(label="The flow, x at time t", columns=3, elem_id="states", **common)
    iterates = gr.Gallery(label="The solver's iterates", columns=4, elem_id="iterates", **common)
    return TrajectoryTab(step, button, status, states, iterates)


def shown_trajectory(found: Trajectory) -> list[Any]:
    """A trajectory as values of status, states and iterates."""
    import gradio as gr

    return [
        f"**{len(found.states) - 1} steps**; below them, the {len(found.iterates) // 2} iterations of the solver in "
        f"step {found.step}.",
        gr.update(value=found.states, visible=True),
        gr.update(
            value=found.iterates, visible=bool(found.iterates), label=f"The solver's iterates in step {found.step}"
        ),
    ]
