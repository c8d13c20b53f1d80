"""A scan in, images out: every format, what is said of it, units, phases, and files that do not fit."""

import h5py
import numpy as np
import pytest
import torch
from helpers import call, stirred, tells
from mri_helpers import header, phantom, scanned, write_bart, write_fastmri, write_ismrmrd

import firm
from firm.data.kspace import open_kspace
from firm.instruments.mri import MriScan
from firm.operators import to_complex
from firm.restoration.reading import ProblemError
from firm.restoration.scan import restore_scan

KSPACE, TRUTH, MAPS = scanned()


def model():
    torch.manual_seed(0)
    net = stirred(firm.networks.ResUNet(2, widths=(8, 16), blocks=1, noise_level=True), 0.01)
    return firm.Firm(net, firm.Solver(K=2, output="correction"))


def restored(scan, out, samples=1, **options):
    stem = out / scan.path.name.split(".")[0]
    return restore_scan(model(), scan, stem, 1, samples, 0, torch.device("cpu"), progress=False, **options)


@pytest.mark.parametrize(("write", "format"), [(write_fastmri, "h5"), (write_bart, "cfl"), (write_ismrmrd, "h5")])
def test_a_scan_is_restored_and_written_in_its_own_format(write, format, tmp_path):
    scan = MriScan.open(write(tmp_path / "head.h5", KSPACE), acceleration=2, center_lines=16)
    assert "2 images, 4 coils, 48x40, 28 of 40 lines" in scan.about
    row = restored(scan, tmp_path, samples=2)
    values = np.load(tmp_path / "head_restored.npy")
    assert values.shape == (2, 48, 40)
    assert values.dtype == np.complex64
    inside = np.abs(TRUTH) > 0
    assert np.abs(np.abs(values) - np.abs(TRUTH))[inside].mean() < 12  # of 100: the network knows nothing
    std = np.load(tmp_path / "head_std.npy")
    assert std.dtype == np.float32
    assert 0 < std[inside].mean() < 50
    if format == "h5":
        with h5py.File(tmp_path / "head_restored.h5") as file:
            assert np.array_equal(file["image"], values)
    else:
        again = open_kspace(tmp_path / "head_restored.cfl")
        assert (again.count, again.coils) == (2, 1)
        assert np.array_equal(again.read(1)[0], values[1])
    assert (tmp_path / "head_compare.png").is_file()
    assert row["residual"] > 0


def test_the_problem_is_that_of_the_scan(tmp_path):
    """The true image explains the measurements to the noise, in the units of the problem."""
    scan = MriScan.open(write_fastmri(tmp_path / "a.h5", KSPACE, maps=MAPS), acceleration=2)
    s = scan.slice(1)
    one = scan.image(1)
    assert one.noise == pytest.approx(2.0, rel=0.1)
    assert s.noise * s.gain == pytest.approx(one.noise)
    assert s.gain == pytest.approx(100 * 0.8 * 1.3, rel=0.15)
    x = torch.from_numpy(TRUTH[1])[None, None] * one.phase.conj() / s.gain
    misfit = (s.op.A(torch.cat([x.real, x.imag], 1)) - s.y)[(s.y != 0)].abs().square().mean().sqrt()
    assert float(misfit) == pytest.approx(s.noise, rel=0.1)
    assert x.imag.square().mean() < 0.02 * x.real.square().mean()  # its smooth phase is in the maps


def test_maps_of_the_file_do_without_lines_in_the_middle(tmp_path):
    path = write_fastmri(tmp_path / "a.h5", KSPACE, maps=MAPS)
    scan = MriScan.open(path, acceleration=3, center_lines=0)
    assert "maps of the file, which cover 100% of the image" in scan.about
    s = scan.slice(0)
    x = s.op.prox_l2(torch.zeros(1, 2, 48, 40), s.y, 100.0)
    error = (to_complex(x).abs()[0, 0] * s.gain).numpy() - np.abs(TRUTH[0])
    assert np.abs(error).mean() < 12


def test_maps_are_estimated_from_the_lines_in_the_middle(tmp_path):
    scan = MriScan.open(write_fastmri(tmp_path / "a.h5", KSPACE), acceleration=4, center_lines=20)
    s = scan.slice(0)
    found = scan.image(0).maps
    cosine = (torch.from_numpy(MAPS).conj() * found).sum(0).abs()
    core = phantom(48, 40)[0].abs() > 0.3
    assert cosine[core].median() > 0.99
    x = s.op.prox_l2(torch.zeros(1, 2, 48, 40), s.y, 100.0)
    error = (to_complex(x).abs()[0, 0] * s.gain).numpy() - np.abs(TRUTH[0])
    assert np.abs(error[core]).mean() < 8


def test_noise_is_whitened_with_a_scan_of_it(tmp_path):
    generator = torch.Generator().manual_seed(0)
    mix = torch.eye(4) + 0.5 * torch.randn(4, 4, dtype=torch.complex64, generator=generator)
    noise = (mix @ torch.randn(4, 4000, dtype=torch.complex64, generator=generator)).numpy()
    y = KSPACE + (mix @ torch.randn(4, 2 * 48 * 40, dtype=torch.complex64, generator=generator)).numpy().reshape(
        4, 2, 48, 40
    ).transpose(1, 0, 2, 3)
    scan = MriScan.open(write_ismrmrd(tmp_path / "a.h5", y, noise=noise))
    assert "by a scan of it" in scan.about
    level = float((mix @ mix.mH).diagonal().real.mean().sqrt())
    scan.slice(0)
    assert scan.image(0).noise == pytest.approx(level, rel=0.05)


def test_oversampling_is_cut_off_and_the_image_is_that_of_the_scanner(tmp_path):
    wide = np.fft.fftshift(np.fft.ifft2(np.fft.ifftshift(KSPACE, axes=(-2, -1)), norm="ortho"), axes=(-2, -1))
    wide = np.pad(wide, [(0, 0), (0, 0), (24, 24), (0, 0)])
    wide = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(wide, axes=(-2, -1)), norm="ortho"), axes=(-2, -1))
    wide = wide + 0.5 * np.random.default_rng(0).normal(size=wide.shape)
    xml = header(96, 40, image=(48, 36))
    scan = MriScan.open(write_fastmri(tmp_path / "a.h5", wide.astype(np.complex64), xml), acceleration=2)
    assert "96x40, shown 48x36" in scan.about
    assert scan.slice(0).op.op.maps.shape[1:] == (48, 40)
    restored(scan, tmp_path)
    assert np.load(tmp_path / "a_restored.npy").shape == (2, 48, 36)
    plain = MriScan.open(write_fastmri(tmp_path / "b.h5", KSPACE), acceleration=2)
    restored(plain, tmp_path)
    a, b = (np.load(tmp_path / f"{name}_restored.npy") for name in "ab")
    assert np.abs(np.abs(a) - np.abs(b[..., 2:38])).mean() < 6


def test_a_mask_of_two_dimensions_and_a_single_coil(tmp_path):
    mask = (torch.rand(48, 40, generator=torch.Generator().manual_seed(0)) < 0.5).numpy()
    mask[12:36, 8:32] = True
    scan = MriScan.open(write_bart(tmp_path / "a.cfl", KSPACE * mask))
    assert "samples measured" in scan.about
    assert scan.slice(0).op.op.mask.shape == (48, 40)
    single = MriScan.open(write_fastmri(tmp_path / "b.h5", KSPACE[:, 0]), acceleration=2)
    assert "1 coil" in single.about
    restored(single, tmp_path)


@pytest.mark.parametrize(
    ("kspace", "settings", "match"),
    [
        (0 * KSPACE, {}, "nothing was measured"),
        (KSPACE[..., :6], {}, "fewer than 8x8"),
        (KSPACE, {"acceleration": 4, "center_lines": 2}, "center-lines"),
    ],
)
def test_scans_that_cannot_be_restored_end_in_one_sentence(kspace, settings, match, tmp_path):
    path = write_fastmri(tmp_path / "a.h5", kspace)
    with pytest.raises(ProblemError, match=match):
        MriScan.open(path, **settings)
    assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]


def test_a_damaged_image_leaves_nothing_half_written(tmp_path):
    broken = KSPACE.copy()
    broken[0] = np.nan
    scan = MriScan.open(write_fastmri(tmp_path / "a.h5", broken))
    with pytest.raises(ProblemError, match="NaN"):
        restored(scan, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]


def test_the_command_restores_a_scan_or_says_why_not(tmp_path):
    path = write_fastmri(tmp_path / "head.h5", KSPACE)
    weights = tmp_path / "model.safetensors"
    model().save(weights)
    more = ("--task", "mri", "--model", weights, "--steps", 1, "-o", tmp_path / "out")
    done = call("restore", path, *more, "--acceleration", 2, "--center-lines", 16)
    assert done.exit_code == 0, done.output
    assert np.load(tmp_path / "out" / "head_restored.npy").shape == (2, 48, 40)
    tells("fewer than 8x8", "restore", path, *more[:-1], tmp_path / "none", "--acceleration", 4, "--center-lines", 2)
    path.write_bytes(path.read_bytes()[:4000])
    tells("damaged or cut short", "restore", path, *more[:-1], tmp_path / "none")
    assert not (tmp_path / "none").exists()
