"""Options of `firm restore` that are wrong, or do not go together: one sentence, before anything is read or written."""

from pathlib import Path

import numpy as np
import pytest
from helpers import says
from PIL import Image

OWN = f"{Path(__file__).parent / 'instruments.py'}:Window"
CUSTOM = f"--task {OWN}"
BLUR = "--task deblurring --kernel {kernel}"
WRONG = [
    ("--task denoising --simulate denoising", "give either --task"),
    ("--blur 2", "give --task too"),
    ("--kernel {kernel}", "belongs to --task deblurring"),
    ("--task denoising --strength 0.01", "strength"),
    ("--task fourier", "no task 'fourier' for pictures"),
    ("--task denoising --missing 0.5", "missing does not belong to denoising but to --simulate"),
    ("--task denoising --sigma nan", "such as 25/255"),
    ("--task denoising --sigma 25", "a level of 25 on the scale 0..255 is 0.196, or --sigma 25/255"),
    ("--task denoising --blur 1", "blur does not belong to denoising"),
    ("--task super-resolution --scale 0", "must be 1 or more and at most 8, got 0"),
    ("--task motion-deblurring --length 7", "motion-deblurring needs length"),
    ("--task demosaicing --pattern random", "pattern must be rggb or bggr"),
    ("--task inpainting", "inpainting needs a mask"),
    ("--task inpainting --mask no.png", "--mask no.png: no such file or folder"),
    ("--simulate denosing", "did you mean 'denoising'?"),
    ("--simulate denoising --box 4", "no setting 'box'"),
    ("--simulate denoising --sigma 7", "sigma must be from 0 to 2"),
    ("--simulate denoising --seed 100000000000000000000", "the seed must be a whole number from 0 to 2^32 - 1"),
    ("--simulate denoising --set b", "--set takes key=value, got 'b'"),
    ("--simulate denoising --key x", "--key is for files that hold several arrays, and these are pictures"),
    # models, and how to restore
    ("--task denoising --model nothing", "no model 'nothing'"),
    ("--task denoising --model toy", "does not restore images"),
    ("--task denoising --tile 30", "tile must be a multiple of"),
    ("--task denoising --value-range 1;2", "--value-range takes two numbers, low,high"),
    ("--task denoising --value-range 9,1", "value_range is (low, high) with low < high"),
    *[(f"--task denoising {option} {wrong}", f"'{option}': must be a whole number of at least 1, got {wrong}")
      for option in ("--steps", "--samples") for wrong in ("2.5", "0", "-1", "many")],
    # what belongs to other tasks
    ("--task denoising --keep-known", "--keep-known belongs to --task inpainting"),
    ("--simulate random-inpainting --keep-known", "--keep-known belongs to --task inpainting"),
    ("--task denoising --set a=1", "--set belongs to --simulate, and to --task with a custom task"),
    ("--task denoising --size 32", "--size belongs to --task with a custom task"),
    (BLUR + " --blur 1", "give either blur, the width of a Gaussian, or kernel"),
    (BLUR + " --max-megapixels 1e-6", "(3, 4), is larger than 1e-06 megapixels"),
    ("--simulate deblurring --kernel {kernel}", "--kernel belongs to --task deblurring"),
    # custom tasks
    (CUSTOM + " --set rmi=3", "the task window has no setting 'rmi'; did you mean 'rim'?"),
    (CUSTOM + " --set rim=-1", "window: rim, the pixels that are cut off, must be 0 or more, got -1"),
    (CUSTOM + " --mask m.png", "--mask belongs to --task inpainting; what a custom task measures, its code says"),
    (CUSTOM + " --value-range 0,1", "measurements of a custom task are taken as they are"),
    (CUSTOM + " --size big", "--size takes the side of a square image"),
    (CUSTOM.replace("Window", "Widow"), "has no Widow; it has Window, Mosaic"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_wrong_options_are_told_before_any_work(folder, restore, tmp_path, words, message):
    """Once, however many pictures there are: an error of one picture would end with the exit code 1."""
    np.save(tmp_path / "kernel.npy", np.eye(4)[:3])
    told = restore(folder, *words.format(kernel=tmp_path / "kernel.npy").split(), code=2)
    assert says(told, message), told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("000.png --simulate super-resolution --scale 99999", "is larger than the picture's sides"),
        ("000.png --task denoising --max-megapixels 0.001", "megapixels, more than the limit of 0.001"),
        ("tiny.png --task denoising", "too few neighboring pixels to estimate the noise from: give its level"),
        ("none.png --task denoising", "none.png: no such file"),
        ("none/ --task denoising", "none: no such file or folder"),
    ],
)
def test_what_one_picture_cannot_have_is_told(folder, restore, tmp_path, words, message):
    Image.new("RGB", (4, 4)).save(folder / "tiny.png")
    name, *rest = words.split()
    assert says(restore(f"{folder}/{name}", *rest, code=2), message)
    assert not list((tmp_path / "out").glob("*"))


def test_results_need_a_folder_of_their_own(folder, restore, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out, message in ((tmp_path / "file", "is a file; results need a folder"),
                         (folder, "--out is the folder of the pictures")):  # fmt: skip
        assert says(restore(folder, "--task", "denoising", "--out", out, code=2), message)
