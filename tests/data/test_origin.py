"""Pictures go out as they came in: format, bits, profile, EXIF, resolution; and formats that need a package."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from firm.data.opening import PictureError
from firm.data.origin import Origin, encode, origin_of
from firm.data.picture import read_picture, read_with_alpha, stored_values
from firm.restoration import Problem
from firm.restoration.output import ending, write_picture

RNG = np.random.default_rng(0)


# An RGB profile that is none that a program adds by itself: that of sRGB with another description.
PROFILE = (
    ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    .tobytes()
    .replace("sRGB built-in".encode("utf-16-be"), "P3 D65 made-u".encode("utf-16-be"))
)


def exif(orientation: int = 1) -> bytes:
    data = Image.Exif()
    data[0x010F], data[0x0112], data[0x013B] = "A camera", orientation, "A photographer"
    data.get_ifd(0x8769)[0x829A] = 0.01
    return data.tobytes()


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
@pytest.mark.parametrize("channels", [3, 4])
def test_16_bits_a_color_survive_reading_and_writing(tmp_path: Path, name: str, channels: int) -> None:
    values = RNG.integers(0, 65536, (21, 34, channels)).astype(np.uint16)
    origin = Origin("PNG" if name == "a.png" else "TIFF", 16, profile=PROFILE, exif=exif(), dpi=(300.0, 300.0))
    (tmp_path / name).write_bytes(encode(values, origin))
    x, alpha = read_with_alpha(tmp_path / name)
    assert np.array_equal(np.round((x.permute(1, 2, 0).double().numpy() + 1) * 32767.5), values[..., :3])
    if channels == 4:
        assert alpha is not None
        assert np.abs(alpha.numpy() - values[..., 3] / 257).max() <= 1
    found = origin_of(tmp_path / name)
    assert (found.format, found.bits, found.profile) == (origin.format, 16, PROFILE)
    write_picture(tmp_path / f"b{found.ending}", x, "same", alpha, found)
    again, _ = read_with_alpha(tmp_path / f"b{found.ending}")
    assert torch.equal(((again + 1) * 32767.5).round(), ((x + 1) * 32767.5).round())
    with Image.open(tmp_path / f"b{found.ending}") as picture:
        assert picture.getexif()[0x013B] == "A photographer"
        assert picture.getexif().get_ifd(0x8769)[0x829A] == pytest.approx(0.01)
        assert picture.info["icc_profile"] == PROFILE
        assert picture.info["dpi"][0] == pytest.approx(300, rel=1e-4)


def test_16_bits_in_the_other_byte_order(tmp_path: Path) -> None:
    values = RNG.integers(0, 65536, (9, 12, 3)).astype(np.uint16)
    directory = ImageFileDirectory_v2(prefix=b"MM")
    directory.update(
        {256: 12, 257: 9, 258: (16,) * 3, 259: 1, 262: 2, 273: 0, 277: 3, 278: 9, 279: values.nbytes, 284: 1}
    )
    buffer = io.BytesIO()
    directory.save(buffer)
    buffer.write(values.astype(">u2").tobytes())
    (tmp_path / "a.tif").write_bytes(buffer.getvalue())
    x, _ = read_with_alpha(tmp_path / "a.tif")
    assert np.array_equal(np.round((x.permute(1, 2, 0).numpy() + 1) * 32767.5), values)


@pytest.mark.parametrize(("kind", "mode"), [
    ("PNG", "RGB"), ("JPEG", "RGB"), ("JPEG", "L"), ("TIFF", "RGB"), ("WEBP", "RGB"), ("AVIF", "RGB"), ("BMP", "RGB"),
    ("PNG", "RGBA"), ("WEBP", "RGBA"), ("PNG", "L"),
])  # fmt: skip
def test_a_picture_goes_out_as_it_came(tmp_path: Path, kind: str, mode: str) -> None:
    smooth = np.linspace(40, 200, 64 * 64).reshape(64, 64).astype(np.uint8)
    pixels = np.stack([smooth, smooth.T, 255 - smooth, np.full_like(smooth, 200)][: len(mode)], -1)
    about = {} if kind == "BMP" else {"exif": exif(6)} | ({"icc_profile": PROFILE} if mode != "L" else {})
    path = tmp_path / "photo"
    Image.fromarray(pixels[..., 0] if mode == "L" else pixels, mode).save(path, kind, quality=60, **about)
    problem = Problem.from_file(path, "denoising", sigma=0.05)
    out = tmp_path / f"out{ending('same', problem.origin)}"
    write_picture(out, problem.shown[0][:1] if mode == "L" else problem.shown[0], "same", problem.alpha, problem.origin)
    with Image.open(out) as written:
        assert (written.format, written.mode) == (kind, mode)
        loss = 0.1 if kind in ("JPEG", "AVIF", "WEBP") else 1e-6
        assert (read_picture(out) - read_picture(path)).abs().max() < loss
        if about:
            assert written.getexif()[0x010F] == "A camera"
            assert written.getexif().get(0x0112, 1) == 1  # it is upright now
            assert written.info.get("icc_profile", b"") == about.get("icc_profile", b"")


def test_gray_counts_keep_their_unit(tmp_path: Path) -> None:
    counts = RNG.integers(0, 49, (16, 16)).astype(np.uint16)
    Image.fromarray(counts).save(tmp_path / "a.tif")
    problem = Problem.from_file(tmp_path / "a.tif", "denoising", sigma=0.1, value_range=(0, 48))
    write_picture(tmp_path / "b.tif", problem.shown[0][:1], "same", None, problem.origin, problem.value_range)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "b.tif")), counts)


def test_counts_of_32_bits_keep_their_values(tmp_path: Path) -> None:
    values = np.array([[[0.0]], [[1.0]]], np.float32).reshape(1, 2, 1)
    for top in (2**31 - 1, 2**32 - 1):
        path = tmp_path / f"{top}.tif"
        write_picture(path, torch.from_numpy(2 * values - 1), "same", None, Origin("TIFF", 32, gray=True), (0, top))
        stored = stored_values(path, 64)
        assert stored is not None
        assert stored.max() == top


def test_a_gray_picture_with_a_profile_of_color_stays_one_of_color(tmp_path: Path) -> None:
    Image.new("RGB", (16, 16), (90, 90, 90)).save(tmp_path / "a.png", icc_profile=PROFILE)
    write_picture(tmp_path / "b.png", torch.zeros(1, 16, 16), "same", None, origin_of(tmp_path / "a.png"))
    with Image.open(tmp_path / "b.png") as written:
        assert written.mode == "RGB"
        assert written.info["icc_profile"] == PROFILE


def test_lab_is_converted_as_littlecms_does(tmp_path: Path) -> None:
    lab = np.dstack([np.full((8, 8), 150), np.full((8, 8), 20), np.full((8, 8), 236)]).astype(np.uint8)
    Image.fromarray(lab, "LAB").save(tmp_path / "a.tif")
    expected = ImageCms.profileToProfile(
        Image.open(tmp_path / "a.tif"), ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), outputMode="RGB"
    )
    found = np.round((read_picture(tmp_path / "a.tif").permute(1, 2, 0).numpy() + 1) * 127.5)
    assert np.array_equal(found, np.asarray(expected))
    assert origin_of(tmp_path / "a.tif").profile == b""


def test_several_pages_and_formats_that_are_only_read_become_png(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (16, 16), color) for color in ("red", "blue")]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:])
    Image.new("RGB", (16, 16)).save(tmp_path / "a.gif")
    assert origin_of(tmp_path / "a.webp").format == origin_of(tmp_path / "a.gif").format == "PNG"


def test_heic_goes_in_and_out(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    smooth = np.linspace(40, 200, 64 * 64).reshape(64, 64).astype(np.uint8)
    Image.fromarray(np.stack([smooth] * 3, -1)).save(tmp_path / "a.heic", "HEIF", exif=exif(), quality=90)
    Image.OPEN.pop("HEIF")  # as before anybody asked for it
    origin = origin_of(tmp_path / "a.heic")
    assert origin.format == "HEIF"
    assert origin.ending == ".heic"
    write_picture(tmp_path / "b.heic", read_with_alpha(tmp_path / "a.heic")[0], "same", None, origin)
    assert (read_picture(tmp_path / "b.heic")[0] - to_float(smooth)).abs().mean() < 0.02
    Image.fromarray(np.stack([smooth] * 3, -1)).save(tmp_path / "c.heic", "HEIF", quality=90)  # as the web's: no EXIF
    assert (read_picture(tmp_path / "c.heic")[0] - to_float(smooth)).abs().mean() < 0.02


def to_float(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).float() / 127.5 - 1


@pytest.mark.parametrize(("name", "package"), [("a.heic", "pillow_heif"), ("a.nef", "rawpy")])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    (tmp_path / name).write_bytes(b"\0\0\0\x18ftypheic" + bytes(64))
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(Image, "OPEN", {key: value for key, value in Image.OPEN.items() if key != "HEIF"})
    with pytest.raises(PictureError, match=r"pip install \"firm\[(heic|raw)\]\""):
        read_picture(tmp_path / name)


def raw_file(path: Path, mosaic: np.ndarray) -> None:
    """Write a sensor's values (H, W) as a DNG: uncompressed, red at the top left, equal gains for all colors."""
    H, W = mosaic.shape
    directory = ImageFileDirectory_v2(prefix=b"II")
    directory.update({254: 0, 256: W, 257: H, 258: 16, 259: 1, 262: 32803, 271: "A camera", 272: "A model", 273: 0})
    directory.update({274: 1, 277: 1, 278: H, 279: mosaic.nbytes, 284: 1, 33421: (2, 2), 50708: "A camera"})
    for tag, kind, value in (
        (33422, 1, b"\0\1\1\2"), (50706, 1, b"\1\4\0\0"), (50714, 3, (0,)), (50717, 3, (65535,)), (50778, 3, (21,)),
        (50721, 10, (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)), (50728, 5, (1.0, 1.0, 1.0)),
    ):  # fmt: skip
        directory.tagtype[tag] = kind
        directory[tag] = value
    buffer = io.BytesIO()
    directory.save(buffer)
    buffer.write(mosaic.astype("<u2").tobytes())
    path.write_bytes(buffer.getvalue())


def test_a_raw_picture_is_developed_to_16_bits(tmp_path: Path) -> None:
    pytest.importorskip("rawpy")
    bright = np.tile(np.linspace(4000, 60000, 96).astype(np.uint16), (64, 1))
    raw_file(tmp_path / "a.dng", bright)
    x, alpha = read_with_alpha(tmp_path / "a.dng")
    assert alpha is None
    assert x.shape == (3, 64, 96)
    values = (x + 1) * 32767.5
    assert (values - values.round()).abs().max() < 1e-2
    assert len(values[1].round().unique()) > 80
    assert (x[:, :, 80].mean() - x[:, :, 10].mean()) > 0.5
    assert (origin_of(tmp_path / "a.dng").format, origin_of(tmp_path / "a.dng").bits) == ("PNG", 16)
