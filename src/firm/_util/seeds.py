"""Random numbers that belong to an image, a step or a purpose: the same in any batch, order or process."""

from __future__ import annotations

import hashlib

from torch import Generator

from firm._util.checks import require


def require_seed(seed: object, error: type[Exception] = ValueError) -> int:
    """Raise `error` unless `seed` is a whole number from 0 to 2^32 - 1.

    torch's CPU generator keeps 32 bits of a seed: 2^32 would give the samples of 0, and -1 those of 2^32 - 1.
    """
    value = seed.__index__() if hasattr(seed, "__index__") else -1
    require(
        0 <= value < 2**32, f"the seed must be a whole number from 0 to 2^32 - 1 = {2**32 - 1}, got {seed!r}", error
    )
    return int(value)


def generator_for(seed: int, index: int, purpose: str) -> Generator:
    """A CPU generator for one image and one purpose; torch seeds it with 32 bits, so the key is hashed to them."""
    digest = hashlib.sha256(f"{seed}/{index}/{purpose}".encode()).digest()
    return Generator().manual_seed(int.from_bytes(digest[:4], "little"))
