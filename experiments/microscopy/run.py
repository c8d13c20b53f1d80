"""Microscopy without a model of its own: `photo` on simulated counts, and on the pairs of W2S.

    python experiments/microscopy/run.py simulated
    python experiments/microscopy/run.py pairs W2S_data_analysis

The second takes the folder of ND-HowardGroup/Instant-Image-Denoising that holds the pairs, a single noisy image of
512x512 and the average of 400, with published results beside (60 pairs: every sixth of 360). Pictures there have 8
bits, stretched from their darkest to their brightest pixel one by one. They are restored as stacks of 16 bits.
"""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import tifffile
import torch
import typer
from tqdm import tqdm

import firm
from firm._util.files import write_atomically
from firm._util.machine import describe_machine
from firm.instruments.microscopy import MicroscopyScan
from firm.noise import Gaussian, PoissonGaussian
from firm.restoration.scan import restore_scan

HERE = Path(__file__).parent
LIGHT = {"dim": (8, 5, 10, 100), "usual": (40, 5, 10, 100), "bright": (200, 2, 6, 100)}  # photons, gain, read, offset
FILES = {
    "noisy": "W2S_dataset_8bit/images_avg1_8bit/input_avg1_{}",
    "VST+BM3D, published": "compare_VST+BM3D/BM3D_denoising_W2S_data_avg1/input_avg1_{}",
    "N2N, published": "W2S_dataset_8bit/images_avg1_8bit_denoised/denoised_avg1_{}",
}
DEEP = 257  # 8 bits as 16
app = typer.Typer()


def cells(side: int, seed: int) -> np.ndarray:
    """Nuclei, filaments and spots, (side, side), from 0 to about 1."""
    drawn = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side].astype(float)
    image = np.zeros((side, side))
    for _ in range(6):
        at, axes, turn = drawn.uniform(0, side, 2), drawn.uniform(12, 26, 2), drawn.uniform(0, np.pi)
        u = (y - at[0]) * np.cos(turn) + (x - at[1]) * np.sin(turn)
        v = (x - at[1]) * np.cos(turn) - (y - at[0]) * np.sin(turn)
        inside = (((u / axes[0]) ** 2 + (v / axes[1]) ** 2 - 1) * 8).clip(-50, 50)
        image += drawn.uniform(0.2, 0.6) * (1 + 0.3 * np.sin(u / 3) * np.cos(v / 4)) / (1 + np.exp(inside))
    for _ in range(14):
        at, turn, height = drawn.uniform(0, side, 2), drawn.uniform(0, 6.3), drawn.uniform(0.04, 0.16)
        for _ in range(120):
            turn += 0.08 * drawn.normal()
            at = at + np.array([np.sin(turn), np.cos(turn)])
            i, j = (slice(max(int(a) - 5, 0), max(int(a) + 6, 0)) for a in at)
            image[i, j] += height * np.exp(-((y[i, j] - at[0]) ** 2 + (x[i, j] - at[1]) ** 2) / 3.4)
    for _ in range(40):
        at, width = drawn.uniform(0, side, 2), drawn.uniform(1, 1.8)
        image += drawn.uniform(0.2, 1) * np.exp(-((y - at[0]) ** 2 + (x - at[1]) ** 2) / (2 * width**2))
    return image / np.quantile(image, 0.999)


def psnr(image: np.ndarray, truth: np.ndarray, peak: float = 255.0) -> float:
    """PSNR in dB."""
    return float(10 * np.log10(peak**2 / np.mean((image - truth) ** 2)))


def scores(image: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """As it is; stretched from 0 to 255, as the published N2N images are; and fitted to the truth by a line."""
    stretched = 255 * (image - image.min()) / (image.max() - image.min())
    slope, constant = np.polyfit(image.ravel(), truth.ravel(), 1)
    return {"plain": psnr(image, truth), "stretched": psnr(stretched, truth),
            "fitted": psnr(slope * image + constant, truth)}  # fmt: skip


@app.command()
def simulated(side: int = 192, images: int = 2, out: Path = HERE / "simulated.json") -> None:
    """Compare what tells the noise of a pixel: the mean of a square around it (1: its own counts), or one level."""
    model, found = firm.fast(firm.load("photo")), {}
    for light, (peak, gain, read, offset) in LIGHT.items():
        each: dict[str, list[float]] = {}
        for seed in range(images):
            drawn, truth = np.random.default_rng(1000 + seed), gain * peak * cells(side, seed) + offset
            noisy = np.rint(
                gain * drawn.poisson((truth - offset) / gain) + offset + read * drawn.normal(size=truth.shape)
            )
            half = (np.quantile(noisy, 0.999) - offset) / 2
            y = torch.from_numpy((noisy - offset) / half - 1).float()[None, None]
            op, noise = firm.operators.Identity(), PoissonGaussian(gain / half, read / half)
            noise = noise.on(op, y, y)
            ways = {"one level": float(noise.level(y)), "1": noise}
            for width in (3, 5):
                around = torch.nn.functional.avg_pool2d(y, width, 1, width // 2, count_include_pad=False)
                ways[str(width)] = Gaussian(noise.std(around))
            span = float(truth.max() - truth.min())
            each.setdefault("noisy", []).append(psnr(noisy, truth, span))
            for name, told in ways.items():
                x = firm.restore(model, op, y, steps=1, sigma=told, final_solve=True).image[0, 0].double().numpy()
                each.setdefault(name, []).append(psnr(offset + half * (x + 1), truth, span))
        found[light] = {name: round(float(np.mean(values)), 2) for name, values in each.items()}
        print(light, found[light], flush=True)
    write_atomically(out, json.dumps({"machine": describe_machine(), "psnr": found}, indent=1) + "\n")


@app.command()
def pairs(
    folder: Annotated[Path, typer.Argument(help="W2S_data_analysis of Instant-Image-Denoising.")],
    every: Annotated[int, typer.Option(help="Take every so many of the 360 pairs; 6 is the protocol.")] = 6,
    restored: Annotated[bool, typer.Option(help="Or only the published figures.")] = True,
    out: Path = HERE / "results.json",
) -> None:
    """Restore the noisy images of W2S and score them beside what is published."""
    targets = sorted((folder / "W2S_dataset_8bit" / "images_avg400_8bit").glob("*.tif"))[::every]
    model = firm.fast(firm.load("photo"))
    rows: dict[str, dict[str, list[float]]] = {}
    gains, bits = [], set()
    for target in tqdm(targets, unit="pair"):
        name, truth = target.name.removeprefix("target_avg400_"), tifffile.imread(target).astype(float)
        images = {row: tifffile.imread(folder / file.format(name)).astype(float) for row, file in FILES.items()}
        if restored:
            with tempfile.TemporaryDirectory() as place:
                counts = (DEEP * images["noisy"]).astype(np.uint16)
                tifffile.imwrite(Path(place) / "a.tif", counts)
                scan = MicroscopyScan.open(Path(place) / "a.tif")
                row = restore_scan(model, scan, Path(place) / "b", 1, 1, 0, torch.device("cpu"), progress=False)
                result = tifffile.imread(row["written"][0])
                bits.add(str(result.dtype))
                images["photo, untrained"] = result.astype(float) / DEEP
                gains.append(str(scan.about).rpartition("; ")[2])
        for row, image in images.items():
            for kind, value in scores(image, truth).items():
                rows.setdefault(row, {}).setdefault(kind, []).append(round(value, 3))
        record(out, rows, gains, bits)  # what there is, should it be stopped
    for row, kinds in json.loads(out.read_text())["mean"].items():
        print(row, kinds)


def record(out: Path, rows: dict[str, dict[str, list[float]]], gains: list[str], bits: set[str]) -> None:
    """Write the scores of the pairs so far."""
    means = {row: {kind: round(float(np.mean(v)), 2) for kind, v in kinds.items()} for row, kinds in rows.items()}
    about = {"pairs": len(rows["noisy"]["plain"]), "machine": describe_machine(), "written as": sorted(bits)}
    found = {**about, "mean": means, "each": rows, "noise": gains}
    write_atomically(out, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    app()
