"""Results of one folder: which model they belong to, and settings given on the command line."""

import csv
import json

import pytest
import torch
from helpers import call, save_pictures, says

import firm
from firm.data import load_images
from firm.evaluation import Evaluation, NamedMethod, evaluate, firm_method

SIZE = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 3, (20, 20))


def model(seed, **settings):
    torch.manual_seed(seed)
    net = firm.UNet(3, side=SIZE, ch=8, mult=(1, 2), blocks=1, attention=(), groups=4, **settings)
    for p in net.parameters():
        p.data = 0.1 * torch.randn(p.shape)
    return firm.Firm(net, firm.Solver(K=1))


def rows_of(out):
    return list(csv.DictReader((out / "images.csv").read_text().splitlines()))


def test_what_changes_the_results_changes_the_fingerprint(tmp_path):
    first = model(0)
    first.save(tmp_path / "m.safetensors")
    assert firm.load(tmp_path / "m.safetensors").fingerprint() == first.fingerprint()
    others = [model(1), model(0, time_scale=100.0), firm.Firm(first.estimator, firm.Solver(K=2))]
    moved = model(0)
    next(moved.estimator.parameters()).data.view(-1)[5] += 1e-6
    prints = [m.fingerprint() for m in (first, *others, moved)]
    assert len(set(prints)) == len(prints)


def test_two_models_of_one_label_do_not_mix(folder, tmp_path):
    images = load_images("folder", folder, size=SIZE, progress=False)
    evaluation = Evaluation(images, [firm.Task("denoising", SIZE)])
    out = tmp_path / "out"
    first, second = (evaluate(evaluation, [firm_method(model(s), 1)], out, progress=False) for s in (0, 1))
    alone = evaluate(evaluation, [firm_method(model(1), 1)], tmp_path / "alone", progress=False)
    assert [r["psnr"] for r in second] == [r["psnr"] for r in alone]
    assert [r["psnr"] for r in second] != [r["psnr"] for r in first]
    assert len(second) == 3  # the other's rows are not reported
    assert len(rows_of(out)) == 6  # but kept
    before = (out / "images.csv").read_bytes()
    again = evaluate(evaluation, [firm_method(model(0), 1)], out, progress=False)
    assert [r["psnr"] for r in again] == [r["psnr"] for r in first]
    assert (out / "images.csv").read_bytes() == before  # and found again


def test_names_that_are_there_twice(folder, tmp_path):
    images = load_images("folder", folder, size=SIZE, progress=False)
    tasks = [firm.Task("denoising", SIZE), firm.Task("denoising", SIZE, sigma=0.1)]
    with pytest.raises(ValueError, match="two tasks are called denoising"):
        evaluate(Evaluation(images, tasks), [], tmp_path, progress=False)
    methods = [NamedMethod("mine", lambda *a: a[1]), NamedMethod("mine", lambda *a: a[1])]
    with pytest.raises(ValueError, match="two methods are called mine"):
        evaluate(Evaluation(images, tasks[:1]), methods, tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


def test_a_table_of_an_older_version_is_refused(folder, tmp_path):
    common = ["evaluate", "degraded", "--data", folder, "--size", SIZE, "--tasks", "denoising", "--out", tmp_path]
    assert call(*common).exit_code == 0
    lines = (tmp_path / "images.csv").read_text().splitlines()
    old = [",".join(v for k, v in enumerate(line.split(",")) if k != 2) for line in lines]  # without fingerprints
    (tmp_path / "images.csv").write_text("\n".join(old) + "\n")
    told = call(*common)
    assert told.exit_code == 2
    assert says(told.output, "by this version of firm: choose another folder")
    assert (tmp_path / "images.csv").read_text().splitlines() == old  # and left as it was


def test_settings_change_every_task_that_has_them(folder, tmp_path):
    common = ["evaluate", "degraded", "--data", folder, "--size", SIZE]
    done = call(*common, "--tasks", "denoising,random-inpainting,fourier", "--set", "sigma=0.125", "--set",
                "missing=0.25", "--set", "mask=fresh", "--out", tmp_path / "a")  # fmt: skip
    assert done.exit_code == 0, done.output
    tasks = json.loads((tmp_path / "a" / "config.json").read_text())["tasks"]
    assert [t["sigma"] for t in tasks.values()] == [0.125] * 3
    assert tasks["random-inpainting"]["missing"] == 0.25
    assert [t.get("mask") for t in tasks.values()] == [None, "fresh", "fresh"]
    by_hand = load_images("folder", folder, size=SIZE, progress=False).batch(slice(0, 3))
    _, y = firm.Task("denoising", SIZE, sigma=0.125).measure(by_hand)
    found = [float(r["psnr"]) for r in rows_of(tmp_path / "a") if (r["task"], r["method"]) == ("denoising", "degraded")]
    assert found == pytest.approx(firm.metrics.psnr(y, by_hand).tolist(), abs=1e-4)
    usual = call(*common, "--tasks", "fourier", "--out", tmp_path / "b")
    assert usual.exit_code == 0
    assert json.loads((tmp_path / "b" / "config.json").read_text())["tasks"]["fourier"]["mask"] == "shared"
    for change, message in ((["sigma=-1"], "must be 0 or more"), (["sigma"], "--set takes key=value"),
                            (["box=3"], "none of these tasks has a setting box"),
                            (["sgima=1"], "did you mean 'sigma'"),
                            (["sigma=[0.1, 0.2]"], "a range is for training")):  # fmt: skip
        told = call(*common, "--tasks", "denoising", "--set", *change, "--out", tmp_path / "c")
        assert told.exit_code == 2
        assert says(told.output, message)
    told = call(*common, "--tasks", "denoising", "--set", "sigma=0.25", "--out", tmp_path / "a")
    assert told.exit_code == 2  # the folder's denoising has another noise
    assert says(told.output, "another evaluation (different denoising)")
