"""Draw phantoms to try things with: python examples/phantoms.py FOLDER writes train.npy, test.npy and one.png.

Gray images of 32x32 pixels in [-1, 1], shaded discs, boxes and lines: 2000 to train on, 30 to test with.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 32


def phantom(rng):
    """One image, (1, SIDE, SIDE): three to six shapes over a background, each with a linear shading."""
    y, x = np.mgrid[:SIDE, :SIDE]
    image = shading(rng, x, y)
    for _ in range(rng.integers(3, 7)):
        turn = rng.uniform(0, np.pi)
        dx, dy = x - rng.uniform(0, SIDE), y - rng.uniform(0, SIDE)
        along, across = dx * np.cos(turn) + dy * np.sin(turn), dy * np.cos(turn) - dx * np.sin(turn)
        distance = {  # to the shape's rim, in pixels, negative inside
            "disc": np.hypot(dx, dy) - rng.uniform(2, 8),
            "box": np.maximum(abs(along) - rng.uniform(2, 9), abs(across) - rng.uniform(2, 9)),
            "line": abs(across) - rng.uniform(0.5, 1),
        }[rng.choice(["disc", "box", "line"])]
        inside = np.clip(0.5 - distance, 0, 1)  # a rim one pixel wide
        image = image + inside * (shading(rng, x, y) - image)
    return np.clip(image, -1, 1)[None].astype(np.float32)


def shading(rng, x, y):
    """A brightness that changes linearly over the image."""
    slope = rng.uniform(-0.5, 0.5, 2)
    return rng.uniform(-0.8, 0.8) + slope[0] * (x / SIDE - 0.5) + slope[1] * (y / SIDE - 0.5)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    train, test = (np.stack([phantom(rng) for _ in range(n)]) for n in (2000, 30))
    np.save(folder / "train.npy", train)
    np.save(folder / "test.npy", test)
    Image.fromarray(((test[0, 0] + 1) * 127.5).round().astype(np.uint8)).save(folder / "one.png")
    print(f"{folder}: train.npy {train.shape}, test.npy {test.shape}, one.png")
