"""The loop from outside: it learns, survives kills and signals, and any number of processes may share the batch."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import call, run_two_processes, same, says, weights

import firm
from firm._util.machine import Ranks
from firm.bench.training import _measure_speed, bench
from firm.cli.plot import _score_keys
from firm.data import folder_files, resident, to_float
from firm.evaluation.methods import plain_solve
from firm.metrics import psnr
from firm.training import loop
from firm.training.config import ConfigError, dump_config, load_config
from firm.training.log import Progress, read_log
from firm.training.loop import train
from firm.training.objectives import TrainingError
from firm.training.trainer import Trainer

RANK = Ranks(0, 1, torch.device("cpu"))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_a_short_run_learns_and_its_model_beats_the_plain_solve(make, tmp_path, pictures, fit):
    """End to end: from a folder of pictures to a restored one."""
    network = "network={ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4}"
    recipe = ["objective=balanced", "output=correction", "lr=4e-3", "ema_decay=0.98", "batch_size=16", network]
    config = make("epochs=8", "steps_per_epoch=40", "val_images=8", *recipe)
    result = fit(config)
    assert result["finished"]
    rows = read_log(tmp_path / "run")
    assert rows[0]["step"] == 5
    errors = [row["error"] for row in rows if "error" in row]
    assert len(errors) == 64
    assert errors[-1] < 0.5 * errors[0]  # the balanced loss itself stays near 1
    held_out = to_float(resident(folder_files(pictures)[:8], 16, progress=False)[0])
    op, y = firm.Task("random-inpainting", 16).measure(held_out)
    model = firm.load(tmp_path / "run" / "model.safetensors")
    restored = float(psnr(firm.restore(model, op, y, steps=2).image, held_out).mean())
    plain = float(psnr(plain_solve(op, y, 0.01, None), held_out).mean())
    assert restored > plain + 3
    assert result["psnr N=2"] == pytest.approx(restored, abs=2.0)  # other starting noise
    assert model.card["steps"] == 320
    assert (tmp_path / "run" / "validation" / "step_000000320.png").is_file()
    assert (tmp_path / "run" / "best.safetensors").is_file()


def test_killed_at_random_moments_it_ends_bit_identical(make, tmp_path, fit):
    """SIGKILL four times, each at a random moment after some progress; then to the end. (`make torture` does more.)"""
    settings = ["checkpoint_every=2", "objective=balanced", "val_images=0", "epochs=3", "warm_start_epochs=2"]
    fit(*settings, out="whole")
    config = make(*settings, out="killed")
    run, generator, saved = tmp_path / "killed", random.Random(0), 0
    (tmp_path / "c.yaml").write_text(dump_config(config))

    def newest():
        return max((int(path.stem[5:]) for path in (run / "checkpoints").glob("step_*.pt")), default=0)

    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-m", "firm", "train", str(tmp_path / "c.yaml")], env=ENVIRONMENT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None and newest() <= saved:
            time.sleep(0.005)
        time.sleep(generator.uniform(0, 0.05))
        process.kill()
        process.wait()
        saved = newest()
    assert saved >= 4
    assert fit(config)["finished"]
    assert same(weights(run), weights(tmp_path / "whole"))
    rows = [row["step"] for row in read_log(run)]
    assert rows == sorted(set(rows))  # repeated steps are not logged twice


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("ignored", [False, True])
def test_signals_save_and_exit_cleanly(number, ignored, make, tmp_path, monkeypatch):
    """Under nohup, where SIGHUP is ignored, it stays so."""
    advance, before = Trainer.advance, signal.SIG_IGN if ignored else lambda *_: None

    def signaled(self):
        if self.step == 6:
            os.kill(os.getpid(), number)
        return advance(self)

    monkeypatch.setattr(Trainer, "advance", signaled)
    (tmp_path / "c.yaml").write_text(dump_config(make("epochs=1", "val_images=0", "checkpoint_every=0")))
    outside = signal.signal(number, before)
    try:
        told = call("train", tmp_path / "c.yaml")
        assert signal.getsignal(number) == before
    finally:
        signal.signal(number, outside)
    assert told.exit_code == 0
    step = 10 if ignored and number == signal.SIGHUP else 7
    assert says(told.output, "done after 10 steps" if step == 10 else "the same command continues")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [f"step_{step:09d}.pt"]
    assert firm.load(tmp_path / "run" / "model.safetensors").card["steps"] == step


def test_in_a_log_a_run_writes_lines_instead_of_a_bar(make, capsys, monkeypatch, fit):
    """One when it begins to log and then one every few minutes, and what validations found."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    config = make("epochs=1", "log_every=2", "validate_every=5")
    train(config, RANK)
    told = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"step 2 of 10, 0\.\d minutes: loss \d+\.\d{4}, \d+ images/s", told[0])
    assert re.fullmatch(r"validation at step 5: psnr N=2 -?\d+\.\d\d", told[1])
    assert not [line for line in told[1:] if line.startswith("step")]
    assert "|" not in "".join(told)
    monkeypatch.setattr("firm.training.log.EVERY", 0)
    train(replace(config, epochs=2), RANK)
    assert len([line for line in capsys.readouterr().err.splitlines() if line.startswith("step")]) >= 5
    fit(replace(config, epochs=3))
    assert capsys.readouterr().err == ""
    halfway = SimpleNamespace(step=7, elapsed=90.0)
    row = {"step": 7, "minutes": 1.5, "loss": 0.5, "images/s": 20.0}
    Progress(replace(config, max_minutes=3), halfway, True).numbers(row)
    assert capsys.readouterr().err == "step 7, 1.5 of 3 minutes: loss 0.5000, 20 images/s\n"


def test_the_peak_memory_is_that_of_the_device_it_trains_on(short, tmp_path, monkeypatch, fit):
    """Without a device it would be that of a GPU, where there is one, also with --device cpu."""
    monkeypatch.setattr("firm.training.trainer.peak_megabytes", lambda device=None: str(device))
    fit(short)
    assert {row["peak_mb"] for row in read_log(tmp_path / "run")} == {"cpu"}


def test_two_processes_give_the_weights_of_one(make, tmp_path, fit):
    """One pair of processes trains several runs; their weights and logs are those of one process."""
    common, program = ["epochs=2", "val_images=0", "flips=true", "lr=1e-4"], [
        "import sys", "from firm._util.machine import ranks", "from firm.training import load_config, train",
        "with ranks() as r:", "    for path in sys.argv[1:]:", "        train(load_config(path), r, progress=False)",
    ]  # fmt: skip
    prior = ["t_min=0", "t_max=0.9999", "warm_start_epochs=0", "memory_map=true", f"cache={tmp_path / 'cache'}"]
    cases = {"paper": [], "balanced": [], "prior": prior}
    for name, more in cases.items():
        settings = [*common, f"objective={name}", *more]
        fit(*settings, out=f"{name}-one")
        parts = [] if name == "prior" else ["accumulation_steps=2"]
        (tmp_path / f"{name}.yaml").write_text(dump_config(make(*settings, *parts, out=f"{name}-two")))
    (tmp_path / "several.py").write_text("\n".join(program))
    run_two_processes(tmp_path / "several.py", *(tmp_path / f"{name}.yaml" for name in cases))
    for name in cases:
        runs = [tmp_path / f"{name}-{number}" for number in ("one", "two")]
        one, two = (firm.load_network(run / "model.safetensors").state_dict() for run in runs)
        assert max(float((one[key] - two[key]).abs().max()) for key in one) < 1e-5
        logged = [[row["loss"] for row in read_log(run)] for run in runs]
        assert logged[1] == pytest.approx(logged[0], rel=1e-5)  # the whole batch's loss, not one process's part


def test_two_processes_share_one_clock(make, tmp_path):
    """With max_minutes every rank must see the same time, or they would wait for each other for ever."""
    often = ("checkpoint_every=0", "checkpoint_minutes=0.01", "keep_checkpoints=9")
    (tmp_path / "c.yaml").write_text(dump_config(make("max_minutes=0.05", "val_images=0", *often)))
    run_two_processes("-m", "firm", "train", tmp_path / "c.yaml")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) > 1  # saved in between, not only at the end
    assert 0.05 <= read_log(tmp_path / "run")[-1]["minutes"] < 0.5


def test_a_step_asks_the_other_processes_once(fit, monkeypatch):
    """For the clock and for whether to stop; the answer is read in the next step."""
    asked = []
    monkeypatch.setattr(loop, "joined", lambda: True)
    monkeypatch.setattr(loop.dist, "all_reduce", lambda tensor, *_: asked.append(tensor.tolist()))
    result = fit("epochs=1", "val_images=0", "log_every=10")
    assert len(asked) == result["steps_now"] == 10
    assert result["minutes"] == round(asked[-2][0] / 60, 3)
    assert not any(stop for _, stop in asked)


def test_max_minutes_stretches_the_schedule(make, tmp_path, fit):
    config = make("max_minutes=0.05", "val_images=0", "log_every=1")
    start = time.monotonic()
    result = fit(config)
    assert 2.5 < time.monotonic() - start < 60
    assert result["finished"]
    rows = read_log(tmp_path / "run")
    assert rows[0]["lr"] > 1.9e-3
    assert rows[-1]["lr"] < 1e-4


def test_init_from_starts_with_the_weights_of_a_model(tmp_path, fit):
    fit("epochs=1", out="first")
    first = tmp_path / "first" / "model.safetensors"
    fit("epochs=1", "warm_start_epochs=0", "lr=1e-12", "lr_end=0", f"init_from={first}", out="second")
    a, b = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert all(torch.allclose(a[key], b[key], atol=1e-6) for key in a)
    for changes, said in (
        ("ch: 16, time_scale: 100, groups: 4", "do not fit this network"),
        ("ch: 8, time_scale: 1, groups: 4", r"was trained with network.time_scale=100, not 1"),
        ("ch: 8, time_scale: 100, groups: 2", r"was trained with network.groups=4, not 2"),
    ):
        other = f"network={{{changes}, mult: [1, 2], blocks: 1, attention: []}}"
        with pytest.raises(ConfigError, match=said):
            fit(other, f"init_from={first}", out="third")


def test_a_run_that_never_began_claims_no_folder(fit, tmp_path):
    with pytest.raises(FileNotFoundError, match="no model"):
        fit("epochs=1", "init_from=nowhere")
    assert fit("epochs=1", "lr=1e-3")["finished"]
    assert "lr: 0.001" in (tmp_path / "run" / "config.yaml").read_text()


def test_a_batch_that_does_not_divide(make):
    with pytest.raises(ConfigError, match="multiple of processes x accumulation_steps"):
        train(make(), Ranks(0, 3, torch.device("cpu")), progress=False)


def test_plot_shows_tasks_for_the_first_N_and_means_for_all():
    rows = [{"step": 1, "loss": 2.0}, {"step": 1, "psnr N=2 a": 1, "psnr N=2": 1, "psnr N=9 a": 1, "psnr N=9": 1}]
    assert _score_keys(rows) == ["psnr N=2 a", "psnr N=2", "psnr N=9"]
    assert _score_keys(rows[:1]) == []
    assert _score_keys([{"psnr sigma=0.2": 1, "psnr sigma=0.1": 1}]) == ["psnr sigma=0.2", "psnr sigma=0.1"]
    assert _score_keys([{"psnr": 1, "psnr deblurring": 1}]) == ["psnr", "psnr deblurring"]


def test_plot_draws_the_curves(fit, tmp_path):
    fit("validate_every=10", "epochs=3")
    result = call("plot", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "curves.png").stat().st_size > 10_000
    assert call("plot", tmp_path).exit_code == 2


def test_bench_measures_and_writes(config_file, tmp_path):
    out = tmp_path / "bench.json"
    result = call("bench", "train", config_file, "--batches", "4,8", "--seconds", "0.2", "--out", out)
    assert result.exit_code == 0, result.output
    results = json.loads(out.read_text())
    rows = [(mode, batch) for batch in (4, 8) for mode in ("naive", "fast")]
    assert [(row["mode"], row["batch"]) for row in results["rows"]] == rows
    assert all(row["images/s"] > 0 for row in results["rows"])
    assert "images/s" in result.output
    errors = [row["gradient error"] for row in results["rows"] if row["mode"] == "fast"]
    assert all(0 < error < 0.05 for error in errors)  # bfloat16 against float32, and nothing else
    settings = ["bf16=false", "recompute=pointwise"]  # the latter is for compiled blocks, not for the naive mode
    plain = bench(config_file, settings, [4], naive=True, seconds=0.1, out=None)["rows"]
    assert plain[1]["gradient error"] < 1e-5  # without it, rounding of float32


def test_the_gradient_that_bench_compares_is_not_the_clipped_one(config_file):
    """Of clipped gradients the size is always the same, and a wrong one would not show."""
    configs = (load_config(config_file, ["bf16=false", f"clip_grad_norm={norm}"]) for norm in (1e6, 1e-3))
    loose, tight = (_measure_speed(config, 0.1)[1] for config in configs)
    torch.testing.assert_close(tight, loose, rtol=1e-3, atol=1e-3 * float(loose.abs().max()))


@pytest.mark.parametrize("found", [{"psnr": "much"}, None, {"psnr": torch.tensor(3.0)}])
def test_a_validation_that_fails_does_not_cost_the_training(make, monkeypatch, found, fit):
    monkeypatch.setattr(Trainer, "validate", lambda *_: found)
    config = make("val_images=1", "epochs=1")
    if found and found["psnr"] == 3:  # a number, whatever its kind
        assert fit(config)["psnr"] == 3
        return
    with pytest.raises(TrainingError, match=r"validation failed at step \d+, .*loop.py, line \d+: .*Error"):
        fit(config)
    firm.load(Path(config.out) / "model.safetensors")
    assert list((Path(config.out) / "checkpoints").glob("step_*.pt"))
