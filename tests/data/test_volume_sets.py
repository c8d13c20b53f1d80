"""Slices of volumes as a set of images."""

import numpy as np
import pytest
import torch

from firm.data import ArrayError, load_images
from firm.training.config import load_config
from firm.training.feed import load_sets
from volume_helpers import dicom, nifti, ome_tiff, values


@pytest.fixture
def folder(tmp_path):
    """Two volumes and a series of DICOM files, 3 + 2 + 4 slices of 20x24."""
    nifti(tmp_path / "a.nii.gz", values(3))
    (tmp_path / "below").mkdir()
    ome_tiff(tmp_path / "below" / "b.ome.tif", values(2, seed=1))
    dicom(tmp_path / "series", values(4, seed=2))
    (tmp_path / "notes.txt").write_text("no volume")
    return tmp_path


def test_the_slices_of_all_volumes_below_a_folder(folder):
    images = load_images("volumes", folder, size=16, value_range=(0, 4095), progress=False)
    assert (len(images), tuple(images.data.shape), images.complex) == (9, (9, 1, 16, 16), False)
    assert images.names[3:6] == ["below/b.ome.tif[0]", "below/b.ome.tif[1]", "series[0]"]
    expected = 2 * values(2, seed=1)[1, 2:18, 4:20].astype(np.float64) / 4095 - 1
    np.testing.assert_allclose(images.data[4, 0].numpy(), expected, atol=1e-6)
    assert len(load_images("volumes", folder / "a.nii.gz", size=None, progress=False)) == 3


def test_each_volume_has_a_range_of_its_own(folder):
    images = load_images("volumes", folder, size=20, progress=False)
    for part in (images.data[:3], images.data[5:]):
        assert -1.2 < part.min() < -0.95
        assert 0.95 < part.max() < 1.2


def test_magnitudes_become_complex_images(folder):
    images = load_images("volumes", folder / "a.nii.gz", size=16, channels=2, progress=False)
    assert images.complex
    assert images.data[:, 0].min() >= 0
    assert images.data[:, 0].max() == pytest.approx(1, abs=0.1)
    assert not images.data[:, 1].any()


def test_what_does_not_fit_is_told(folder, tmp_path):
    with pytest.raises(ArrayError, match=r"24x20.*32x32 is larger"):
        load_images("volumes", folder, size=32, progress=False)
    with pytest.raises(ArrayError, match="one channel"):
        load_images("volumes", folder, size=16, channels=3, progress=False)
    (tmp_path / "none").mkdir()
    with pytest.raises(ArrayError, match="no volumes"):
        load_images("volumes", tmp_path / "none", size=16, progress=False)
    broken = folder / "a.nii.gz"
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(ArrayError, match=r"a\.nii\.gz"):
        load_images("volumes", folder, size=16, progress=False)
    assert len(load_images("volumes", folder, size=16, broken="skip", progress=False)) == 6


def test_converted_once_for_training(folder):
    options = dict(size=16, value_range=(0, 4095), cache=folder / "cache", mapped=True, progress=False)
    first = load_images("volumes", folder / "a.nii.gz", **options)
    files = {p: p.stat().st_mtime_ns for p in (folder / "cache").iterdir()}
    again = load_images("volumes", folder / "a.nii.gz", **options)
    assert torch.equal(first.data, again.data)
    assert files == {p: p.stat().st_mtime_ns for p in (folder / "cache").iterdir()}
    config = load_config(None, ["dataset=volumes", f"data={folder}", "channels=1", "size=16", "val_images=2"])
    train, held_out = load_sets(config, progress=False)
    assert (len(train), len(held_out)) == (7, 2)
