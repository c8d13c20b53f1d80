"""Scans of instruments on the command line: which files are some, what is written, and that work is not done twice."""

import json

import nibabel
import numpy as np
import pytest
from helpers import call, says
from mri_helpers import scanned, write_fastmri

from volume_helpers import nifti, values


@pytest.fixture
def brain(tmp_path):
    return nifti(tmp_path / "brain.nii.gz", values(3))


def row(tmp_path):
    return json.loads((tmp_path / "out" / "restore.json").read_text())[0]


def test_a_volume_comes_back_in_its_format(brain, restore, tmp_path):
    said = restore(brain, "--task", "denoising", "--samples", 3)
    assert says(said, "NIfTI, 3 slices")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "brain_compare.png", "brain_mean.nii.gz", "brain_restored.nii.gz", "brain_std.nii.gz", "restore.json",
    ]  # fmt: skip
    given, restored = (nibabel.load(p) for p in (brain, tmp_path / "out" / "brain_restored.nii.gz"))
    assert restored.shape == given.shape
    np.testing.assert_array_equal(restored.affine, given.affine)
    about = row(tmp_path)
    assert (about["slices"], about["samples"], about["task"]) == (3, 3, "denoising")
    assert about["residual"] > 0
    assert says(restore(brain, "--task", "denoising", "--samples", 3), "nothing to do")
    restore(brain, "--task", "denoising", "--samples", 2, code=2)  # results of other settings are not replaced
    restore(brain, "--task", "denoising", "--samples", 2, "--force")


def test_k_space_becomes_an_image(restore, tmp_path):
    kspace, truth, _ = scanned(1, 4, 48, 40, noise=1e-3)
    scan = write_fastmri(tmp_path / "scan.h5", kspace)
    said = restore(scan, "--task", "mri", "--acceleration", 2)
    assert says(said, "4 coils, 48x40")
    image = np.load(tmp_path / "out" / "scan_restored.npy")
    assert image.dtype == np.complex64
    assert np.corrcoef(np.abs(image).ravel(), np.abs(truth[0]).ravel())[0, 1] > 0.9  # in the unit of the file
    assert np.abs(image).max() == pytest.approx(np.abs(truth).max(), rel=0.5)
    found = []
    for options in (["--final-solve"], []):
        restore(scan, "--task", "mri", *options, "--out", tmp_path / f"out{len(options)}")
        found.append(json.loads((tmp_path / f"out{len(options)}" / "restore.json").read_text())[0]["residual"])
    assert found[0] < found[1] / 2  # random weights contradict the measurements


def test_options_of_pictures_are_refused(brain, restore, tmp_path):
    for words in (["--preview"], ["--format", "png"], ["--keep-known"], ["--task", "inpainting", "--mask", brain]):
        restore(brain, "--task", "denoising", *words, code=2)
    assert says(restore(brain, tmp_path / "other.png", "--task", "denoising", code=2), "other.png")
    assert says(restore(brain, "--task", "mri", code=2), "brain.nii.gz")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.nii*"))


def test_a_damaged_scan_ends_in_a_sentence(brain, restore, tmp_path):
    brain.write_bytes(brain.read_bytes()[:200])
    assert says(restore(brain, "--task", "denoising", code=2), "damaged or cut short")
    assert not list((tmp_path / "out").glob("brain*"))


def test_a_dicom_folder_is_one_scan(restore, tmp_path):
    from volume_helpers import dicom

    dicom(tmp_path / "series", values(3))
    restore(tmp_path / "series", "--task", "denoising")
    assert row(tmp_path)["slices"] == 3
    assert row(tmp_path)["unit"] == "HU"
    assert call("restore", tmp_path / "series", "--task", "denoising", "--out", tmp_path / "out").exit_code == 2
