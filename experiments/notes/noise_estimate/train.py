"""Train the network of `firm.restoration.grain` on photographs with simulated noise; on two cores, half an hour.

python experiments/notes/noise_estimate/train.py PHOTOS/train PHOTOS/val --minutes 25 --out grain.safetensors
"""

from __future__ import annotations

import argparse
import io
import json
import math
import random
import time
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from firm.data import load_images
from firm.restoration.grain import CELL, FLOOR, GrainNetwork, estimate_grain

SIDE = 96


def degraded(clean: Tensor, rng: random.Random, kinds: tuple[str, ...]) -> tuple[Tensor, Tensor, str]:
    """Give a clean crop (3, H, W) in [0, 1] the noise of a camera, a film or a formula, and often a JPEG's.

    Returns
    -------
    The noisy crop, its noise (both (3, H, W), in [0, 1] units), and what kind it is.
    """
    kind = rng.choice(kinds)
    level = math.exp(rng.uniform(math.log(0.003), math.log(0.25)))
    if rng.random() < 0.15:
        clean = clean.mean(0, keepdim=True).expand(3, -1, -1)
    gray = bool((clean[0] == clean[1]).all())
    if kind == "clean":
        noisy = clean
    elif kind == "white":
        noise = torch.randn(clean.shape)
        noisy = clean + level * (noise[:1] if gray else noise)
    elif kind == "grain":
        noisy = clean + _grain(clean, level, rng, gray)
    else:
        clean, noisy = _camera(clean, level, rng)
    reference = clean
    noisy = noisy.clamp(0, 1)
    if rng.random() < 0.2:  # enlarged or shrunk by whoever passed it on
        side = int(SIDE * rng.uniform(0.75, 1.4)) // CELL * CELL
        noisy, reference = (F.interpolate(v[None], size=(side, side), mode="bicubic", antialias=True)[0].clamp(0, 1)
                            for v in (noisy, reference))  # fmt: skip
        noisy, reference = _square(noisy), _square(reference)
    if rng.random() < 0.5:
        noisy, kind = _jpeg(noisy, rng.randint(25, 98), rng.choice((0, 2))), kind + " jpeg"
    noisy = (noisy * 255).round() / 255
    return noisy, noisy - reference, kind


def _square(x: Tensor) -> Tensor:
    """Crop, or continue by mirror images, to SIDE x SIDE."""
    pad = max(0, SIDE - x.shape[-1])
    x = F.pad(x[None], [0, pad, 0, pad], mode="reflect")[0] if pad else x
    return x[:, :SIDE, :SIDE]


def _grain(clean: Tensor, level: float, rng: random.Random, gray: bool) -> Tensor:
    """Noise that spreads over several pixels, in colors, stronger in the shadows or in the light."""
    noise = torch.randn(1 if gray else 3, *clean.shape[1:])
    width = rng.uniform(0.4, 1.8)
    offsets = torch.arange(-4, 5).float()
    row = torch.exp(-offsets.square() / (2 * width**2))
    kernel = torch.outer(row, row)[None, None]
    noise = F.conv2d(F.pad(noise[:, None], [4] * 4, mode="reflect"), kernel / kernel.square().sum().sqrt())[:, 0]
    together = rng.uniform(0, 1)
    if not gray:
        noise = math.sqrt(together) * noise[:1] + math.sqrt(1 - together) * noise
        noise = noise * torch.tensor([rng.uniform(0.6, 1.5) for _ in range(3)])[:, None, None]
    slope = rng.uniform(-0.8, 0.8)
    return level * noise * (1 + slope * (2 * clean.mean(0, keepdim=True) - 1))


def _camera(clean: Tensor, level: float, rng: random.Random) -> tuple[Tensor, Tensor]:
    """A sensor's picture: mosaic, photon and read noise, bilinear demosaicing, white balance, gamma, some sharpening.

    Returns
    -------
    The developed picture without noise, and with it.
    """
    gains = torch.tensor([rng.uniform(1.4, 2.4), 1.0, rng.uniform(1.3, 2.2)])[:, None, None]
    raw = clean.clamp(0, 1) ** 2.2 / gains
    photon, read = level * rng.uniform(0.1, 1.0), level * rng.uniform(0.0, 0.5)
    noisy = raw + torch.randn(raw.shape) * (photon**2 * raw + (0.3 * read) ** 2).sqrt()
    mask = torch.zeros_like(raw)
    mask[0, ::2, ::2] = mask[1, ::2, 1::2] = mask[1, 1::2, ::2] = mask[2, 1::2, 1::2] = 1
    kernel = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]])[None, None] / 4
    sharper, width = rng.uniform(0, 0.6) * (rng.random() < 0.5), rng.choice((3, 5))

    def developed(mosaic: Tensor) -> Tensor:
        total = F.conv2d((mosaic * mask)[:, None], kernel, padding=1)[:, 0]
        share = F.conv2d(mask[:, None], kernel, padding=1)[:, 0]
        picture = (gains * total / share).clamp(0, 1) ** (1 / 2.2)
        smooth = F.avg_pool2d(F.pad(picture[None], [width // 2] * 4, mode="reflect"), width, 1)[0]
        return (picture + sharper * (picture - smooth)).clamp(0, 1)

    return developed(raw), developed(noisy)


def _jpeg(x: Tensor, quality: int, subsampling: int) -> Tensor:
    buffer = io.BytesIO()
    pixels = (x.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling=subsampling)
    return torch.from_numpy(np.asarray(Image.open(buffer).convert("RGB")).copy()).permute(2, 0, 1).float() / 255


def batch(data: Tensor, n: int, rng: random.Random, kinds: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Draw crops with noise, (n, 3, SIDE, SIDE) in [-1, 1], and the log levels of their cells (n, h, w)."""
    xs, targets = [], []
    for _ in range(n):
        i, top, left = rng.randrange(len(data)), rng.randrange(192 - SIDE + 1), rng.randrange(192 - SIDE + 1)
        clean = data[i, :, top : top + SIDE, left : left + SIDE].float() / 255
        clean = clean.flip(-1) if rng.random() < 0.5 else clean
        noisy, noise, _ = degraded(clean, rng, kinds)
        xs.append(2 * noisy - 1)
        power = F.avg_pool2d((2 * noise).square().mean(0)[None, None], 3 * CELL, CELL, CELL, count_include_pad=False)
        targets.append(power[0, 0].sqrt().clamp(min=FLOOR).log())
    return torch.stack(xs), torch.stack(targets)


def main() -> None:
    """Train, save, and report how far the levels of whole validation pictures are off, for each kind of noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train")
    parser.add_argument("val")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--out", type=Path, default=Path("grain.safetensors"))
    options = parser.parse_args()
    kinds = ("white", "grain", "grain", "camera", "camera", "camera", "clean")
    data = load_images("folder", options.train, size=192).data
    rng, net = random.Random(0), GrainNetwork()
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    start, step, mean = time.monotonic(), 0, 0.0
    while (done := (time.monotonic() - start) / 60 / options.minutes) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, step / 100) * 0.5 * (1 + math.cos(math.pi * done)) + 1e-6
        x, target = batch(data, 24, rng, kinds)
        level, error = net(x)
        loss = (0.5 * ((level - target) / error.exp()).square() + error).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        step, mean = step + 1, 0.98 * mean + 0.02 * float((level - target).detach().abs().mean())
        if step % 100 == 0:
            print(f"step {step}, {60 * options.minutes * done:.0f} s: mean error of log level {mean:.3f}", flush=True)
    safetensors.torch.save_file({key: value.half() for key, value in net.state_dict().items()}, options.out)
    print(json.dumps(report(options.val, net), indent=1))


def report(folder: str, net: GrainNetwork | None = None) -> dict[str, object]:
    """Estimate the level of whole crops and compare with the truth, kind by kind."""
    import firm.restoration.grain as grain

    if net is not None:
        grain._network = lambda: net.eval()  # type: ignore[assignment]
    data, rng = load_images("folder", folder, size=192).data, random.Random(7)
    torch.manual_seed(7)
    rows: dict[str, list[float]] = {}
    for i in range(len(data)):
        for kind in ("white", "grain", "camera", "clean"):
            clean = data[i, :, 48:144, 48:144].float() / 255
            noisy, noise, name = degraded(clean, rng, (kind,))
            truth = max(FLOOR, float((2 * noise).square().mean().sqrt()))
            rows.setdefault(name, []).append(estimate_grain(2 * noisy[None] - 1).level / truth)
    found = {}
    for name, ratios in sorted(rows.items()):
        values = torch.tensor(ratios)
        off = (values.log().abs()).median().exp() - 1
        near = float(((values < 1.3) & (values > 1 / 1.3)).float().mean())
        found[name] = {
            "pictures": len(ratios),
            "median ratio": round(float(values.median()), 3),
            "median error": round(float(off), 3),
            "within 30 %": round(near, 2),
        }
    return found


if __name__ == "__main__":
    main()
