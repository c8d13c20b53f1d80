"""Notes on what a model was not trained for, in the terms of who gave the picture."""

import re
import warnings

import numpy as np
import pytest
from helpers import says, tiny_model
from PIL import Image
from torch import nn

import firm
from firm.restoration import Problem, run
from firm.restoration.advice import advice
from restoration_helpers import rows, save_gray

CARD = {"trained_for": [{"name": "denoising", "sigma": [0.05, 0.4]}]}


@pytest.fixture
def gray(folder, tmp_path):
    Image.open(folder / "000.png").convert("L").save(tmp_path / "gray.png")
    return tmp_path / "gray.png"


@pytest.mark.parametrize(
    ("sigma", "channels", "told"),
    [(0.03, 3, ""), (0.2, 3, ""), (0.3, 3, "0.0289 to 0.231 for gray pictures"), (0.3, 1, ""), (0.5, 1, "0.05 to 0.4")],
)
def test_gray_pictures_are_compared_by_the_noise_that_the_model_sees(gray, sigma, channels, told):
    """Three channels with independent noise have sqrt(3) times the picture's; a gray model sees it as it is."""
    notes = advice(CARD, Problem.from_file(gray, "denoising", sigma=sigma, channels=channels))
    assert notes == ([f"sigma {sigma} is not what the model was trained for, {told}"] if told else [])


def test_the_librarys_warnings_are_notes_with_the_level_that_was_given(gray, restore, recwarn):
    """Inside, the noise of a gray picture is sqrt(3) times larger: 2.6."""
    output = restore(gray, "--task", "denoising", "--sigma", 1.5)
    assert says(output, "note: sigma 1.5 is more than images in [-1, 1] can measure")
    assert "Warning" not in output
    assert not recwarn.list


def test_warnings_of_other_code_stay_warnings_and_those_of_every_step_are_told_once():
    def work():
        warnings.warn_explicit("old", DeprecationWarning, "elsewhere.py", 3)
        for text in ("residual 1.2e-05 left", "residual 3.4e-03 left", "another"):
            warnings.warn_explicit(text, RuntimeWarning, run.__file__, 3, module="firm.operators.cg")

    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("default")
        with run.warnings_as_notes() as notes:
            work()
    assert notes == ["residual 1.2e-05 left", "another"]
    assert [str(other.message) for other in others] == ["old"]


def test_the_command_line_calls_settings_by_their_options(folder, restore, tmp_path):
    model = tiny_model(tmp_path / "m.safetensors", [{"name": "super-resolution", "factor": 2}])
    output = restore(folder / "000.png", "--task", "super-resolution", "--scale", 1, "--model", model)
    assert says(output, "note: scale 1 is not what the model was trained for, 2")
    problem = Problem.from_file(folder / "000.png", "super-resolution", sigma=0.05, filter="stride", scale=1)
    assert advice(firm.load(model), problem) == ["factor 1 is not what the model was trained for, 2"]


def test_inpainting_with_estimated_noise_names_the_options(restore, tmp_path):
    """Texture of a clean picture reads as noise; who knows better can say so."""
    draw = np.random.default_rng(0)
    Image.fromarray(draw.integers(0, 256, (36, 44, 3)).astype(np.uint8)).save(tmp_path / "texture.png")
    mask = save_gray(tmp_path / "mask.png", np.repeat([0, 1, 0], [5, 4, 27])[:, None].repeat(44, 1))
    model = tiny_model(tmp_path / "m.safetensors", [{"name": "stroke-inpainting", "sigma": [0.002, 0.05]}])

    def notes(*more):
        words = ["--task", "inpainting", "--mask", mask, "--model", model, "--force"]
        restore(tmp_path / "texture.png", *words, *more)
        return " ".join(rows(tmp_path / "out")[0]["advice"])

    assert re.search(r"sigma .* 0.002 to 0.05; it was estimated.*--sigma .*--keep-known", notes())
    assert "--sigma" in notes("--keep-known")
    assert "--keep-known" not in notes("--keep-known")
    assert "estimated" not in notes("--sigma", 0.5)
    problem = Problem.from_file(tmp_path / "texture.png", "inpainting", mask=mask)
    assert "--" not in " ".join(advice({"trained_for": [{"name": "stroke-inpainting"}]}, problem))  # the demo has none


class Gain(firm.tasks.BaseTask):
    """A task of the user's own; cards name it by its file and class."""

    gain = firm.tasks.Parameter(float, "gain", 0.5, low=0)


@pytest.mark.parametrize(
    ("task", "notes"),
    [
        (firm.Task("denoising", 32, sigma=0.4), []),
        (firm.Task("denoising", 32, sigma=0.8), ["sigma 0.8 is not what the model was trained for, 0.05 to 0.4"]),
        (firm.Task("deblurring", 32), ["the model was not trained for deblurring"]),
        (firm.Task("box-inpainting", 32, box=9), ["box 9 is not what the model was trained for, 16 to 56"]),
        (Gain(32, gain=0.7), ["gain 0.7 is not what the model was trained for, 0.5"]),
        (firm.Task("demosaicing", 32, pattern="rggb"), []),  # it was trained for patterns of all kinds
    ],
)
def test_tasks_have_advice_in_python(task, notes):
    entries = [*CARD["trained_for"], {"name": "box-inpainting", "sigma": 0.05, "box": [16, 56]},
               {"name": "their/file.py:Gain", "sigma": 0.05, "gain": 0.5},
               {"name": "demosaicing", "pattern": "random", "sigma": [0, 0.1]}]  # fmt: skip
    model = firm.Firm(nn.Identity(), card={"trained_for": entries})
    assert firm.advice(model, task) == notes
    assert firm.advice(model.card, task, options=True) == notes  # its options are those of pictures
    assert firm.advice(firm.Firm(nn.Identity()), task) == []  # nothing is known


def test_the_boundary_of_a_blur_is_told_and_the_size_of_its_kernel_is_not():
    """A model trained for unknown surroundings loses decibels with periodic ones, as version 1 of `photo` did."""
    entry = {"name": "deblurring", "sigma": 0.05, "blur": 1.0, "boundary": "valid", "kernel_size": 25}
    model = firm.Firm(nn.Identity(), card={"trained_for": [entry]})
    assert firm.advice(model, firm.Task("deblurring", 32, boundary="valid", kernel_size=9)) == []
    said = "the model was trained for blurs with unknown surroundings, and this one is periodic"
    assert firm.advice(model, firm.Task("deblurring", 32)) == [said]
    told = firm.advice(model, firm.Task("deblurring", 32), options=True)
    assert told == [f"{said}; --set boundary=valid gives such a blur"]
    paper = firm.Firm(nn.Identity(), card={"trained_for": [{"name": "deblurring", "sigma": 0.05, "blur": 1.0}]})
    assert firm.advice(paper, firm.Task("deblurring", 32, boundary="valid")) == []  # which loses nothing


def test_no_noise_is_no_matter_where_pixels_are_kept(folder, tmp_path):
    mask = save_gray(tmp_path / "mask.png", np.eye(36, 44))
    card = {"trained_for": [{"name": "stroke-inpainting", "sigma": [0.01, 0.05]}]}
    for keep in (True, False):
        clean = Problem.from_file(folder / "000.png", "inpainting", sigma=0.0, mask=mask, keep_known=keep)
        assert bool(firm.advice(card, clean)) != keep


def test_what_is_no_model_or_no_task_is_told():
    with pytest.raises(TypeError, match=r"a model \(firm.load\) or its card, not str"):
        firm.advice("photo", firm.Task("denoising"))
    with pytest.raises(TypeError, match="a task, such as"):
        firm.advice({}, "denoising")


def test_pictures_are_compared_with_what_the_model_has_seen(folder):
    card = {"trained_for": [
        *CARD["trained_for"], {"name": "random-inpainting", "sigma": [0, 0.1]},
        {"name": "super-resolution", "factor": 2},
        {"name": "stroke-inpainting", "width": [3, 14]},  # the task's own width counts too
    ]}  # fmt: skip
    new = "is not what the model was trained for"
    for task, settings, notes in (
        ("denoising", {"sigma": 0.8}, [f"sigma 0.8 {new}, 0.05 to 0.4"]),
        ("deblurring", {"sigma": 0.2, "blur": 1.0}, ["the model was not trained for deblurring"]),
        ("super-resolution", {"sigma": 0.2, "scale": 4},
         [f"factor 4 {new}, 2", f"filter bicubic {new}, stride", f"sigma 0.2 {new}, 0.05"]),
    ):  # fmt: skip
        problem = Problem.from_file(folder / "000.png", task, **settings)
        assert advice(card, problem) == notes
        assert advice({}, problem) == []
    thin = Problem.simulated(folder / "000.png", "stroke-inpainting", {})
    assert advice(card, thin) == [f"width 1.69 {new}, 3 to 14"]


def test_advice_compares_with_the_entries_of_a_mixture_one_by_one(folder):
    """The model has seen a factor of 4, and stride, but not both at once."""
    entries = ((2, "bicubic", 0.1), (4, "bicubic", 0.1), (2, "stride", 0.05))
    card = {"trained_for": [
        {"name": "super-resolution", "factor": n, "filter": kind, "sigma": [0.01, top]} for n, kind, top in entries
    ]}  # fmt: skip

    def told(sigma, **settings):
        return advice(card, Problem.from_file(folder / "000.png", "super-resolution", sigma=sigma, **settings))

    assert told(0.05, scale=2, filter="stride") == []
    other = "with these other settings is not what the model was trained for"
    assert told(0.05, scale=4, filter="stride") == [f"factor 4 {other}, 2"]
    assert told(0.08, scale=2, filter="stride") == [f"sigma 0.08 {other}, 0.01 to 0.05"]
    new = "is not what the model was trained for"
    assert told(0.05, scale=5, filter="bicubic") == [f"factor 5 {new}, 4"]  # the nearest, not the first


def test_advice_reads_numbers_that_yaml_takes_for_text(folder):
    card = {"trained_for": [{"name": "denoising", "sigma": ["1e-3", "2e-1"]}]}
    for sigma, count in ((0.1, 0), (0.4, 1)):
        assert len(advice(card, Problem.from_file(folder / "000.png", "denoising", sigma=sigma))) == count
    card = {"trained_for": [{"name": "denoising", "sigma": "loud"}]}
    assert advice(card, Problem.from_file(folder / "000.png", "denoising", sigma=0.4)) == []
