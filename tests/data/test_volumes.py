"""Volumes of every format: read slice by slice, and written back as they came."""

import sys

import nibabel
import numpy as np
import pydicom
import pytest
import tifffile
import zarr

from firm.data.volumes import VolumeError, is_volume, open_volume
from volume_helpers import dicom, nifti, ome_tiff, ome_zarr, values

V = values()


def plain_tiff(path, array):
    tifffile.imwrite(path, array)
    return path


def imagej(path, array):
    tifffile.imwrite(
        path, array, imagej=True, resolution=(10, 5), metadata={"axes": "ZYX", "unit": "um", "spacing": 0.5}
    )
    return path


MADE = {  # how it is made, its values, spacing, the type that is stored
    "series": (lambda p: dicom(p, V), V - 1024.0, (2.5, 0.7, 0.6), "uint16"),
    "f.nii": (lambda p: nifti(p, V.astype(np.float32) / 7), V / np.float32(7), (2.002, 0.806, 0.7), "float32"),
    "i.nii.gz": (lambda p: nifti(p, V.astype(np.int16)), V, (2.002, 0.806, 0.7), "int16"),
    "a.ome.tif": (lambda p: ome_tiff(p, V), V, (0.5, 0.2, 0.1), "uint16"),
    "j.tif": (lambda p: imagej(p, V), V, (0.5, 0.2, 0.1), "uint16"),
    "p.tif": (lambda p: plain_tiff(p, V), V, None, "uint16"),
    "z.ome.zarr": (lambda p: ome_zarr(p, np.stack([V, V])), np.concatenate([V, V]), (0.5, 0.2, 0.1), "uint16"),
}  # fmt: skip


def whole(volume):
    return np.stack([volume.read(i) for i in range(volume.count)])


def rewritten(volume, stem, change, deviation=False):
    with volume.writer(stem, deviation) as writer:
        for i in range(volume.count):
            writer.put(i, change(volume.read(i)))
    return open_volume(writer.path)


@pytest.mark.parametrize("name", MADE)
def test_slices_spacing_and_type_survive(name, tmp_path):
    make, expected, spacing, dtype = MADE[name]
    volume = open_volume(make(tmp_path / name))
    np.testing.assert_allclose(whole(volume), expected, rtol=1e-6)
    assert is_volume(tmp_path / name) is (name not in ("j.tif", "p.tif"))  # those are pictures, too
    again = rewritten(volume, tmp_path / "out", lambda v: v)
    assert (again.count, again.size, again.dtype, again.unit) == (volume.count, volume.size, dtype, volume.unit)
    assert again.spacing == (spacing if spacing is None else pytest.approx(spacing, abs=1e-3)) == volume.spacing
    np.testing.assert_array_equal(whole(again), whole(volume))
    moved = rewritten(volume, tmp_path / "moved", lambda v: v.astype(float) + 0.4)
    assert np.abs(whole(moved) - expected - (0 if dtype != "float32" else 0.4)).max() < 1e-3  # rounded
    std = rewritten(volume, tmp_path / "std", lambda v: np.full(v.shape, 3.26), deviation=True)
    assert np.abs(whole(std) - 3.26).max() < 0.01
    assert std.spacing == again.spacing
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".firm")]


def test_dicom_results_are_derived_images_of_their_own(tmp_path):
    volume = open_volume(dicom(tmp_path / "series", V))
    rewritten(volume, tmp_path / "out", lambda v: v + 10_000)  # beyond 12 bits
    sources = [pydicom.dcmread(file) for file in volume.files]
    results = [pydicom.dcmread(file) for file in sorted((tmp_path / "out").iterdir())]
    for a, b in zip(sources, results, strict=True):
        assert list(b.ImageType) == ["DERIVED", "SECONDARY", "AXIAL"]
        assert b.SourceImageSequence[0].ReferencedSOPInstanceUID == a.SOPInstanceUID != b.SOPInstanceUID
        assert b.file_meta.MediaStorageSOPInstanceUID == b.SOPInstanceUID
        assert (b.ImagePositionPatient, b.PatientName) == (a.ImagePositionPatient, a.PatientName)
        assert b.StudyInstanceUID == a.StudyInstanceUID
        assert "not for diagnosis" in b.DerivationDescription
        assert b.pixel_array.max() == 4095
    assert {r.SeriesInstanceUID for r in results}.isdisjoint({s.SeriesInstanceUID for s in sources})
    assert len({r.SeriesInstanceUID for r in results}) == 1
    assert len({r.SOPInstanceUID for r in results}) == len(results)
    one = open_volume(volume.files[2])
    assert (one.count, one.unit) == (1, "HU")
    assert rewritten(one, tmp_path / "one", lambda v: v).path == tmp_path / "one.dcm"


def test_nifti_keeps_affine_header_and_scaling(tmp_path):
    volume = open_volume(nifti(tmp_path / "a.nii", V / 100 - 3, np.int16))
    again = rewritten(volume, tmp_path / "b", lambda v: v)
    a, b = (nibabel.load(tmp_path / f"{name}.nii") for name in "ab")
    np.testing.assert_array_equal(a.affine, b.affine)
    assert (b.dataobj.slope, b.dataobj.inter) == (a.dataobj.slope, a.dataobj.inter)
    assert a.dataobj.slope not in (0, 1)
    assert b.header.get_xyzt_units() == a.header.get_xyzt_units()
    assert np.abs(whole(again) - (V / 100 - 3)).max() <= a.dataobj.slope
    series = open_volume(nifti_series(tmp_path / "t.nii.gz"))
    assert series.count == 10
    np.testing.assert_array_equal(whole(series).reshape(2, 5, 20, 24), np.stack([V, V + 1]))
    np.testing.assert_array_equal(whole(rewritten(series, tmp_path / "u", lambda v: v)), whole(series))


def nifti_series(path):
    four = np.stack([V, V + 1]).transpose(3, 2, 1, 0).astype(np.int32)  # x, y, z, t
    nibabel.save(nibabel.Nifti1Image(four, np.eye(4)), path)
    return path


def test_tiff_keeps_its_axes_and_what_ome_says(tmp_path):
    stack = np.arange(2 * 3 * 4 * 20 * 24, dtype=np.uint16).reshape(2, 3, 4, 20, 24)
    about = {"Channel": {"Name": ["DAPI", "GFP", "Cy5"]}}
    volume = open_volume(ome_tiff(tmp_path / "a.ome.tif", stack, "TCZYX", **about))
    assert (volume.count, volume.channels, volume.channel(5)) == (24, 3, 1)
    rewritten(volume, tmp_path / "b", lambda v: v)
    with tifffile.TiffFile(tmp_path / "b.ome.tif") as file:
        assert (file.series[0].axes, file.series[0].shape) == ("TCZYX", stack.shape)
        np.testing.assert_array_equal(file.asarray(), stack)
        assert all(name in file.ome_metadata for name in ("DAPI", "GFP", "Cy5"))
    rewritten(open_volume(imagej(tmp_path / "j.tif", V)), tmp_path / "k", lambda v: v)
    with tifffile.TiffFile(tmp_path / "k.tif") as file:
        assert (file.imagej_metadata["slices"], file.series[0].axes) == (5, "ZYX")


def test_ome_zarr_keeps_its_metadata(tmp_path):
    volume = open_volume(ome_zarr(tmp_path / "z.ome.zarr", np.stack([V, V // 2])))
    assert (volume.channels, volume.channel(4), volume.channel(5)) == (2, 0, 1)
    rewritten(volume, tmp_path / "y", lambda v: v)
    a, b = (dict(zarr.open(str(tmp_path / f"{n}.ome.zarr")).attrs) for n in "zy")
    assert b["multiscales"] == a["multiscales"]


def test_an_error_leaves_nothing_and_what_was_there_stays(tmp_path):
    for name, (make, *_) in MADE.items():
        volume = open_volume(make(tmp_path / name))
        before = set(tmp_path.iterdir())
        with pytest.raises(TypeError), volume.writer(tmp_path / "out") as writer:
            writer.put(0, volume.read(0) + writer.put)
        assert set(tmp_path.iterdir()) == before
    series = open_volume(tmp_path / "series")
    rewritten(series, tmp_path / "out", lambda v: v)
    rewritten(series, tmp_path / "out", lambda v: v + 1)  # takes the place of the first
    assert np.array_equal(whole(open_volume(tmp_path / "out")), whole(series) + 1)


def cut(path, share=0.6):
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    return path


def two_series(path):
    dicom(path, V)
    for file in dicom(path.parent / "other", V).iterdir():
        file.rename(path / f"b{file.name}")
    return path


BAD = {
    "a gap between slices": (lambda p: dicom(p, V, ImagePositionPatient=lambda i: [0, 0, 2.5 * i + 2.5 * (i > 2)]),
                             r"2\.5 to 5 mm apart: one is missing or there twice"),
    "a slice twice": (lambda p: dicom(p, V, ImagePositionPatient=lambda i: [0, 0, 2.5 * min(i, 3)]), "there twice"),
    "two series": (two_series, "2 series in one folder"),
    "a localizer": (lambda p: dicom(p, V, ImageOrientationPatient=lambda i: [1, 0, 0, 0, i % 2, 1 - i % 2]),
                    "one direction"),
    "color": (lambda p: dicom(p, V, SamplesPerPixel=3), "color images"),
    "multi-frame": (lambda p: dicom(p, V, NumberOfFrames=2), "dcm2niix"),
    "cut.nii": (lambda p: cut(nifti(p, V.astype(np.int16))), "damaged or cut short"),
    "cut.nii.gz": (lambda p: cut(nifti(p, V.astype(np.int16))), "damaged or cut short"),
    "cut.ome.tif": (lambda p: cut(ome_tiff(p, V)), "damaged or cut short"),
    "cut.tif": (lambda p: cut(plain_tiff(p, V), 0.95), "damaged or cut short"),
    "cut pages.tif": (lambda p: cut(pages(p), 0.95), "damaged or cut short"),
    "no.nii": (lambda p: p.write_text("hello") and p, "damaged or cut short"),
    "no.tif": (lambda p: p.write_text("hello") and p, r"no\.tif: "),
    "no.ome.zarr": (lambda p: p.mkdir() or p, r"no\.ome\.zarr"),
    "text.txt": (lambda p: p.write_text("hello") and p, "no volume that is known here"),
    "color.tif": (lambda p: plain_tiff(p, np.zeros((20, 24, 3), np.uint8)), "is a picture, not a stack"),
    "two.nii": (lambda p: nifti_plane(p), "three axes or more"),
    "gone.nii": (lambda p: p, "no such file"),
}  # fmt: skip


def pages(path):
    with tifffile.TiffWriter(path) as file:
        for plane in V:
            file.write(plane, metadata=None, compression="zlib")
    return path


def nifti_plane(path):
    nibabel.save(nibabel.Nifti1Image(V[0].astype(np.int16), np.eye(4)), path)
    return path


@pytest.mark.parametrize("name", BAD)
def test_bad_files_end_in_a_sentence(name, tmp_path):
    make, message = BAD[name]
    path = make(tmp_path / name)
    with pytest.raises(VolumeError, match=message) as error:
        whole(open_volume(path))
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_truncated_dicom_file_is_named(tmp_path):
    folder = dicom(tmp_path / "series", V)
    cut(folder / "image2", 0.7)
    with pytest.raises(VolumeError, match="image2: damaged or cut short"):
        whole(open_volume(folder))


PACKAGES = {"series": "pydicom", "f.nii": "nibabel", "p.tif": "tifffile", "z.ome.zarr": "zarr"}


@pytest.mark.parametrize("name", PACKAGES)
def test_missing_packages_are_named_with_their_command(name, tmp_path, monkeypatch):
    package, path = PACKAGES[name], MADE[name][0](tmp_path / name)
    monkeypatch.setitem(sys.modules, package, None)
    extra = "medical" if package in ("pydicom", "nibabel") else "microscopy"
    with pytest.raises(ModuleNotFoundError, match=rf"needs {package}: pip install 'firm\[{extra}\]'"):
        open_volume(path)
