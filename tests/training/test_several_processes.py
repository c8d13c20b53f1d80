"""One, two and four processes train alike, and a run may go on with another number of them."""

import multiprocessing
import os
import signal
import socket
import sys

import pytest
import torch

from firm._util.machine import ranks
from firm.training.loop import train
from firm.training.trainer import Trainer
from helpers import same, weights
from firm.training.log import read_log

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks the processes, which costs no second import")


def _member(rank, world, port, config, stop_at, found):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "MASTER_ADDR": "localhost"}
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    if stop_at:
        advance = Trainer.advance

        def stopped(self):
            if self.step == stop_at - 1 and rank == 0:
                os.kill(os.getpid(), signal.SIGTERM)
            return advance(self)

        Trainer.advance = stopped
    with ranks("cpu") as r:
        found.put((rank, train(config, r, progress=False)["finished"]))


def together(world, config, stop_at=0):
    """Train in forked processes that join by gloo; returns whether the run has finished."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    members = [context.Process(target=_member, args=(i, world, port, config, stop_at, found)) for i in range(world)]
    for member in members:
        member.start()
    for member in members:
        member.join(240)
    assert [member.exitcode for member in members] == [0] * world
    return dict(found.get() for _ in members)[0]


def losses(run):
    return [row["loss"] for row in read_log(run) if "loss" in row]


def test_one_two_and_four_processes_have_the_same_losses(make, tmp_path):
    found = {}
    for world in (1, 2, 4):
        together(world, make("epochs=5", "val_images=0", "log_every=1", out=str(world)))
        found[world] = losses(tmp_path / str(world))
        assert len(found[world]) == 50
    for world in (2, 4):
        assert found[world] == pytest.approx(found[1], rel=1e-6)
    assert found[1][-1] < 0.9 * found[1][0]


def test_a_run_goes_on_with_another_number_of_processes(make, tmp_path):
    """1 to 2 to 1: the same batches and seeds, so that only the sums of the gradients are rounded differently."""
    settings = ("epochs=3", "val_images=0", "log_every=1")
    together(1, make(*settings, out="alone"))
    changing = make(*settings, out="changing")
    assert not together(1, changing, stop_at=9)
    assert not together(2, changing, stop_at=19)
    assert together(1, changing)
    alone, changed = (losses(tmp_path / name) for name in ("alone", "changing"))
    assert len(changed) == 30
    assert changed == pytest.approx(alone, rel=1e-6)
    kept = make(*settings, out="kept")
    assert not together(1, kept, stop_at=9)
    assert together(1, kept)
    assert same(weights(tmp_path / "alone"), weights(tmp_path / "kept"))  # to the bit, where their number stays
