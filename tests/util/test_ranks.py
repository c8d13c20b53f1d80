"""Several processes: how they join."""

from datetime import timedelta

import torch.distributed as dist

from firm._util.machine import ranks


def test_the_processes_wait_long_for_each_other(monkeypatch):
    """For a validation on the main one, say; NCCL's own patience is 10 minutes, and ends the run."""
    joined = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **how: joined.append((backend, how)))
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    for name in ("barrier", "destroy_process_group"):
        monkeypatch.setattr(dist, name, lambda: None)
    with ranks("cpu") as r:
        assert (r.rank, r.world) == (1, 2)
    ((backend, how),) = joined
    assert backend == "gloo"
    assert how["timeout"] >= timedelta(hours=12)
