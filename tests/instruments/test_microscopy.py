"""Stacks and volumes from file to file: slices restored one by one, values and metadata kept."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from helpers import call, cells, tiny_model
from PIL import Image

import firm
from firm.data.volumes import open_volume
from firm.instruments.microscopy import MicroscopyScan
from firm.instruments.volume import VolumeScan
from firm.restoration.reading import ProblemError
from firm.restoration.scan import restore_scan
from volume_helpers import dicom, nifti, ome_tiff, ome_zarr

SIDE = 96


class Smooth(torch.nn.Module):
    """An estimator for gray that averages 3x3 pixels."""

    config = {"channels": 1, "noise_level": True}  # noqa: RUF012

    def forward(self, x, x_t, t, sigma):
        return torch.nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


def counts(peak=40, gain=3, read=4, offset=100, planes=3, side=SIDE, seed=0):
    """Counts in 16 bits of simulated cells, and what they would be without noise."""
    drawn = np.random.default_rng(seed)
    light = peak * np.stack([cells(side, seed + i) for i in range(planes)])
    noisy = gain * drawn.poisson(light) + offset + read * drawn.normal(size=light.shape)
    return np.rint(noisy.clip(0, 65535)).astype(np.uint16), gain * light + offset


def restored(scan, out, samples=1, K=4):
    model = firm.Firm(Smooth(), firm.Solver(K=K))
    return restore_scan(model, scan, out / "a", 1, samples, 0, torch.device("cpu"), progress=False)


def whole(path):
    volume = open_volume(path)
    return np.stack([volume.read(i) for i in range(volume.count)])


def test_a_stack_of_counts_is_restored_in_its_type_and_units(tmp_path):
    noisy, clean = counts()
    scan = MicroscopyScan.open(ome_tiff(tmp_path / "a.ome.tif", noisy))
    assert "a photon adds" in scan.about
    report = restored(scan, tmp_path / "out", samples=2)
    names = {Path(path).name for path in report["written"]}
    assert names == {"a_restored.ome.tif", "a_mean.ome.tif", "a_std.ome.tif", "a_compare.png"}
    result = open_volume(tmp_path / "out" / "a_restored.ome.tif")
    assert (result.dtype, result.spacing) == (np.uint16, pytest.approx((0.5, 0.2, 0.1)))
    error = (whole(result.path) - clean).std()
    assert error < 0.6 * (noisy - clean).std()
    assert abs(whole(result.path).mean() - clean.mean()) < 1  # counts, in their own units
    assert open_volume(tmp_path / "out" / "a_std.ome.tif").dtype == np.float32
    assert 0.5 < report["residual"] < 1.5


def test_every_channel_has_its_own_noise(tmp_path):
    first, _ = counts(gain=2, planes=4)
    second, _ = counts(gain=8, offset=400, planes=4, seed=9)
    scan = MicroscopyScan.open(ome_zarr(tmp_path / "z.ome.zarr", np.stack([first, second])))
    gains = [noise.gain for noise in scan.noises]
    assert gains == pytest.approx([2, 8], rel=0.25)
    assert [noise.offset for noise in scan.noises] == pytest.approx([100, 400], abs=3)
    assert scan.slice(0).noise.gain != scan.slice(7).noise.gain
    for i in (0, 7):  # a value is offset + gain x
        s = scan.slice(i)
        values = s.offset + s.gain * s.y[0, 0].numpy()
        np.testing.assert_allclose(values, scan.volume.read(i), atol=0.01)


def test_noise_that_is_given_and_noise_of_other_kinds(tmp_path):
    noisy, _ = counts()
    path = ome_tiff(tmp_path / "a.ome.tif", noisy)
    scan = MicroscopyScan.open(path, gain=3, read=4, offset=100)
    noise, half = scan.slice(1).noise, scan.slice(1).gain
    assert (float(noise.gain) * half, float(noise.sigma) * half) == pytest.approx((3, 4))
    assert scan.about.endswith("given: a photon adds 3 counts, read noise 4, offset 100")
    with pytest.raises(ProblemError, match="the offset, 60000 counts, is above almost all"):
        MicroscopyScan.open(path, offset=60_000, gain=1, read=1)
    drawn = np.random.default_rng(0)
    even = np.rint(2000 - np.linspace(0, 500, SIDE) + 30 * drawn.normal(size=(2, SIDE, SIDE))).astype(np.uint16)
    other = MicroscopyScan.open(ome_tiff(tmp_path / "b.ome.tif", even))
    assert "does not grow with the brightness" in other.about or "a photon adds" in other.about
    level = other.slice(0).noise
    spread = level if isinstance(level, float) else float(level.std(other.slice(0).y).mean())
    assert spread * other.slice(0).gain == pytest.approx(30, rel=0.15)


def test_a_point_spread_function_is_undone(tmp_path):
    noisy, _ = counts(peak=2000, planes=1)
    psf = np.zeros((5, 5), np.uint8)
    psf[1:4, 2] = 80
    Image.fromarray(psf).save(tmp_path / "psf.png")
    scan = MicroscopyScan.open(ome_tiff(tmp_path / "a.ome.tif", noisy), kernel=tmp_path / "psf.png")
    s = scan.slice(0)
    assert s.op.A_adjoint(s.y).shape[-1] == SIDE + 2 * s.rim > SIDE  # with what lies around it
    restored(scan, tmp_path / "out", K=1)
    assert whole(tmp_path / "out" / "a_restored.ome.tif").shape == (1, SIDE, SIDE)


@pytest.mark.parametrize("kind", ["dicom", "nifti"])
def test_volumes_of_other_instruments_are_restored_as_pictures(kind, tmp_path):
    drawn = np.random.default_rng(0)
    clean = 1000 + 200 * np.add.outer(np.arange(20), np.arange(24)) / 44 + 100 * np.arange(4)[:, None, None]
    noisy = np.rint(clean + 20 * drawn.normal(size=(4, 20, 24))).astype(np.uint16)
    shift = 1024 if kind == "dicom" else 0
    path = dicom(tmp_path / "a", noisy) if shift else nifti(tmp_path / "a.nii.gz", noisy.astype(np.int16))
    scan = VolumeScan.open(path)
    report = restored(scan, tmp_path / "out")
    result = open_volume(report["written"][0])
    assert (result.dtype, result.unit, result.spacing) == (scan.volume.dtype, scan.volume.unit, scan.volume.spacing)
    assert (whole(result.path) + shift - clean).std() < 14
    level = float(scan.slice(1).noise) * scan.slice(1).gain
    assert level == pytest.approx(20, rel=0.3)
    given = VolumeScan.open(path, sigma=0.5, value_range=(0, 4000))
    assert (given.slice(0).noise, given.slice(0).gain, given.slice(0).offset) == (0.5, 2000, 2000)


def test_what_volumes_are_not_restored_by(tmp_path):
    path = nifti(tmp_path / "a.nii", np.random.default_rng(0).random((2, 20, 24)).astype(np.float32))
    with pytest.raises(ProblemError, match="by denoising, deblurring, motion-deblurring, not by inpainting"):
        VolumeScan.open(path, "inpainting")
    with pytest.raises(ProblemError, match="deblurring of a volume needs the blur"):
        VolumeScan.open(path, "deblurring")
    assert VolumeScan.open(path, "deblurring", blur=1.0).slice(0).rim > 0
    with pytest.raises(ProblemError, match=r"no\.nii: no such file"):
        VolumeScan.open(tmp_path / "no.nii")


def test_counts_of_nothing_and_values_that_are_none_end_in_a_sentence(tmp_path):
    for stack, message in (
        (np.zeros((2, 20, 24), np.uint16), "all values are 0: nothing was recorded"),
        (np.full((2, 20, 24), np.nan, np.float32), "NaN or infinite"),
    ):
        tifffile.imwrite(tmp_path / "a.tif", stack)
        for kind in (MicroscopyScan, VolumeScan):
            with pytest.raises(ProblemError, match=message):
                kind.open(tmp_path / "a.tif")
    late = np.random.default_rng(0).random((30, 20, 24)).astype(np.float32)
    late[1, 3, 3] = np.nan  # in none of the slices that are looked at
    tifffile.imwrite(tmp_path / "b.tif", late)
    with pytest.raises(ProblemError, match="slice 2 has values that are NaN"):
        restored(VolumeScan.open(tmp_path / "b.tif"), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))  # nothing half-written


def test_the_command_line_restores_stacks_and_volumes(tmp_path):
    model = tiny_model(tmp_path / "m.safetensors", [{"name": "denoising", "sigma": [0.01, 0.5]}])
    noisy, _ = counts(planes=2)
    ome_tiff(tmp_path / "s.ome.tif", noisy)
    dicom(tmp_path / "ct", noisy[:, :20, :24])
    arguments = ["--model", str(model), "--steps", "1", "--device", "cpu", "--precision", "float32", "--tile", "64"]
    said = call("restore", tmp_path / "s.ome.tif", "--task", "microscopy", "--out", tmp_path / "a", *arguments).output
    assert "a photon adds" in said
    assert open_volume(tmp_path / "a" / "s_restored.ome.tif").dtype == np.uint16
    wide = ("--task", "denoising", "--sigma", "0.1", "--value-range", "-1000,200")
    said = call("restore", tmp_path / "ct", *wide, "--out", tmp_path / "b", *arguments).output
    assert "-1000 to 200 HU become -1 to 1; noise 0.1, 60 HU, given" in " ".join(said.split())
    assert open_volume(tmp_path / "b" / "ct_restored").unit == "HU"
