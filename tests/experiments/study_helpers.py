"""What tests of the studies share: small data sets, a small model, restorations by hand, and a look into pictures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import save_celeba, save_pictures
from PIL import Image

import firm
from experiments import shared
from experiments.figures import GAP, RED, SIDE, TEXT, pixels
from experiments.shared import Figure, Settings
from firm._model import save_network
from firm._util.checks import generator_for
from firm.data import load_images
from firm.data.images import Images
from firm.metrics import lpips, psnr, ssim
from firm.networks import PriorUNet

TOP = TEXT + 2 * GAP  # where the first row of a grid begins
ROW = SIDE + GAP + TEXT + GAP  # a row with labels
NAMED = TEXT + 2 * GAP  # where the first column begins if rows have names
METRICS = ("psnr", "ssim", "lpips")


def make_data(root: Path) -> Path:
    """Two data sets of two test pictures, a small model without training, and a prior for faces and for cats."""
    save_celeba(root / "celeba")
    for folder in (root / "afhq" / "test" / "cat", root / "weights"):
        folder.mkdir(parents=True)
    save_pictures(root / "afhq" / "test" / "cat", 2, (256, 256))
    torch.manual_seed(0)
    shape = dict(side=128, ch=4, mult=(1,), blocks=1, groups=2, attention=(), unshuffle=8)
    prior, net = PriorUNet(3, **shape), firm.UNet(3, **shape)
    for p in (*prior.parameters(), *net.parameters()):
        p.data = 0.1 * torch.randn(p.shape)
    for name in ("face-prior", "face-denoiser", "cat-prior", "cat-denoiser"):
        save_network(root / "weights" / f"{name}.safetensors", prior, "prior", {})
    card = {"trained_for": [{"name": "random-inpainting", "missing": [0.25, 0.85], "sigma": [0.002, 0.05]}]}
    firm.Firm(net, firm.Solver(K=2, output="correction"), card).save(root / "tiny.safetensors")
    return root


def settings(root: Path, out: str, **more: Any) -> Settings:
    """Settings of a run on the small data."""
    usual = dict(celeba=root / "celeba", afhq=root / "afhq", model=str(root / "tiny.safetensors"))
    usual |= dict(weights=root / "weights", device=torch.device("cpu"), precision="float32")
    return Settings(out=root / out, **(usual | more))


def truth_of(root: Path, task, index=0):
    """A test image (1, 3, H, W) of the data set that has the task's size."""
    dataset = "celeba" if task.shape[0] == 128 else "afhq"
    return load_images(dataset, root / dataset, "test", size=task.shape[0]).batch(range(index, index + 1))


def by_hand(root: Path, task, N: int, index=0, truth=None):
    """Truth and restoration (1, 3, H, W) of a test image, or of another one, without the library's evaluation."""
    truth = truth_of(root, task, index) if truth is None else truth
    op, y = task.measure(truth, 42, index)
    model = firm.load(root / "tiny.safetensors")
    return truth, firm.sample(model, op, y, N, sigma=task.sigma, generator=[generator_for(42, index, "method")])


def scored(truth, x) -> list[float]:
    """PSNR, SSIM and LPIPS in the tables' convention."""
    return [float(value) for value in (psnr(x, truth), ssim(x, truth), lpips(2 * x - 1, 2 * truth - 1))]


def line(results, table: int, label: str) -> dict:
    """A line of a table."""
    return next(line for line in results["tables"][table]["lines"] if line["label"] == label)


def numbers(results, table: int, label: str, group: str) -> list[float]:
    """Our three metrics in a line and a group of columns."""
    return [line(results, table, label)["ours"][f"{group} {metric}"] for metric in METRICS]


def panel(path: Path, j: int, y: int = TOP, left: int = GAP):
    """Panel j of a row of a grid in a file."""
    with Image.open(path) as picture:
        return np.asarray(picture)[y : y + SIDE, left + j * (SIDE + GAP) :][:, :SIDE]


def upscaled(image):
    """The pixels of a panel with an image (C, H, W) or errors (H, W)."""
    return np.asarray(pixels(image)).repeat(SIDE // image.shape[-1], 0).repeat(SIDE // image.shape[-1], 1)


def shows(found, image) -> bool:
    """Whether a panel shows an image (C, H, W) or errors (H, W), but for the frame of its zoom."""
    expected = upscaled(image)
    framed = (found == RED).all(-1)
    assert framed.mean() < 0.02
    return bool((np.abs(found.astype(int) - expected)[~framed] <= 1).all())


def figures(results) -> dict[str, bool]:
    """The files of a study's figures, and whether they may be shown."""
    return {figure["file"]: figure["free"] for figure in results["figures"]}


def note_asked(monkeypatch: pytest.MonkeyPatch, module) -> tuple[list, list]:
    """What a study asks to be evaluated and drawn, noted and answered with made-up numbers; nothing is computed."""
    evaluated, drawn = [], []

    def test_images(settings, subject, count):
        return Images(torch.zeros(count, 3, 8, 8, dtype=torch.uint8), [str(i) for i in range(count)])

    def scores(settings, subject, tasks, rows, images, variant=""):
        evaluated.append((subject.dataset, len(images), [row.label for row in rows], tasks, variant))
        return {task.name: {row.label: {"psnr": 30.0, "ssim": 0.9, "lpips": 0.1} for row in rows} for task in tasks}

    def panels(settings, images, task, rows, index=0, **_):
        drawn.append((task, [row.label for row in rows], index))
        return [None] * (len(rows) + 1)

    def absolute_errors(settings, images, tasks, rows):
        evaluated.append(("celeba", len(images), [row.label for row in rows], tasks, ""))
        return {task.name: {row.label: 0.1 for row in rows} for task in tasks}, []

    for instead in (test_images, scores, panels):
        monkeypatch.setattr(shared, instead.__name__, instead)
    monkeypatch.setattr(module, "absolute_errors", absolute_errors, raising=False)
    monkeypatch.setattr(module, "save_grid", lambda *_, **__: None)
    monkeypatch.setattr(module, "draw_curves", lambda *_: Figure("curves.png", "curves", free=True), raising=False)
    return evaluated, drawn


def labels(*counts: int) -> list[str]:
    """FIRM's rows."""
    return [f"FIRM N={N}" for N in counts]
