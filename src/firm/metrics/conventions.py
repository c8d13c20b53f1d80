"""How the numbers of a table are computed: as the paper's tables are, or as its text says."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from firm.metrics._fidelity import psnr, ssim
from firm.metrics._lpips import lpips

Convention = Literal["tables", "text"]


def scores(
    x: Tensor, truth: Tensor, convention: Convention = "tables", *, x_once: Tensor | None = None
) -> dict[str, Tensor]:
    """Return PSNR, SSIM and LPIPS of each image, (B,) each, for images (B, C, H, W) in [-1, 1].

    ``tables``: nothing is clamped, and LPIPS sees images mapped to [-3, 1], as the reference code does (it maps to
    [-1, 1] twice); the paper's tables are computed so. ``text``: SSIM and LPIPS on the image clamped to [-1, 1], as
    the paper's text says. PSNR is the same in both.

    `x_once`, if given, replaces `x` for SSIM: the reference code maps degraded super-resolution images differently
    for SSIM and for the other two (see docs/evaluation.md). SSIM needs 11x11 pixels, LPIPS 31x31 and one or three
    channels: what is not defined is left out. Complex images are compared by their magnitudes, `firm.metrics.visible`.
    """
    if convention not in get_args(Convention):
        raise ValueError(f'convention must be "tables" or "text", got {convention!r}')
    tables = convention == "tables"
    seen = x if tables else x.clamp(-1, 1)
    found = {"psnr": psnr(x, truth)}
    if min(x.shape[-2:]) >= 11:
        found["ssim"] = ssim(seen if x_once is None else x_once, truth)
    if min(x.shape[-2:]) >= 31 and x.shape[1] in (1, 3):
        found["lpips"] = lpips(2 * x - 1, 2 * truth - 1) if tables else lpips(seen, truth)
    return found
