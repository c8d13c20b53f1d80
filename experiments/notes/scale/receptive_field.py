"""What a tile learns of the tiles around it: the gradient of one call, and the error of a block against its margin.

python experiments/notes/scale/receptive_field.py photo inpainting 0.05
"""

import sys

import torch

import firm
from firm.operators import Identity, Mask

TILE, OVERLAP, TILES, STEPS = 128, 32, 9, 2


def gradient(model: firm.Firm, side: int = 256) -> list[tuple[int, float]]:
    """Return the largest |d output / d input| of one call by distance from the middle pixel, in rings of 32."""
    inputs = [torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(i)) for i in range(5)]
    x = inputs[0].requires_grad_()
    scalars = [torch.full((1,), v) for v in (0.5, 0.1, 0.0)]
    model.estimator(*inputs, *scalars)[0, :, side // 2, side // 2].sum().backward()
    place = torch.arange(side) - side // 2
    distance = torch.maximum(place.abs()[:, None], place.abs()[None])
    change = x.grad[0].abs().amax(0)
    return [(r, float(change[(distance >= r) & (distance < r + 32)].max())) for r in range(0, side // 2, 32)]


def margins(model: firm.Firm, task: str, sigma: float) -> list[float]:
    """Return the largest error of a tile in the middle of a strip, by the tiles on both sides that are computed too."""
    step, length = TILE - OVERLAP, (TILE - OVERLAP) * (TILES - 1) + TILE
    portrait = firm.data.portrait()
    strip = torch.cat([portrait if i % 2 else portrait.flip(-1) for i in range(length // TILE + 1)], -1)[..., :length]
    generator = torch.Generator().manual_seed(1)
    noise, x_0 = (torch.randn(strip.shape, generator=generator) for _ in range(2))
    mask = torch.ones(strip.shape[-2:])
    if task == "inpainting":  # boxes
        for middle in range(60, length - 60, 150):
            mask[TILE // 2 - 24 : TILE // 2 + 24, middle - 24 : middle + 24] = 0
    elif task == "pixels":
        mask = (torch.rand(mask.shape, generator=generator) < 0.4).float()
    tiled = firm.tiled(model, TILE, OVERLAP)

    def restored(start: int, stop: int) -> torch.Tensor:
        op = Identity() if task == "denoising" else Mask(mask[:, start:stop])
        y = (mask * (strip + sigma * noise))[..., start:stop]
        return firm.sample(tiled, op, y, STEPS, sigma=sigma, x_0=x_0[..., start:stop])

    whole, middle, found = restored(0, length), TILES // 2 * step, []
    own = slice(middle + OVERLAP, middle + step)  # what no other tile covers
    for margin in range(4):
        start, stop = middle - margin * step, middle + TILE + margin * step
        part = restored(start, stop)
        found.append(float((part[..., own.start - start : own.stop - start] - whole[..., own]).abs().max()))
    return found


if __name__ == "__main__":
    chosen = firm.load(sys.argv[1])
    for ring, value in gradient(chosen):
        print(f"{ring:4d} to {ring + 32} pixels: {value:.1e}")
    for tiles, error in enumerate(margins(chosen, sys.argv[2], float(sys.argv[3]))):
        print(f"margin of {tiles} tiles: {error:.1e}")
