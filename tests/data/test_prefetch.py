"""Batches read ahead: in order, the same from any step, never too many, and errors come through."""

import gc
import threading
import time

import pytest
import torch

from firm.data import Images, Prefetcher


def images(n=20, dtype=torch.uint8):
    return Images((torch.rand(n, 2, 4, 4) * 255).to(dtype), [str(i) for i in range(n)])


def indices(step):
    return torch.randint(0, 20, (5,), generator=torch.Generator().manual_seed(step))


def until(condition):
    """Wait for another thread, ten seconds at most."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("first", [0, 13])
def test_batches_come_in_order_from_any_step(dtype, first):
    data = images(dtype=dtype)
    with Prefetcher(data, indices, first) as batches:
        for step in range(first, first + 10):
            batch = batches.get(step)
            assert torch.equal(batch, data.data[indices(step)])
            assert batch.dtype == dtype
            assert batch.is_contiguous()
            assert batch.is_pinned() == torch.cuda.is_available()


def test_it_reads_ahead_but_never_more_than_depth():
    asked = []

    def count(step):
        asked.append(step)
        return indices(step)

    with Prefetcher(images(), count, 5, depth=3) as batches:
        assert until(lambda: len(asked) == 3)
        time.sleep(0.05)
        assert asked == [5, 6, 7]  # no fourth before one is taken
        batches.get(5)
        assert until(lambda: len(asked) == 4)
        time.sleep(0.05)
        assert asked == [5, 6, 7, 8]


def test_steps_out_of_order_and_no_depth():
    with pytest.raises(ValueError, match="depth must be at least 1"):
        Prefetcher(images(), indices, depth=0)
    with Prefetcher(images(), indices, 4) as batches:
        with pytest.raises(ValueError, match="step 4 is next, not 5; make a new Prefetcher"):
            batches.get(5)
        batches.get(4)
        with pytest.raises(ValueError, match="step 5 is next, not 4"):
            batches.get(4)


def test_errors_of_the_thread_are_raised_where_they_belong():
    def wrong(step):
        return torch.tensor([99]) if step == 2 else indices(step)

    data = images()
    with Prefetcher(data, wrong) as batches:
        assert until(lambda: batches._ahead[2].done())
        for step in range(2):
            assert torch.equal(batches.get(step), data.data[indices(step)])
        for _ in range(2):
            with pytest.raises(IndexError):
                batches.get(2)


def test_closing_ends_the_thread():
    batches = Prefetcher(images(), indices)
    batches.get(0)
    (thread,) = batches._pool._threads
    batches.close()
    batches.close()
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        batches.get(1)
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), Prefetcher(images(), indices):
        raise ZeroDivisionError
    assert threading.active_count() == before


def test_a_forgotten_one_ends_too():
    batches = Prefetcher(images(), indices)
    (thread,) = batches._pool._threads
    del batches
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
