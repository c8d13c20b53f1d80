"""Pictures restored on Ray: a stage of Ray Data whose actors hold the model, on one machine or a cluster.

The process that starts it decides what is left to do and writes restore.json; the actors write the results. All see one
file system. Ray gives what a lost actor had in hand to another one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from firm._util.checks import is_whole, require
from firm._util.custom import USERS
from firm._util.extras import extra
from firm.restoration.earlier import Row
from firm.restoration.run import Engine, Job, attempt

WHAT = "Restoring on Ray"


class Restorer:
    """What an actor is: it holds the model, and restores the pictures that it is given."""

    def __init__(self, job: Job, device: str, root: str) -> None:
        os.chdir(root)  # paths may be relative
        torch.set_num_threads(1)
        self.device = torch.device(device)
        self.job = replace(job, model=job.model.to(self.device), bars=False)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Restore a batch of pictures, ``name`` and ``path``; the rows of restore.json come back as text."""
        names, paths = (list(map(str, batch[key])) for key in ("name", "path"))
        rows = [attempt(self.job, Path(path), name, self.device) for name, path in zip(names, paths, strict=True)]
        return {"name": names, "row": [json.dumps(row) for row in rows]}


def on_ray(actors: int) -> Engine:
    """Return what has `restore_files` share its pictures among actors of Ray.

    Ray is started on this machine unless it runs already, or RAY_ADDRESS says where; every actor has a processor core,
    or a GPU where the model is on one.

    Parameters
    ----------
    actors
        How many of them, each with a copy of the model.
    """
    require(is_whole(actors, 1), f"Ray needs at least one actor, got {actors!r}")
    ray, data = extra("ray", WHAT, "ray"), extra("ray.data", WHAT, "ray")

    def run(job: Job, left: Sequence[tuple[str, Path]], device: torch.device) -> Iterator[tuple[str, Row]]:
        if not left:
            return
        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False)
        pickling = extra("ray.cloudpickle", WHAT, "ray")
        for module in [m for name, m in sys.modules.items() if name.startswith(USERS)]:
            pickling.register_pickle_by_value(module)  # the actors could not import them
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        # Blocks of a few pictures: what is finished is reported soon, and little is done twice.
        most = max(1, min(16, len(left) // (4 * actors)))
        items = data.from_items(
            [{"name": name, "path": str(path)} for name, path in left], override_num_blocks=-(-len(left) // most)
        )
        plain = replace(job, model=job.model.to("cpu"), bars=False)
        rows = items.map_batches(
            Restorer, fn_constructor_args=(plain, device.type, os.getcwd()), batch_size=None, num_cpus=1,
            num_gpus=1 if device.type == "cuda" else 0, compute=data.ActorPoolStrategy(size=actors),
        )  # fmt: skip
        for found in rows.iter_rows():
            yield found["name"], json.loads(found["row"])

    return run
