"""Ways to hurt a file."""

from __future__ import annotations

import json
import random


def damaged(whole: bytes, kind: str, rng: random.Random) -> bytes:
    """The bytes of a file, hurt."""
    if kind == "cut":
        return whole[: rng.randrange(len(whole))]
    if kind == "foreign":
        return rng.choice([b"", b"PK\x03\x04", rng.randbytes(5000), b"{}", whole[::-1]])
    hurt = bytearray(whole)
    for _ in range(rng.choice([1, 1, 8])):
        hurt[rng.randrange(len(hurt))] ^= 1 << rng.randrange(8)
    return bytes(hurt)


def damaged_model(whole: bytes, kind: str, rng: random.Random) -> bytes:
    """The same for a safetensors file, whose metadata can also be made to lie."""
    if kind != "metadata":
        return damaged(whole, kind, rng)
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    about = json.loads(header["__metadata__"]["firm"])
    key = rng.choice(list(about))
    odd = [None, [], {}, "x", -1, 10**9, 1.5, True, ["a"], {"K": 10**9}, {"blocks": 10**7}, "../../etc/passwd"]
    value = rng.choice(odd)
    if isinstance(about[key], dict) and about[key] and rng.random() < 0.6:
        inner = rng.choice(list(about[key]))
        if about[key][inner] == value or key == "card":
            value = {"card": "lies"}
            about["estimator"] = 7
        else:
            about[key][inner] = value
    elif about[key] == value or key == "card":
        about["solver"] = value if about.get("solver") != value else []
    else:
        about[key] = value
    header["__metadata__"]["firm"] = json.dumps(about)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + whole[8 + length :]
