"""How the page looks: the system's own fonts, and colours that can be read (contrast of 4.5:1 at least)."""

from __future__ import annotations

from typing import Any

CSS = """
.gradio-container {max-width: 1280px !important; margin: 0 auto !important;}
#header h1 {margin-bottom: 0.2em;}
#status, #steps-status, #trajectory-status {min-height: 3.2em;}
#scores table, #steps-table table {width: 100%;}
#command .cm-content {white-space: pre-wrap; word-break: break-word;}
footer {display: none !important;}
"""


def make_theme() -> Any:
    """Gradio's default, without fonts from elsewhere and without pale text."""
    import gradio as gr

    theme = gr.themes.Default(
        primary_hue="blue", neutral_hue="slate", font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )  # fmt: skip
    return theme.set(
        body_text_color_subdued="*neutral_600", body_text_color_subdued_dark="*neutral_300",
        block_info_text_color="*neutral_600", block_info_text_color_dark="*neutral_300",
        block_label_text_color="*neutral_700", block_label_text_color_dark="*neutral_200",
        block_title_text_color="*neutral_800", block_title_text_color_dark="*neutral_100",
        button_primary_background_fill="*primary_700", button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700", button_primary_text_color="white",
        input_placeholder_color="*neutral_600", input_placeholder_color_dark="*neutral_300",
    )  # fmt: skip
