"""``firm serve`` under load: 200 requests of 20 clients, with batches and one by one, on this machine.

    python tests/demo/service_load.py [--side 64] [--requests 200] [--clients 20] [--model photo]

Prints throughput, the median and the 95th percentile of the answers, and how many were wrong: further than two gray
levels, on average, from what the same server gives to the same picture alone.
"""

import argparse
import io
import json
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
from demo.served import demo

from firm.data import cat

KINDS = [{"trouble": "noise", "noise": "25"}, {"trouble": "blur", "noise": "5", "blur": "1.0"}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--model", default="face-128")
    parser.add_argument("--tasks", type=int, default=1, help="1: noise; 2: every second picture is blurred")
    options = parser.parse_args()
    found = {}
    for batch in (32, 1):
        with (
            tempfile.TemporaryDirectory() as folder,
            demo(Path(folder), "--batch", str(batch), command="serve") as page,
        ):
            found[batch] = load(page.url, options, page.process)
            found[batch]["peak MB"] = round(page.megabytes("VmHWM"))
        print(json.dumps({"batch": batch, **found[batch]}), flush=True)
    gain = found[32]["per second"] / found[1]["per second"]
    saved = found[1]["CPU s a request"] / found[32]["CPU s a request"]  # which other work on the machine hardly changes
    print(
        json.dumps(
            {
                "gain": round(gain, 2),
                "gain in CPU seconds": round(saved, 2),
                "load": os.getloadavg()[0],
                **vars(options),
            }
        )
    )


def cpu_seconds(process: int) -> float:
    times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def load(url: str, options: argparse.Namespace, process: int) -> dict:
    with httpx.Client(base_url=url, timeout=600, limits=httpx.Limits(max_connections=options.clients)) as client:

        def ask(i: int) -> tuple[float, int, np.ndarray]:
            x = cat()[0].permute(1, 2, 0).numpy()
            corner = 3 * (i % 20), 3 * (i % 7)
            part = x[corner[0] : corner[0] + options.side, corner[1] : corner[1] + options.side]
            noisy = part + np.random.default_rng(i % 20).normal(0, 0.2, part.shape)
            file = io.BytesIO()
            Image.fromarray(np.uint8(((noisy + 1) * 127.5).clip(0, 255))).save(file, "PNG")
            data = {**KINDS[i % options.tasks], "seed": str(i), "model": options.model}
            start = time.monotonic()
            answer = client.post("/v1/restore", files={"picture": ("a.png", file.getvalue())}, data=data)
            seconds = time.monotonic() - start
            image = np.zeros(1)
            if answer.status_code == 200:
                image = np.asarray(Image.open(io.BytesIO(answer.content)), np.float32)
            return seconds, answer.status_code, image

        ask(0)  # the model is loaded
        alone = [ask(i)[2] for i in range(0, options.requests, 10)]
        start, busy = time.monotonic(), cpu_seconds(process)
        with ThreadPoolExecutor(options.clients) as pool:
            answers = list(pool.map(ask, range(options.requests)))
        seconds, busy = time.monotonic() - start, cpu_seconds(process) - busy
        text = client.get("/metrics").text
    wrong = sum(status != 200 for _, status, _ in answers)
    away = [float(np.abs(answers[10 * i][2] - image).mean()) for i, image in enumerate(alone)]
    times = np.array([seconds for seconds, _, _ in answers])
    size, count = (float(re.search(rf"firm_batch_images_{key} (\S+)", text)[1]) for key in ("sum", "count"))
    return {
        "per second": round(options.requests / seconds, 2), "median s": round(float(np.median(times)), 3),
        "p95 s": round(float(np.percentile(times, 95)), 3), "not answered": wrong,
        "compared": len(away), "wrong": sum(d > 2 for d in away), "largest mean difference (gray levels)": max(away),
        "images a batch": round(size / count, 2), "CPU s a request": round(busy / options.requests, 3),
    }  # fmt: skip


if __name__ == "__main__":
    main()
