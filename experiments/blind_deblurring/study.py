"""Unknown blur: photographs are blurred by drawn kernels, and restored with the estimated kernel and the true one."""

import math
import time
from typing import Any

import torch
from torch import Tensor

from experiments import shared
from experiments.shared import Settings
from experiments.tables import Column, Line, Table
from firm import Firm, fast, load, restore, tiled
from firm._util.terminal import progress_bar
from firm.blind import estimate_kernel
from firm.data import cat, portrait
from firm.data.picture import read_picture
from firm.data.sets import EXTENSIONS, files_below
from firm.operators import LinearOperator
from firm.tasks import Task
from firm.tasks.blind_deblurring import FAMILIES
from firm.tasks.deblurring import valid_blur

NOISES = (0.01, 0.02)  # the second is 1 % of the range
PHOTOGRAPHS = 20
REACH = 8  # pixels of shift that PSNR allows
TOLERATED = 1.5  # dB
COLUMNS = (
    Column("cases", "cases", digits=0), Column("refused", "refused", digits=0),
    Column("kind", "kind found, %", digits=0), Column("blurred", "blurred", digits=2),
    Column("known", "known kernel", digits=2), Column("estimated", "estimated", digits=2),
    Column("loss", "median loss", digits=2), Column("worst", "nine of ten within", digits=2),
    Column("gained", "better than blurred, %", digits=0),
)  # fmt: skip
Row = dict[str, Any]


def study(settings: Settings, name: str) -> dict[str, Any]:
    """Restore each photograph after each family of blurs and noise, with both kernels, and rank the confidence.

    Option of its own: `pictures`, a folder; without it, the bundled portrait and cat.
    """
    folder, N = settings.extra.get("pictures"), settings.extra.get("N", 1)
    model = tiled(fast(load(settings.model or "photo").to(settings.device), settings.precision))
    images = [portrait(), cat()]
    if folder is not None:
        files = files_below(folder, EXTENSIONS, "pictures")
        count = settings.images(PHOTOGRAPHS, 2)
        images = [read_picture(path)[None] for path in files[:: max(1, len(files) // count)][:count]]
    cases = [(i, family, sigma) for i in range(len(images)) for family in FAMILIES for sigma in NOISES]
    rows = [
        case(model, images[i], i, family, sigma, N, settings.device)
        for i, family, sigma in progress_bar(cases, unit="case")
    ]
    return report(settings, name, rows, len(images), N)


def report(settings: Settings, name: str, rows: list[Row], count: int, N: int) -> dict[str, Any]:
    """Condense the cases of `count` images into the table, the rank correlations, and how the confidence fits."""
    lines = [
        Line(f"{family}, noise {sigma:g}", summary([r for r in rows if (r["family"], r["sigma"]) == (family, sigma)]))
        for family in FAMILIES for sigma in NOISES
    ]  # fmt: skip
    done = [row for row in rows if "loss" in row]
    ranks = {which: spearman([r["confidence"] for r in part], [r["loss"] for r in part])
             for which, part in {"all": done, "gaussian and motion": [r for r in done if r["family"] != "shake"],
                                 "shake": [r for r in done if r["family"] == "shake"]}.items()}  # fmt: skip
    straight = sorted(r["loss"] for r in done if r["family"] != "shake")
    calibrated = [
        {"from": low, "to": high, "cases": len(part), "mean confidence": mean([r["confidence"] for r in part]),
         "share within 1.5 dB": mean([float(r["loss"] <= TOLERATED) for r in part])}
        for low, high in ((0.0, 0.2), (0.2, 0.6), (0.6, 0.9), (0.9, 1.01))
        if (part := [r for r in done if low <= r["confidence"] < high])
    ]  # fmt: skip
    notes = [
        f"Gaussian and motion: median loss {median(straight):.2f} dB (asked: at most 1.5)",
        f"rank correlation of the confidence with minus the loss: {ranks['all']:.2f} (asked: at least 0.5); Gaussian "
        f"and motion alone {ranks['gaussian and motion']:.2f}, shake alone {ranks['shake']:.2f}",
        "PSNR in dB after the best shift, to an eighth of a pixel; the noise that restoring is told is the estimate",
    ]
    return shared.record(
        settings, name, images=count, model=settings.model or "photo", notes=notes,
        tables=[Table(f"{count} photographs, N = {N}", COLUMNS, lines)],
        numbers={"N": N, "ranks": ranks, "calibration": calibrated, "median loss, gaussian and motion":
                 median(straight), "cases": rows},
    )  # fmt: skip


def case(model: Firm, x: Tensor, i: int, family: str, sigma: float, N: int, device: torch.device) -> Row:
    """Blur one image, estimate the kernel, and restore with the estimated kernel and with the true one."""
    task = Task("blind-deblurring", (int(x.shape[-2]), int(x.shape[-1])), family=family, sigma=sigma)
    op, y = task.measure(x, shared.SEED, i)
    margin = (x.shape[-1] - y.shape[-1]) // 2
    truth = x[..., margin:-margin, margin:-margin]
    row: Row = {"image": i, "family": family, "sigma": sigma, "blurred": aligned_psnr(y, truth)}
    started = time.perf_counter()
    try:
        found = estimate_kernel(y)
    except ValueError as error:
        return {**row, "refused": str(error)}
    row |= {"seconds": round(time.perf_counter() - started, 2), "kind": found.kind, **found.settings,
            "confidence": found.confidence, "noise": round(found.noise, 5)}  # fmt: skip

    def restored(kernel_op: LinearOperator, cut: int) -> float:
        result = restore(model, kernel_op, y.to(device), N, seed=shared.SEED + 1, sigma=found.noise).image.cpu()
        return aligned_psnr(result[..., cut:-cut, cut:-cut], truth)

    row["known"] = restored(op.to(device), margin)
    row["estimated"] = restored(valid_blur(found.kernel).to(device), len(found.kernel) // 2)
    row["loss"] = max(0.0, round(row["known"] - row["estimated"], 3))
    return row


def aligned_psnr(x: Tensor, truth: Tensor) -> float:
    """PSNR of images (1, C, H, W) inside a rim, the best over shifts of whole pixels, then of parts of one."""
    H, W = truth.shape[-2:]
    inside = (..., slice(REACH + 2, H - REACH - 2), slice(REACH + 2, W - REACH - 2))
    spectrum = torch.fft.rfft2(x)
    fy, fx = torch.fft.fftfreq(H)[:, None], torch.fft.rfftfreq(W)

    def error(shift: tuple[float, float]) -> float:
        moved = torch.fft.irfft2(spectrum * torch.exp(-2j * math.pi * (fy * shift[0] + fx * shift[1])), s=(H, W))
        return float((moved[inside] - truth[inside]).square().mean())

    cross = torch.fft.irfft2((torch.fft.rfft2(truth) * spectrum.conj()).sum((0, 1)), s=(H, W))
    near = cross.roll((REACH, REACH), (0, 1))[: 2 * REACH + 1, : 2 * REACH + 1]
    top, left = divmod(int(near.argmax()), 2 * REACH + 1)
    best = (float(top - REACH), float(left - REACH))
    for step in (1.0, 0.5, 0.25, 0.125):
        best = min(((best[0] + a * step, best[1] + b * step) for a in (-1, 0, 1) for b in (-1, 0, 1)), key=error)
    return round(10 * math.log10(4 / error(best)), 3)


def summary(rows: list[Row]) -> dict[str, Any]:
    """Condense the cases of one family and noise level, medians unless said otherwise."""
    done = [row for row in rows if "loss" in row]
    right = {"gaussian": "gaussian", "motion": "motion", "shake": "free-form"}
    if not done:
        return {"cases": len(rows), "refused": len(rows)}
    return {
        "cases": len(rows), "refused": len(rows) - len(done),
        "kind": 100 * mean([float(row["kind"] == right[row["family"]]) for row in done]),
        **{key: median([row[key] for row in done]) for key in ("blurred", "known", "estimated", "loss")},
        "worst": float(torch.tensor([row["loss"] for row in done]).quantile(0.9)),
        "gained": 100 * mean([float(row["estimated"] > row["blurred"]) for row in done]),
    }  # fmt: skip


def mean(values: list[float]) -> float:
    """Average numbers."""
    return sum(values) / len(values)


def median(values: list[float]) -> float:
    """Return the middle of numbers."""
    return float(torch.tensor(values).quantile(0.5))


def spearman(confidence: list[float], loss: list[float]) -> float:
    """Rank correlation of confidences with minus the losses; equal values share their mean rank."""

    def ranks(values: list[float]) -> Tensor:
        v = torch.tensor(values)
        return (v[:, None] > v).float().sum(1) + ((v[:, None] == v).float().sum(1) - 1) / 2

    return float(torch.corrcoef(torch.stack([ranks(confidence), -ranks(loss)]))[0, 1])
