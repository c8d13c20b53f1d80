"""Going on after crashes, damage and full disks: nothing lost, nothing silent."""

import dataclasses
import os
import pickle
import random
import shutil
import warnings

import numpy as np
import pytest
import torch
import yaml
from helpers import run_two_processes, same, tells, weights

import firm
from firm._util.machine import Ranks
from firm.training.config import ConfigError, dump_config
from firm.training.objectives import TrainingError
from firm.training.run_folder import Checkpoints, _sealed
from firm.training.trainer import Trainer

RANK = Ranks(0, 1, torch.device("cpu"))


@pytest.fixture
def states(make_trainer, tmp_path):
    """A trainer, and its checkpoints of steps 5 and 10."""
    trainer = make_trainer("objective=balanced")
    checkpoints = Checkpoints(tmp_path / "checkpoints", trainer.config.network_about(), keep=2)
    trainer.advance()
    for trainer.step in (5, 10):
        checkpoints.save(trainer.state())
    return trainer, checkpoints


# The model and the checkpoint agree


def test_a_finished_run_writes_the_model_that_is_missing_or_damaged(short, tmp_path, monkeypatch, fit, make_trainer):
    path, save = tmp_path / "run" / "model.safetensors", Trainer.save

    def killed(self, path):
        if self.step == 4:
            raise KeyboardInterrupt
        save(self, path)

    monkeypatch.setattr(Trainer, "save", killed)  # between the last checkpoint and the model
    with pytest.raises(KeyboardInterrupt):
        fit(short)
    monkeypatch.setattr(Trainer, "save", save)
    assert firm.load(path).card["steps"] == 2
    assert fit(short)["steps_now"] == 0
    assert firm.load(path).card["steps"] == 4
    right, written = weights(tmp_path / "run"), path.stat().st_mtime_ns
    fit(short)
    assert path.stat().st_mtime_ns == written  # what agrees is left alone
    trainer = make_trainer(short)
    trainer.step = 4
    for spoil in (path.unlink, lambda: path.write_bytes(path.read_bytes()[:-1000]), lambda: trainer.save(path)):
        spoil()
        fit(short)
        assert same(weights(tmp_path / "run"), right)


def test_leftovers_of_killed_processes_are_removed_and_nothing_else(short, tmp_path, fit):
    names = [f"{folder}.firm-0123456789abcde{i}.tmp" for i, folder in enumerate(["", "checkpoints/", "validation/"])]
    others = ["notes.tmp", ".mine.tmp", ".report.2024.tmp", "checkpoints/step_5.pt.tmp"]
    for name in [*names, *others]:
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_bytes(b"half")
    fit(short)
    assert not any((tmp_path / "run" / name).exists() for name in names)
    assert all((tmp_path / "run" / name).exists() for name in others)


# Damage is noticed


def test_a_flipped_bit_anywhere_in_a_checkpoint_is_noticed(states):
    trainer, checkpoints = states
    path, generator = checkpoints.path(10), random.Random(0)
    whole = path.read_bytes()
    for place in [*generator.sample(range(len(whole)), 200), *range(len(whole) - 110, len(whole))]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            checkpoints.read(10)
    for length in (0, 10, 1000, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged"):
            checkpoints.read(10)
    with pytest.warns(UserWarning, match=r"step_000000010.pt is passed over: .*cut short"):
        assert checkpoints.latest(trainer.restore) == 5
    assert trainer.step == 5


def test_a_checkpoint_runs_no_code(states, tmp_path):
    """A pickle that would make a file, with a digest that holds."""

    class Payload:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    trainer, checkpoints = states
    checkpoints.path(10).write_bytes(_sealed({**checkpoints.read(10), "elapsed": Payload()}))
    with pytest.warns(UserWarning, match="passed over: UnpicklingError"):
        assert checkpoints.latest(trainer.restore) == 5
    assert not (tmp_path / "sprung").exists()
    assert pickle.dumps(Payload())


def first(tensors):
    return next(iter(tensors.values()))


def change(key, value):
    return lambda state: state.__setitem__(key, value)


SPOILT = {
    "lacks best": lambda state: state.pop("best"),
    "tensors of its net": lambda state: state["net"].pop(next(iter(state["net"]))),
    "tensors of its average": lambda state: change(next(iter(state["average"])), torch.zeros(1))(state["average"]),
    "tensors of its balance": lambda state: change("error", torch.zeros(3))(state["balance"]),
    "of step 1000000000": change("step", 10**9),
    "its step, ten": change("step", "ten"),
    "its step, 7": change("step", 7),
    "of step 10, nan seconds": change("elapsed", float("nan")),
    "NaN or infinite": lambda state: first(state["net"])[0].fill_(float("nan")),
    "numbers that are NaN": lambda state: first(state["optimizers"][0]["state"])["exp_avg"].fill_(float("inf")),
    "its optimizers": change("optimizers", []),
    "optimizers are not": lambda state: change("exp_avg", torch.zeros(2, 2))(state["optimizers"][0]["state"][0]),
    "those of this run": lambda state: state["optimizers"][0]["param_groups"][0]["params"].pop(),
    "not a checkpoint of format 1": change("format", 2),
    "of another network": change("network", {}),
}


@pytest.mark.parametrize("message", SPOILT)
def test_an_inconsistent_checkpoint_is_passed_over(message, states):
    trainer, checkpoints = states
    state = checkpoints.read(10)
    SPOILT[message](state)
    step = 10**9 if state["step"] == 10**9 else 10
    checkpoints.path(10).unlink()
    checkpoints.path(step).write_bytes(_sealed(state))
    before = {key: value.clone() for key, value in trainer.net.state_dict().items()}
    with pytest.warns(UserWarning, match=f"passed over: ValueError.*{message}"):
        assert checkpoints.latest(trainer.restore) == 5
    assert trainer.step == 5
    assert same(before, trainer.net.state_dict())


def test_infinite_constants_of_a_network_are_no_damage(make_trainer):
    trainers = [make_trainer() for _ in range(2)]
    for trainer in trainers:
        for net in (trainer.net, trainer.average):
            net.register_buffer("far", torch.tensor([0.0, -torch.inf]))
    trainers[0].step = 5
    trainers[1].restore(trainers[0].state())
    assert trainers[1].step == 5


@pytest.mark.parametrize(("log_every", "step"), [(1, 3), (100, 5)])
def test_broken_weights_are_never_saved(log_every, step, fit, tmp_path, monkeypatch):
    """They are noticed when a row is logged, and where none is, before the checkpoint of step 4 is written."""
    advance = Trainer.advance

    def breaking(self):
        told = advance(self)
        if self.step == 3:
            self.params[0].data[0] = torch.nan
        return told

    monkeypatch.setattr(Trainer, "advance", breaking)
    settings = ["val_images=0", "epochs=1", "steps_per_epoch=6", "checkpoint_every=2", f"log_every={log_every}"]
    with pytest.raises(TrainingError, match=rf"the weights are not finite at step {step}: .*Lower the lr"):
        fit(*settings)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step_000000002.pt"]
    assert firm.load(tmp_path / "run" / "model.safetensors").card["steps"] == 2


def test_pruning_spares_the_last_good_ones(states):
    """Torn files with higher steps, or between good ones, are not counted among those to keep."""
    trainer, checkpoints = states
    for step in (7, 10, 99, 10**9):
        checkpoints.path(step).write_bytes(b"torn")
    os.mkfifo(checkpoints.path(98))  # which would be waited for
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert checkpoints.latest(trainer.restore) == 5
    trainer.step = 11
    checkpoints.save(trainer.state())
    assert checkpoints.steps() == [5, 11, 98, 99, 10**9]  # not what lies ahead: it may be of use to someone
    for trainer.step in (12, 13):
        checkpoints.save(trainer.state())
    assert checkpoints.steps() == [12, 13, 98, 99, 10**9]
    Checkpoints(checkpoints.folder, checkpoints.network, keep=1).save(trainer.state())
    assert checkpoints.steps() == [13, 98, 99, 10**9]


def test_a_damaged_end_goes_on_from_the_older_one_bit_identical(short, tmp_path, fit):
    fit(short)
    right, path = weights(tmp_path / "run"), tmp_path / "run" / "checkpoints" / "step_000000004.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="it is damaged"):
        assert fit(short)["steps_now"] == 2
    assert same(weights(tmp_path / "run"), right)


def test_without_a_usable_checkpoint_the_run_stops_and_keeps_its_log(short, tmp_path, fit):
    fit(short)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.write_bytes(b"torn")
    model, log = (tmp_path / "run" / name for name in ("model.safetensors", "metrics.jsonl"))
    before = model.read_bytes(), log.read_bytes()
    (tmp_path / "c.yaml").write_text(dump_config(short))
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        tells("so this run cannot go on. To train again from the start, delete", "train", tmp_path / "c.yaml", code=1)
    assert (model.read_bytes(), log.read_bytes()) == before


# The same run


def test_a_swapped_mixture_is_another_run_and_free_settings_are_not(make, tmp_path, fit):
    mixture = ["{name: denoising, sigma: 0.1}", "{name: deblurring, sigma: 0.2}"]
    settings = ["val_images=0", "warm_start_epochs=0", "steps_per_epoch=5"]

    def config(order, *more):
        return make(f"mixture=[{', '.join(mixture[i] for i in order)}]", *settings, *more)

    fit(config((0, 1), "epochs=1"))
    with pytest.raises(ConfigError, match=r"other settings \(mixture\)"):
        fit(config((1, 0), "epochs=2"))
    free = ["epochs=2", "log_every=1", "keep_checkpoints=5", "recompute=calls", "accumulation_steps=2",
            "validate_every=3", "compile=false"]  # fmt: skip
    assert fit(config((0, 1), *free))["steps_now"] == 5
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (written["keep_checkpoints"], written["recompute"]) == (5, "calls")
    for text in ("[1, 2]", "a: [", "\x00"):
        (tmp_path / "run" / "config.yaml").write_text(text)
        with pytest.raises(ConfigError, match="the settings of the run in this folder, cannot be read"):
            fit(config((0, 1), *free))


def test_a_finished_run_keeps_the_settings_it_was_trained_with(short, tmp_path, fit):
    fit(short)
    path = tmp_path / "run" / "config.yaml"
    assert not (tmp_path / "run" / "code.json").exists()  # which is for custom code alone
    trained = path.read_bytes()
    for again in (dataclasses.replace(short, data=f"{short.data}/."), dataclasses.replace(short, keep_checkpoints=7)):
        assert fit(again)["steps_now"] == 0
        assert path.read_bytes() == trained
    assert fit(dataclasses.replace(short, epochs=2, keep_checkpoints=7))["steps_now"] == 4
    longer = path.read_bytes()
    assert yaml.safe_load(longer)["epochs"] == 2
    assert fit(short)["steps_now"] == 0
    assert path.read_bytes() == longer
    path.unlink()
    fit(short)
    assert path.read_bytes() == trained  # better than none


def change_images(change, data):
    """Change a set of pictures, or an array; return what undoes it."""
    if data.suffix == ".npy":
        before = data.read_bytes()
        np.save(data, np.load(data)[:-1] if change == "fewer" else np.load(data).astype(np.float64))
        return lambda: data.write_bytes(before)
    picture = data / "010.png"
    if change == "added":  # the first: it moves every picture, and one for validation into training
        shutil.copy(picture, data / "0.png")
        return (data / "0.png").unlink
    before = picture.read_bytes()
    if change == "renamed":
        picture.rename(data / "0000.png")
    else:
        picture.write_bytes(before + b"more")
    return lambda: [picture.write_bytes(before), (data / "0000.png").unlink(missing_ok=True)]


@pytest.mark.parametrize("change", ["added", "renamed", "larger", "fewer", "wider"])
def test_a_run_does_not_go_on_with_other_images(change, fit, pictures, tmp_path):
    if change in ("fewer", "wider"):
        data, kind = tmp_path / "stack.npy", "arrays"
        np.save(data, np.zeros((9, 3, 16, 16), np.float32))
    else:
        data, kind = shutil.copytree(pictures, tmp_path / "data"), "folder"
    settings = [f"dataset={kind}", "val_images=2", "steps_per_epoch=1", "warm_start_epochs=0"]
    fit(*settings, f"data={data}", "epochs=1")
    undo, run = change_images(change, data), tmp_path / "run"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="does not hold the images that the run in") as caught:
        fit(*settings, f"data={data}", "epochs=2")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert f"delete {run / 'images.json'}" in str(caught.value)
    undo()
    moved = data.rename(tmp_path / f"moved{data.suffix}")
    assert fit(*settings, f"data={moved}", "epochs=2")["steps_now"] == 1
    change_images(change, moved)
    (run / "images.json").unlink()  # as the message tells
    assert fit(*settings, f"data={moved}", "epochs=3")["steps_now"] == 1


def test_a_run_does_not_go_on_with_other_images_for_validation(fit, pictures, tmp_path):
    held_out = shutil.copytree(pictures, tmp_path / "held_out")
    settings = [f"data={pictures}", f"val_data={held_out}", "val_images=2", "steps_per_epoch=1", "warm_start_epochs=0"]
    fit(*settings, "epochs=1")
    change_images("added", held_out)
    with pytest.raises(ConfigError, match="does not hold the images that the run in"):
        fit(*settings, "epochs=2")


RESUMED = """
import pathlib, sys, warnings
from firm._util.machine import ranks
from firm.training import loop
from firm.training.config import load_config
from firm.training.objectives import TrainingError
from firm.training.run_folder import Checkpoints

warnings.simplefilter("ignore")
config, read = load_config(sys.argv[1]), Checkpoints.read

class Trainer:  # all that resuming needs of it; optimizers take seconds to import
    def restore(self, state):
        self.step = state["step"]

def torn(self, step):
    if step == 10:
        raise ValueError("torn")
    return read(self, step)

with ranks() as r:
    for blind, expected in ((0, "5"), (None, "10"), (1, "not every process can read")):
        Checkpoints.read = torn if r.rank == blind else read  # the rank that cannot read step 10
        trainer = Trainer()
        trainer.ranks = r
        try:
            loop._resume(trainer, Checkpoints(pathlib.Path(sys.argv[2]), config.network_about(), 2))
            found = str(trainer.step)
        except TrainingError as error:
            found = str(error)
        assert found.startswith(expected), (blind, found)
"""
COMPARED = """
import sys
from firm._util.machine import ranks
from firm.training import loop
from firm.training.config import ConfigError, load_config

def begin(*_):
    raise KeyError("begun")

loop.Trainer = begin
same, other = (f"data={path}" for path in sys.argv[2:])
with ranks() as r:
    for change, expected in (
        ([], "'begun'"), ([same], "'begun'"), (["seed=8"], "the processes were given different settings"),
        ([other], "the processes found different images"),
    ):
        try:
            loop.train(load_config(sys.argv[1], change if r.rank else []), r, progress=False)
        except (KeyError, ConfigError) as error:
            assert str(error).startswith(expected), (change, error)
"""


def test_the_processes_go_on_from_one_checkpoint(states, tmp_path):
    """Where only one of them finds the newest damaged, all take the older one, or all stop; none waits for ever."""
    trainer, checkpoints = states
    (tmp_path / "c.yaml").write_text(dump_config(trainer.config))
    (tmp_path / "program.py").write_text(RESUMED)
    run_two_processes(tmp_path / "program.py", tmp_path / "c.yaml", checkpoints.folder)


def test_processes_with_other_settings_or_images_do_not_train_together(make, pictures, tmp_path):
    """A copy of the images elsewhere is the same; all of them refuse, and none waits for the others."""
    same, other = (shutil.copytree(pictures, tmp_path / name) for name in ("same", "other"))
    (other / "000.png").unlink()
    (tmp_path / "c.yaml").write_text(dump_config(make()))
    (tmp_path / "program.py").write_text(COMPARED)
    run_two_processes(tmp_path / "program.py", tmp_path / "c.yaml", same, other)


def test_a_network_is_the_same_read_from_yaml_or_written_in_python(tmp_path):
    """A list and a tuple of the same widths are one network."""
    kept = Checkpoints(tmp_path, {"widths": (4, 8), "blocks": 1}, keep=1)
    kept.save({"step": 3, "network": kept.network})
    assert Checkpoints(tmp_path, {"blocks": 1, "widths": [4, 8]}, keep=1).read(3)["step"] == 3
    with pytest.raises(ValueError, match="of another network"):
        Checkpoints(tmp_path, {"widths": [4, 9], "blocks": 1}, keep=1).read(3)
