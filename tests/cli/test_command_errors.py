"""Mistakes on the command line end in one sentence, never in a traceback."""

import itertools
import json

import numpy as np
import pytest
import torch
from helpers import call, save_pictures, says, tiny_model

import firm
from firm._model import channels_of
from firm._util import machine as devices
from firm._util.machine import free_memory
from firm.cli.models import range_of


def told(*arguments):
    """What a command says that fails as it should."""
    result = call(*arguments)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2)
    assert "Traceback" not in result.output
    return result.output


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 2, (20, 20))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny.safetensors", [])


def log(folder, data):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_bytes(data)
    return folder


GOOD = b'{"step": 1, "loss": 0.5, "rate": 1, "images/s": 3}\n{"step": 2, "psnr N=1": 20.5}\n'


@pytest.mark.parametrize("data", [b"[1, 2]\nnull\n", b'{"loss": 1}\n{"step": "x", "loss": 1}\n', bytes(range(256))])
def test_plot_of_a_log_without_records(data, tmp_path):
    assert says(told("plot", log(tmp_path / "run", data)), "no metrics.jsonl with training records")


def test_plot_to_odd_places_and_of_odd_records(tmp_path):
    assert says(told("plot", tmp_path / "no"), "no metrics.jsonl")
    run = log(tmp_path / "run", GOOD)
    assert says(told("plot", run, "--out", tmp_path / "x.xyz"), "the name of a picture should end in .png")
    assert says(told("plot", run, "--out", tmp_path / "run"), "is a folder: name a file in it")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
    odd = b'{"step": 3, "loss": [], "rate": "x"}\n{"step": 4, "loss": -1}\n[]\n{"step": 5, "psnr": 1, "psnrs": 2}\n'
    assert call("plot", log(run, GOOD + odd)).exit_code == 0
    assert (run / "curves.png").is_file()  # of what can be drawn


@pytest.mark.parametrize("name", ["toy", "portrait"])
def test_reproduce_says_what_is_wrong(name, tmp_path):
    (tmp_path / "file").touch()
    quick = ["--training" if name == "toy" else "--steps", "1"]
    assert says(told("reproduce", name, *quick, "--out", tmp_path / "file"), "is a file, not a folder")
    assert says(told("reproduce", name, *quick, "--seed", "9" * 30), "the seed must be a whole number from 0")
    if name == "portrait":
        assert says(told("reproduce", name, "--model", "no", "--out", tmp_path / "o"), "no model 'no'")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("table", "times"),
    [
        ("[", {}), ([], {}), ({"tables": 1}, {}), ({"tables": [{"lines": [1]}]}, {}),
        ({"tables": [{"lines": [{"label": "a", "ours": {"deblurring psnr": "x"}}]}]}, {}),
        ({}, {"numbers": {"rows": [1]}}), ({}, {"numbers": {}}), ({}, {"machine": {}}),
    ],
)  # fmt: skip
def test_pareto_of_damaged_results(table, times, tmp_path):
    usual = {"numbers": {"rows": []}, "machine": {"cpu": "x"}}
    for name, change in (("celeba", table), ("cost", times)):
        good = {"study": name, "command": "", "quick": False, "images": 1, "model": "m", "seed": 0, "seconds": 1.0,
                "tables": [], "figures": [], "notes": [], **usual}  # fmt: skip
        (tmp_path / name).mkdir()
        found = good | change if isinstance(change, dict) else change
        (tmp_path / name / "results.json").write_text(found if isinstance(found, str) else json.dumps(found))
    output = told("reproduce", "pareto", "--out", tmp_path)
    assert says(output, "is damaged") or says(output, "lacks numbers")
    assert not (tmp_path / "pareto").exists()


def test_a_network_that_is_listed_but_is_no_model_is_said_to_be_one(pictures, tmp_path):
    picture, out = next(pictures.iterdir()), ["--out", tmp_path / "o"]
    for command in (["restore", picture, "--task", "denoising", "--model"], ["evaluate", "--data", pictures]):
        output = told(*command, "face-prior", *out)
        assert says(output, "face-prior.safetensors holds a prior, not a FIRM model")
        assert says(told(*command, "./face-prior", *out), "no model './face-prior'")
    assert not (tmp_path / "o").exists()


def test_images_that_no_memory_holds(pictures, tmp_path, monkeypatch):
    command = ["evaluate", "degraded", "--data", pictures, "--tasks", "random-inpainting", "--out", tmp_path / "o"]
    monkeypatch.setattr("firm._util.machine.free_memory", lambda: 64 * 2**30)
    monkeypatch.setattr("firm.data.load_images", lambda *_, **__: pytest.fail("read the pictures"))
    output = told(*command, "--size", "100000")
    assert says(output, "--size 100000: an image of 100000x100000 needs at least 1,117.6 GB of memory")
    assert says(told(*command, "--size", "0"), "0 is not in the range")
    assert not list(tmp_path.iterdir())
    free = free_memory()
    assert free is None or 2**20 < free < 2**50


def test_bench_says_what_is_wrong_before_it_measures(model, tmp_path, monkeypatch):
    for seconds, kind in itertools.product(("inf", "-1", "1e9"), ("sample", "train")):
        assert says(told("bench", kind, "c.yaml", "--seconds", seconds), "in the range 0<=x<=3600")
    monkeypatch.setattr("firm.bench.sampling._measure", lambda *_: pytest.fail("measured"))
    assert says(told("bench", "sample", model, "--out", tmp_path), "is a folder: name a file in it")
    assert says(told("bench", "sample", model, "--task", "nothing"), "no task 'nothing'")


def test_every_command_that_computes_has_a_device(pictures, model, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    some = ["--out", tmp_path / "o"]
    settings = tmp_path / "c.yaml"
    settings.write_text(f"dataset: folder\ndata: {pictures}\nsize: 16\ntask: denoising\n")
    studies = (["toy"], ["portrait"], ["celeba", "--data", pictures], ["cost", "--data", pictures])
    for command in (
        ["restore", pictures, "--simulate", "denoising", "--model", model, *some],
        ["evaluate", "degraded", "--data", pictures, *some],
        *(["bench", "sample", model], ["bench", "train", settings], ["train", settings]),
        *(["reproduce", *study, *some] for study in studies),
    ):
        output = told(*command, "--device", "cuda")
        assert says(output, "--device cuda:"), command
        assert says(output, "or give --device cpu"), command
        assert says(told(*command, "--device", "tpu"), "--device takes cpu, cuda or cuda:N"), command
    done = ["evaluate", "degraded", "--data", pictures, "--size", 16, "--tasks", "denoising", *some, "--device", "cpu"]
    assert call(*done).exit_code == 0
    assert "gpu" not in json.loads((tmp_path / "o" / "results.json").read_text())["machine"]


def test_pictures_that_are_too_large(pictures, model, tmp_path):
    settings, out = tmp_path / "c.yaml", tmp_path / "o"
    settings.write_text(f"dataset: folder\ndata: {pictures}\nsize: 16\ntask: denoising\nval_images: 0\nout: {out}\n")
    for command in (
        ["restore", pictures, "--simulate", "denoising", "--model", model, "-o", out],
        ["evaluate", "degraded", "--data", pictures, "-o", out],
        ["train", settings],
        ["info", pictures / "000.png"],
    ):
        output = told(*command, "--max-megapixels", "0.0001")
        assert says(output, "more than the limit of 0.0001"), command
    assert call("info", pictures / "000.png", "--max-megapixels", "0.001").exit_code == 0


def test_devices_by_name(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert devices.choose_device(None) == torch.device("cuda")
    assert devices.choose_device("cpu") == torch.device("cpu")
    assert devices.choose_device("cuda:1") == torch.device("cuda:1")
    assert chosen == [torch.device("cuda:1")]
    with pytest.raises(ValueError, match="there are 2 GPUs here, cuda:0 to cuda:1"):
        devices.choose_device("cuda:2")


def test_what_a_card_says_of_images(tmp_path):
    assert channels_of(firm.Firm(torch.nn.Identity(), card={"channels": 2})) == 2
    with pytest.raises(ValueError, match="does not restore images"):
        channels_of(firm.Firm(torch.nn.Identity()))
    np.save(tmp_path / "a.npy", np.zeros((4, 4), np.float32))
    assert range_of(None, {"value_range": [0, 2]}, tmp_path / "a.npy") == (0.0, 2.0)


def test_memory_that_runs_out_and_mistakes_of_ours(monkeypatch, tmp_path):
    def fail(error):
        monkeypatch.setattr("experiments.toy.study.study", lambda *_, **__: (_ for _ in ()).throw(error))
        return call("reproduce", "toy", "--out", tmp_path / "o")

    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")):
        assert says(fail(error).output, "there is not enough memory")
    assert isinstance(fail(RuntimeError("a mistake in the code")).exception, RuntimeError)  # is not hidden
