"""Files that are small on disk and large in memory: refused from their header; what is read is not held too often."""

import threading
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from firm.data import ArrayError, PictureError, read_image, read_picture, resident


def test_the_limit_is_a_choice(tmp_path):
    Image.new("RGB", (300, 200)).save(tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png", max_megapixels=0.06).shape == (3, 200, 300)
    for limit in (0.0599, 0, float("nan")):
        for read in (read_picture, read_image):
            with pytest.raises(PictureError, match=r"0\.1 megapixels, more than the limit"):
                read(tmp_path / "a.png", max_megapixels=limit)


def test_pillows_own_limit_is_neither_used_nor_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2**17)
    Image.new("RGB", (600, 600)).save(tmp_path / "a.png")  # more than twice that, which Pillow refuses
    seen = []

    def watch():
        for _ in range(20):
            seen.append(Image.MAX_IMAGE_PIXELS)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(resident([tmp_path / "a.png"] * 9, 8, crop=8, progress=False)[0]) == 9
        assert read_picture(tmp_path / "a.png").shape == (3, 600, 600)
    watcher.join()
    assert set(seen) == {2**17}


def test_only_the_first_frame_is_decoded(tmp_path, monkeypatch):
    decoded = []
    real = ImageFile.ImageFile.load
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: decoded.append(self.tell()) or real(self))
    frames = [Image.new("RGB", (20, 20), (50 * i, 0, 0)) for i in range(4)]
    for name in ("a.gif", "a.png", "a.webp", "a.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        read_picture(tmp_path / name)
    assert set(decoded) == {0}


def resident_bytes(what):
    """VmRSS, the memory of this process now, or VmHWM, its peak since `forget_peak`; tracemalloc misses Pillow's."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return 1024 * int(line.split()[1])


def forget_peak():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("the system does not tell the peak of memory")


@pytest.mark.parametrize("name", ["a.png", "alpha.png", "a.jpg", "deep.png", "turned.png"])
def test_memory_while_reading_is_at_most_three_times_the_pixels(name, tmp_path):
    """As floats in [-1, 1]: 4 megapixels are 48 MB."""
    picture = Image.fromarray(np.zeros((2000, 2000, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    if name == "alpha.png":
        picture = picture.convert("RGBA")
    elif name == "deep.png":
        picture = Image.fromarray(np.zeros((2000, 2000), np.uint16))
    options = {"progressive": True, "subsampling": 0} if name == "a.jpg" else {"compress_level": 1}
    picture.save(tmp_path / name, **options, **({"exif": exif} if name == "turned.png" else {}))
    del picture
    before = resident_bytes("VmRSS")
    forget_peak()
    x = read_picture(tmp_path / name)
    assert 1 < (resident_bytes("VmHWM") - before) / (4 * x.numel()) < 2


def test_many_channels_and_compressed_tensors_count_too(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((9, 100, 100), np.float32))
    assert read_image(tmp_path / "a.npy", max_megapixels=0.03)[0].shape == (9, 100, 100)
    with pytest.raises(ArrayError, match=r"9 x 100 x 100 values .* larger than 0\.02 megapixels"):
        read_image(tmp_path / "a.npy", max_megapixels=0.02)
    torch.save(torch.zeros(3, 100, 100), tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "a.pt", "w", 8) as packed:
        for member in plain.infolist():
            packed.writestr(member.filename, plain.read(member))
    with pytest.raises(ArrayError, match=r"a\.pt: holds 0 MB, more than"):
        read_image(tmp_path / "a.pt", max_megapixels=0.001)
