"""``.npy`` results are pictures again; noise levels in two units."""

import json

import numpy as np
import pytest
import torch
from helpers import call, says
from PIL import Image

from firm._util.checks import in_both_units, noise_level
from firm.data.array_file import ArrayError
from firm.data.picture import PictureError, read_picture
from firm.restoration.output import write_picture
from firm.restoration.reading import ProblemError, is_saved_picture, read


def test_a_picture_that_was_saved_as_floats(folder, tmp_path):
    x = read_picture(folder / "000.png")
    write_picture(tmp_path / "a.npy", x, "npy")
    write_picture(tmp_path / "g.npy", x[:1], "npy")
    found = read(tmp_path / "a.npy")
    torch.testing.assert_close(found.image[0], x)
    assert (found.array, found.gray) == (False, False)
    gray = read(tmp_path / "g.npy")
    torch.testing.assert_close(gray.image[0], x[:1].expand(3, -1, -1))
    assert gray.gray


@pytest.mark.parametrize(("name", "what"), [("a.gif", "frames"), ("a.png", "frames"), ("a.tif", "pages")])
def test_a_file_of_several_pictures_has_a_note(folder, tmp_path, name, what):
    first, *others = (Image.open(path) for path in sorted(folder.iterdir()))
    first.save(tmp_path / name, save_all=True, append_images=others)
    note = f"the first of 3 {what} is restored, the others are left out"
    assert read(tmp_path / name).notes == (note,)
    first.save(tmp_path / name)
    assert read(tmp_path / name).notes == ()


def test_what_is_broken_behind_the_first_picture_is_not_looked_at(folder, tmp_path):
    first, *others = (Image.open(path) for path in sorted(folder.iterdir()))
    first.save(tmp_path / "a.gif")
    alone = (tmp_path / "a.gif").stat().st_size
    first.save(tmp_path / "a.gif", save_all=True, append_images=others)
    whole = (tmp_path / "a.gif").read_bytes()
    for length in (alone + 40, alone + 800, len(whole) - 5):
        (tmp_path / "a.gif").write_bytes(whole[:length])
        assert read(tmp_path / "a.gif").image.shape == (1, 3, 36, 44)


def test_the_pictures_inside_a_cameras_jpeg_are_previews(folder, tmp_path):
    first, other = (Image.open(folder / name) for name in ("000.png", "001.png"))
    first.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[other])
    assert read(tmp_path / "a.jpg").notes == ()


def test_arrays_stay_arrays(tmp_path):
    for name, shape in (("a", (3, 36, 4)), ("b", (36, 44)), ("c", (1, 9, 3))):
        np.save(tmp_path / f"{name}.npy", np.zeros(shape, np.float32))
    assert not is_saved_picture(tmp_path / "a.npy", 3)
    assert not is_saved_picture(tmp_path / "b.npy", 3)
    assert not is_saved_picture(tmp_path / "c.npy", 1)
    np.save(tmp_path / "d.npy", np.zeros((36, 44, 3), np.float32))
    assert is_saved_picture(tmp_path / "d.npy", 3)
    assert not is_saved_picture(tmp_path / "d.npy", 2)  # a model for arrays
    with pytest.raises(ArrayError, match="channels"):
        read(tmp_path / "d.npy", 3, value_range=(0.0, 2.0))  # the user speaks of an array


def test_values_that_are_no_picture(tmp_path):
    for values in (np.full((36, 44, 3), -1.0), np.full((36, 44, 3), 255.0), np.full((36, 44, 3), np.nan)):
        np.save(tmp_path / "a.npy", values.astype(np.float32))
        with pytest.raises(ProblemError, match=r"is read as a picture in \[0, 1\]"):
            read(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.zeros((100, 100, 3), np.float32))
    with pytest.raises(PictureError, match="megapixels, more than the limit"):
        read(tmp_path / "a.npy", max_megapixels=0.005)


@pytest.mark.parametrize(("text", "level"), [("0.2", 0.2), ("25/255", 50 / 255), (" 25 / 255 ", 50 / 255), ("0", 0.0)])
def test_noise_levels_in_two_units(text, level):
    assert noise_level(text) == pytest.approx(level)


@pytest.mark.parametrize("text", ["25/256", "25/", "/255", "much", "", "1/2/255", "25/255/255"])
def test_noise_levels_that_are_none(text, folder, model_file, tmp_path):
    with pytest.raises(ValueError, match="--sigma takes a noise level"):
        noise_level(text)
    result = call("restore", folder / "000.png", "--task", "denoising", "--sigma", text, "--model", model_file)
    assert result.exit_code == 2
    assert says(result.output, "such as 25/255")


def test_both_units_are_printed(folder, model_file, tmp_path):
    common = ["restore", folder / "000.png", "--sigma", "25/255", "--steps", 1, "--model", model_file]
    for i, kind in enumerate((["--task", "denoising"], ["--simulate", "denoising"])):
        result = call(*common, *kind, "-o", tmp_path / str(i))
        assert says(result.output, "noise 0.196 in [-1, 1] = 25/255"), result.output
        assert json.loads((tmp_path / str(i) / "restore.json").read_text())[0]["sigma"] == 0.19608
    assert says(call(*common[:3], "25", *kind).output, "a level of 25 on the scale 0..255 is 0.196, or --sigma 25/255")
    assert in_both_units(0.1, 0.2) == "0.1 to 0.2 in [-1, 1] = 12.8/255 to 25.5/255"
    assert in_both_units(0.1, 0.10001) == "0.1 in [-1, 1] = 12.8/255"


def test_one_line_says_what_was_done_and_where_to_look(folder, model_file, tmp_path):
    words = ["restore", folder, "--task", "denoising", "--sigma", 0.1, "--steps", 1, "--model", model_file]
    lines = call(*words, "-o", tmp_path / "o").output.splitlines()
    last = next(line for line in reversed(lines) if line.strip())
    assert last.startswith("3 pictures restored by denoising in ")
    assert f"see before and after in {tmp_path / 'o' / '000_compare.png'}; results are in {tmp_path / 'o'}" in last
