"""``--kernel``: a blur of the user's own, from a picture or an array."""

import numpy as np
import pytest
import torch
from helpers import says
from PIL import Image

from firm.restoration import Problem, ProblemError
from firm.restoration.reading import read_kernel
from restoration_helpers import pixels, rows

HOOK = np.array([[0, 8, 0, 0], [0, 4, 0, 0], [0, 2, 1, 5]]) / 20  # the mirror image is another


def saved(path, values):
    """A kernel as a file of the kind that its name says; pictures are as bright as can be."""
    white = {"b.png": 255, "w.png": 65535, "w.tif": 65535}.get(path.name[-5:])
    if white is None:
        np.save(path, values)
    else:
        pixels = (values / values.max() * white).round()
        Image.fromarray(pixels.astype(np.uint8 if white == 255 else np.uint16)).save(path)
    return path


@pytest.fixture
def deblurred(restore):
    """Deblur pictures into tmp_path/out."""
    return lambda *words, **how: restore("--task", "deblurring", "--sigma", 0.1, *words, **how)


def direct(kernel, x, margin):
    """The light that comes to each pixel inside the margin from all others, one by one."""
    (h, w), (H, W) = kernel.shape, x.shape
    y = np.zeros((H - 2 * margin, W - 2 * margin))
    for i, j in np.ndindex(y.shape):
        for a, b in zip(*np.nonzero(kernel), strict=True):
            y[i, j] += kernel[a, b] * x[i + margin - (a - h // 2), j + margin - (b - w // 2)]
    return y


KERNELS = {
    "even and odd": HOOK,
    "odd": np.rot90(HOOK)[:3, :3],
    "even": np.pad(HOOK, ((0, 1), (0, 0))),
    "zeros around": np.pad(HOOK, ((6, 3), (1, 8))),
    "one row": np.array([[1.0, 2, 3, 4, 5]]),
    "a point beside the center": np.array([[0, 0, 0], [0, 0, 0], [0, 1.0, 0]]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_convolved_with_and_not_correlated(folder, tmp_path, name):
    kernel = KERNELS[name] / KERNELS[name].sum()
    p = Problem.from_file(folder / "000.png", "deblurring", sigma=0.1, kernel=saved(tmp_path / "k.npy", kernel))
    x = np.random.default_rng(0).uniform(-1, 1, (36 + 2 * p.margin, 44 + 2 * p.margin))
    blurred = p.op.A(torch.from_numpy(x)[None, None].float())[0, 0]
    np.testing.assert_allclose(blurred, direct(kernel, x, p.margin), atol=1e-5)
    assert p.finish(p.op.A_adjoint(p.y)).shape == (1, 3, 36, 44)
    torch.testing.assert_close(p.y, Problem.from_file(folder / "000.png", "denoising", sigma=0.1).y)


def test_zeros_around_a_kernel_cost_nothing(folder, tmp_path):
    plain, wide = (saved(tmp_path / f"{n}.npy", np.pad(HOOK, n)) for n in (0, 8))
    margins = [Problem.from_file(folder / "000.png", "deblurring", sigma=0.1, kernel=k).margin for k in (plain, wide)]
    assert margins == [1, 1]  # what is not 0 lies around the center, (1, 2) of the hook


def test_a_large_picture_takes_a_large_kernel(tmp_path):
    Image.new("RGB", (90, 90), "gray").save(tmp_path / "large.png")
    kernel = saved(tmp_path / "k.npy", np.ones((71, 71)))
    assert Problem.from_file(tmp_path / "large.png", "deblurring", sigma=0.1, kernel=kernel).margin == 35
    Image.new("RGB", (70, 90), "gray").save(tmp_path / "narrow.png")
    with pytest.raises(ProblemError, match="71x71 pixels, the picture 70x90: it must not be larger"):
        Problem.from_file(tmp_path / "narrow.png", "deblurring", sigma=0.1, kernel=kernel)


@pytest.mark.parametrize("name", ["b.png", "w.png", "w.tif", "k.npy"])
def test_kernels_of_several_formats_sum_to_one(tmp_path, name):
    scaled = 7.5 * HOOK
    kernel, note = read_kernel(saved(tmp_path / name, scaled), 64)
    total = {"k.npy": 7.5, "b.png": (255 + 128 + 64 + 32 + 159) / 255}.get(name, 20 / 8 * 65535)
    assert float(kernel.sum()) == pytest.approx(1)
    np.testing.assert_allclose(kernel, HOOK, atol=2e-3 if name == "b.png" else 1e-5)
    assert f"sum to {total:.4g}: they were divided by that" in note
    assert read_kernel(saved(tmp_path / "one.npy", HOOK), 64)[1] is None


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_the_range_of_a_kernel_does_not_matter(tmp_path, dtype):
    """A microscope's point spread function, in counts of photons: a TIFF of 32 bits."""
    Image.fromarray((HOOK * 24e5).round().astype(dtype)).save(tmp_path / "k.tif")
    np.testing.assert_allclose(read_kernel(tmp_path / "k.tif", 64)[0], HOOK, atol=1e-6)


def test_a_kernel_among_the_pictures_is_none_of_them(folder, deblurred, tmp_path):
    kernel = saved(folder / "b.png", HOOK)
    deblurred(folder, "--kernel", kernel)
    assert len(rows(tmp_path / "out")) == 3
    assert says(deblurred(kernel, "--kernel", kernel, code=2), f"no pictures in it but {kernel} and results")


def test_gray_pictures_in_color_and_with_alpha_are_kernels(tmp_path):
    with Image.open(saved(tmp_path / "b.png", HOOK)) as gray:
        gray.convert("RGB").save(tmp_path / "rgb.png")
        seen = np.dstack([np.full((3, 4, 3), 255, np.uint8), np.asarray(gray)])
    Image.fromarray(seen).save(tmp_path / "alpha.png")  # white light, transparent where there is none
    expected = read_kernel(tmp_path / "b.png", 64)[0]
    assert torch.equal(read_kernel(tmp_path / "rgb.png", 64)[0], expected)
    torch.testing.assert_close(read_kernel(tmp_path / "alpha.png", 64)[0], expected)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("k.npy", HOOK - 0.01, "has negative values, down to -0.01"),
        ("k.npy", np.where(HOOK > 0.3, np.nan, HOOK), "has values that are NaN or infinite"),
        ("k.npy", np.stack([HOOK] * 3), "is an array (3, 3, 4) of float64: it must have two axes"),
        ("k.png", np.arange(48, dtype=np.uint8).reshape(4, 4, 3), "is in color"),
        ("k.png", np.zeros((5, 5), np.uint8), "is 0 everywhere"),
    ],
)
def test_what_is_no_kernel_is_told_once_before_any_work(folder, deblurred, tmp_path, name, values, message):
    np.save(tmp_path / name, values) if name == "k.npy" else Image.fromarray(values).save(tmp_path / name)
    assert says(deblurred(folder, "--kernel", tmp_path / name, code=2), message)
    assert not (tmp_path / "out").exists()


def test_a_folder_is_restored_with_a_kernel_and_done_again_with_another(folder, deblurred, tmp_path):
    with Image.open(folder / "001.png") as picture:
        gray = picture.convert("L")
    gray.save(folder / "001.png")
    kernel, out = saved(tmp_path / "k.npy", 3 * HOOK), tmp_path / "out"
    words = [folder, "--kernel", kernel, "--tile", 32, "--overlap", 8, "--samples", 2]
    assert says(deblurred(*words), "sum to 3: they were divided by that")
    assert [row["kernel"] for row in rows(out)] == [str(kernel)] * 3
    assert [pixels(out / f"00{i}_restored.png").shape for i in range(3)] == [(36, 44, 3), (36, 44), (36, 44, 3)]
    assert says(deblurred(*words), "nothing to do: 3 pictures")
    saved(kernel, HOOK[::-1])
    assert says(deblurred(*words, code=2), "is a result of a run with other settings")
