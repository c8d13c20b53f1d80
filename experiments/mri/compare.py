"""Undersampled k-space, restored by a model and by SENSE with the usual regularizers (SigPy), beside the full image.

``python experiments/mri/compare.py OUT.json SCAN... [--model photo] [--accelerations 4,8]`` takes fully sampled files.
SigPy is for this comparison only: ``pip install sigpy``. Its weights are chosen with the truth, in its favor.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import firm
from firm.acceleration.tiling import tiled
from firm.instruments.mri import MriScan
from firm.metrics import ssim
from firm.operators import to_complex

WEIGHTS = {
    "CG-SENSE": [0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1],
    "wavelet SENSE": [1e-4, 3e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3e-2],
    "TV SENSE": [1e-4, 3e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3e-2],
}
SAMPLES = 8


def reference(scan: MriScan) -> Tensor:
    """Magnitude of the image of all samples, combined with the same kind of maps, (H, W)."""
    one, centered = scan.image(0), (-2, -1)
    images = torch.fft.fftshift(torch.fft.ifft2(torch.fft.ifftshift(one.y, dim=centered), norm="ortho"), dim=centered)
    return (one.maps.conj() * images).sum(0).abs()


def score(magnitude: Tensor, truth: Tensor) -> dict[str, float]:
    """PSNR with the truth's largest value as the peak, and SSIM of magnitudes in its range."""
    peak = truth.max()
    psnr = 10 * torch.log10(peak**2 / (magnitude - truth).square().mean())
    a, b = (2 * v[None, None] / peak - 1 for v in (magnitude, truth))
    return {"psnr": round(float(psnr), 2), "ssim": round(float(ssim(a, b)), 4)}


def classical(scan: MriScan, truth: Tensor) -> dict[str, dict[str, float]]:
    """SigPy's reconstructions of the same samples with the same maps, each with the weight of the best PSNR."""
    from sigpy.mri import app

    one = scan.image(0)
    bright = scan.slice(0).gain
    y, maps = (one.y / bright).numpy(), one.maps.numpy()
    mask = np.broadcast_to(one.mask.numpy(), y.shape).astype(np.float32)
    more = dict(weights=mask, show_pbar=False)
    kinds: dict[str, Callable[[float], np.ndarray]] = {
        "CG-SENSE": lambda w: app.SenseRecon(y, maps, lamda=w, max_iter=60, **more).run(),
        "wavelet SENSE": lambda w: app.L1WaveletRecon(y, maps, w, max_iter=150, **more).run(),
        "TV SENSE": lambda w: app.TotalVariationRecon(y, maps, w, max_iter=200, **more).run(),
    }
    found = {}
    for name, run in kinds.items():
        runs = []
        for w in WEIGHTS[name]:
            began = time.perf_counter()
            x = torch.from_numpy(np.abs(run(w))).float() * bright * one.phase.abs()
            runs.append({**score(x, truth), "weight": w, "seconds": round(time.perf_counter() - began, 2)})
        found[name] = max(runs, key=lambda r: r["psnr"])
        print(f"  {name:20} {found[name]}", flush=True)
    return found


def learned(model: firm.Firm, scan: MriScan, truth: Tensor) -> dict[str, dict[str, object]]:
    """The model, once and as the mean of samples, with and without a last solve; how the deviation covers the truth."""
    s = scan.slice(0)
    seen = scan.image(0).phase.abs()
    found: dict[str, dict[str, object]] = {}
    first = to_complex(s.op.A_adjoint(s.y)).abs()[0, 0] * s.gain * seen
    found["zero-filled"] = score(first, truth)
    for name, steps, samples, final in (
        ("firm N=1", 1, 1, False),
        ("firm N=2", 2, 1, False),
        ("firm N=1, final solve", 1, 1, True),
        (f"firm N=1, mean of {SAMPLES}", 1, SAMPLES, False),
    ):
        r = firm.restore(model, s.op, s.y, steps, samples, 0, sigma=s.noise, final_solve=final)
        x = to_complex(r.mean).abs()[0, 0] * s.gain * seen
        about: dict[str, object] = {**score(x, truth), "seconds": round(r.seconds, 2)}
        about["residual"] = round(float(r.residual), 2)
        if samples > 1:
            magnitudes = to_complex(r.samples[:, 0]).abs()[:, 0] * s.gain * seen
            std, inside = magnitudes.std(0), truth > 0.1 * truth.max()
            within = (magnitudes.mean(0) - truth).abs() <= 1.645 * std
            about["covered 90 % (raw deviation)"] = round(float(within[inside].float().mean()), 3)
        found[name] = about
        print(f"  {name:20} {about}", flush=True)
    return found


def main() -> None:
    """Compare on every file and acceleration, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("scans", type=Path, nargs="+")
    parser.add_argument("--model", default="photo")
    parser.add_argument("--accelerations", default="4,8")
    o = parser.parse_args()
    model, results = tiled(firm.load(o.model)), {}
    warnings.simplefilter("ignore")
    for path in o.scans:
        truth = reference(MriScan.open(path))
        for R in map(float, o.accelerations.split(",")):
            scan = MriScan.open(path, acceleration=R)
            print(f"{path.name}, {R:g}x: {scan.about}", flush=True)
            about = {"about": scan.about, **learned(model, scan, truth), **classical(scan, truth)}
            results[f"{path.stem} {R:g}x"] = about
            o.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
