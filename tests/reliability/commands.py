"""What the attacks share: the command line as a user has it, small pictures, a small training run and a small model."""

from __future__ import annotations

import functools
import os
import pkgutil
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

CONFIG = """
dataset: folder
size: 16
network: {ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4, time_scale: 100}
K: 2
batch_size: 8
epochs: 3
steps_per_epoch: 20
warm_start_epochs: 1
ema_from_epoch: 1
lr: 2e-3
lr_end: 1e-5
val_images: 2
bf16: false
validate_every: 0
checkpoint_every: 5
log_every: 5
seed: 7
"""
Result = tuple[int, int, list[str]]  # how many held, of how many, what went wrong


def command_line(*arguments: object) -> list[str]:
    """``firm`` with these arguments."""
    return [sys.executable, "-m", "firm", *map(str, arguments)]


def environment() -> dict[str, str]:
    """That of the commands: one core each."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def firm_command(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run ``firm`` as a user does."""
    command = command_line(*arguments)
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment())


class Done(NamedTuple):
    """How a command ended that was watched."""

    code: int  # negative if it was killed, as for taking too long
    text: str
    seconds: float
    megabytes: float  # of memory, at most
    opened: list[str]  # files outside of Python and firm, and the programs and connections that it began

    def problem(self) -> str:
        """What no command should do; empty if it ended well, or said in a sentence why not."""
        hung, strange = "it did not end", f"it says no sentence: {self.text[-300:]}"
        return hung if self.code < 0 else strange if self.code > 2 or "Traceback" in self.text else ""


def watched(*arguments: object, seconds: float = 300) -> Done:
    """Run ``firm`` in a fork of this process, which has imported it: that takes tenths of a second.

    Before it, this process must not have computed with more than one thread. ``-c CODE ...`` runs code instead.
    """
    usual = _imported()
    with tempfile.TemporaryFile("w+", errors="replace") as text, tempfile.TemporaryFile("w+") as opened:
        start, ended, code, usage = time.monotonic(), 0, 0, None
        child = os.fork()
        if child == 0:
            _become(list(map(str, arguments)), text.fileno(), opened.fileno(), usual)
        while not ended:
            time.sleep(0.01)
            ended, code, usage = os.wait4(child, os.WNOHANG)
            if not ended and time.monotonic() > start + seconds:
                os.killpg(child, signal.SIGKILL)
        text.seek(0)
        opened.seek(0)
        words = " ".join(re.sub("[│─╭╮╯╰]", " ", text.read()).split())
        taken, megabytes = time.monotonic() - start, usage.ru_maxrss / 1000 if usage else 0.0
        return Done(os.waitstatus_to_exitcode(code), words, taken, megabytes, opened.read().split("\0")[:-1])


@functools.cache
def _imported() -> tuple[str, ...]:
    """Import what commands import; the folders of it, and others that any program reads from."""
    import firm

    modules = [module.name for module in pkgutil.walk_packages(firm.__path__, "firm.") if ".demo" not in module.name]
    for name in (*modules, "h5py", "lpips", "torch.utils.tensorboard"):
        with suppress(ImportError):  # of what is not installed
            import_module(name) if not name.endswith("__main__") else None
    import_module("torch").set_num_threads(1)
    folders = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", sys.prefix, sys.base_prefix)
    return (*folders, str(Path(firm.__file__).parents[2]))


def _become(arguments: list[str], out: int, opened: int, usual: tuple[str, ...]) -> None:
    """Be the command, and end with it; note what it opens."""
    from firm.cli import app

    def note(event: str, about: tuple[Any, ...]) -> None:
        started = event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "socket.connect")
        if started or (event == "open" and isinstance(about[0], str)):
            name = f"{event} {about[:2]}" if started else about[0]
            if not name.startswith(usual):
                os.write(opened, f"{name}\0".encode(errors="replace"))

    os.setsid()
    os.environ["COLUMNS"] = "2000"  # sentences stay in a line
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.addaudithook(note)
    script = arguments[:1] == ["-c"]
    sys.argv, code = ["firm", *arguments[2 * script :]], 0
    try:
        exec(arguments[1], {"app": app}) if script else app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 3
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def begin(arguments: Sequence[object]) -> subprocess.Popen[bytes]:
    """Start ``firm``, and do not wait."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command_line(*arguments), stdout=quiet, stderr=quiet, env=environment())


def pictures(folder: Path, count: int, side: int, rng: random.Random) -> Path:
    """Smooth random pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        coarse = np.frombuffer(rng.randbytes(48), np.uint8).reshape(4, 4, 3)
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(folder / f"{i:03d}.png")
    return folder


def tiny_config(folder: Path, rng: random.Random, more: str = "") -> Path:
    """The settings of a run of 60 steps, and its pictures."""
    data = pictures(folder / "data", 16, 20, rng)
    path = folder / "tiny.yaml"
    path.write_text(CONFIG + f"data: {data}\n{more}")
    return path


def tiny_model(path: Path) -> Path:
    """A network that is not trained, for every noise level."""
    import firm
    from firm.networks import UNet

    net = UNet(3, side=16, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, noise_level=True)
    card = {"channels": 3, "size": 16, "trained_for": [{"name": "denoising", "sigma": [0.0, 1.0]}]}
    firm.Firm(net, firm.Solver(K=1), card).save(path)
    return path
