"""Gray pictures of more than 8 bits: the same picture however it is stored, and what is assumed is said."""

import struct

import numpy as np
import pytest
import torch
from helpers import call, says, tiny_model
from PIL import Image

from firm.data.opening import PictureError
from firm.data.picture import read_picture
from firm.restoration import Problem
from firm.restoration.reading import read
from restoration_helpers import rows

SHARES = np.random.default_rng(0).random((40, 48))  # of white
SHARES[0, :2] = 0, 1
ASSUMED = "have no range of their own: 0 was taken for black and 65535 for white; --value-range low,high says otherwise"
DARK = "the brightest pixel has less than 1/16 of white, 65535"


def tiff(path, values):
    """A TIFF by hand: Pillow writes whole numbers of 32 bits with a sign only."""
    values, kind = np.ascontiguousarray(values), {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    (h, w), data, bits = values.shape, values.tobytes(), 8 * values.dtype.itemsize
    tags = {256: w, 257: h, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: h, 279: len(data), 339: kind}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    path.write_bytes(
        b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + entries + b"\0" * 4
    )
    return path


def stored(path, kind, low, high):
    """The picture with black and white as `low` and `high`; its values in [-1, 1], as they were rounded."""
    values = (low + SHARES * (float(high) - low)).astype(kind)
    expected = 2 * (values.astype(np.float64) - low) / (float(high) - low) - 1
    return tiff(path, values), torch.from_numpy(expected).float()


@pytest.mark.parametrize(
    ("kind", "low", "high", "given"),
    [
        (np.uint16, 0, 65535, False), (np.int32, 0, 65535, False), (np.uint32, 0, 65535, False),
        (np.float32, 0, 1, False), (np.int32, 0, 4095, True),
        (np.int32, -(10**9), 2 * 10**9, True), (np.uint32, 0, 2**32 - 1, True), (np.int16, -32768, 32767, True),
        (np.float32, -1, 1, True), (np.float32, 100, 4196, True),
    ],
)  # fmt: skip
def test_the_same_picture_in_any_type(kind, low, high, given, tmp_path, monkeypatch):
    monkeypatch.setattr("firm.data.picture.STRIP", 500)  # a few rows at a time, as large pictures are converted
    path, expected = stored(tmp_path / "a.tif", kind, low, high)
    found = read(path, value_range=(low, high) if given else None)
    assert found.gray
    assert not found.array
    torch.testing.assert_close(found.image, expected.expand(1, 3, -1, -1), atol=2e-6, rtol=0)
    if not given:
        torch.testing.assert_close(read_picture(path), found.image[0])  # as training and evaluation read it
        return
    assert found.notes == ()
    if high != 4095:  # which fits, and is dark
        with pytest.raises(PictureError, match=rf"pixels from {low} to {high}; expected 0 to (1|65535): say what is b"):
            read(path)


@pytest.mark.parametrize(
    ("kind", "high", "bits", "dark"),
    [(np.uint16, 4096, 0, False), (np.uint16, 4095, 0, True), (np.uint32, 65535, 32, False), (np.int32, 255, 32, True),
     (np.int16, 32767, 16, False), (np.float32, 0.01, 0, False)],
)  # fmt: skip
def test_what_is_assumed_is_said(kind, high, bits, dark, tmp_path):
    path = stored(tmp_path / "a.tif", kind, 0, high)[0]
    notes = [*([f"whole numbers of {bits} bits {ASSUMED}"] if bits else []), *([DARK] if dark else [])]
    for problem in (Problem.from_file(path, "denoising", sigma=0.1), Problem.simulated(path, "denoising", {})):
        assert [note.partition(": if")[0] for note in problem.notes] == notes
    assert Problem.from_file(path, "denoising", sigma=0.1, value_range=(0, max(high, 0.01))).notes == ()


def test_other_pictures_have_a_range_of_their_own(tmp_path):
    levels = (SHARES * 255).round().astype(np.uint8)
    Image.fromarray(levels).save(tmp_path / "a.png")
    Image.fromarray((SHARES * 65535).round().astype(np.uint16)).save(tmp_path / "b.png")
    for name in "ab":
        assert read(tmp_path / f"{name}.png").notes == ()
    assert "had no effect" in read(tmp_path / "a.png", value_range=(0, 100)).notes[0]
    expected = torch.from_numpy(levels / 127.5 - 1).float()
    torch.testing.assert_close(read(tmp_path / "a.png", value_range=(0, 100)).image[0, 0], expected)


def test_what_is_outside_the_range_is_refused(tmp_path):
    path = stored(tmp_path / "a.tif", np.int32, 0, 5000)[0]
    with pytest.raises(PictureError, match=r"I pixels from 0 to 5000; expected 0 to 4095: say what is black"):
        read(path, value_range=(0, 4095))
    with pytest.raises(ValueError, match="low < high"):
        read(path, value_range=(1, 0))
    nan = np.full((4, 4), np.nan, np.float32)
    with pytest.raises(PictureError, match=r"from nan to nan; expected 0 to 9$"):  # no range would help
        read(tiff(tmp_path / "nan.tif", nan), value_range=(0, 9))


def test_the_command(restore, tmp_path):
    """A range that is given is that of all files; the one of training is for arrays alone."""
    model = tiny_model(tmp_path / "m.safetensors", [{"name": "denoising"}], value_range=[0.0, 10.0])
    (tmp_path / "in").mkdir()
    for name in ("one", "two"):
        stored(tmp_path / "in" / f"{name}.tif", np.int32, 0, 4095)
    words = [tmp_path / "in", "--task", "denoising", "--model", model]
    assert "note: whole" not in restore(*words, "--value-range", "0,4095", "--out", tmp_path / "a")
    assumed = restore(*words, "--out", tmp_path / "b")
    assert assumed.count("note: whole numbers of 32 bits") == 1  # once, not for each file
    sigmas = [rows(tmp_path / out)[0]["sigma"] for out in "ab"]
    assert sigmas[0] == pytest.approx(16 * sigmas[1], rel=0.2)  # 65535 / 4095; the estimate is not of one scale
    np.save(tmp_path / "in" / "three.npy", 10 * SHARES[None].repeat(3, 0).astype(np.float32))
    restore(*words, tmp_path / "in" / "three.npy", "--out", tmp_path / "c")  # 4095 would be far outside 0 to 10
    assert (tmp_path / "c" / "three_restored.npy").is_file()
    shown = call("info", tmp_path / "in" / "one.tif").output
    assert says(shown, "0 to 4095; black is 0, white 65535, or as --value-range says")
