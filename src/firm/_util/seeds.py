"""Random numbers that belong to an image, a step or a purpose: the same in any batch, order or process."""

from __future__ import annotations

import hashlib

from torch import Generator


def generator_for(seed: int, index: int, purpose: str) -> Generator:
    """Return a CPU generator for one image and one purpose.

    Torch seeds a generator with 32 bits, so `seed`, `index` and `purpose` are hashed to them.
    """
    digest = hashlib.sha256(f"{seed}/{index}/{purpose}".encode()).digest()
    return Generator().manual_seed(int.from_bytes(digest[:4], "little"))
