"""The bundled model on the bundled portrait: the demo, as a test."""

import json

import pytest
import torch
from PIL import Image

import firm
from experiments.portrait.study import study
from experiments.shared import Settings
from firm._model import find
from firm.data import portrait
from firm.tasks import tables


@pytest.fixture(scope="module")
def model():
    return firm.fast(firm.load("face-128"))


def test_every_task_is_restored(tmp_path):
    study(Settings(tmp_path, extra={"N": 1, "samples": 2, "seed": 0}), "portrait")
    results = json.loads((tmp_path / "portrait" / "results.json").read_text())
    assert (results["seed"], results["model"], results["numbers"]["samples"]) == (0, "face-128", 2)
    assert results["figures"][0]["free"] is True
    lines = {line["label"]: line["ours"] for line in results["tables"][0]["lines"]}
    for name, floor in zip(tables(), (31, 33, 31, 31, 28), strict=True):
        found = results["numbers"][name]
        assert found["restored"]["psnr"] > floor
        assert found["nfe"] == 5
        assert lines[name]["psnr"] == found["restored"]["psnr"] > lines[name]["measured"] + 5
    with Image.open(tmp_path / "portrait" / "portrait.png") as picture:
        assert picture.height > picture.width * 0.9  # five rows of five


def test_the_box_is_where_the_model_is_unsure(model):
    x, task = portrait(), firm.Task("box-inpainting")
    op, y = task.measure(x)
    std = firm.restore(model, op, y, 2, samples=3, sigma=task.sigma).std
    hole = op.A(torch.ones_like(x)) == 0
    assert float(std[hole].mean()) > 5 * float(std[~hole].mean())


def test_the_model_is_as_small_as_promised_and_its_card_is_whole(model):
    assert find("face-128").stat().st_size < 20 * 2**20
    assert {"data", "notice", "recipe", "minutes", "metrics", "limits", "trained_for"} <= model.card.keys()
    assert {entry["name"] for entry in model.card["trained_for"]} >= {*tables(), "fourier"}
