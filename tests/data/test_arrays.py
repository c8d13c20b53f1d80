"""Arrays as images: what each file gives, in which range, and sets of them."""

import numpy as np
import pytest
import torch
from array_helpers import FORMATS, RNG, complexes, floats, load, write

from firm.data import ArrayError, array_files, read_image


def refused(match, read, *arguments, error=ArrayError, **options):
    with pytest.raises(error, match=match):
        read(*arguments, **options)


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_images(suffix, tmp_path):
    for x in (floats(5, 2, 8, 6), complexes(5, 2, 8, 6), RNG.integers(0, 256, (5, 2, 8, 6), dtype=np.uint8)):
        images = load(write(tmp_path / f"stack{suffix}", x))
        expected = torch.from_numpy(np.concatenate([x.real, x.imag], 1) if np.iscomplexobj(x) else x)
        assert torch.equal(images.data, expected)  # real parts, then imaginary parts
        assert images.complex == np.iscomplexobj(x)
        assert images.names == [f"stack{suffix}[{i}]" for i in range(5)]
        one, is_complex = read_image(write(tmp_path / f"one{suffix}", x[3]))
        assert torch.equal(one, images.batch(range(3, 4))[0])
        assert is_complex == images.complex


def test_a_single_file_is_a_stack_and_a_file_in_a_folder_is_an_image(tmp_path):
    x = floats(3, 8, 8)
    path = write(tmp_path / "a" / "x.npy", x)
    assert load(path).data.shape == (3, 1, 8, 8)  # three gray images
    assert load(path.parent).data.shape == (1, 3, 8, 8)  # one image of three channels
    assert load(path.parent, "folder").names == ["x.npy"]
    write(path, x[0])
    assert load(path).data.shape == load(path.parent).data.shape == (1, 1, 8, 8)
    assert read_image(path)[0].shape == (1, 8, 8)
    write(path, floats(2, 3, 8, 8))
    assert load(path).data.shape == (2, 3, 8, 8)
    for read, place in ((load, path.parent), (read_image, path)):
        refused(r"x\.npy: an array \(2, 3, 8, 8\); expected \(C, H, W\).*give the stack", read, place)
    for shape in ((8,), (1, 2, 3, 8, 8)):
        refused(r"an array \(.*\); expected \(n, C, H, W\) or \(n, H, W\)", load, write(path, floats(*shape)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, ">f4", ">f8"])
def test_floats_are_taken_as_they_are(dtype, tmp_path):
    x = floats(4, 8, 8).astype(dtype)
    images = load(write(tmp_path / "x.npy", x))
    assert images.data.dtype == torch.float32
    np.testing.assert_array_equal(images.data[:, 0].numpy(), x.astype(np.float32))


def test_bytes_stay_bytes_and_sixteen_bits_become_floats(tmp_path):
    x = RNG.integers(0, 256, (4, 8, 8), dtype=np.uint8)
    images = load(write(tmp_path / "x.npy", x))
    assert images.data.dtype == torch.uint8
    assert torch.equal(images.batch(slice(None))[:, 0], torch.from_numpy(x).float() / 127.5 - 1)
    images = load(write(tmp_path / "deep.npy", np.array([[[0, 65535], [13107, 52428]]], np.uint16)))
    torch.testing.assert_close(images.data, torch.tensor([[[[-1.0, 1.0], [-0.6, 0.6]]]]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.int64, np.uint8, np.uint16])
def test_a_value_range_stands_for_minus_one_to_one(dtype, tmp_path):
    x = np.array([[10, 60], [35, 85]]).astype(dtype)
    path = write(tmp_path / "x.npy", x)
    for read in (lambda: load(path, value_range=(10, 60)).data[0], lambda: read_image(path, value_range=(10, 60))[0]):
        with pytest.warns(UserWarning, match=r"x\.npy: values reach 2 in magnitude"):
            torch.testing.assert_close(read()[0], torch.tensor([[-1.0, 1.0], [0.0, 2.0]]))


def test_complex_values_are_divided(tmp_path):
    x = 50 * complexes(2, 8, 8)
    path = write(tmp_path / "x.npy", x)
    torch.testing.assert_close(load(path, value_range=(0, 50)).data[:, 1], torch.from_numpy(x.imag / 50))
    refused(r"x\.npy: complex values .* must start at 0", load, path, value_range=(-50, 50))
    np.save(path, np.full((1, 8, 8), 0.9 + 0.9j))  # each part in range, the magnitude not
    with pytest.warns(UserWarning, match=r"values reach 1\.273"):
        load(path)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint32, np.int64, np.bool_])
def test_other_integers_need_a_range(dtype, tmp_path):
    path = write(tmp_path / "x.npy", np.ones((1, 8, 8), dtype))
    refused(r"x\.npy: \w+ has no range of its own; use value_range", load, path)
    assert torch.equal(load(path, value_range=(0, 1)).data, torch.ones(1, 1, 8, 8))


@pytest.mark.parametrize("value_range", [(1, 1), (0, np.inf), (np.nan, 1), (0, 1, 2)])
def test_wrong_ranges(value_range, tmp_path):
    for read in (load, read_image):
        path = write(tmp_path / "x.npy", floats(8, 8))
        refused("low < high", read, path, value_range=value_range, error=ValueError)


def test_values_out_of_range_are_warned_of_once(tmp_path):
    for i in range(3):
        write(tmp_path / "set" / f"{i}.npy", 255 * floats(8, 8) ** 2 + 1)
    with pytest.warns(UserWarning, match="set: values reach .* FIRM works in") as caught:
        load(tmp_path / "set")
    assert len(caught) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers(bad, tmp_path, monkeypatch):
    monkeypatch.setattr("firm.data.arrays.BLOCK", 3 * 4 * 8 * 8)  # three images a block
    for dtype in (np.float32, np.float64, np.complex64):
        x = floats(8, 1, 8, 8).astype(dtype)
        x[5, 0, 2, 3] = bad
        path = write(tmp_path / "x.npy", x)
        for mapped in (False, True):
            infinite = r"x\.npy: NaN or infinite values, first in image 5"
            refused(infinite, load, path, mapped=mapped, cache=tmp_path / "cache")
        assert not [p for p in tmp_path.glob("cache/**/*") if p.is_file()]
    too_large = write(tmp_path / "x.npy", np.full((1, 8, 8), 1e300))  # for float32
    refused("NaN or infinite", load, too_large)


@pytest.mark.parametrize("suffix", FORMATS)
def test_images_are_cropped_at_their_center(suffix, tmp_path):
    x = floats(3, 2, 11, 14)
    path = write(tmp_path / f"x{suffix}", x)
    assert torch.equal(load(path, size=8).data, torch.from_numpy(x[:, :, 1:9, 3:11]))
    refused("images of 11x14 are smaller than 12x12", load, path, size=12)
    write(tmp_path / "folder" / f"x{suffix}", x[0])
    assert torch.equal(load(tmp_path / "folder", size=8).data[0], torch.from_numpy(x[0, :, 1:9, 3:11]))


def test_channels_are_checked_if_given(tmp_path):
    path = write(tmp_path / "x.npy", complexes(3, 8, 8))
    assert load(path, channels=2).channels == 2
    refused(r"x\.npy: 1 complex, so 2 real channels, where 3 are asked for$", load, path, channels=3)
    write(path, floats(5, 8, 8))
    for read, place in ((load, tmp_path), (read_image, path)):
        refused(r"5 channels, where 3 are asked for$", read, place, channels=3)
    write(path, floats(32, 32, 3))  # channels last
    refused("images of 32x3 are smaller than 16x16; channels come before rows", load, tmp_path, size=16)
    refused(r"32 channels of 32x3 .* arrays are \(C, H, W\): .*transpose\(2, 0, 1\)", read_image, path, 3)
    write(path, floats(2, 32, 24, 4))
    refused(r"arrays are \(n, C, H, W\): .*transpose\(0, 3, 1, 2\)", load, path, channels=3)


def test_a_folder_of_arrays(tmp_path):
    for i, name in enumerate(["b.npy", "a.npz", "sub/c.pt", ".hidden/d.npy", ".e.npy"]):
        write(tmp_path / name, np.full((2, 8, 8), i / 10, np.float32))
    (tmp_path / "notes.txt").write_text("no array")
    assert [path.name for path in array_files(tmp_path)] == ["a.npz", "b.npy", "c.pt"]
    images = load(tmp_path, "folder", split="val")
    assert images.names == ["a.npz", "b.npy", "sub/c.pt"]
    torch.testing.assert_close(images.data[:, 0, 0, 0], torch.tensor([0.1, 0.0, 0.2]))
    assert load(tmp_path, limit=2).names == ["a.npz", "b.npy"]
    (tmp_path / "empty").mkdir()
    refused(r"empty: no arrays \(\.h5, ", array_files, tmp_path / "empty", error=FileNotFoundError)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (floats(3, 8, 8), r"b\.npy: 3 channels of 8x8 \(floats\), but the folder's first file has 2 channels of 8x8"),
        (floats(2, 8, 9), "2 channels of 8x9"),
        (complexes(1, 8, 8), "1 complex channel of 8x8"),
        (np.zeros((2, 8, 8), np.uint8), r"2 channels of 8x8 \(bytes\)"),
    ],
)
def test_the_files_of_a_folder_are_alike(other, message, tmp_path, capsys):
    write(tmp_path / "a.npy", floats(2, 8, 8))
    write(tmp_path / "b.npy", other)
    refused(message, load, tmp_path)
    assert load(tmp_path, broken="skip", progress=True).names == ["a.npy"]
    assert "skipped" in "".join(capsys.readouterr())


def test_broken_files_of_a_folder_are_skipped_if_asked(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"broken")
    write(tmp_path / "b.npy", floats(8, 8))
    write(tmp_path / "c.npy", np.full((8, 8), np.nan))
    refused(r"a\.npy", load, tmp_path)
    options = {"broken": "skip", "cache": tmp_path / ".cache"}
    for mapped in (False, True, True):
        assert load(tmp_path, mapped=mapped, **options).names == ["b.npy"]
    (tmp_path / "b.npy").unlink()
    for mapped in (False, True):
        refused("none of the 2 files could be read", load, tmp_path, mapped=mapped, **options)
    (tmp_path / "c.npy").write_bytes(b"broken")
    refused("none of the 2 files could be read", load, tmp_path, broken="skip")
