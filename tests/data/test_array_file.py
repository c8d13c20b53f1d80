"""Files of arrays: several in one, tensors of every kind; damaged, hostile and foreign ones are refused by name."""

import numpy as np
import pytest
import torch
from array_helpers import FORMATS, floats, load, write

from firm.data import ArrayError, array_file, read_image


def saved(path, value):
    torch.save(value, path)
    return path


def refused(path, match, **options):
    with pytest.raises(ArrayError, match=rf"{path.name.replace('.', '[.]')}: .*{match}"):
        load(path, **options)


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".h5"])
def test_files_of_several_arrays_need_a_key(suffix, tmp_path):
    path, arrays = tmp_path / f"x{suffix}", {"first": floats(2, 8, 8), "second": floats(3, 8, 8)}
    if suffix == ".npz":
        np.savez(path, **arrays)
    elif suffix == ".pt":
        saved(path, {name: torch.from_numpy(x) for name, x in arrays.items()} | {"epoch": 7})
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            file.update(arrays)
    refused(path, r"several arrays \(first, second\): .*key=NAME \(--key NAME")
    refused(path, "no array 'third' in it; there are first, second", key="third")
    assert len(load(path, key="second")) == 3
    assert read_image(path, key="first")[0].shape == (2, 8, 8)


def test_keys_where_there_are_none(tmp_path):
    for suffix in (".npy", ".pt"):
        refused(write(tmp_path / f"x{suffix}", floats(8, 8)), "single array without a name", key="x")
    refused(saved(tmp_path / "none.pt", {"epoch": 3}), "holds no arrays")
    refused(tmp_path / "x.mat", r"not an array file \(\.h5, ")


def test_hdf5_groups(tmp_path):
    path = write(tmp_path / "x.h5", floats(2, 8, 8))
    assert len(load(path, key="/group/x")) == len(load(path, key="group/x")) == len(load(path)) == 2
    refused(path, "no array 'group' in it; there are group/x", key="group")


def test_tensors_of_every_kind(tmp_path):
    path, x = tmp_path / "x.pt", torch.rand(2, 3, 8, 8)
    for tensor in (x.clone().requires_grad_(), x.bfloat16(), x.permute(0, 1, 3, 2)):
        assert torch.equal(load(saved(path, tensor)).data, tensor.float())
    z = torch.complex(x, -x) / 2
    assert torch.equal(load(saved(path, z.conj())).data, torch.cat([x, x], 1) / 2)


@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_and_empty_files_are_named(suffix, tmp_path):
    path = write(tmp_path / f"x{suffix}", floats(4, 3, 16, 16))
    whole = path.read_bytes()
    for content in (b"", b"hello " * 100, whole[:20], whole[: len(whole) // 2], b"\0" * 500):
        path.write_bytes(content)
        refused(path, "(the file is empty|damaged|no |holds no)")
    path.unlink()
    refused(path, "no such file")
    if suffix in (".h5", ".hdf5"):
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["x"] = np.zeros((0, 3, 8, 8))
    else:
        write(path, np.zeros((0, 3, 8, 8)))
    refused(path, r"(an empty array, \(0, 3, 8, 8\)|without any values)")


def test_an_npz_with_damaged_values_or_that_is_none(tmp_path):
    path = write(tmp_path / "x.npz", floats(4, 3, 16, 16))
    content = bytearray(path.read_bytes())
    content[300:400] = bytes(100)
    path.write_bytes(content)
    refused(path, "damaged")
    np.save(tmp_path / "y.npy", floats(8, 8))
    refused((tmp_path / "y.npy").rename(tmp_path / "y.npz"), "rename it")


def test_hdf5_without_h5py(tmp_path, monkeypatch):
    monkeypatch.setattr(array_file, "find_spec", lambda name: None)
    (tmp_path / "x.h5").write_bytes(b"x")
    refused(tmp_path / "x.h5", "pip install h5py")
