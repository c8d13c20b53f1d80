"""50 requests at once: mixed sizes, 5 broken, 5 too large. ``python tests/demo/stress.py [--out FILE.json]``

Starts ``firm demo``, sends them all together, and says how they were answered, how long it took and how much memory the
page had. Also measures how soon the page is ready and how long a first picture of 512x512 takes.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import tempfile
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a script

SIDES = (48, 64, 96, 128, 160, 200)
TROUBLES = ("noise", "blur", "small", "pixels")


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    kind: str  # good, broken, pixels (too many), bytes (too many)
    right: bool
    seconds: float
    said: str


def bomb(path: Path, side: int) -> str:
    """A PNG of a few kB that says it has side x side pixels."""
    data, header = b"\x89PNG\r\n\x1a\n", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 100_000)), (b"IEND", b"")):
        data += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    path.write_bytes(data)
    return str(path)


def photo(path: Path, width: int, height: int) -> str:
    """The portrait in another size, with noise of 15 gray levels and a few black pixels."""
    from firm.data.sets import portrait_file

    with Image.open(portrait_file()) as portrait:
        pixels = np.asarray(portrait.convert("RGB").resize((width, height), Image.Resampling.BICUBIC), dtype=float)
    noisy = pixels + 15 * np.random.default_rng(width).standard_normal(pixels.shape)
    noisy[::7, ::5] = 0
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path)
    return str(path)


def send(url: str, picture: dict[str, Any]) -> str:
    """Call the endpoint as no client would, with `picture` as it is; the server's answer."""
    import httpx

    values = [picture, "noise", False, 10, 1, 2, None, "black", 0.5, 8, "face-128", "faithful", 1, None, 1, 0, 1, 10, 0,
              "rggb"]  # fmt: skip
    call = httpx.post(f"{url}gradio_api/call/restore", json={"data": values})
    answer = httpx.get(f"{url}gradio_api/call/restore/{call.json()['event_id']}", timeout=60).text
    config = httpx.get(f"{url}config").json()
    number = next(d["id"] for d in config["dependencies"] if d["api_name"] == "restore")
    data = {"data": values, "fn_index": number, "session_hash": "test"}
    httpx.post(f"{url}gradio_api/queue/join", json=data)
    with httpx.stream("GET", f"{url}gradio_api/queue/data?session_hash=test", timeout=60) as stream:
        for line in stream.iter_lines():
            answer += line
            if "process_completed" in line:
                return answer
    return answer


def storm(url: str, folder: Path, good: int = 40, broken: int = 5, oversized: int = 5) -> list[Answer]:
    """Send all requests at once, each from a client of its own; the answers."""
    jobs: list[tuple[str, str, dict[str, Any]]] = []
    for i in range(good):
        width, height = SIDES[i % len(SIDES)], SIDES[(i * 5 + 1) % len(SIDES)]
        options = {"trouble": TROUBLES[i % len(TROUBLES)], "steps": 1 + i % 2}
        jobs.append(("good", photo(folder / f"photo{i}.png", width, height), options))
    whole = Path(photo(folder / "whole.png", 80, 80)).read_bytes()
    for i in range(broken):
        (folder / f"broken{i}.png").write_bytes(whole[: 500 * i + 20])
        jobs.append(("broken", str(folder / f"broken{i}.png"), {}))
    (folder / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(31_000_000))
    large = [("pixels", bomb(folder / "bomb.png", 30_000), {}), ("bytes", str(folder / "huge.png"), {})]
    jobs += [large[i % 2] for i in range(oversized)]
    order = np.random.default_rng(0).permutation(len(jobs))
    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(lambda i: _ask(url, folder, *jobs[i]), order))


def _ask(url: str, folder: Path, kind: str, path: str, options: dict[str, Any]) -> Answer:
    from gradio_client import Client, handle_file

    start = time.monotonic()
    try:
        patient = {"timeout": 120}  # 50 clients of one process share a core with the page
        client = Client(url, verbose=False, download_files=str(folder / "downloads"), httpx_kwargs=patient)
        png8, *_, settings = client.predict(picture=handle_file(path), api_name="/restore", **options)
        right, said = _fits(kind, path, png8, settings), json.dumps(settings)
    except Exception as error:
        expected = {
            "broken": ("damaged or cut short", "no picture in a format", "empty"), "pixels": ("megapixels",),
            "bytes": ("413", "exceed", "size"),
        }.get(kind, ())  # fmt: skip
        said = f"{type(error).__name__}: {error}"
        right = any(words in said for words in expected)
    return Answer(kind, right, time.monotonic() - start, said[:300])


def _fits(kind: str, path: str, png8: str, settings: dict[str, Any]) -> bool:
    """Whether a result is of this picture: its name, its size, and that it looks like it."""
    with Image.open(path) as asked, Image.open(png8) as got:
        factor = settings.get("factor", 1)
        if kind != "good" or got.size != (asked.width * factor, asked.height * factor):
            return False
        small = np.asarray(got.resize(asked.size), dtype=float) - np.asarray(asked, dtype=float)
        close = float(np.median(np.abs(small))) < 60  # black dots, sharpened, are far off
        return settings["picture"] == Path(path).name and close


def main() -> int:
    """Measure, print, and write."""
    from demo.served import demo
    from gradio_client import Client, handle_file

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, demo(Path(name)) as page:
        folder = Path(name)
        found: dict[str, Any] = {
            "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", "ready s": round(page.seconds, 1),
            "ready, CPU s": round(page.cpu_seconds(), 1), "memory at start MB": round(page.megabytes()),
        }  # fmt: skip
        client = Client(page.url, verbose=False, download_files=name)
        start, before = time.monotonic(), page.cpu_seconds()
        client.predict(picture=handle_file(photo(folder / "first.png", 512, 512)), api_name="/restore")
        found["first 512x512, N = 2, s"] = round(time.monotonic() - start, 1)
        found["the same, CPU s"] = round(page.cpu_seconds() - before, 1)
        found["peak memory after it MB"] = round(page.megabytes("VmHWM"))
        start = time.monotonic()
        answers = storm(page.url, folder)
        found["50 requests s"] = round(time.monotonic() - start, 1)
        found["wrong"] = [asdict(a) for a in answers if not a.right]
        found["kinds"] = dict(Counter(a.kind for a in answers))
        found["peak memory after them MB"] = round(page.megabytes("VmHWM"))
        found["memory after them MB"] = round(page.megabytes())
        *_, settings = client.predict(picture=handle_file(photo(folder / "last.png", 96, 96)), api_name="/restore")
        found["alive"] = settings["pixels"] == [96, 96]
    print(json.dumps(found, indent=1))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1))
    return 0 if found["alive"] and not found["wrong"] and sum(found["kinds"].values()) == 50 else 1


if __name__ == "__main__":
    sys.exit(main())
