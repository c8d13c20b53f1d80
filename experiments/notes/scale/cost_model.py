"""What a training step costs on n GPUs, up to 1,024: bytes, time, and where more of them stop helping.

python experiments/notes/scale/cost_model.py              # the tables of docs/several-gpus.md
python experiments/notes/scale/cost_model.py --measure    # the same formulas against gloo here: messages, and steps of
                                                          # one and two processes, one thread each
"""

import dataclasses
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from firm.training.log import read_log

CONFIG = str(Path(__file__).parents[3] / "configs" / "face-128.yaml")
OVERLAP = 2 / 3  # of the computation is the backward pass, under which gradients travel
COUNTS = (1, 8, 16, 64, 256, 1024)


@dataclass(frozen=True)
class Links:
    """Bytes a second that a process sends, and seconds for a message."""

    inside: float = 450e9  # NVLink of an H200, one direction
    between: float = 50e9  # 400 Gbit/s for each GPU
    latency: float = 20e-6
    node: int = 8  # GPUs of one machine
    numbers: float = 1e11  # Gaussian numbers a second that a GPU draws: assumed


@dataclass(frozen=True)
class Run:
    """A training: what it computes."""

    name: str
    parameters: float
    images: float  # a second, on one GPU that is full
    floor: float  # seconds: the shortest step without the CUDA graph, which several processes do without
    side: int = 128
    K: int = 5

    def drawn(self, batch: float) -> float:
        """Random numbers of a batch: the noise of its measurements and the states x_0."""
        return 2 * batch * 3 * self.side**2


def sent(size: float, n: int) -> float:
    """Bytes that each process sends to sum a tensor of `size` bytes over n (ring or tree: the same)."""
    return 2 * (n - 1) / n * size


def exchange(size: float, n: int, links: Links) -> float:
    """Seconds to sum a tensor of `size` bytes over n processes: inside the machines, then between them, share by share.

    In a machine each GPU gets the sum of its share, which it exchanges with its likes in the other machines.
    """
    inside, machines = min(n, links.node), math.ceil(n / links.node)
    steps = math.ceil(math.log2(inside)) + math.ceil(math.log2(machines))
    return (
        sent(size, inside) / links.inside + sent(size / inside, machines) / links.between + (2 * steps * links.latency)
    )


def step(run: Run, batch: float, n: int, links: Links, sharded: bool = False) -> tuple[float, float]:
    """Return the bytes that a GPU sends in a step and the seconds that it takes; `batch` is that of each GPU.

    DDP sums the gradients once. FSDP2 gathers every weight for each of the K calls, forward and backward, and sums the
    gradients of each call: 3 K halves of such a sum, of which it hides as much. Every process draws the random numbers
    of the whole batch, so that the result does not depend on n.
    """
    others = run.drawn(batch * (n - 1)) / links.numbers
    size, computing = 4 * run.parameters, max(batch / run.images, run.floor) + others
    halves = 3 * run.K if sharded else 2
    travelling = halves / 2 * exchange(size, n, links)
    return halves / 2 * sent(size, n), computing + max(0.0, travelling - OVERLAP * computing)


RUNS = (
    Run("face-128, 8.2 M", 8.2e6, 1036, 0.030),
    Run("paper's CelebA, 34.5 M", 34.5e6, 206, 0.040),
    Run("paper's AFHQ deblurring, 239 M", 239e6, 30, 0.060, side=256),
)


def tables() -> None:
    """Print weak scaling (the batch of a GPU stays) and strong scaling (the whole batch stays)."""
    links = Links()
    for run in RUNS:
        print(f"\n{run.name}")
        for n in COUNTS:
            bytes_sent, weak = step(run, 128, n, links)
            _, strong = step(run, 1024 / n, n, links)
            _, split = step(run, 128, n, links, sharded=n > 1)
            alone, whole = (step(run, batch, 1, links)[1] for batch in (128, 1024))
            print(
                f"| {n} | {bytes_sent / 1e6:.0f} MB | {1e3 * exchange(4 * run.parameters, n, links):.1f} ms | "
                f"{alone / weak:.2f} | {alone / split:.2f} | {whole / strong:.0f} | "
                f"{4 * run.drawn(128 * n) / 2**30:.1f} GB |"
            )
        print(f"a batch of 1,024 stops gaining at about {1024 / (run.floor * run.images):.0f} GPUs")


# Against gloo


def _member(rank: int, n: int, port: int, sizes: list[int], found: mp.Queue) -> None:
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=n)
    for size in sizes:
        values, times = torch.zeros(size // 4), []
        for _ in range(12):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(values)
            times.append(time.perf_counter() - start)
        if rank == 0:
            found.put((n, size, sorted(times)[3]))
    dist.destroy_process_group()


def measure() -> None:
    """Fit latency and bandwidth to two sizes with two processes, and predict another size, and four processes."""
    found: mp.Queue = mp.get_context("spawn").Queue()
    sizes, seconds = [4096, 1_000_000, 8_000_000, 33_000_000], {}
    for n in (2, 4):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        members = [mp.get_context("spawn").Process(target=_member, args=(i, n, port, sizes, found)) for i in range(n)]
        for member in members:
            member.start()
        for _ in sizes:
            count, size, took = found.get()
            seconds[count, size] = took
        for member in members:
            member.join()
    latency = seconds[2, sizes[0]] / 2
    bandwidth = sent(sizes[-1], 2) / (seconds[2, sizes[-1]] - 2 * latency)
    print(f"gloo, fitted: {1e6 * latency:.0f} us a message, {bandwidth / 1e9:.2f} GB/s")
    links = Links(inside=bandwidth, between=bandwidth, latency=latency, node=64)
    for (n, size), took in seconds.items():
        print(f"| {n} | {size / 1e6:.3g} MB | {1e3 * took:.2f} ms | {1e3 * exchange(size, n, links):.2f} ms |")
    steps(links)


def steps(links: Links, each: int = 4) -> None:
    """Compare training steps of one and two processes, each with a batch of its own, with the formula."""
    import firm

    with tempfile.TemporaryDirectory() as folder:
        images = firm.data.portrait().repeat(8, 1, 1, 1).numpy()
        np.save(f"{folder}/images.npy", images)
        found = {}
        for n in (1, 2):
            words = ["-m", "torch.distributed.run", "--nproc-per-node", str(n), "-m", "firm", "train", CONFIG]
            words += ["dataset=arrays", f"data={folder}/images.npy", f"out={folder}/{n}", f"batch_size={each * n}"]
            words += ["epochs=1", "steps_per_epoch=12", "log_every=1", "val_images=0", "val_data=", "max_minutes=0"]
            words += [
                "warm_start_epochs=0",
                "bf16=false",
                "read_size=0",
                "crop=center",
                "scale=[]",
                "cache=",
                "mixture=[]",
            ]
            subprocess.run([sys.executable, *words, "task=denoising"], check=True, capture_output=True,
                           env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})  # fmt: skip
            speeds = sorted(row["images/s"] for row in read_log(Path(folder) / str(n)) if "images/s" in row)
            found[n] = each * n / speeds[len(speeds) // 2]
    run = Run("face-128 on one core", 8.2e6, each / found[1], 0.0)
    links = dataclasses.replace(links, numbers=1e8)
    for n, took in found.items():
        print(f"| {n} processes | {took:.3f} s a step | model: {step(run, each, n, links)[1]:.3f} s |")


if __name__ == "__main__":
    measure() if "--measure" in sys.argv else tables()
