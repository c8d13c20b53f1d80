"""Sampling patterns have the share they say, keep the middle, and wait for nothing."""

import pytest
import torch
from helpers import Watch

from firm.operators.sampling import poisson_disc, radial, uniform_lines, variable_density_lines

R = torch.tensor([2.0, 4.0, 5.5, 8.0])
CENTER = torch.tensor([8.0, 9.0, 10.0, 0.0])


def u(*size, seed=0):
    return torch.rand(*size, generator=torch.Generator().manual_seed(seed))


def test_uniform_lines_are_evenly_apart_and_all_in_the_middle():
    mask = uniform_lines(u(4), R, CENTER, 96)
    assert mask.shape == (4, 1, 1, 96)
    centered = torch.fft.fftshift(mask, dim=-1)[:, 0, 0]
    for i in range(4):
        half = int(CENTER[i]) // 2
        assert centered[i, 48 - half : 48 - half + int(CENTER[i])].all()
    plain = torch.fft.fftshift(uniform_lines(u(4), R, 0 * CENTER, 96), dim=-1)[:, 0, 0]
    for i in range(4):
        places = plain[i].nonzero().flatten()
        steps = places[1:] - places[:-1]
        assert set(steps.tolist()) <= {int(R[i]), int(R[i] + 0.99)}
    every = uniform_lines(torch.zeros(1), torch.ones(1), torch.zeros(1), 7)
    assert every.all()


def test_variable_density_is_exact_and_falls_from_the_middle():
    mask = variable_density_lines(u(400, 96), R.repeat(100), CENTER.repeat(100), 96)[:, 0, 0]
    assert mask.sum(1).reshape(100, 4).unique(dim=0).tolist() == [[48, 24, 17, 12]]
    assert (mask[0, :4] == 1).all()
    assert (mask[0, -4:] == 1).all()
    often = torch.fft.fftshift(mask[3::4], dim=-1).mean(0)
    assert often[40:56].mean() > 2 * often[20:30].mean() > 4 * often[:6].mean()


@pytest.mark.parametrize("shape", [(64, 64), (64, 96)])
def test_spokes_go_through_the_middle_and_keep_the_share(shape):
    mask = radial(u(4), R, shape)
    assert mask.shape == (4, 1, *shape)
    torch.testing.assert_close(mask.mean((1, 2, 3)), 1 / R, rtol=0.08, atol=0)
    assert mask[:, 0, 0, 0].all()
    back = mask.flip(-2, -1).roll((1, 1), (-2, -1))[..., 1 : shape[0] // 2, 1 : shape[1] // 2]
    agree = (back == mask[..., 1 : shape[0] // 2, 1 : shape[1] // 2]).float().mean()
    assert agree > 0.99  # but for ties, a spoke goes both ways


def test_poisson_discs_keep_their_distance_and_the_share():
    high, center = torch.tensor([6.0, 12.0]), torch.tensor([8.0, 8.0])
    mask = poisson_disc(u(2, 64, 64), high, center)
    torch.testing.assert_close(mask.mean((1, 2, 3)), 1 / high, rtol=0.01, atol=0)
    centered = torch.fft.fftshift(mask, dim=(-2, -1))[:, 0]
    assert centered[:, 28:36, 28:36].all()
    rim = centered[1].clone()
    rim[16:48, 16:48] = 0
    beside = (rim * (rim.roll(1, 0) + rim.roll(1, 1))).sum() / rim.sum()
    random = (u(64, 64, seed=3) < 1 / 12).float()
    assert beside < 0.2 * (random * (random.roll(1, 0) + random.roll(1, 1))).sum() / random.sum()
    assert centered[1, 24:40, 24:40].mean() > 1.5 * centered[1].mean()


def test_patterns_wait_for_nothing():
    with Watch() as watch:
        uniform_lines(u(4), R, CENTER, 16)
        variable_density_lines(u(4, 16), R, CENTER, 16)
        radial(u(4), R, (16, 16))
        poisson_disc(u(4, 16, 16), R, CENTER)
    assert watch.waits() == set()
