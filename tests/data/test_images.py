"""Images by index, and every data set through one entry."""

import numpy as np
import pytest
import torch
from helpers import save_pictures
from PIL import Image

from firm.data import Images, PictureError, folder_files, load_images, read_image, read_picture, resident, to_float
from firm.data.encoding import png16, tiff


def load(dataset, root, **options):
    return load_images(dataset, root, **{"size": 16, "progress": False, **options})


# Images


def test_bytes_and_floats_become_images():
    x = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_float(x), x.float() / 127.5 - 1)
    assert (to_float(x)[0], to_float(x)[255]) == (-1, 1)
    y = torch.randn(3)
    assert to_float(y) is y
    with pytest.raises(TypeError, match=r"uint8 or float32, not torch\.float64"):
        to_float(y.double())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_batches_by_index(dtype):
    data = (torch.rand(6, 2, 4, 5) * 255).to(dtype)
    images = Images(data, list("abcdef"))
    assert (len(images), images.channels, images.shape) == (6, 2, (2, 4, 5))
    whole = to_float(data)
    for index, expected in [
        (torch.tensor([4, 0, 4]), whole[[4, 0, 4]]),
        (slice(1, None, 2), whole[1::2]),
        (slice(-2, None), whole[-2:]),
        (slice(None, None, -1), whole.flip(0)),
        (range(2, 4), whole[2:4]),
        (range(0), whole[:0]),
    ]:
        batch = images.batch(index)
        assert batch.dtype == torch.float32
        assert torch.equal(batch, expected)
    for wrong in (range(5, 7), torch.tensor([6])):
        with pytest.raises(IndexError):
            images.batch(wrong)


def test_a_batch_is_a_copy_and_a_part_is_not():
    images = Images(torch.rand(6, 2, 4, 5), list("abcdef"), complex=True)
    images.batch(slice(None)).fill_(7)
    assert images.data.max() < 1
    part = images.part(2, 5)
    assert part.names == ["c", "d", "e"]
    assert part.complex
    assert part.data.data_ptr() == images.data[2].data_ptr()


@pytest.mark.parametrize(
    ("data", "names", "is_complex", "message"),
    [
        (torch.zeros(2, 4, 4), ["a", "b"], False, r"\(n, C, H, W\) of uint8 or float32, got \(2, 4, 4\)"),
        (torch.zeros(2, 1, 4, 4), ["a"], False, "2 images need as many names, got 1"),
        (torch.zeros(2, 3, 4, 4), ["a", "b"], True, "even number of float32"),
    ],
)
def test_what_cannot_be_images(data, names, is_complex, message):
    with pytest.raises(ValueError, match=message):
        Images(data, names, is_complex)


# Pictures


def test_pictures_come_as_resident_gives_them(tmp_path):
    files = folder_files(save_pictures(tmp_path / "set" / "sub", 4))
    images = load("folder", tmp_path / "set")
    assert torch.equal(images.data, resident(files, 16, progress=False)[0])
    assert images.names == [f"sub/{i:03}.png" for i in range(4)]
    assert load("folder", tmp_path / "set", channels=1, size=8).shape == (1, 8, 8)
    assert load("folder", tmp_path / "set", limit=3).names == images.names[:3]
    cache = tmp_path / "cache"
    load("folder", tmp_path / "set", cache=cache)
    before = sorted(path.name for path in cache.iterdir())
    resident(files, 16, cache=cache, progress=False)  # finds what load_images has left
    load("folder", tmp_path / "set", cache=cache, mapped=True)
    assert sorted(path.name for path in cache.iterdir()) == before


@pytest.mark.parametrize(
    ("values", "value_range", "white"),
    [
        (np.random.default_rng(0).integers(0, 65536, (16, 16)).astype(np.uint16), None, 65535),
        (np.random.default_rng(1).integers(0, 49, (16, 16)).astype(np.uint16), (0, 48), 48),  # counts of photons
        (np.random.default_rng(2).random((16, 16)).astype(np.float32), None, 1),
    ],
)
@pytest.mark.filterwarnings("ignore:0 was taken for black and 65535 for white")
def test_gray_pictures_of_more_than_8_bits_keep_them(values, value_range, white, tmp_path):
    for i in range(3):
        Image.fromarray(values + i * 0).save(tmp_path / f"{i}.tif")
    for options in ({}, {"mapped": True, "cache": tmp_path / "cache"}):
        images = load("folder", tmp_path, channels=1, value_range=value_range, **options)
        assert (images.data.dtype, images.names) == (torch.float32, ["0.tif", "1.tif", "2.tif"])
        np.testing.assert_allclose(images.data[1, 0].numpy(), values / (white / 2) - 1, atol=1e-6)


@pytest.mark.parametrize(("channels", "alpha"), [(3, False), (1, False), (3, True)])
@pytest.mark.parametrize("ending", [".png", ".tif"])
@pytest.mark.parametrize(("value_range", "white"), [(None, 65535), ((0, 4095), 4095)])
@pytest.mark.filterwarnings("ignore:0 was taken for black and 65535 for white")
def test_colors_of_16_bits_keep_them(value_range, white, ending, channels, alpha, tmp_path):
    colors = np.random.default_rng(0).integers(0, white + 1, (16, 16, 4 if alpha else 3)).astype(np.uint16)
    (tmp_path / f"a{ending}").write_bytes(png16(colors) if ending == ".png" else tiff(colors))
    images = load("folder", tmp_path, channels=channels, value_range=value_range)
    expected = colors[..., :3] / (white / 2) - 1
    if alpha:
        opaque = (colors[..., 3:] // 256) / 255  # Pillow keeps 8 bits of it
        expected = 1 + opaque * (expected - 1)
    expected = expected @ [[0.299], [0.587], [0.114]] if channels == 1 else expected
    assert images.data.dtype == torch.float32
    np.testing.assert_allclose(images.data[0].numpy(), expected.transpose(2, 0, 1), atol=2e-6)


def test_dark_sets_and_mixed_ones_are_told(tmp_path):
    Image.fromarray(np.full((16, 16), 48, np.uint16)).save(tmp_path / "b.tif")
    with pytest.warns(
        UserWarning, match=r"1/16 of white: 0 was taken for black and 65535 .* value_range=\(low, high\)"
    ):
        load("folder", tmp_path)
    (tmp_path / "0.png").write_bytes(b"broken")  # is not what decides
    with pytest.warns(UserWarning, match="1/16"):
        assert load("folder", tmp_path, broken="skip").data.dtype == torch.float32
    Image.new("L", (16, 16), 9).save(tmp_path / "a.png")
    (tmp_path / "0.png").unlink()
    with pytest.raises(PictureError, match=r"b\.tif: I;16 pixels have more than 8 bits.*arrays \(\.npy\)"):
        load("folder", tmp_path)


def test_wrong_choices(tmp_path):
    save_pictures(tmp_path / "set", 1)
    for wrong, message in [
        ({"size": None}, "set: pictures are resized to one size"),
        ({"value_range": (0, 1)}, "value_range is for arrays, and for pictures of more than 8 bits"),
        ({"value_range": (1, 0)}, "low < high"),
        ({"key": "x"}, "key is for arrays"),
        ({"mapped": True}, "set: pictures are mapped .* give cache=DIR"),
        ({"broken": "ignore"}, '"refuse" or "skip"'),
        ({"limit": -1}, "limit must not be negative"),
        ({"size": 0}, "size must be at least 1"),
        ({"channels": 4}, r"channels must be 1 \(gray\) or 3 \(RGB\) for pictures, got 4; .* from arrays \(\.npy"),
    ]:
        with pytest.raises(ValueError, match=message):
            load("folder", tmp_path / "set", **wrong)
    with pytest.raises(ValueError, match="no data set 'cifar'; there are celeba, afhq, folder, arrays"):
        load("cifar", tmp_path)


def test_folders_of_pictures_or_arrays_but_not_both(tmp_path):
    save_pictures(tmp_path, 1)
    np.save(tmp_path / "x.npy", np.zeros((16, 16)))
    with pytest.raises(ValueError, match=r"pictures \(000\.png\) and arrays \(x\.npy\) in one folder"):
        load("folder", tmp_path)
    assert load("arrays", tmp_path).names == ["x.npy"]
    with pytest.raises(NotADirectoryError, match=r'x\.npy: a file; .* called "arrays"'):
        load("folder", tmp_path / "x.npy")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no pictures and no arrays"):
        load("folder", tmp_path / "empty")


def test_one_image_of_either_kind(tmp_path):
    (file,) = folder_files(save_pictures(tmp_path, 1))
    x, is_complex = read_image(file)
    assert not is_complex
    assert torch.equal(x, read_picture(file))
    assert read_image(file, 1)[0].shape == (1, 16, 16)
    with pytest.raises(ValueError, match=r"000\.png: value_range and key are for arrays"):
        read_image(file, value_range=(0, 1))
    np.save(tmp_path / "x.npy", np.array([[0, 255]], np.uint8))
    assert read_image(tmp_path / "x.npy")[0].tolist() == [[[-1, 1]]]
