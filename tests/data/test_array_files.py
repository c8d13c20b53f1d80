"""Files of arrays: several in one, tensors of every kind; damaged, hostile and foreign ones are refused by name."""

import importlib
import io
import pickle
import zipfile

import numpy as np
import pytest
import torch
from array_helpers import FORMATS, floats, load, write

from firm.data import ArrayError, read_image


def several(path):
    if path.suffix == ".npz":
        np.savez(path, first=floats(2, 8, 8), second=floats(3, 8, 8))
    elif path.suffix == ".pt":
        torch.save({"first": torch.zeros(2, 8, 8), "second": torch.zeros(3, 8, 8), "epoch": 7}, path)
    else:
        with pytest.importorskip("h5py").File(path, "w") as file:
            file["first"], file["second"] = floats(2, 8, 8), floats(3, 8, 8)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".h5"])
def test_files_of_several_arrays_need_a_key(suffix, tmp_path):
    path = several(tmp_path / f"x{suffix}")
    several_of_them = (
        rf"x\{suffix}: holds several arrays \(first, second\): choose one with key=NAME \(--key NAME in firm"
    )
    with pytest.raises(ArrayError, match=several_of_them):
        load(path)
    assert len(load(path, key="second")) == 3
    assert read_image(path, key="first")[0].shape == (2, 8, 8)
    with pytest.raises(ArrayError, match="no array 'third' in it; there are first, second"):
        load(path, key="third")


def test_keys_where_there_are_none(tmp_path):
    with pytest.raises(ArrayError, match=r"x\.npy: holds a single array without a name"):
        load(write(tmp_path / "x.npy", floats(8, 8)), key="x")
    with pytest.raises(ArrayError, match=r"x\.pt: holds a single array without a name"):
        load(write(tmp_path / "x.pt", floats(8, 8)), key="x")
    torch.save({"epoch": 3}, tmp_path / "none.pt")
    with pytest.raises(ArrayError, match="holds no arrays"):
        load(tmp_path / "none.pt")


def test_hdf5_groups(tmp_path):
    path = write(tmp_path / "x.h5", floats(2, 8, 8))
    assert len(load(path, key="/group/x")) == len(load(path, key="group/x")) == len(load(path)) == 2
    with pytest.raises(ArrayError, match="no array 'group' in it; there are group/x"):
        load(path, key="group")


def test_tensors_of_every_kind(tmp_path):
    def saved(x):
        torch.save(x, tmp_path / "x.pt")
        return tmp_path / "x.pt"

    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(load(saved(x.clone().requires_grad_())).data, x)
    assert torch.equal(load(saved(x.bfloat16())).data, x.bfloat16().float())
    assert torch.equal(load(saved(x.permute(0, 1, 3, 2))).data, x.permute(0, 1, 3, 2))
    z = torch.complex(x, -x) / 2
    assert torch.equal(load(saved(z.conj())).data, torch.cat([x, x], 1) / 2)
    with pytest.raises(ArrayError, match="sparse or quantized"):
        load(saved(x.to_sparse()))
    with pytest.raises(ArrayError, match="holds a list; save a tensor"):
        load(saved([x]))
    with pytest.raises(ArrayError, match="numpy does not know"):
        load(saved(x.to(torch.float8_e4m3fn)))


class Evil:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code of a file was run')",))


def objects(path):
    x = np.array([Evil()], dtype=object)
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".npz":
        np.savez(path, x=x)
    elif path.suffix == ".pt":
        torch.save(Evil(), path)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pt"])
def test_code_in_files_is_not_run(suffix, tmp_path):
    with pytest.raises(ArrayError, match=rf"x\{suffix}: (holds Python objects|no plain tensor)") as error:
        load(objects(tmp_path / f"x{suffix}"))
    assert "weights_only" not in str(error.value)  # no advice to run it


def test_a_pickle_is_no_npy_file(tmp_path):
    (tmp_path / "x.npy").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ArrayError, match=r"x\.npy: no \.npy file of numbers"):
        load(tmp_path / "x.npy")


@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_files_are_named(suffix, tmp_path):
    path = write(tmp_path / f"x{suffix}", floats(4, 3, 16, 16))
    whole = path.read_bytes()
    for content in (b"", b"hello " * 100, whole[:20], whole[: len(whole) // 2], b"\0" * 500):
        path.write_bytes(content)
        with pytest.raises(ArrayError, match=rf"x\{suffix}: (the file is empty|damaged|no |holds no)"):
            load(path)
    path.unlink()
    with pytest.raises(ArrayError, match="no such file"):
        load(path)


def test_an_npz_with_damaged_values(tmp_path):
    path = write(tmp_path / "x.npz", floats(4, 3, 16, 16))
    content = bytearray(path.read_bytes())
    content[300:400] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(ArrayError, match=r"x\.npz: damaged"):
        load(path)
    np.save(tmp_path / "y.npy", floats(8, 8))
    (tmp_path / "y.npy").rename(tmp_path / "y.npz")
    with pytest.raises(ArrayError, match="rename it"):
        load(tmp_path / "y.npz")


@pytest.mark.parametrize("suffix", FORMATS)
def test_empty_arrays(suffix, tmp_path):
    if suffix in (".h5", ".hdf5"):
        with pytest.importorskip("h5py").File(tmp_path / f"x{suffix}", "w") as file:
            file["x"] = np.zeros((0, 3, 8, 8))
    else:
        write(tmp_path / f"x{suffix}", np.zeros((0, 3, 8, 8)))
    with pytest.raises(ArrayError, match=r"an empty array, \(0, 3, 8, 8\)|without any values"):
        load(tmp_path / f"x{suffix}")


@pytest.mark.parametrize("shape", [(-1, 8, 8), (10**30, 8, 8), (2**62, 8, 8), (10**12, 3, 8, 8), (8, -8)])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_headers_that_say_what_cannot_be(shape, suffix, tmp_path):
    file, path = io.BytesIO(), tmp_path / f"x{suffix}"
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    if suffix == ".npz":
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("x.npy", file.getvalue() + bytes(1000))
    else:
        path.write_bytes(file.getvalue() + bytes(1000))
    for read in (load, read_image):
        with pytest.raises(ArrayError, match=rf"x\{suffix}: "):
            read(path)


def test_hdf5_that_points_to_other_files(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "secret").write_bytes(bytes(256))
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("x", (8, 8), "f4", external=[(str(tmp_path / "secret"), 0, 256)])
    write(tmp_path / "other.h5", floats(8, 8))
    layout = h5py.VirtualLayout((8, 8), "f4")
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "group/x", (8, 8))
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "group/x")
    for name, message in (("external", "kept in other files"), ("virtual", "kept in other"), ("link", "no arrays")):
        for read in (load, read_image):
            with pytest.raises(ArrayError, match=rf"{name}\.h5: .*{message}"):
                read(tmp_path / f"{name}.h5")


def test_arrays_that_are_no_numbers(tmp_path):
    for x in (np.array([["a", "b"]]), np.zeros((4, 4), [("a", "f4")]), np.zeros((4, 4), "M8[s]")):
        with pytest.raises(ArrayError, match=r"x\.npy: holds .*, not numbers"):
            load(write(tmp_path / "x.npy", x))


def test_other_files(tmp_path):
    with pytest.raises(ArrayError, match=r"x\.mat: not an array file \(\.h5, "):
        load(tmp_path / "x.mat")


def test_hdf5_without_h5py(tmp_path, monkeypatch):
    def absent(name, *rest):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", absent)
    (tmp_path / "x.h5").write_bytes(b"x")
    with pytest.raises(ArrayError, match=r"x\.h5: HDF5 files need h5py: pip install h5py"):
        load(tmp_path / "x.h5")
