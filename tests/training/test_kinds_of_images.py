"""From any kind of images to a model, its evaluation and restored files: arrays of any channels, complex, gray."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import call, save_pictures
from PIL import Image

import firm
from firm._util.machine import Ranks
from firm._util.sheet import GAP, TEXT
from firm.data import Images
from firm.operators.complex import to_complex
from firm.tasks import Rows
from firm.training import loop
from firm.training.config import ConfigError, load_config
from firm.training.feed import Feed, load_sets
from firm.training.step import StepLoss, Velocity

RANK = Ranks(0, 1, torch.device("cpu"))
SETTINGS = """
size: 32
network: {ch: 8, mult: [1, 2], blocks: 1, attention: [], groups: 4, noise_level: true}
K: 1
batch_size: 2
epochs: 1
steps_per_epoch: 2
warm_start_epochs: 0
val_images: 2
bf16: false
checkpoint_every: 0
"""


def succeed(*arguments):
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    return done.output


def smooth(shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(*shape[:-2], 4, 4, generator=generator) * 2 - 1
    flat = torch.nn.functional.interpolate(coarse.reshape(-1, 1, 4, 4), size=shape[-2:], mode="bilinear")
    return (0.7 * flat).reshape(shape).numpy()


def stack(kind):
    """Seven images of 36x36 pixels, and the number of real channels."""
    if kind == "complex":
        return (smooth((7, 1, 36, 36)) + 1j * smooth((7, 1, 36, 36), 1)).astype(np.complex64), 2
    return smooth((7, kind, 36, 36)).astype(np.float32), kind


@pytest.mark.parametrize("kind", [1, 2, 5, "complex"])
def test_arrays_from_training_to_restored_files(kind, tmp_path, fit):
    array, channels = stack(kind)
    np.save(tmp_path / "stack.npy", array)
    np.save(tmp_path / "x.npy", array[0])
    (tmp_path / "c.yaml").write_text(SETTINGS)
    tasks = "[{name: denoising, sigma: [0.05, 0.3]}, {name: super-resolution}]"
    if kind == "complex":
        tasks = "[{name: denoising, sigma: [0.05, 0.3]}, {name: fourier, images: complex}]"
    data = ["dataset=arrays", f"data={tmp_path / 'stack.npy'}", f"channels={channels}", f"mixture={tasks}"]
    result = fit(load_config(tmp_path / "c.yaml", [*data, f"out={tmp_path / 'run'}"]))
    assert np.isfinite(result["psnr N=2"])
    with Image.open(next((tmp_path / "run" / "validation").iterdir())) as picture:
        # truth, measurement, restored; two images in two tasks, enlarged by 7, with titles
        assert picture.size == (3 * 7 * 32 + 4 * GAP, 4 * (7 * 32 + TEXT + 2 * GAP) + GAP)
    model_file = tmp_path / "run" / "model.safetensors"
    card = firm.load(model_file).card
    assert (card["channels"], card["complex"]) == (channels, kind == "complex")

    out = tmp_path / "evaluation"
    printed = succeed("evaluate", model_file, "--dataset", "arrays", "--data", tmp_path / "stack.npy", "--limit", 2,
                   "--tasks", "denoising,super-resolution", "--steps", "1", "--images", 1, "--out", out)  # fmt: skip
    assert "FIRM N=1" in printed
    rows = list(csv.DictReader((out / "images.csv").read_text().splitlines()))
    assert len(rows) == 2 * 3 * 2
    lpips = kind in (1, "complex")
    assert all(bool(row["lpips"]) == lpips and row["psnr"] and row["ssim"] for row in rows)
    summary = json.loads((out / "results.json").read_text())["summary"]["denoising"]["degraded"]
    assert ("lpips" in summary) == lpips
    assert (out / "denoising.png").stat().st_size > 5000
    noisy = {r["index"]: float(r["psnr"]) for r in rows if (r["task"], r["method"]) == ("denoising", "degraded")}
    truth = torch.from_numpy(array[:2, :, 2:34, 2:34])
    truth = torch.cat([truth.real, truth.imag], 1) if truth.is_complex() else truth
    _, y = firm.Task("denoising", 32).measure(truth)
    for i in range(2):
        a, b = y[i].double(), truth[i].double()
        if kind == "complex":  # magnitudes, whose range is [0, 1]
            a, b = (torch.complex(*v.chunk(2)).abs() for v in (a, b))
        by_hand = 10 * torch.log10((1 if kind == "complex" else 4) / (a - b).square().mean())
        assert noisy[str(i)] == pytest.approx(float(by_hand), abs=1e-4)

    for name, words in (("a", ["--simulate", "denoising"]), ("b", ["--task", "denoising", "--sigma", 0.1])):
        folder = tmp_path / name
        succeed("restore", tmp_path / "x.npy", *words, "--model", model_file, "--samples", 2, "--out", folder)
        for what in ("restored", "mean", "sample_02"):
            restored = np.load(folder / f"x_{what}.npy")
            assert (restored.shape, restored.dtype) == (array[0].shape, array.dtype)
        assert (folder / "x_compare.png").is_file()
        assert ("psnr" in json.loads((folder / "restore.json").read_text())[0]) == (name == "a")
    # the command's numbers are those of the library
    model = firm.tiled(firm.fast(firm.load(model_file), "float32"))
    y = torch.from_numpy(array[:1])
    y = torch.cat([y.real, y.imag], 1) if y.is_complex() else y
    again = firm.restore(model, firm.operators.Identity(), y, 2, 2, sigma=0.1).image
    succeed("restore", tmp_path / "x.npy", "--task", "denoising", "--sigma", 0.1, "--model", model_file, "--samples", 2,
         "--precision", "float32", "--out", tmp_path / "c")  # fmt: skip
    written = torch.from_numpy(np.load(tmp_path / "c" / "x_restored.npy"))[None]
    torch.testing.assert_close(written, to_complex(again) if kind == "complex" else again)


def test_a_gray_model_serves_gray_and_color_pictures(tmp_path, fit):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    save_pictures(pictures, 6, (36, 40))
    Image.fromarray(np.arange(40 * 36, dtype=np.uint8).reshape(40, 36)).save(pictures / "000.png")
    (tmp_path / "c.yaml").write_text(SETTINGS)
    settings = ["channels=1", "mixture=[{name: denoising, sigma: [0.1, 0.3]}]", f"out={tmp_path / 'run'}"]
    fit(load_config(tmp_path / "c.yaml", [f"data={pictures}", *settings]))
    model = tmp_path / "run" / "model.safetensors"
    assert firm.load(model).estimator.config["channels"] == 1
    for name, words in (("simulated", ["--simulate", "denoising"]), ("real", ["--task", "denoising", "--sigma", 0.1])):
        for picture, mode in (("000", "L"), ("001", "RGB")):
            succeed("restore", pictures / f"{picture}.png", *words, "--model", model, "--out", tmp_path / name)
            with Image.open(tmp_path / name / f"{picture}_restored.png") as restored:
                assert (restored.mode, restored.size) == (mode, (36, 40))


# What a step is fed


def numbered(n=6, channels=1, side=9):
    """Images whose every pixel is known: value = number of the image and place within it."""
    return torch.arange(n * channels * side * side, dtype=torch.float32).reshape(n, channels, side, side)


def feed(data, *overrides, ranks=RANK, size=4):
    network = "network={ch: 8, mult: [1], blocks: 1, groups: 4}"
    config = load_config(None, ["channels=1", f"size={size}", "batch_size=8", network, "dataset=arrays", *overrides])
    return Feed(config, Images(data, [str(i) for i in range(len(data))]), ranks), config


def test_random_crops_are_slices_of_the_images_and_flips_mirror_them():
    data = numbered()
    crops, _ = feed(data, "crop=random", "flips=true")
    torch.manual_seed(0)
    drawn = crops.draw([Rows(400, 0, 400)], None, torch.device("cpu"))
    every = {}
    for i in range(6):
        for top in range(6):
            for left in range(6):
                square = data[i, :, top : top + 4, left : left + 4]
                every[tuple(square.flatten().tolist())] = (i, top, left, False)
                every[tuple(square.flip(-1).flatten().tolist())] = (i, top, left, True)
    found = [every[tuple(image.flatten().tolist())] for image in drawn]
    for part in range(3):
        assert {f[part] for f in found} == set(range(6))
    assert len({f[1:3] for f in found}) == 36  # rows and columns are drawn apart
    assert 140 < sum(f[3] for f in found) < 260
    after = torch.rand(3)
    torch.manual_seed(0)
    plain = feed(data, "crop=random")[0].draw([Rows(400, 0, 400)], None, torch.device("cpu"))
    for flipped, image, (*_, mirrored) in zip(drawn, plain, found, strict=True):  # the same draws, not mirrored
        assert torch.equal(image.flip(-1) if mirrored else image, flipped)
    assert torch.equal(torch.rand(3), after)  # measurements do not depend on the setting


def test_scaled_crops_show_the_share_that_was_asked_for():
    ramp = torch.arange(64.0).expand(1, 1, 64, 64).contiguous() / 32 - 1  # a step of 1/32 from column to column
    crops, _ = feed(ramp, "crop=random", "scale=[0.5, 1.0]", size=16)
    torch.manual_seed(0)
    drawn = crops.draw([Rows(300, 0, 300)], None, torch.device("cpu"))
    side = 16 * 32 * (drawn[:, 0, 8, 12] - drawn[:, 0, 8, 4]) / 8  # pixels of the picture, by the slope
    assert 16 * 0.98 < float(side.min()) < 16.6
    assert 31 < float(side.max()) < 32 * 1.02
    assert float(side.log2().mean()) == pytest.approx(4.5, abs=0.05)  # uniform in the logarithm


def test_a_mapped_set_is_drawn_anew_in_every_step():
    data = numbered(60, 1, 4)

    def numbers(seed, first, steps):
        source, _ = feed(data, "memory_map=true", f"seed={seed}")
        found = [(source.ahead(step, [8])[:, 0, 0, 0] / 16).long().tolist() for step in range(first, first + steps)]
        source.close()
        return found

    whole = numbers(1, 0, 40)
    assert len({tuple(step) for step in whole}) == 40
    assert {i for step in whole for i in step} == set(range(60))
    assert numbers(1, 17, 3) == whole[17:20]  # from any step on
    assert numbers(2, 0, 40) != whole


@pytest.fixture
def sets(tmp_path):
    """Training and validation images of a stack, with settings of images of 4 pixels."""

    def read(stack, *overrides):
        np.save(tmp_path / "s.npy", stack)
        network = "network={ch: 8, mult: [1], blocks: 1, groups: 4}"
        common = ["channels=1", "size=4", network, "dataset=arrays", f"data={tmp_path / 's.npy'}"]
        return load_sets(load_config(None, [*common, *overrides]), False)

    return read


def test_centered_training_and_validation_images(sets, tmp_path):
    data = numbered(8, 1, 9).numpy() / 1000
    images, held_out = sets(data, "val_images=3")
    assert torch.equal(images.data, torch.from_numpy(data[3:, :, 2:6, 2:6]))  # the first are kept back
    assert torch.equal(held_out.data, torch.from_numpy(data[:3, :, 2:6, 2:6]))
    assert (held_out.names, images.names[0]) == ([f"s.npy[{i}]" for i in range(3)], "s.npy[3]")
    images, held_out = sets(data, "val_images=3", "crop=random")
    assert torch.equal(images.data, torch.from_numpy(data[3:]))  # whole, to crop from
    assert torch.equal(held_out.data, torch.from_numpy(data[:3, :, 2:6, 2:6]))
    images, _ = sets(data, "val_images=3", "crop=random", "read_size=7")
    assert torch.equal(images.data, torch.from_numpy(data[3:, :, 1:8, 1:8]))
    np.save(tmp_path / "v.npy", -data)
    images, held_out = sets(data, "val_images=3", f"val_data={tmp_path / 'v.npy'}")
    assert torch.equal(images.data, torch.from_numpy(data[:, :, 2:6, 2:6]))
    assert torch.equal(held_out.data, torch.from_numpy(-data[:3, :, 2:6, 2:6]))


def test_a_value_range_reaches_training(sets):
    images, held_out = sets(np.arange(64).reshape(4, 1, 4, 4).astype(np.int16), "val_images=0", "value_range=[0, 63]")
    torch.testing.assert_close(images.data.flatten(), torch.linspace(-1, 1, 64))
    assert len(held_out) == 0


def test_a_folder_of_counts_in_16_bits_trains_with_its_value_range(tmp_path):
    counts = np.arange(48, dtype=np.uint16).reshape(3, 4, 4)
    for i, picture in enumerate(counts):
        Image.fromarray(picture).save(tmp_path / f"{i}.tif")
    network = "network={ch: 8, mult: [1], blocks: 1, groups: 4}"
    settings = ["channels=1", "size=4", network, f"data={tmp_path}", "val_images=1", "value_range=[0, 47]"]
    images, held_out = load_sets(load_config(None, settings), False)
    whole = torch.cat([held_out.data, images.data])
    torch.testing.assert_close(whole, torch.from_numpy(counts[:, None] / 23.5 - 1).float())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["channels=2"], "1 channel, where 2 are asked for: set channels=1"),
        (["size=12"], "smaller than 12x12"),
        (["value_range=[1, 1]"], "low < high"),
        (["crop=random", "size=9", "scale=[0.7, 1.0]"], "crop=random needs larger images than 9 pixels"),
        (["val_images=8"], "no images left to train on"),
        (["dataset=folder"], 'called "arrays"'),
    ],
)
def test_images_that_do_not_fit_the_configuration(overrides, message, sets):
    with pytest.raises((ValueError, NotADirectoryError), match=message):
        sets(numbered(8, 1, 9).numpy() / 1000, "val_images=2", *overrides)


@pytest.mark.filterwarnings("ignore:.*values reach")
@pytest.mark.parametrize("wrong", ["data", "val_data"])
def test_a_range_far_beyond_that_of_firm_is_refused_before_training(wrong, tmp_path, monkeypatch, fit):
    monkeypatch.setattr(loop, "Trainer", lambda *_: pytest.fail("it was about to train"))
    x = smooth((7, 1, 36, 36))
    for name in ("data", "val_data"):
        np.save(tmp_path / f"{name}.npy", 127.5 * (x + 1) if name == wrong else 3 * x)  # the latter has a warning only
    (tmp_path / "c.yaml").write_text(SETTINGS)
    sets = [f"{name}={tmp_path / name}.npy" for name in ("data", "val_data")]
    config = load_config(tmp_path / "c.yaml", [*sets, "dataset=arrays", "channels=1", f"out={tmp_path / 'run'}"])
    with pytest.raises(ConfigError, match=rf"{wrong}\.npy: the images have values of about 1\d\d .* value_range="):
        fit(config)
    assert not (tmp_path / "run").exists()
    scaled = replace(config, value_range=(0.0, 2.0))
    with pytest.raises(ConfigError, match=r"of about 1\d\d \(root mean square\) with value_range=\[0, 2\], but"):
        load_sets(scaled, False)
    own = "from firm.training.objectives import Objective\nclass Own(Objective):\n    measures = False\n"
    (tmp_path / "own.py").write_text(own)
    for changed in ({"val_images": 0, "val_data": ""}, {"objective": f"{tmp_path / 'own.py'}:Own"}):
        assert len(load_sets(replace(config, **changed), False)[0])  # nothing is measured, or nothing validated


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_mixtures_batch_does_not_depend_on_how_it_is_split(mapped, accumulate):
    """One process with the whole batch, against two with their parts: the same images under the same noise."""
    data = torch.rand(50, 1, 8, 8) * 2 - 1
    mixture = "mixture=[{name: denoising, weight: 1}, {name: random-inpainting, weight: 1}]"
    settings = [mixture, f"memory_map={str(mapped).lower()}", "flips=true", "K=1", "batch_size=16"]

    class Echo(torch.nn.Module):
        def forward(self, x, x_t, t):
            return 0.5 * x + 0.1 * x_t

    def losses(world):
        found = []
        for rank in range(world):
            acc = accumulate if world > 1 else 1
            ranks = Ranks(rank, world, torch.device("cpu"))
            source, config = feed(data, *settings, f"accumulation_steps={acc}", ranks=ranks, size=8)
            loss = StepLoss(config, Velocity(config), Echo(), source, world)
            t = torch.linspace(0.1, 0.9, 16)
            parts = source.ahead(3, loss.counts).chunk(acc) if mapped else [None] * acc
            for k in range(acc):
                torch.manual_seed(5)
                found.append(float(loss(t, rank * acc + k, False, parts[k])))
            source.close()
        return sum(found) / len(found)

    assert losses(2) == pytest.approx(losses(1), rel=1e-5)
