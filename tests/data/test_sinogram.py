"""Sinograms in files: every layout gives the same geometry; damaged and hostile files end in one sentence."""

import math

import h5py
import numpy as np
import pytest
import scipy.io

from firm.data.array_file import ArrayError
from firm.data.matlab import read_matlab
from firm.data.sinogram import read_sinogram

VALUES = np.random.default_rng(0).random((4, 6))
PARAMETERS = {
    "distanceSourceOrigin": 410.66, "distanceSourceDetector": 553.74, "distanceUnit": "mm", "pixelSizePost": 0.2,
    "numDetectorsPost": 6, "angles": [0.0, 90.0, 180.0, 270.0],
}  # fmt: skip


def helsinki(path, name="CtDataFull", **changes):
    scipy.io.savemat(path, {name: {"type": "2d", "sinogram": VALUES, "parameters": {**PARAMETERS, **changes}}})
    return path


def hdf5_of_matlab(path):
    """Version 7.3, as MATLAB writes it: arrays transposed, texts as numbers, and a header of 512 bytes before."""
    with h5py.File(path, "w", userblock_size=512) as file:
        data = file.create_group("CtDataLimited")
        data["sinogram"] = VALUES.T
        parameters = data.create_group("parameters")
        for key, value in PARAMETERS.items():
            if isinstance(value, str):
                parameters[key] = np.array([[ord(c)] for c in value], dtype=np.uint16)
                parameters[key].attrs["MATLAB_class"] = np.bytes_(b"char")
            else:
                parameters[key] = np.atleast_2d(np.asarray(value, dtype=float)).T
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
    return path


@pytest.mark.parametrize("kind", ["full", "limited", "7.3", "in cm"])
def test_files_of_the_helsinki_challenge(tmp_path, kind):
    path = tmp_path / "a.mat"
    lengths = {"distanceSourceOrigin": 41.066, "distanceSourceDetector": 55.374, "pixelSizePost": 0.02}
    if kind == "7.3":
        hdf5_of_matlab(path)
    elif kind == "in cm":
        helsinki(path, **lengths, distanceUnit="cm")
    else:
        helsinki(path, f"CtData{kind.title()}")
    found = read_sinogram(path)
    np.testing.assert_array_equal(found.values, VALUES[None])
    assert found.source == pytest.approx(410.66)
    assert found.detector == pytest.approx(553.74 - 410.66)
    assert found.spacing == pytest.approx(0.2)
    np.testing.assert_allclose(found.angles, [0, math.pi / 2, math.pi, 1.5 * math.pi])
    assert (found.unit, found.blank, found.notes) == ("mm", None, ())


@pytest.mark.parametrize("ending", ["npz", "h5", "mat"])
def test_arrays_with_names(tmp_path, ending):
    path = tmp_path / f"scan.{ending}"
    counts = (1000 * VALUES).astype(np.uint16)[None].repeat(2, 0)
    arrays = {"counts": counts, "blank": np.full(6, 1e4), "angles": np.arange(4.0), "spacing": 0.5, "offset": -0.25,
              "source": 100.0, "detector": 50.0, "curved": 1}  # fmt: skip
    if ending == "npz":
        np.savez(path, **arrays)
    elif ending == "mat":
        scipy.io.savemat(path, arrays)
    else:
        with h5py.File(path, "w") as file:
            for key, value in arrays.items():
                file[key] = value
    found = read_sinogram(path)
    np.testing.assert_array_equal(found.values, counts)
    assert found.blank.ravel().tolist() == [1e4] * 6
    assert (found.source, found.detector, found.spacing, found.offset) == (100, 50, 0.5, -0.25)
    assert found.curved
    assert found.unit == "mm"


def test_a_bare_array_has_parallel_views_and_that_is_said(tmp_path):
    np.save(tmp_path / "y.npy", VALUES)
    found = read_sinogram(tmp_path / "y.npy")
    np.testing.assert_allclose(found.angles, np.arange(4) * math.pi / 4)
    assert found.source is None
    assert found.unit == ""
    assert "parallel" in found.notes[0]


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"image": VALUES}, "no array called sinogram"),
        ({"sinogram": VALUES, "angles": [0.0, 1.0]}, "2 angles for 4 views"),
        ({"sinogram": VALUES * np.nan}, "NaN"),
        ({"sinogram": VALUES.astype(complex)}, "real numbers"),
        ({"sinogram": VALUES[0]}, r"\(slices, views, bins\) wanted"),
        ({"counts": VALUES}, "counts need blank"),
        ({"counts": -VALUES, "blank": 5.0}, "counts are negative"),
        ({"counts": VALUES, "blank": 0.0}, "blank must be"),
        ({"counts": VALUES, "blank": np.ones(5)}, "one for each of the 6 bins"),
        ({"sinogram": VALUES, "spacing": 0.0}, "spacing of the bins must be above 0"),
        ({"sinogram": VALUES, "source": [1.0, 2.0]}, "source must be one number"),
        ({"sinogram": np.zeros((0, 5))}, "empty"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, arrays, says):
    np.savez(tmp_path / "y.npz", **arrays)
    with pytest.raises(ArrayError, match=says) as raised:
        read_sinogram(tmp_path / "y.npz")
    assert "\n" not in str(raised.value)


def test_structures_that_lack_something(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"CtDataFull": VALUES})
    with pytest.raises(ArrayError, match="must be a structure"):
        read_sinogram(tmp_path / "a.mat")
    incomplete = {key: value for key, value in PARAMETERS.items() if key != "angles"}
    scipy.io.savemat(tmp_path / "b.mat", {"CtDataFull": {"sinogram": VALUES, "parameters": incomplete}})
    with pytest.raises(ArrayError, match="lacks angles"):
        read_sinogram(tmp_path / "b.mat")
    with pytest.raises(ArrayError, match="unit"):
        read_sinogram(helsinki(tmp_path / "c.mat", distanceUnit="parsec"))


@pytest.mark.parametrize("make", [helsinki, hdf5_of_matlab])
def test_files_that_are_cut_short_or_changed_end_in_one_sentence(tmp_path, make):
    whole = make(tmp_path / "whole.mat").read_bytes()
    path = tmp_path / "cut.mat"
    generator = np.random.default_rng(0)
    said = []
    for i in range(60):
        data = bytearray(whole[: int(generator.integers(1, len(whole)))] if i % 2 else whole)
        for place in generator.integers(0, len(data), 0 if i % 2 else 20):
            data[place] = int(generator.integers(0, 256))
        path.write_bytes(bytes(data))
        try:
            read_sinogram(path)
        except ArrayError as error:
            said.append(str(error))
    assert len(said) > 25
    assert all(str(path) in sentence and "\n" not in sentence for sentence in said)


@pytest.mark.parametrize("packed", [False, True])
def test_matlab_files_are_read_as_scipy_reads_them(tmp_path, packed):
    written = {
        "a": VALUES, "b": np.arange(24, dtype=np.int16).reshape(2, 3, 4), "c": np.float32(2.5), "text": "Cone",
        "flag": np.uint8([[1]]), "s": {"inner": {"x": [1.0, 2.0]}, "name": "mm", "n": np.uint16([7, 65535])},
        "cell": np.array([1, "x"], dtype=object), "complex": VALUES * 1j, "empty": np.zeros((0, 3)),
    }  # fmt: skip
    scipy.io.savemat(tmp_path / "a.mat", written, do_compression=packed)
    found, expected = read_matlab(tmp_path / "a.mat", 2**20), scipy.io.loadmat(tmp_path / "a.mat")
    assert set(written) - set(found) == {"cell", "complex"}
    for key in ("a", "b", "c", "flag", "empty"):
        np.testing.assert_array_equal(found[key], expected[key])
        assert found[key].shape == expected[key].shape
    assert found["text"] == "Cone"
    assert found["s"]["name"] == "mm"
    assert found["s"]["inner"]["x"].ravel().tolist() == [1, 2]
    assert found["s"]["n"].ravel().tolist() == [7, 65535]
    if packed:  # a variable that unpacks to more than is allowed is cut short
        with pytest.raises(ArrayError, match="cut short"):
            read_matlab(tmp_path / "a.mat", 100)


def test_other_files(tmp_path):
    others = [("a.txt", b"x", "not a sinogram"), ("a.mat", b"", "empty"), ("b.mat", b"x" * 300, "MATLAB")]
    for name, content, says in others:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ArrayError, match=says):
            read_sinogram(tmp_path / name)
    with pytest.raises(ArrayError):
        read_sinogram(tmp_path / "missing.mat")
