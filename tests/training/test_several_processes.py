"""One, two and four processes train alike, and a run may go on with another number of them."""

import contextlib
import multiprocessing
import os
import queue
import signal
import socket
import sys
import tarfile

import pytest
import torch
from helpers import same, weights

from firm._util.machine import Ranks, ranks
from firm.training.config import ConfigError
from firm.training.feed import load_sets
from firm.training.log import read_log
from firm.training.loop import train
from firm.training.sharded import local
from firm.training.trainer import Trainer

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
    """Train in several processes; returns whether the run has finished."""
    return dict(start(world, _member, config, stop_at))[0]


def start(world, target, *args):
    """Run a function in forked processes that join by gloo, with arguments; returns what they found."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    members = [context.Process(target=target, args=(i, world, port, *args, found)) for i in range(world)]
    for member in members:
        member.start()
    results = []
    while len(results) < world:
        with contextlib.suppress(queue.Empty):
            results.append(found.get(timeout=1))
        assert not any(member.exitcode for member in members)
    for member in members:
        member.join()
    return results


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


def test_split_weights_train_as_whole_ones(make, tmp_path):
    """FSDP2: the losses of one process, and a model and checkpoints that are whole: it goes on without splitting."""
    settings = ("epochs=2", "val_images=2", "val_steps=[1]", "log_every=1", "validate_every=20")
    together(1, make(*settings, out="alone"))
    split = make(*settings, "shard=true", out="split")
    assert not together(2, split, stop_at=9)
    assert not together(1, split, stop_at=12)
    assert together(2, split)
    alone, shared = (losses(tmp_path / name) for name in ("alone", "split"))
    assert len(shared) == 20
    assert shared == pytest.approx(alone, rel=1e-6)
    one, two = (weights(tmp_path / name) for name in ("alone", "split"))
    assert max(float((one[key] - two[key]).abs().max()) for key in one) < 1e-5


def _shares(rank, world, port, config, images, found):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "MASTER_ADDR": "localhost"}
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    with ranks("cpu") as r:
        trainer = Trainer(config, r, images)
        trainer.advance()
        held = [local(v) for o in trainer.optimizers for state in o.state.values() for v in state.values() if v.ndim]
        held += [local(p) for net in (trainer.net, trainer.average) for p in net.parameters()]
        found.put(sum(v.numel() for v in held))
        trainer.state()


def test_each_process_holds_its_share(make, make_trainer):
    config = make("shard=true")
    trainer = make_trainer()
    held = start(2, _shares, config, load_sets(config, False)[0])
    total = 4 * sum(p.numel() for p in trainer.net.parameters())  # weights, their average, two moments
    assert sum(held) == total
    assert max(held) < 0.6 * total


def test_shards_are_shared_among_processes(make, pictures, tmp_path):
    """1 to 2 to 1: every image of every batch is read by one process, the same as by one alone."""
    (tmp_path / "shards").mkdir()
    files = sorted(pictures.iterdir())
    for n in range(0, len(files), 20):
        with tarfile.open(tmp_path / "shards" / f"{n}.tar", "w") as tar:
            for file in files[n : n + 20]:
                tar.add(file, file.name)
    data = ("dataset=shards", f"data={tmp_path / 'shards'}", "shuffle=10", "val_images=4", "val_steps=[1]")
    settings = (*data, "epochs=2", "log_every=1", "crop=random", "read_size=20")
    together(1, make(*settings, out="alone"))
    changing = make(*settings, out="changing")
    assert not together(1, changing, stop_at=7)
    assert not together(2, changing, stop_at=14)
    assert together(1, changing)
    alone, changed = (losses(tmp_path / name) for name in ("alone", "changing"))
    assert len(changed) == 20
    assert changed == pytest.approx(alone, rel=1e-6)
    kept = make(*settings, out="kept")
    assert not together(1, kept, stop_at=9)
    assert together(1, kept)
    assert same(weights(tmp_path / "alone"), weights(tmp_path / "kept"))
    (tmp_path / "shards" / "0.tar").unlink()
    with pytest.raises(ConfigError, match="does not hold the images"):
        train(kept, Ranks(0, 1, torch.device("cpu")), progress=False)
