"""Lists of files, and the resident array with its cache."""

import sys
import warnings

import pytest
import torch
from PIL import Image

from firm.data import PictureError, afhq_files, celeba_files, folder_files, load_images, read_picture, resident


def save(path, value=100, size=(20, 24)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


@pytest.fixture
def folder(tmp_path):
    for i, name in enumerate(["b.png", "a.jpg", "sub/c.png", "sub/deeper/A.PNG", "z.webp"]):
        save(tmp_path / name, 10 * i)
    (tmp_path / "notes.txt").write_text("no picture")
    save(tmp_path / ".hidden" / "d.png")
    save(tmp_path / ".e.png")
    return tmp_path


def test_a_folder_is_read_recursively_and_sorted(folder):
    names = [path.relative_to(folder).as_posix() for path in folder_files(folder)]
    assert names == ["a.jpg", "b.png", "sub/c.png", "sub/deeper/A.PNG", "z.webp"]


def test_folders_without_pictures(tmp_path):
    with pytest.raises(NotADirectoryError, match="no such folder"):
        folder_files(tmp_path / "absent")
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(FileNotFoundError, match="no pictures"):
        folder_files(tmp_path)
    save(tmp_path / "x.png")
    for load in (folder_files, lambda path: load_images("folder", path, size=8)):
        with pytest.raises(NotADirectoryError, match=r"x\.png: a file, not a folder of pictures"):
            load(tmp_path / "x.png")


@pytest.fixture
def celeba(tmp_path):
    rows = {"000003.jpg": 2, "000001.jpg": 0, "000002.jpg": 2, "000004.jpg": 1}
    for name in rows:
        save(tmp_path / "img_align_celeba" / name, size=(178, 218))
    (tmp_path / "list_eval_partition.txt").write_text("".join(f"{name} {n}\n" for name, n in rows.items()))
    return tmp_path


def test_celeba_splits(celeba):
    (train,) = celeba_files(celeba, "train")
    Image.effect_noise((240, 260), 80).convert("RGB").save(train)
    images = load_images("celeba", celeba, "train", size=16, progress=False)
    assert torch.equal(images.batch(range(1))[0], read_picture(train, 16, crop=178))
    assert [p.name for p in celeba_files(celeba)] == ["000002.jpg", "000003.jpg"]
    rows = (celeba / "list_eval_partition.txt").read_text().replace(" ", ",")
    (celeba / "list_eval_partition.txt").unlink()
    (celeba / "list_eval_partition.csv").write_text("image_id,partition\n" + rows)
    assert celeba_files(celeba, "train") == [train]  # the first row is not dropped


def test_celeba_errors(celeba):
    with pytest.raises(ValueError, match="train, val, test, not 'dev'"):
        celeba_files(celeba, "dev")
    (celeba / "img_align_celeba" / "000003.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 2 test pictures are missing, first 000003\.jpg"):
        celeba_files(celeba)
    (celeba / "list_eval_partition.txt").write_text("000001.jpg 0\n000002.jpg test\n")
    with pytest.raises(ValueError, match=r"line 2: expected a file name and 0, 1 or 2"):
        celeba_files(celeba)
    (celeba / "list_eval_partition.txt").unlink()
    with pytest.raises(FileNotFoundError, match="neither list_eval_partition"):
        celeba_files(celeba)


def test_afhq(tmp_path):
    save(tmp_path / "test" / "cat" / "b.jpg")
    save(tmp_path / "test" / "cat" / "a.jpg")
    assert [p.name for p in afhq_files(tmp_path)] == ["a.jpg", "b.jpg"]
    assert load_images("afhq", tmp_path, "test", size=8, progress=False).names == ["test/cat/a.jpg", "test/cat/b.jpg"]
    with pytest.raises(NotADirectoryError, match="laid out as train/dog"):
        afhq_files(tmp_path, animal="dog")


def test_broken_files_are_refused_or_skipped_and_named(folder, capsys):
    (folder / "b.png").write_bytes(b"broken")
    files = folder_files(folder)
    with pytest.raises(PictureError, match=r"b\.png: no picture"):
        resident(files, 16, progress=False)
    pixels, kept = resident(files, 16, broken="skip")
    assert [path.name for path in kept] == ["a.jpg", "c.png", "A.PNG", "z.webp"]
    assert len(pixels) == 4
    assert "b.png" in "".join(capsys.readouterr())
    with pytest.raises(PictureError, match="none of the 1 files"):
        resident([folder / "b.png"], 16, broken="skip", progress=False)


def test_the_cache_is_used_and_checked(folder, tmp_path_factory, monkeypatch):
    cache = tmp_path_factory.mktemp("cache")
    files = folder_files(folder)
    decoded = []
    module = sys.modules["firm.data.load"]
    real = module.decode
    monkeypatch.setattr(module, "decode", lambda path, *a, **k: decoded.append(path) or real(path, *a, **k))

    def read(**settings):
        decoded.clear()
        pixels, kept = resident(files, settings.pop("size", 16), cache=cache, progress=False, **settings)
        return pixels.clone(), kept, len(decoded)

    first, kept, n = read()
    assert (kept, n) == (files, 5)
    again, kept, n = read()
    assert (kept, n) == (files, 0)  # nothing decoded
    assert torch.equal(first, again)
    assert read(size=8)[2] == 5  # other settings
    save(folder / "b.png", 250)  # a changed file
    changed, _, n = read()
    assert n == 5
    assert int(changed[1, 0, 0, 0]) == 250
    for path in cache.glob("*.npy"):  # damaged caches
        path.write_bytes(path.read_bytes()[:200])
    assert read()[2] == 5
    for path in cache.glob("*.json"):
        path.write_text("{")
    assert read()[2] == 5
    assert read()[2] == 0
    assert not list(cache.glob(".*"))


def test_reading_leaves_the_warning_filters_alone(folder):
    before = list(warnings.filters)
    for _ in range(5):
        resident(folder_files(folder), 16, progress=False)
    assert list(warnings.filters) == before
