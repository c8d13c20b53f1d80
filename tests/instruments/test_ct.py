"""A sinogram in, attenuation out: counts and line integrals, fewer views, units, and files that do not fit."""

import math

import numpy as np
import pytest
import torch
from helpers import stirred

import firm
from firm.instruments.ct import CtScan
from firm.operators import Radon
from firm.restoration.reading import ProblemError
from firm.restoration.scan import restore_scan

SIDE, VIEWS, WATER = 24, 36, 0.02  # attenuation per mm
FAN = dict(source=100.0, detector=50.0, spacing=1.5)


def body():
    """Two slices of a cylinder of water with a denser rod: attenuation per mm, pixels of 1 mm."""
    place = torch.arange(SIDE) - (SIDE - 1) / 2
    radius = place.square() + place[:, None].square()
    rod = (place - 3).square() + (place[:, None] + 2).square() < 9
    slices = [torch.where(radius < 90, WATER, 0) + rod * dense for dense in (0.01, 0.02)]
    return torch.stack(slices)[:, None]


def write(path, counts=False, photons=1e5, **changes):
    """A sinogram of the body with the noise of photons."""
    angles = np.arange(VIEWS) * 360.0 / VIEWS
    op = Radon(np.deg2rad(angles), SIDE, bins=30, **FAN)
    mean = photons * torch.exp(-op.A(body()))
    k = torch.poisson(mean, generator=torch.Generator().manual_seed(0)).numpy()[:, 0]
    named = {"counts": k, "blank": photons} if counts else {"sinogram": np.log(photons / (k + 0.5))}
    np.savez(path, **{"angles": angles, **named, **FAN, **changes})
    return path


def model():
    torch.manual_seed(0)
    net = stirred(firm.networks.ResUNet(1, widths=(8, 16), blocks=1, noise_level=True), 0.01)
    return firm.Firm(net, firm.Solver(K=2, output="correction"))


@pytest.mark.parametrize("counts", [True, False])
def test_the_true_image_explains_the_measurements_to_the_noise(tmp_path, counts):
    scan = CtScan.open(write(tmp_path / "a.npz", counts), side=30, photons=0 if counts else 1e5)
    assert len(scan) == 2
    assert scan.unit == "1/cm"
    s = scan.slice(1)
    assert s.op.geometry.pixel == pytest.approx(1.0)
    truth = torch.nn.functional.pad(body()[1:], (3, 3, 3, 3))  # the field of view has 30 pixels
    x = (10 * truth - s.offset) / s.gain
    z = (s.y - s.op.A(x)) / s.noise.sigma
    seen = s.op.A(torch.ones_like(x)) > 0
    assert float(z[seen].std()) == pytest.approx(1, abs=0.05)
    assert abs(float(z[seen].mean())) < 0.1
    assert -1.001 <= float(x.min()) < float(x.max()) <= 1.2
    assert float((s.first - x).square().mean().sqrt()) < 0.3


def test_what_was_read_is_said(tmp_path):
    scan = CtScan.open(write(tmp_path / "a.npz", counts=True, photons=30), views=12, water=0.2)
    for words in (
        "2 slices of counts",
        "12 of 36 views",
        "30 bins",
        "source 100",
        "30x30 pixels of 1 mm",
        "-1000",
        "HU",
    ):
        assert words in scan.about
    assert "fewer than 10 photons" in scan.notes[0]
    assert scan.window[0] == pytest.approx(-1000)
    assert scan.slice(0).y.shape == (1, 1, 12, 30)
    np.testing.assert_allclose(np.rad2deg(scan.geometry.angles.numpy()), np.arange(12) * 30.0)
    bare = tmp_path / "b.npy"
    np.save(bare, np.load(tmp_path / "a.npz")["counts"])
    assert "parallel" in CtScan.open(bare).notes[0]
    assert "1/bin" in CtScan.open(bare).about


def test_the_noise_of_line_integrals_is_estimated(tmp_path):
    path = tmp_path / "a.npz"
    rng = np.random.default_rng(0)
    smooth = 2 + np.sin(np.linspace(0, math.pi, 300))[None, None].repeat(40, 1)
    np.savez(path, sinogram=smooth + 0.05 * rng.standard_normal(smooth.shape), angles=np.arange(40) * 4.5)
    scan = CtScan.open(path, side=20)
    assert float(scan._integrals(0)[1].mean()) == pytest.approx(0.05, rel=0.05)


def test_a_scan_is_restored_in_physical_units(tmp_path):
    scan = CtScan.open(write(tmp_path / "body.npz", counts=True), water=10 * WATER)
    report = restore_scan(model(), scan, tmp_path / "body", 1, 2, 0, torch.device("cpu"), progress=False)
    values = np.load(tmp_path / "body_mean.npy")
    assert values.shape == (2, 30, 30)
    truth = torch.nn.functional.pad(1000 * (body() / WATER - 1), (3, 3, 3, 3), value=-1000)[:, 0].numpy()
    inside = truth == 0
    assert abs(values[inside].mean()) < 60  # HU; the network knows nothing
    assert values[truth > 400].mean() == pytest.approx(truth[truth > 400].mean(), abs=150)
    assert np.load(tmp_path / "body_std.npy").min() >= 0
    assert 0.5 < report["residual"] < 10  # nothing brings it to the data at the end
    assert (tmp_path / "body_compare.png").is_file()


@pytest.mark.parametrize(
    ("changes", "settings", "says"),
    [
        ({}, dict(views=37), "37 views asked for, and it has 36"),
        (dict(source=-5.0), {}, "source must be above 0"),
        (dict(sinogram=np.zeros((1, VIEWS, 30))), {}, "nothing that absorbs"),
        (dict(angles=[1.0]), {}, "1 angles for 36 views"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(tmp_path, changes, settings, says):
    with pytest.raises(ProblemError, match=says) as raised:
        CtScan.open(write(tmp_path / "a.npz", **changes), **settings)
    assert str(tmp_path / "a.npz") in str(raised.value)


def test_hounsfield_units_need_lengths(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 8)))
    with pytest.raises(ProblemError, match="no spacing"):
        CtScan.open(tmp_path / "a.npy", water=0.2)


def test_what_does_not_fit_into_memory_is_refused_before_it_is_made(tmp_path):
    angles = np.arange(4000) / 10
    np.savez(tmp_path / "a.npz", sinogram=np.ones((4000, 30)), angles=angles, spacing=1.0)
    with pytest.raises(ProblemError, match=r"GB, and .* fewer views"):
        CtScan.open(tmp_path / "a.npz", side=8192 * 64)
