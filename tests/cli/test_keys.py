"""Files that hold several arrays: each command says what to type to choose one, and then reads that one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import call, save_pictures, says, tiny_model

from firm._util.machine import Ranks
from firm.restoration import Problem, ProblemError
from firm.restoration.reading import read_kernel
from firm.training.config import ConfigError, load_config
from firm.training.feed import load_sets
from firm.training.loop import train

RANK = Ranks(0, 1, torch.device("cpu"))
OWN = Path(__file__).parents[1] / "restoration" / "instruments.py"
MANY = "holds several arrays (images, others): choose one with key=NAME (--key NAME in firm restore"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model") / "m.safetensors", [{"name": "denoising"}], size=32)


def values(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-0.9, 0.9, shape).astype(np.float32)


@pytest.fixture
def stack(tmp_path):
    """Four images, and something of another size."""
    np.savez(tmp_path / "stack.npz", images=values(4, 3, 32, 32), others=values(5, 2, 8, 8, seed=1))
    return tmp_path / "stack.npz"


@pytest.fixture
def image(tmp_path):
    np.savez(tmp_path / "image.npz", images=values(3, 32, 32), others=values(2, 8, 8, seed=1))
    return tmp_path / "image.npz"


def test_evaluate(model, stack, tmp_path):
    words = ["evaluate", model, "--dataset", "arrays", "--data", stack]
    words += ["--tasks", "denoising", "--steps", 1, "--limit", 1]
    assert says(call(*words, "--out", tmp_path / "out").output, MANY)
    assert call(*words, "--out", tmp_path / "out", "--key", "images").exit_code == 0
    np.save(tmp_path / "alone.npy", values(4, 3, 32, 32))
    words[5] = tmp_path / "alone.npy"
    assert call(*words, "--out", tmp_path / "alone").exit_code == 0
    pixels = [json.loads((tmp_path / out / "config.json").read_text())["pixels"] for out in ("out", "alone")]
    assert pixels[0] == pixels[1]


def test_calibrate(model, stack, tmp_path):
    words = ["calibrate", model, "--dataset", "arrays", "--data", stack, "--tasks", "denoising", "--steps", 1,
             "--samples", 2, "--limit", 2, "--out", tmp_path / "scale.json"]  # fmt: skip
    assert says(call(*words).output, MANY)
    assert call(*words, "--key", "images").exit_code == 0


def test_info(image, tmp_path):
    assert says(call("info", image).output, MANY)
    assert says(call("info", image, "--key", "others").output, "2 x 8 x 8")
    np.save(tmp_path / "picture.npy", np.zeros((8, 8, 3), np.float32))  # as `firm restore --format npy` writes them
    assert says(call("info", tmp_path / "picture.npy", "--key", "x").output, "holds a single array without a name")
    assert says(call("info", "face-128", "--key", "x").output, "face-128 is no such file")


@pytest.mark.parametrize("how", [("--task", "denoising"), ("--simulate", "denoising"), ("--task", f"{OWN}:Mosaic")])
def test_restore(how, model, image, tmp_path):
    shape = (1, 12, 12) if "Mosaic" in how[1] else (3, 32, 32)
    np.savez(image, images=values(*shape), others=values(2, 8, 8, seed=1))
    np.save(tmp_path / "alone.npy", values(*shape))
    common = [*how, "--sigma", 0.1, "--steps", 1, "--model", model]
    assert says(call("restore", image, *common, "--out", tmp_path / "out").output, MANY)
    for file, more in ((image, ["--key", "images"]), (tmp_path / "alone.npy", [])):
        told = call("restore", file, *common, *more, "--out", tmp_path / "out")
        assert told.exit_code == 0, told.output
    results = [np.load(tmp_path / "out" / f"{name}_restored.npy") for name in ("image", "alone")]
    np.testing.assert_array_equal(*results)
    told = call("restore", image, *common, "--key", "others", "--out", tmp_path / "out")
    assert told.exit_code == 2  # not taken for what is done
    assert says(told.output, "--force")


def test_a_picture_has_no_key_and_a_kernel_is_a_file_of_its_own(model, image, tmp_path):
    picture = save_pictures(tmp_path, 1, (32, 32)) / "000.png"
    with pytest.raises(ProblemError, match="a picture; the key 'x' is for files that hold several arrays"):
        Problem.from_file(picture, "denoising", key="x")
    with pytest.raises(ProblemError, match=r"image\.npz is in a file with other arrays: save it alone"):
        read_kernel(image, 64)


NETWORK = "network={ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4}"


def test_train(stack, tmp_path):
    np.savez(tmp_path / "val.npz", images=values(2, 3, 32, 32, seed=2), more=values(3))
    common = ["dataset=arrays", f"data={stack}", "size=32", NETWORK, "K=1", "batch_size=2", "epochs=1",
              "steps_per_epoch=2", "warm_start_epochs=0", "task=denoising", "val_images=2",
              f"out={tmp_path / 'run'}"]  # fmt: skip
    (tmp_path / "c.yaml").write_text("bf16: false\n")
    assert says(call("train", tmp_path / "c.yaml", *common).output, MANY)
    config = load_config(tmp_path / "c.yaml", [*common, "key=images", f"val_data={tmp_path / 'val.npz'}"])
    images, held_out = load_sets(config, progress=False)
    np.testing.assert_array_equal(images.data, values(4, 3, 32, 32))
    np.testing.assert_array_equal(held_out.data, values(2, 3, 32, 32, seed=2))
    assert train(config, RANK, progress=False)["finished"]
    with pytest.raises(ConfigError, match=r"other settings \(key\)"):
        train(load_config(tmp_path / "c.yaml", [*common, "key=others"]), RANK, progress=False)


def test_train_on_pictures(tmp_path):
    save_pictures(tmp_path, 3, (128, 128))
    with pytest.raises(ValueError, match="key is for arrays; these are pictures"):
        load_sets(load_config(None, [f"data={tmp_path}", "key=images"]), progress=False)
