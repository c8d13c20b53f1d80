"""How the page looks: the system's own fonts, and colors that can be read (contrast of 4.5:1 at least)."""

from __future__ import annotations

from typing import Any

# Goes into the page's head as it is (gradio's own option rewrites selectors, and loses those for narrow screens).
# Gradio puts labels over the pictures, shows small pictures small, and gives galleries a fixed height.
HEAD = """
<style>
.gradio-container {max-width: 1280px !important; margin: 0 auto !important;}
@media (max-width: 700px) {
  .gradio-container .row {flex-wrap: wrap;}
  .gradio-container .row > .column {flex: 1 1 100% !important; min-width: 0 !important; width: 100%;}
  .gradio-container .block {min-width: 0 !important; max-width: 100%;}
  .gradio-container .fillable {padding: 12px !important;}
  .gradio-container .grid-container {grid-template-columns: repeat(2, minmax(0, 1fr)) !important;}
}
#header h1 {margin-bottom: 0.2em;}
#status, #steps-status, #trajectory-status {min-height: 3.2em;}
#scores table, #steps-table table {width: 100%; border-color: var(--border-color-primary);}
#scores td, #scores th, #steps-table td, #steps-table th {padding: 0.4em 0.6em; border-color: #cbd5e1;}
#mean img, #heat-map img, #steps-plot img, #picture img {width: 100%; height: 100%; object-fit: contain;}
#mean .image-container button, #mean .image-frame {width: 100%; height: 100%;}
#mean .image-container, #heat-map .image-container, #steps-plot .image-container {padding-top: 2.2em;}
.gradio-container .grid-wrap {max-height: none !important; height: auto !important; min-height: 0 !important;}
.gradio-container .gallery-container {height: auto !important; min-height: 0 !important;}
.gradio-container .grid-container {padding-top: 2em;}
body:not(.dark) button[role=tab].selected {color: #1d4ed8 !important;}
#slider .icon-wrap {background: #1d4ed8 !important;}
#slider .icon {color: white !important;}
footer {display: none !important;}
</style>
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
