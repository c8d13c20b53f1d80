"""What tests share: the dense solve, which is the independent oracle, small models, and commands."""

import math
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import firm
from firm._util.files import folder_lock
from firm.operators.compose import Repeated
from firm.tasks.deblurring import valid_blur


def dense(op, image_shape: tuple[int, ...], batch: int) -> Tensor:
    """A of each sample as a real matrix, (B, m, n): its columns are the measurements of the unit images."""
    n = torch.Size(image_shape).numel()
    columns = []
    for i in range(n):
        unit = torch.zeros(batch, n, dtype=torch.float64)
        unit[:, i] = 1
        measured = op.A(unit.reshape(batch, *image_shape)).flatten(1)
        columns.append(torch.cat([measured.real, measured.imag], 1) if measured.is_complex() else measured)
    return torch.stack(columns, dim=2)


def dense_solve(op, z: Tensor, y: Tensor, rho) -> Tensor:
    """(A'A + rho I)^-1 (A'y + rho z) of each sample, in float64."""
    z, y = z.double(), y.to(torch.complex128) if y.is_complex() else y.double()
    matrix = dense(op.double(), tuple(z.shape[1:]), len(z))
    flat = torch.cat([y.flatten(1).real, y.flatten(1).imag], 1) if y.is_complex() else y.flatten(1)
    rho = torch.as_tensor(rho, dtype=torch.float64).expand(len(z))
    solutions = []
    for a, b, c, r in zip(matrix, flat, z.flatten(1), rho, strict=True):
        solutions.append(torch.linalg.solve(a.T @ a + r * torch.eye(a.shape[1], dtype=torch.float64), a.T @ b + r * c))
    return torch.stack(solutions).reshape(z.shape)


def relative_error(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


def stirred(net, scale=0.1):
    """The network with every weight disturbed: some are almost 0 at the start."""
    for p in net.parameters():
        p.data += scale * torch.randn_like(p)
    return net


def images_and_levels(batch=2, side=8, dtype=torch.float64):
    return torch.rand(batch, 3, side, side, dtype=dtype) * 2 - 1, torch.linspace(0.05, 0.25, batch, dtype=dtype)


def rand(*size, seed=0):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed))


def randn(*size, seed=0, dtype=torch.float64):
    return torch.randn(size, dtype=dtype, generator=torch.Generator().manual_seed(seed))


class Shrink(nn.Module):
    """An estimator that needs no training."""

    def forward(self, x, x_t, t):
        return 0.9 * x + 0.05 * x_t


class Counted(nn.Module):
    """A network that counts its calls: ``forwards``, and ``backwards``, the times a gradient went back through one.

    On a GPU, where steps are recorded and replayed, it counts what was recorded; count on the CPU.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.config: dict = getattr(net, "config", {})
        self.stride = getattr(net, "stride", 1)
        self.forwards = self.backwards = 0

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the network."""
        self.forwards += 1
        out: Tensor = self.net(*inputs)
        if out.requires_grad:
            out.register_hook(self._back)
        return out

    def _back(self, gradient: Tensor) -> None:
        self.backwards += 1


class Watch(TorchDispatchMode):
    """Notes every operation of torch within it; `waits` are those that read values back from the device.

    A CUDA graph cannot hold those: it needs every shape beforehand, and nothing may wait.
    """

    def __init__(self):
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.add(function._schema.name)
        return function(*args, **(kwargs or {}))

    def waits(self) -> set[str]:
        reading = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero")
        return self.seen & {f"aten::{name}" for name in reading}


def says(output: str, message: str) -> bool:
    """Whether printed output holds a message, wherever the terminal's frame broke its lines."""
    return "".join(message.split()) in "".join(output.replace("│", " ").split())


def save_pictures(root: Path, count: int, size: tuple[int, int] = (16, 16)) -> Path:
    """Smooth random color pictures 000.png, 001.png, ..."""
    root.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for i in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        coarse.resize(size, Image.Resampling.BICUBIC).save(root / f"{i:03d}.png")
    return root


def save_celeba(root: Path) -> Path:
    """Four smooth random pictures in CelebA's layout, the last two for testing."""
    faces = root / "img_align_celeba"
    faces.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for i in range(4):
        coarse = Image.fromarray(generator.integers(0, 256, (5, 4, 3), dtype=np.uint8))
        coarse.resize((178, 218), Image.Resampling.BICUBIC).save(faces / f"{i:06d}.jpg")
    split = [f"{i:06d}.jpg {2 if i > 1 else 0}" for i in range(4)]
    (root / "list_eval_partition.txt").write_text("\n".join(split) + "\n")
    return root


def run_two_processes(*command) -> None:
    """Run a program, or ``-m firm train FILE``, in two processes that share their work."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    words = [*torchrun, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", *map(str, command)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr  # of a library: the user cannot do anything about it


def call(*arguments):
    """Run a command of ``firm`` in this process."""
    from typer.testing import CliRunner

    from firm.cli import app

    return CliRunner().invoke(app, [str(a) for a in arguments])


def tells(message: str, *arguments, code: int = 2) -> None:
    """Run a command of ``firm`` that fails with this exit code and says this, without a traceback."""
    done = call(*arguments)
    assert done.exit_code == code, done.output
    assert isinstance(done.exception, SystemExit)
    assert says(done.output, message), done.output
    assert "Traceback" not in done.output


def weights(run: Path, name: str = "model") -> dict[str, Tensor]:
    """Of the network that a training run has saved."""
    return firm.load(run / f"{name}.safetensors").estimator.state_dict()


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether weights are equal to the bit."""
    return all(torch.equal(a[key], b[key]) for key in a)


def tiny_model(path: Path, trained_for: list[dict], **card) -> Path:
    """Save a model of two iterations with random weights: quick, and good enough to see that pictures pass through."""
    torch.manual_seed(0)
    net = firm.UNet(3, side=32, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, unshuffle=2, noise_level=True)
    for p in net.parameters():
        p.data = torch.randn(p.shape) * 0.05
    firm.Firm(net, firm.Solver(K=2, output="correction"), {"trained_for": trained_for, **card}).save(path)
    return path


def interpreted(test: str) -> None:
    """Run a test's file as a program in Triton's interpreter, which needs no GPU; what fails there fails here.

    Triton decides on import whether to interpret, and torch may have imported it: another process.
    """
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, test], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def recordable(seed):
    """One of each kind that is recorded as a part of Algorithm 3, and its measurements, different for every seed."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(2, 3, 32, 32, generator=generator) * 2 - 1
    kernel = firm.operators.gaussian_kernel(5, 0.5 + 0.1 * seed)
    masks = (torch.rand(2, 1, 32, 32, generator=generator) < 0.5).float()
    spectrum = firm.operators.cartesian_mask((32, 32), 12, generator)
    ops = {
        "identity": firm.operators.Identity(),
        "mask": firm.operators.Mask(masks[0, 0]),
        "masks": firm.operators.Mask(masks),
        "blur": firm.operators.Blur(kernel),
        "valid blur": valid_blur(kernel),
        "subsample": firm.operators.Subsample(2),
        "downsample": firm.operators.Downsample(2, "bicubic"),
        "fourier": firm.operators.Fourier(spectrum),
        "repeated": Repeated(firm.operators.Mask(masks), 2),
        "in another batch": Repeated(firm.operators.Mask(masks[:1]), 1),
    }
    return {key: (op, op.A(x) + 0.01) for key, op in ops.items()}


@contextmanager
def held_by_another(folder, command="firm evaluate of somebody else"):
    """Hold a folder as another command that runs would."""
    taken, done = threading.Event(), threading.Event()

    def hold():
        with folder_lock(folder, command):
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(10)
    try:
        yield
    finally:
        done.set()
        thread.join()


def cells(side: int, seed: int = 0) -> np.ndarray:
    """Nuclei, filaments and spots as a microscope shows them, (side, side), from 0 to about 1."""
    drawn = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side].astype(float)
    image = np.zeros((side, side))

    def bump(at: np.ndarray, width: float, height: float) -> None:
        (i, j), reach = at.round().astype(int), math.ceil(4 * width)
        near = slice(max(i - reach, 0), max(i + reach + 1, 0)), slice(max(j - reach, 0), max(j + reach + 1, 0))
        image[near] += height * np.exp(-((y[near] - at[0]) ** 2 + (x[near] - at[1]) ** 2) / (2 * width**2))

    for _ in range(side * side // 8000 + 1):  # nuclei
        at, radius = drawn.uniform(0, side, 2), drawn.uniform(12, 26)
        edge = ((np.hypot(y - at[0], x - at[1]) / radius - 1) * 8).clip(-50, 50)
        image += drawn.uniform(0.2, 0.6) / (1 + np.exp(edge))
    for _ in range(side // 16):  # filaments
        at, turn, height = drawn.uniform(0, side, 2), drawn.uniform(0, 6.3), drawn.uniform(0.04, 0.16)
        for _ in range(120):
            turn += 0.08 * drawn.normal()
            at = at + np.array([math.sin(turn), math.cos(turn)])
            bump(at, 1.3, height)
    for _ in range(side // 5):  # spots
        bump(drawn.uniform(0, side, 2), drawn.uniform(1.0, 1.8), drawn.uniform(0.2, 1.0))
    return image / np.quantile(image, 0.999)
