"""Images in tar files and zarr arrays: those of a folder, read when they are asked for, in an order of their own."""

import io
import json
import tarfile

import numpy as np
import pytest
import torch
from helpers import save_pictures

from firm.data import load_images
from firm.data.stored import Stored


def pack(folder, out, each):
    """Write tar files of so many files of a folder each, as ``tar cf`` does, with labels and what is hidden between."""
    out.mkdir()
    files = sorted(folder.iterdir())
    for n in range(0, len(files), each):
        with tarfile.open(out / f"{n // each:03d}.tar", "w") as tar:
            for file in files[n : n + each]:
                tar.add(file, f"set/{file.name}")
                for name in (f"set/{file.stem}.json", f"set/.{file.name}"):
                    label = tarfile.TarInfo(name)
                    label.size = 2
                    tar.addfile(label, io.BytesIO(b"{}"))
    return out


def shards(root, size=16, **options):
    return load_images("shards", root, size=size, progress=False, **options)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return save_pictures(tmp_path_factory.mktemp("pictures"), 10, (20, 24))


def test_pictures_in_tar_files_are_those_of_the_folder(pictures, tmp_path):
    whole = load_images("folder", pictures, size=16, progress=False)
    found = shards(pack(pictures, tmp_path / "shards", 4))
    assert isinstance(found.data, Stored)
    assert found.shape == (3, 16, 16)
    assert found.names[5] == f"001.tar/set/{whole.names[5]}"
    assert torch.equal(found.data[:], whole.data)
    index = torch.tensor([7, 0, 7, 4])
    assert torch.equal(found.batch(index), whole.batch(index))
    assert torch.equal(found.part(3, 9).part(2).batch(range(2)), whole.batch(range(5, 7)))
    assert found.digest() == whole.digest()
    one = shards(tmp_path / "shards" / "001.tar", limit=3)
    assert one.names[0] == f"001.tar/set/{whole.names[4]}"
    assert torch.equal(one.data[:], whole.data[4:7])


def test_only_what_is_asked_for_is_read(pictures, tmp_path, monkeypatch):
    found, read = shards(pack(pictures, tmp_path / "shards", 4)), []
    real = found.data.read._decoded
    monkeypatch.setattr(
        found.data.read, "_decoded", lambda member, data: read.append(member.name) or real(member, data)
    )
    found.part(2).batch(torch.tensor([6, 1]))
    assert sorted(read) == ["set/003.png", "set/008.png"]


def test_arrays_in_tar_files(tmp_path):
    z = np.random.default_rng(0).normal(size=(6, 2, 20, 16)) + 1j
    (tmp_path / "files").mkdir()
    for i, image in enumerate(z):
        np.save(tmp_path / "files" / f"{i}.npy", np.asfortranarray(image) if i % 2 else image)
    how = {"size": 12, "value_range": (0, 8), "channels": 4}
    whole = load_images("arrays", tmp_path / "files", progress=False, **how)
    found = shards(pack(tmp_path / "files", tmp_path / "shards", 4), **how)
    assert found.complex
    assert torch.equal(found.data[:], whole.data)


GRAY, COLOR = (9, 20, 16), (9, 2, 20, 16)
PARTS = {"chunks": (1, 20, 16), "shards": (4, 20, 16)}


@pytest.mark.parametrize(("shape", "parts"), [(COLOR, {"chunks": (2, 2, 20, 16)}), (GRAY, PARTS)])
def test_a_zarr_array_is_that_of_npy(shape, parts, tmp_path):
    zarr = pytest.importorskip("zarr")
    values = np.random.default_rng(0).integers(0, 4096, shape).astype(np.uint16)
    np.save(tmp_path / "x.npy", values)
    zarr.create_array(tmp_path / "x.zarr", data=values, **parts)
    how = {"size": 12, "value_range": (0, 4095)}
    whole = load_images("arrays", tmp_path / "x.npy", progress=False, **how)
    found = shards(tmp_path / "x.zarr", **how)
    index = torch.tensor([5, 0, 8, 5, 4])
    assert torch.equal(found.batch(index), whole.batch(index))
    assert torch.equal(found.data[2:7], whole.data[2:7])
    assert found.data.shards.tolist() == [i // next(iter(parts.get("shards", parts["chunks"]))) for i in range(9)]


def a_set(sizes):
    """Images of one number each, in shards of these sizes."""
    shards = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return Stored((1, 1, 1), torch.float32, lambda n: torch.tensor(n)[:, None, None, None].float(), shards, None)


def test_the_stream_has_every_image_once_an_epoch_near_its_shard():
    images, n = a_set([30, 50, 7, 13]), 100
    stream = images.streamed(0, 3 * n, 8, seed=1)
    for epoch in stream.split(n):
        assert sorted(epoch.tolist()) == list(range(n))
    plain = images.streamed(0, n, 0, seed=1)
    assert len(torch.unique_consecutive(images.shards[plain])) == 4  # shard after shard
    moved = plain.argsort() - stream[:n].argsort()
    assert 3 < moved.abs().max() <= 8
    assert not torch.equal(stream[:n], stream[n : 2 * n])
    assert not torch.equal(stream, images.streamed(0, 3 * n, 8, seed=2))
    orders = {
        tuple(torch.unique_consecutive(images.shards[images.streamed(e * n, n, 0, 1)]).tolist()) for e in range(6)
    }
    assert len(orders) > 2


def test_the_stream_depends_on_the_place_alone():
    images = a_set([5, 9])
    whole = images.streamed(0, 60, 4, seed=3)
    assert torch.equal(whole[11:53], images.streamed(11, 42, 4, seed=3))
    part = images.part(5, None)
    assert sorted(part[part.streamed(9, 9, 4, seed=3)].flatten().tolist()) == list(range(5, 14))


def test_what_cannot_be_read_is_named(pictures, tmp_path):
    root = pack(pictures, tmp_path / "shards", 10)
    tar = root / "000.tar"
    whole = tar.read_bytes()
    tar.write_bytes(whole[:3000])
    with pytest.raises(ValueError, match=r"000\.tar: (cut short|no tar file)"):
        shards(root)
    tar.write_bytes(whole)
    place = whole.index(b"IDAT")  # of the first picture
    tar.write_bytes(whole[:place] + bytes(20) + whole[place + 20 :])
    with pytest.raises(ValueError, match=r"000\.tar/set/000\.png: (damaged|no picture)"):
        shards(root).batch(range(2))
    with tarfile.open(root / "001.tar", "w") as archive:
        np.save(tmp_path / "x.npy", np.zeros((3, 20, 20), np.uint8))
        archive.add(tmp_path / "x.npy", "x.npy")
    with pytest.raises(ValueError, match="choose by their ending"):
        shards(root)
    assert shards(root, key="npy").names == ["001.tar/x.npy"]
    with pytest.raises(ValueError, match="value_range is for arrays"):
        shards(root, key="png", value_range=(0, 1))
    with tarfile.open(root / "001.tar", "w:gz") as archive:
        archive.add(tmp_path / "x.npy", "x.npy")
    with pytest.raises(ValueError, match="compressed ones cannot"):
        shards(root)
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    with tarfile.open(root / "001.tar", "w") as archive:
        archive.add(objects, "a.npy")
    with pytest.raises(ValueError, match="could run code"):
        shards(root, key="npy")
    (root / "001.tar").unlink()
    (root / "labels.json").write_text(json.dumps({}))
    with pytest.raises(ValueError, match="never mapped"):
        shards(root, mapped=True, cache=tmp_path)
