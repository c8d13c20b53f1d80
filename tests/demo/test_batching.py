"""Pictures that are restored together: the same as alone, whatever their tasks, and none pays for another."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image

import firm
from firm._sampling import sample
from firm.demo import batching
from firm.demo.batching import Batcher, Job, restore_together
from firm.demo.jobs import CanceledError
from firm.demo.models import Models
from firm.demo.request import Limits, Request
from firm.demo.restorer import Restorer


@pytest.fixture(scope="module")
def restorer(tmp_path_factory):
    torch.manual_seed(0)
    net = firm.networks.ResUNet(3, widths=(8, 16), blocks=1, noise_level=True)
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    firm.Firm(net, firm.Solver(K=2, output="correction"), {"name": "tiny", "depths": [1, 2]}).save(path)
    return Restorer(Models([str(path)], torch.device("cpu"), "float32"), Limits())


@pytest.fixture
def job(restorer, tmp_path):
    """Make a job of the picture of a seed; `settings` are those of the request."""

    def make(seed, side=32, **settings):
        pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
        folder = tmp_path / f"{seed}-{side}-{len(settings)}"
        folder.mkdir()
        Image.fromarray(pixels).save(folder / "picture.png")
        request = Request(
            folder / "picture.png", "picture.png", restorer.models.names[0], noise=10.0, seed=seed, **settings
        )
        return Job(request, restorer.prepare(request, folder))

    return make


def alone(job):
    """What the library makes of a picture, without this file."""
    problem, prepared = job.prepared.problem, job.prepared
    generator = torch.Generator().manual_seed(job.request.seed)
    x = sample(prepared.model, problem.op, problem.y, prepared.steps, sigma=problem.sigma, generator=generator)
    return problem.finish(x)[0]


def test_pictures_of_different_tasks_are_restored_together(job, tmp_path):
    mask = tmp_path / "mask.png"
    Image.fromarray(np.eye(64, dtype=np.uint8) * 255).save(mask)
    jobs = [job(1, side=64), job(2, side=64), job(3, side=64, trouble="holes", mask=mask)]
    jobs.append(job(4, side=16, trouble="small"))  # of 32x32 pixels, and 16 around them
    assert len({j.kind for j in jobs}) == 1
    together = restore_together(jobs)
    for one, image in zip(jobs, together, strict=True):
        assert image.shape == ((3, 32, 32) if one is jobs[3] else (3, 64, 64))
        assert torch.allclose(image, alone(one), atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=0.1)
    (single,) = restore_together(jobs[:1])
    assert torch.equal(single, alone(jobs[0]))


def test_what_a_batch_must_share(job):
    assert job(1).kind == job(2).kind
    assert len({j.kind for j in (job(3), job(4, side=48), job(5, steps=3), job(6, iterations=1))}) == 4


class Held:
    """Restores nothing until it is let go, and notes which jobs came together."""

    def __init__(self):
        self.batches, self.busy, self.free = [], threading.Event(), threading.Event()

    def __call__(self, jobs, minutes):
        self.batches.append([job.request.seed for job in jobs])
        self.busy.set()
        assert self.free.wait(30)
        if any(job.request.seed == 13 for job in jobs):
            raise ValueError("unlucky")
        return [torch.full((1,), float(job.request.seed)) for job in jobs]


@pytest.fixture
def held(monkeypatch):
    work = Held()
    monkeypatch.setattr(batching, "restore_together", work)
    yield work
    work.free.set()


def test_who_comes_while_others_are_computed_is_computed_together(job, held):
    sizes = []
    batcher = Batcher(3, 1.0, sizes.append)
    first = batcher.submit(job(1))
    assert held.busy.wait(30)
    others = [batcher.submit(job(n, side=48 if n == 3 else 32)) for n in (2, 3, 4, 5, 6)]
    assert batcher.waiting == 5
    held.free.set()
    assert [float(f.result(30)) for f in (first, *others)] == [1, 2, 3, 4, 5, 6]
    assert held.batches == [[1], [2, 4, 5], [3], [6]]
    assert sizes == [1, 3, 1, 1]
    batcher.close()
    assert not batcher.alive
    with pytest.raises(RuntimeError, match="ending"):
        batcher.submit(job(7))


def test_one_that_fails_is_the_only_one(job, held):
    batcher = Batcher(8, 1.0)
    batcher.submit(job(1))
    assert held.busy.wait(30)
    futures = [batcher.submit(job(n)) for n in (12, 13, 14)]
    held.free.set()
    assert float(futures[0].result(30)) == 12
    assert float(futures[2].result(30)) == 14
    with pytest.raises(ValueError, match="unlucky"):
        futures[1].result(30)
    batcher.close()


def test_what_nobody_waits_for_is_not_computed_and_what_waits_at_the_end_is(job, held):
    batcher = Batcher(8, 1.0)
    batcher.submit(job(1))
    assert held.busy.wait(30)
    left, kept = job(2), job(3)
    batcher.submit(left)
    batcher.submit(kept)
    left.gone.set()
    held.free.set()
    batcher.close()
    assert held.batches == [[1], [3]]
    assert float(kept.done.result(0)) == 3


def test_a_batch_ends_when_all_have_gone(job):
    jobs = [job(1), job(2)]
    jobs[0].gone.set()
    assert len(restore_together(jobs)) == 2
    jobs[1].gone.set()
    with pytest.raises(CanceledError):
        restore_together(jobs)
