"""``.npy`` results are pictures again; files of several pictures; noise levels in two units."""

import numpy as np
import pytest
import torch
from PIL import Image

from firm._util.checks import in_both_units, noise_level
from firm.data.opening import PictureError
from firm.data.picture import read_picture
from firm.restoration.output import write_picture
from firm.restoration.reading import ProblemError, is_saved_picture, read


@pytest.mark.parametrize("channels", [3, 1])
def test_a_picture_that_was_saved_as_floats(folder, tmp_path, channels):
    x = read_picture(folder / "000.png")[:channels]
    write_picture(tmp_path / "a.npy", x, "npy")
    found = read(tmp_path / "a.npy")
    torch.testing.assert_close(found.image[0], x.expand(3, -1, -1))
    assert (found.array, found.gray) == (False, channels == 1)


@pytest.mark.parametrize(("name", "what"), [("a.gif", "frames"), ("a.png", "frames"), ("a.tif", "pages")])
def test_a_file_of_several_pictures_has_a_note(folder, tmp_path, name, what):
    first, *others = (Image.open(path) for path in sorted(folder.iterdir()))
    first.save(tmp_path / name, save_all=True, append_images=others)
    note = f"the first of 3 {what} is restored, the others are left out"
    assert read(tmp_path / name).notes == (note,)
    first.save(tmp_path / name)
    assert read(tmp_path / name).notes == ()
    first.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=others[:1])
    assert read(tmp_path / "a.jpg").notes == ()  # a camera's previews


def test_what_is_broken_behind_the_first_picture_is_not_looked_at(folder, tmp_path):
    first, *others = (Image.open(path) for path in sorted(folder.iterdir()))
    first.save(tmp_path / "a.gif")
    alone = (tmp_path / "a.gif").stat().st_size
    first.save(tmp_path / "a.gif", save_all=True, append_images=others)
    whole = (tmp_path / "a.gif").read_bytes()
    for length in (alone + 40, alone + 800, len(whole) - 5):
        (tmp_path / "a.gif").write_bytes(whole[:length])
        assert read(tmp_path / "a.gif").image.shape == (1, 3, 36, 44)


@pytest.mark.parametrize(
    ("shape", "channels", "picture"),
    [((3, 36, 4), 3, False), ((36, 44), 3, False), ((1, 9, 3), 1, False), ((36, 44, 3), 3, True),
     ((36, 44, 3), 2, False)],  # a model for arrays
)  # fmt: skip
def test_arrays_stay_arrays(tmp_path, shape, channels, picture):
    np.save(tmp_path / "a.npy", np.zeros(shape, np.float32))
    assert is_saved_picture(tmp_path / "a.npy", channels) == picture
    if picture:
        with pytest.raises(ProblemError, match="channels"):
            read(tmp_path / "a.npy", channels, value_range=(0.0, 2.0))  # the user speaks of an array


def test_values_that_are_no_picture(tmp_path):
    for value in (-1.0, 255.0, np.nan):
        np.save(tmp_path / "a.npy", np.full((36, 44, 3), value, np.float32))
        with pytest.raises(ProblemError, match=r"is read as a picture in \[0, 1\]"):
            read(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.zeros((100, 100, 3), np.float32))
    with pytest.raises(PictureError, match="megapixels, more than the limit"):
        read(tmp_path / "a.npy", max_megapixels=0.005)


def test_noise_levels_in_two_units():
    assert [noise_level(text) for text in ("0.2", "0", " 25 / 255 ")] == [0.2, 0.0, pytest.approx(50 / 255)]
    for text in ("25/256", "25/", "much", "25/255/255"):
        with pytest.raises(ValueError, match=r"--sigma takes a noise level .* such as 25/255"):
            noise_level(text)
    assert in_both_units(0.1, 0.10001) == "0.1 in [-1, 1] = 12.8/255"
