"""The user's own code that a run trains with: a run does not go on with code that was edited meanwhile."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from firm._util.custom import code_digest, is_custom
from firm._util.files import write_atomically
from firm.tasks import task_class
from firm.training.config import TrainConfig
from firm.training.errors import ConfigError
from firm.training.objectives import objective_class

CODE = "code.json"  # beside config.yaml: for each class of the user's own a hash of its file


def write_code(out: Path, config: TrainConfig) -> None:
    """Note the code that a run trains with; nothing where all of it is the library's."""
    digests = {name: code_digest(kind) for name, kind in _classes(config).items()}
    own = {name: digest for name, digest in digests.items() if digest}
    if own:
        write_atomically(out / CODE, json.dumps(own, indent=1))


def refuse_edited_code(out: Path, config: TrainConfig) -> None:
    """Check that the code is that of the run in this folder; one from before there was this file goes on."""
    path = out / CODE
    if not path.is_file():
        return
    try:
        before = json.loads(path.read_bytes())
        if not isinstance(before, dict):
            raise ValueError("not a set of names")
    except (ValueError, OSError, RecursionError) as error:
        raise ConfigError(
            f"{path}, which tells the code of the run in this folder, cannot be read: choose another out=, or delete "
            "that file if you are sure that your code is the same"
        ) from error
    for name, kind in _classes(config).items():
        if name in before and before[name] != code_digest(kind):
            raise ConfigError(
                f"{inspect.getfile(kind)} has been edited since the run in {out} was trained with its {kind.__name__}: "
                f"undo the edit to go on, or {ways_on(out)}"
            )


def ways_on(out: Path) -> str:
    """What to do with the training in a folder once its code has been mended.

    The state of a run knows its steps and weights, not its code: without the hashes it goes on with that of now.
    """
    return (
        f"start from its weights with init_from={out / 'model.safetensors'} and another out=; or, if the edit does not "
        "change what is trained, as in a validation that is mended, "
        f"delete {out / CODE} and give the same command again"
    )


def _classes(config: TrainConfig) -> dict[str, type]:
    """The classes of the tasks, the objective and the network, by their names in the configuration."""
    objective = objective_class(config.objective)
    named: dict[str, type] = {config.objective: objective}
    network, _ = config.network_arguments()
    if network is not None and is_custom(network):
        named[network] = config.network_class()
    tasks = [str(entry["name"]) for entry in config.tasks()] if objective.measures else []
    return named | {name: task_class(name) for name in tasks}
