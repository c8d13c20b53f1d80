"""JPEG against Pillow's encoder and decoder, and scipy's cosines."""

import numpy as np
import pytest
import scipy.fft
import torch
from helpers import rand, randn
from PIL import Image

from firm.data.jpeg import read_coefficients
from firm.data.opening import PictureError
from firm.operators import JPEG, data_consistency
from firm.operators.jpeg import COLORS, SUBSAMPLING, error_level, quality_tables
from firm.restoration.compression import cells_of


def picture(height, width, seed=0):
    """A smooth picture of whole gray levels, (1, 3, H, W)."""
    coarse = rand(1, 3, 7, 6, seed=seed)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")
    return (255 * smooth).round().clamp(0, 255) / 127.5 - 1


def saved(path, x, **settings):
    levels = ((x[0].permute(1, 2, 0) + 1) * 127.5).round().clamp(0, 255).byte().numpy()
    Image.fromarray(levels).save(path, "JPEG", **settings)
    return path


def operator(quality=10, subsampling="4:4:4", **settings):
    return JPEG(*quality_tables(torch.tensor([float(quality)])), subsampling, **settings)


@pytest.mark.parametrize("quality", [1, 10, 49, 50, 75, 100])
def test_the_tables_are_those_of_pillow(tmp_path, quality):
    with Image.open(saved(tmp_path / "a.jpg", picture(16, 16), quality=quality)) as file:
        luma, chroma = (np.array(file.quantization[k]).reshape(8, 8) for k in (0, 1))
    ours = quality_tables(torch.tensor([float(quality)]))
    np.testing.assert_array_equal(ours[0][0], luma)
    np.testing.assert_array_equal(ours[1][0], chroma)


def test_the_coefficients_are_scipys_cosines():
    x, op = picture(16, 24), operator(30)
    gray = np.einsum("ij,jhw->ihw", COLORS, (x[0].numpy() + 1) * 127.5) - np.array([128, 0, 0])[:, None, None]
    found = op._cells(x)
    for plane, (c, _) in zip(gray, found, strict=True):
        for i, j in ((0, 0), (1, 2)):
            block = plane[8 * i : 8 * i + 8, 8 * j : 8 * j + 8]
            np.testing.assert_allclose(c[0, i, j], scipy.fft.dctn(block, norm="ortho"), atol=2e-3)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", SUBSAMPLING)
def test_a_file_is_read_exactly(tmp_path, subsampling, progressive):
    """Pillow's own pixels of a file, where nothing is clamped or interpolated; and its numbers in another coding."""
    x = picture(50, 44)
    settings = {"quality": 60, "subsampling": subsampling}
    path = saved(tmp_path / "a.jpg", x, progressive=progressive, **settings)
    op, y = cells_of(path, 1)
    with Image.open(path) as file:
        file.draft("YCbCr", None)
        luma = np.asarray(file.convert("YCbCr"))[..., 0].astype(float)
    ours = 0.299 * y[0, 0] + 0.587 * y[0, 1] + 0.114 * y[0, 2]
    levels = ((ours[:50, :44] + 1) * 127.5).clamp(0, 255).numpy()
    assert np.abs(levels - luma).max() < 1.6  # rounded to whole levels, twice
    again = read_coefficients(saved(tmp_path / "b.jpg", x, restart_marker_blocks=2, **settings))
    for a, b in zip(read_coefficients(path).planes, again.planes, strict=True):
        np.testing.assert_array_equal(a.numbers[: a.rows, : a.columns], b.numbers[: b.rows, : b.columns])
    assert op.image_size == (50, 44)


@pytest.mark.parametrize("subsampling", SUBSAMPLING)
def test_it_compresses_as_pillow_does(tmp_path, subsampling):
    x = picture(48, 64)
    op, y = cells_of(saved(tmp_path / "a.jpg", x, quality=20, subsampling=subsampling), 1)
    ours = op.A(x)
    for (a, table), (b, _) in zip(op._cells(ours), op._cells(y), strict=True):
        steps = ((a - b) / table).round().abs()
        assert steps.max() <= 1  # Pillow rounds pixels in between
        assert (steps > 0).float().mean() < 0.01
    assert op.excess(x, y) < 0.1


@pytest.mark.parametrize("subsampling", SUBSAMPLING)
@pytest.mark.parametrize("quality", [10, 50])
def test_the_projection_is_the_nearest_image_in_the_cells(subsampling, quality):
    """It lies in the cells, compresses to the same, and no point of the cells lies on the far side of it."""
    x, op = picture(32, 48), operator(quality, subsampling)
    y, z = op.A(x), picture(32, 48, seed=1) + 0.2 * randn(1, 3, 32, 48, dtype=torch.float32)
    p = op.project(z, y)
    assert op.excess(z, y) > 0.5
    assert op.excess(p, y) < 1e-4
    torch.testing.assert_close(op.A(p), y, rtol=0, atol=1e-5)
    metric = torch.tensor(COLORS)
    into = torch.einsum("ij,bjhw->bihw", metric, z - p)
    for seed in range(20):  # <z - p, q - p> <= 0 for every q in the cells, in the metric of Y, Cb and Cr
        q = op.project(p + 0.3 * randn(1, 3, 32, 48, seed=seed, dtype=torch.float32), y)
        inner = (into * torch.einsum("ij,bjhw->bihw", metric, q - p)).sum()
        assert inner <= 1e-3 * into.norm()
    torch.testing.assert_close(op.project(x, y), x, rtol=0, atol=2e-3)  # the truth stays, but for the rim of its cells


@pytest.mark.parametrize("rho", [0.01, 1.0, torch.tensor([0.05, 5.0])])
def test_the_step_is_the_best_number_in_every_cell(rho):
    """By brute force: the least of (c - middle)^2 + rho (c - c_z)^2 among all c in the cell, for every coefficient."""
    x, op = torch.cat([picture(16, 16), picture(16, 16, seed=2)]), operator(20, "4:2:0")
    y, z = op.A(x), x + 0.3 * randn(2, 3, 16, 16, dtype=torch.float32)
    found = data_consistency(op, z, y, rho)
    column = torch.as_tensor(rho).expand(2).reshape(2, 1, 1, 1, 1, 1)
    for (c, table), (of_z, _), (middle, _) in zip(op._cells(found), op._cells(z), op._cells(y), strict=True):
        middle = (middle / table).round() * table
        tried = middle[..., None] + torch.linspace(-0.499, 0.499, 999) * table[..., None]
        value = (tried - middle[..., None]).square() + column * (tried - of_z[..., None]).square()
        best = tried.gather(-1, value.argmin(-1, keepdim=True))[..., 0]
        assert ((c - best).abs() / table).max() < 2e-3
    inputs = [z.double().requires_grad_(), torch.tensor([0.05, 5.0], dtype=torch.float64, requires_grad=True)]
    op = op.double()
    step = lambda z, rho: data_consistency(op, z, y.double(), rho)  # noqa: E731
    assert torch.autograd.gradcheck(step, inputs, fast_mode=True)


@pytest.mark.parametrize("size", [(50, 44), (17, 33)])
@pytest.mark.parametrize("subsampling", SUBSAMPLING)
def test_sides_that_are_no_whole_blocks(tmp_path, size, subsampling):
    x = picture(*size)
    op, y = cells_of(saved(tmp_path / "a.jpg", x, quality=30, subsampling=subsampling), 1)
    z = x + 0.2 * randn(1, 3, *size, dtype=torch.float32)
    p = op.project(z, y)
    assert p.shape == x.shape == op.A_adjoint(y).shape
    assert op.excess(p, y) < 0.05 < op.excess(z, y)
    assert (p - x).norm() < (z - x).norm()


def test_a_projected_picture_is_the_same_file(tmp_path):
    """Written with 8 bits and the same tables: all numbers but those that rounding moved over a border."""
    x = picture(64, 64)
    path = saved(tmp_path / "a.jpg", x, quality=10, subsampling="4:4:4")
    op, y = cells_of(path, 1)
    p = op.project(x + 0.1 * randn(1, 3, 64, 64, dtype=torch.float32), y)
    with Image.open(path) as file:
        tables = [list(file.quantization[k]) for k in (0, 1)]
    again = read_coefficients(saved(tmp_path / "b.jpg", p, qtables=tables, subsampling="4:4:4"))
    for a, b in zip(read_coefficients(path).planes, again.planes, strict=True):
        assert (a.numbers == b.numbers).mean() > 0.97


@pytest.mark.parametrize("code", range(1, 9))
def test_turned_pictures(tmp_path, code):
    """Upright, as Pillow turns it by its EXIF data."""
    exif = Image.Exif()
    exif[274] = code
    path = saved(tmp_path / "a.jpg", picture(40, 56), quality=90, subsampling="4:4:4", exif=exif)
    op, y = cells_of(path, 1)
    from PIL import ImageOps

    with Image.open(path) as file:
        upright = torch.from_numpy(np.array(ImageOps.exif_transpose(file))).permute(2, 0, 1).float() / 127.5 - 1
    assert op.A_adjoint(y).shape[1:] == upright.shape
    assert (op.A_adjoint(y)[0].clamp(-1, 1) - upright).abs().mean() < 0.01
    assert op.excess(op.project(torch.zeros(1, *upright.shape), y), y) < 1e-3


def test_gray_files_stay_gray(tmp_path):
    path = tmp_path / "a.jpg"
    Image.fromarray(((picture(24, 24)[0, 0] + 1) * 127.5).round().byte().numpy()).save(path, quality=40)
    op, y = cells_of(path, 1)
    p = op.project(torch.zeros(1, 3, 24, 24), y)
    assert (p - p.mean(1, keepdim=True)).abs().max() < 0.02


def test_what_is_refused(tmp_path):
    path = tmp_path / "a.png"
    Image.new("RGB", (8, 8)).save(path)
    with pytest.raises(PictureError, match="not a JPEG file"):
        cells_of(path, 1)
    Image.new("CMYK", (8, 8)).save(tmp_path / "c.jpg")
    with pytest.raises(PictureError, match="4 channels"):
        cells_of(tmp_path / "c.jpg", 1)
    whole = saved(tmp_path / "b.jpg", picture(32, 32), quality=90)
    with pytest.raises(PictureError, match="megapixels"):
        cells_of(whole, 0.0001)
    data = whole.read_bytes()
    (tmp_path / "d.jpg").write_bytes(data[:150])
    with pytest.raises(PictureError, match=r"d\.jpg"):
        cells_of(tmp_path / "d.jpg", 1)


def test_the_level_follows_the_error():
    x = picture(128, 128) + 0.05 * randn(1, 3, 128, 128, dtype=torch.float32)
    levels = [float(error_level(quality_tables(torch.tensor([q]))[0])) for q in (5.0, 10.0, 30.0, 60.0, 90.0)]
    assert levels == sorted(levels, reverse=True)
    errors = [float((operator(q).A(x) - x).square().mean().sqrt()) for q in (5, 10, 30, 60, 90)]
    assert all(0.3 < level / error < 3 for level, error in zip(levels, errors, strict=True))
