"""Odd and malformed pictures: each gives the right image, or an error that names the file."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from firm.data import PictureError, folder_files, read_picture, to_float

RED, SIZE = (200, 40, 90), (12, 10)  # width, height


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width, height, depth=8, color=2):
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))


def encode(picture, format, **options):
    file = io.BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def rgb(mode="RGB", color=RED):
    return Image.new(mode, SIZE, color)


def array(values, mode=None):
    return Image.fromarray(np.asarray(values), mode) if mode else Image.fromarray(np.asarray(values))


def palette():
    return rgb().quantize(4)


def transparent_palette():
    picture = Image.new("P", SIZE, 0)
    picture.putpalette([*RED, 0, 0, 0])
    return encode(picture, "PNG", transparency=0)


def animation():
    frames = [rgb(), Image.new("RGB", SIZE, (0, 0, 0))]
    return encode(frames[0], "GIF", save_all=True, append_images=frames[1:])


def gray(value):
    return (value,) * 3


JPEG = encode(rgb(), "JPEG", quality=95)
PNG = encode(rgb(), "PNG")

GOOD = {  # file name: (content, the color that a person sees, tolerance)
    "rgb.png": (PNG, RED, 0),
    "rgb.jpg": (JPEG, RED, 4),
    "rgb.webp": (encode(rgb(), "WEBP", lossless=True), RED, 0),
    "rgb.bmp": (encode(rgb(), "BMP"), RED, 0),
    "rgb.tif": (encode(rgb(), "TIFF"), RED, 0),
    "rgb.ppm": (encode(rgb(), "PPM"), RED, 0),
    "rgb.gif": (encode(rgb(), "GIF"), RED, 1),
    "rgb.jp2": (encode(rgb(), "JPEG2000"), RED, 0),
    "rgb.pcx": (encode(rgb(), "PCX"), RED, 0),
    "rgb.tga": (encode(rgb(), "TGA"), RED, 0),
    "jpeg called.png": (JPEG, RED, 4),
    "gray.png": (encode(rgb("L", 77), "PNG"), gray(77), 0),
    "bilevel.png": (encode(rgb("1", 1), "PNG"), gray(255), 0),
    "palette.png": (encode(palette(), "PNG"), RED, 0),
    "transparent palette.png": (transparent_palette(), gray(255), 0),
    "opaque alpha.png": (encode(rgb("RGBA", (*RED, 255)), "PNG"), RED, 0),
    "clear alpha.png": (encode(rgb("RGBA", (*RED, 0)), "PNG"), gray(255), 0),
    "half alpha.png": (encode(rgb("RGBA", (0, 0, 0, 128)), "PNG"), gray(127), 1),
    "key color.png": (encode(rgb(), "PNG", transparency=RED), gray(255), 0),
    "16 bit gray.tif": (encode(array(np.full((10, 12), 25700, np.uint16)), "TIFF"), gray(100), 0),
    "32 bit gray.tif": (encode(array(np.full((10, 12), 25700, np.int32)), "TIFF"), gray(100), 0),
    "float.tif": (encode(array(np.full((10, 12), 0.4, np.float32)), "TIFF"), gray(102), 0),
    "cmyk.tif": (encode(rgb("CMYK", (55, 215, 165, 0)), "TIFF"), RED, 1),
    "ycbcr.jpg": (encode(rgb().convert("YCbCr"), "JPEG", quality=95), RED, 6),
    "animated.gif": (animation(), RED, 1),
    "animated.png": (encode(rgb(), "PNG", save_all=True, append_images=[rgb(color=(0, 0, 0))]), RED, 0),
    "one pixel.png": (encode(Image.new("RGB", (1, 1), RED), "PNG"), RED, 0),
    "very wide.png": (encode(Image.new("RGB", (3000, 2), RED), "PNG"), RED, 0),
    "odd metadata.png": (encode(rgb(), "PNG", dpi=(0.001, 1e6)), RED, 0),
    "ünï çödé.png": (PNG, RED, 0),
}

BAD = {  # file name: (content, what the error says)
    "empty.jpg": (b"", "the file is empty"),
    "text.jpg": (b"hello, world " * 50, "no picture"),
    "header only.png": (png_header(12, 10), "no picture|damaged"),
    "huge header.png": (png_header(100_000, 100_000) + png_chunk(b"IDAT", b"x" * 50), r"100000x100000|too many pixels"),
    "cut.png": (encode(Image.effect_noise((200, 200), 80), "PNG")[:9000], "damaged or cut short"),
    "cut.jpg": (encode(Image.effect_noise((200, 200), 80), "JPEG")[:5000], "damaged or cut short"),
    "cut.webp": (encode(Image.effect_noise((200, 200), 80).convert("RGB"), "WEBP")[:2000], "no picture|damaged"),
    "cut.tif": (encode(rgb(), "TIFF")[:200], "no picture|damaged"),
    "flipped bytes.png": (PNG[:40] + bytes(255 - b for b in PNG[40:-12]) + PNG[-12:], "damaged|no picture"),
    "negative.tif": (encode(array(np.full((10, 12), -5, np.int32)), "TIFF"), "I pixels from -5 to -5; expected 0 to"),
    "nan.tif": (encode(array(np.full((10, 12), np.nan, np.float32)), "TIFF"), "expected 0 to 1"),
}


@pytest.mark.parametrize("name", GOOD)
def test_reads_what_a_person_sees(name, tmp_path):
    content, color, tolerance = GOOD[name]
    (tmp_path / name).write_bytes(content)
    for size in (None, 16):
        picture = read_picture(tmp_path / name, size)
        assert picture.dtype == torch.float32
        assert picture.shape == (3, 16, 16) if size else picture.shape[0] == 3
        seen = ((picture + 1) * 127.5).flatten(1)
        assert float((seen - torch.tensor(color)[:, None]).abs().max()) <= tolerance + 1e-3
    assert read_picture(tmp_path / name, 16, channels=1).shape == (1, 16, 16)
    assert folder_files(tmp_path) == [tmp_path / name]


@pytest.mark.parametrize("name", BAD)
def test_refuses_and_names_the_file(name, tmp_path):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PictureError, match=message) as error:
        read_picture(tmp_path / name, 16)
    assert name in str(error.value)


def test_missing_files_and_wrong_channels(tmp_path):
    for path in (tmp_path / "absent.png", tmp_path):
        with pytest.raises(PictureError, match=f"{path.name}: no such file"):
            read_picture(path)
    with pytest.raises(ValueError, match="channels must be 1"):
        read_picture(tmp_path / "x.png", channels=4)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation, tmp_path):
    """A picture whose top left pixel is white, stored in each of the eight orientations."""
    upright = Image.new("RGB", (8, 8), (0, 0, 0))
    upright.paste((255, 255, 255), (0, 0, 4, 4))
    turn = Image.Transpose
    stored = {
        1: None, 2: turn.FLIP_LEFT_RIGHT, 3: turn.ROTATE_180, 4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE, 6: turn.ROTATE_90, 7: turn.TRANSVERSE, 8: turn.ROTATE_270,
    }[orientation]  # fmt: skip
    picture = upright if stored is None else upright.transpose(stored)
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture.save(tmp_path / "turned.png", exif=exif)
    read = read_picture(tmp_path / "turned.png")
    assert float(read[:, :4, :4].min()) == 1
    assert float(read[:, 4:].max()) == -1


def test_the_papers_preprocessing(tmp_path):
    """Center crop 178 of 178x218, bilinear with antialiasing: against Pillow step by step."""
    generator = np.random.default_rng(0)
    original = Image.fromarray(generator.integers(0, 256, (218, 178, 3), dtype=np.uint8))
    original.save(tmp_path / "face.png")
    expected = original.crop((0, 20, 178, 198)).resize((128, 128), Image.Resampling.BILINEAR)
    picture = read_picture(tmp_path / "face.png", 128, crop=178)
    torch.testing.assert_close(picture, torch.tensor(np.asarray(expected)).permute(2, 0, 1) / 127.5 - 1)


def test_gray_pictures_keep_their_16_bits(tmp_path):
    values = np.random.default_rng(0).integers(0, 65536, (40, 30)).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    x = read_picture(tmp_path / "deep.png")
    assert x.shape == (3, 40, 30)
    np.testing.assert_allclose(x[1].numpy(), values / 32767.5 - 1, atol=1e-6)
    assert read_picture(tmp_path / "deep.png", channels=1).shape == (1, 40, 30)
    sized = read_picture(tmp_path / "deep.png", 16)
    np.testing.assert_allclose(
        sized, to_float(read_picture(tmp_path / "deep.png", 16, dtype=torch.uint8)), atol=1.5 / 127.5
    )
    Image.fromarray((values / 65535).astype(np.float32)).save(tmp_path / "float.tif")
    np.testing.assert_allclose(read_picture(tmp_path / "float.tif")[0].numpy(), values / 32767.5 - 1, atol=1e-6)
