import math

import numpy as np
import pytest
import torch
from scipy.ndimage import correlate1d
from scipy.stats import wasserstein_distance

import firm
from firm.metrics import coverage, lpips, pixel_std, psnr, scores, ssim, wasserstein

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies


def images(n=2, size=40, seed=0):
    """Smooth random images in [-1, 1] and noisy copies that leave the range."""
    g = torch.Generator().manual_seed(seed)
    small = torch.rand(n, 3, 6, 6, generator=g) * 2 - 1
    truth = torch.nn.functional.interpolate(small, size=(size, size), mode="bilinear")
    return truth + 0.4 * torch.randn(truth.shape, generator=g), truth


def test_psnr_by_hand():
    truth = torch.zeros(2, 3, 4, 4)
    x = truth + torch.tensor([0.2, 0.02])[:, None, None, None]
    torch.testing.assert_close(psnr(x, truth), torch.tensor([20.0, 40.0]))  # 0.2 in [-1, 1] is 0.1 in [0, 1]


def reference_ssim(x, y):
    """SSIM from its definition with scipy: Gaussian window 11, sigma 1.5, reflected borders, whole image."""
    offsets = np.arange(-5, 6)
    window = np.exp(-(offsets**2) / (2 * 1.5**2))
    window /= window.sum()

    def blur(a):
        return correlate1d(correlate1d(a, window, axis=-1, mode="mirror"), window, axis=-2, mode="mirror")

    c1, c2 = 0.01**2, 0.03**2
    mx, my = blur(x), blur(y)
    vx, vy, cov = blur(x * x) - mx**2, blur(y * y) - my**2, blur(x * y) - mx * my
    value = (2 * mx * my + c1) * (2 * cov + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    return value[..., 5:-5, 5:-5].mean(), value.mean()


def test_ssim_against_its_definition():
    x, truth = images()
    for i in range(2):
        a, b = ((v[i].double().numpy() + 1) / 2 for v in (x, truth))
        cropped, whole = reference_ssim(a, b)
        assert float(ssim(x, truth)[i]) == pytest.approx(whole, abs=2e-5)
        assert abs(cropped - whole) > 1e-4  # so the border convention is tested
    torch.testing.assert_close(ssim(truth, truth), torch.ones(2))


def test_lpips_is_a_distance_of_each_image():
    x, truth = images()
    both = lpips(x, truth)
    torch.testing.assert_close(both, torch.tensor([0.3604007, 0.4606797]))  # of the published network
    torch.testing.assert_close(both[1:], lpips(x[1:], truth[1:]))
    torch.testing.assert_close(lpips(truth, truth), torch.zeros(2))
    torch.testing.assert_close(lpips(x, truth), lpips(truth, x))
    closer = truth + 0.1 * (x - truth)
    assert (lpips(closer, truth) < both).all()
    torch.testing.assert_close(
        lpips(x[:, :1], truth[:, :1]), lpips(x[:, :1].expand(-1, 3, -1, -1), truth[:, :1].expand(-1, 3, -1, -1))
    )


def test_conventions():
    x, truth = images()
    tables, text = scores(x, truth, "tables"), scores(x, truth, "text")
    clamped = x.clamp(-1, 1)
    assert torch.equal(tables["psnr"], text["psnr"])
    torch.testing.assert_close(tables["ssim"], ssim(x, truth))
    torch.testing.assert_close(text["ssim"], ssim(clamped, truth))
    to_01 = (x + 1) / 2
    torch.testing.assert_close(tables["lpips"], lpips(4 * to_01 - 3, 4 * (truth + 1) / 2 - 3))
    torch.testing.assert_close(text["lpips"], lpips(clamped, truth))
    once = scores(x, truth, "tables", x_once=truth)
    torch.testing.assert_close(once["ssim"], torch.ones(2))
    assert torch.equal(once["lpips"], tables["lpips"])
    with pytest.raises(ValueError, match='"tables" or "text"'):
        scores(x, truth, "paper")


def test_small_or_unequal_images():
    x = torch.zeros(1, 3, 8, 8)
    with pytest.raises(ValueError, match="at least 11x11 pixels, got 8x8"):
        ssim(x, x)
    with pytest.raises(ValueError, match=r"at least 31x31 pixels are needed, got \(1, 3, 8, 8\)"):
        lpips(x, x)
    with pytest.raises(ValueError, match="trailing shapes differ"):
        wasserstein(torch.zeros(4, 3), torch.zeros(4, 2))


@hypothesis.settings(deadline=None)
@hypothesis.given(n=st.integers(1, 12), m=st.integers(1, 12), seed=st.integers(0, 100))
def test_wasserstein_against_scipy(n, m, seed):
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(n, 3, generator=g).double(), torch.randn(m, 3, generator=g).double().round()
    for k in range(3):
        assert float(wasserstein(a, b)[k]) == pytest.approx(wasserstein_distance(a[:, k], b[:, k]), abs=1e-9)


@pytest.mark.parametrize("S", [2, 3, 8, 50])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_coverage_of_calibrated_samples_is_the_level(S, level):
    g = torch.Generator().manual_seed(0)
    mean = torch.randn(1, 200_000, generator=g)
    truth, samples = mean + torch.randn(1, 200_000, generator=g), mean + torch.randn(S, 1, 200_000, generator=g)
    assert float(coverage(samples, truth, level)) == pytest.approx(level, abs=0.01)


def test_coverage_tells_narrow_from_wide():
    g = torch.Generator().manual_seed(0)
    truth, samples = torch.randn(1, 10_000, generator=g), torch.randn(20, 1, 10_000, generator=g)
    assert float(coverage(0.3 * samples, truth)) < 0.6
    assert float(coverage(3 * samples, truth)) > 0.97
    with pytest.raises(ValueError, match="at least two samples"):
        coverage(samples[:1], truth)
    with pytest.raises(ValueError, match="level"):
        coverage(samples, truth, 90)


def test_pixel_std():
    g = torch.Generator().manual_seed(0)
    samples = torch.randn(4000, 1, 3, 2, 2, generator=g) * torch.tensor([[0.1, 1.0], [2.0, 0.0]])
    torch.testing.assert_close(pixel_std(samples)[0], torch.tensor([[0.1, 1.0], [2.0, 0.0]]), rtol=0.05, atol=0)
    assert math.isclose(float(pixel_std(samples)[0, 1, 1]), 0)


def test_ssim_of_a_large_picture_is_taken_in_strips(monkeypatch):
    x = torch.rand(2, 3, 61, 40, dtype=torch.float64) * 2 - 1
    truth = (x + 0.1 * torch.randn_like(x)).clamp(-1, 1)
    whole = firm.metrics.ssim(x, truth)
    for pixels in (40, 300, 2000):  # strips of 1, 7 and 50 rows
        monkeypatch.setattr("firm.metrics._fidelity.WHOLE", pixels)
        torch.testing.assert_close(firm.metrics.ssim(x, truth), whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(1, 3, 16, 16), (2, 1, 16, 16), (3, 16, 16), (16,)])
@pytest.mark.parametrize("metric", [psnr, ssim])
def test_unequal_shapes_are_refused_not_repeated(metric, shape):
    x, truth = torch.zeros(2, 3, 16, 16), torch.zeros(shape)
    with pytest.raises(ValueError, match=rf"{metric.__name__}: images of shape \(2, 3, 16, 16\) and a truth of shape"):
        metric(x, truth)
    with pytest.raises(ValueError, match=f"{metric.__name__}: images"):
        metric(truth, x)


@pytest.mark.parametrize("shape", [(1, 3, 8, 8), (2, 1, 8, 8), (3, 8, 8), (5, 2, 3, 8, 8)])
def test_coverage_needs_a_truth_for_every_image(shape):
    samples = torch.zeros(5, 2, 3, 8, 8)
    with pytest.raises(ValueError, match=r"coverage: samples of shape \(5, 2, 3, 8, 8\) and a truth of shape"):
        coverage(samples, torch.zeros(shape))
    assert coverage(samples, torch.zeros(2, 3, 8, 8)).shape == (2,)


@pytest.mark.parametrize("metric", [psnr, ssim, lpips])
def test_complex_images_have_no_scores_of_their_own(metric):
    z = torch.zeros(1, 1, 32, 32, dtype=torch.complex64)
    for x, truth in ((z, z), (z.real, z), (z, z.real)):
        with pytest.raises(TypeError, match=rf"{metric.__name__}: images are real.* the magnitudes, x\.abs\(\)"):
            metric(x, truth)
