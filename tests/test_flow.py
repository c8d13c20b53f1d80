import pytest
import torch

import firm
from firm._flow import weighted_loss
from firm.operators import Identity


def test_the_path_ends_at_noise_and_image():
    x_0, x_1 = torch.randn(2, 3, 1, 4, 4)
    assert torch.equal(firm.interpolate(x_0, x_1, 0.0), x_0)
    assert torch.equal(firm.interpolate(x_0, x_1, 1.0), x_1)
    t = torch.tensor([0.0, 0.25, 1.0])
    torch.testing.assert_close(firm.interpolate(x_0, x_1, t)[1], 0.75 * x_0[1] + 0.25 * x_1[1])


def test_time_scale_and_weight():
    t = torch.tensor([0.0, 0.5, 0.9, 0.99])
    torch.testing.assert_close(firm.tau(t), torch.tensor([1.0, 0.5, 0.1, 0.1]))
    torch.testing.assert_close(firm.omega(t), torch.tensor([2.0, 2.25, 10.01, 10.01]))


@pytest.mark.parametrize("n", [1, 32, 64, 128, 1000])
def test_times_are_stratified(n):
    t = firm.stratified_times(n, generator=torch.Generator().manual_seed(0))
    assert t.shape == (n,)
    assert float(t.min()) >= 1e-3
    assert float(t.max()) <= 0.995
    runs = ((t - 1e-3) / (0.995 - 1e-3) * 64).long().split(64)
    for run in runs:  # also across batches that slice one draw
        assert len(run.unique()) == len(run)
        assert n == 1 or run.tolist() != sorted(run.tolist())  # a batch must not see early times only
    assert len({tuple(run.tolist()) for run in runs}) == len(runs)
    assert torch.equal(t, firm.stratified_times(n, generator=torch.Generator().manual_seed(0)))


def test_times_cover_their_strata_uniformly():
    t = firm.stratified_times(64_000, t_min=0.0, t_max=0.99, generator=torch.Generator().manual_seed(1))
    assert float((t / 0.99 * 64 % 1).mean()) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("wrong", [{"n": 0}, {"t_max": 1.0}, {"t_min": 0.5, "t_max": 0.4}, {"strata": 0}])
def test_times_refuse_wrong_settings(wrong):
    with pytest.raises(ValueError, match="stratified_times"):
        firm.stratified_times(**{"n": 4, **wrong})


class Constant:
    """A model that always answers with the same images."""

    def __init__(self, z):
        self.z = z

    def posterior_mean(self, op, x_t, t, y, *, sigma=None):
        return self.z


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("tau_min", [0.1, 0.25])
def test_the_loss_is_the_papers(tau_min, reduction):
    """The floor of the time scale is that of the velocity and of its weight; the paper sums where we average."""
    x_1, x_0, z = torch.randn(3, 2, 1, 4, 4)
    t = torch.tensor([0.3, 0.97])
    given = {} if (tau_min, reduction) == (0.1, "mean") else {"tau_min": tau_min, "reduction": reduction}
    loss = firm.velocity_loss(Constant(z), Identity(), x_1, x_1, x_0, t, **given)
    tau = torch.tensor([0.7, tau_min])
    error = getattr((z - x_1) ** 2, reduction)((1, 2, 3)) / tau**2
    torch.testing.assert_close(loss, ((1 + tau**3) / tau * error).mean())


def test_balanced_weights_are_the_inverse_of_the_running_error():
    balance = firm.TimeBalance(bins=4, decay=0.5)
    t = torch.tensor([0.1, 0.1, 0.6])
    weight = balance(t, torch.tensor([1.0, 3.0, 10.0]))
    torch.testing.assert_close(weight, torch.tensor([0.5, 0.5, 0.1]))  # first sight: the batch's own mean
    weight = balance(t, torch.tensor([4.0, 4.0, 20.0]))
    torch.testing.assert_close(weight, 1 / torch.tensor([3.0, 3.0, 15.0]))
    balance.eval()
    balance(t, torch.full((3,), 1e6))
    torch.testing.assert_close(balance.error, torch.tensor([3.0, 0.0, 15.0, 0.0]))


def test_balanced_weights_remember_many_batches():
    """One that forgets quickly follows the errors it divides, and ends 2.5 dB lower."""
    balance, t = firm.TimeBalance(bins=1), torch.tensor([0.5])
    balance(t, torch.tensor([1.0]))
    for _ in range(50):
        balance(t, torch.tensor([0.0]))
    assert float(balance.error) == pytest.approx(0.99**50)


def test_balanced_weights_survive_a_broken_sample():
    balance = firm.TimeBalance(bins=2)
    balance(torch.tensor([0.1, 0.2, 0.9]), torch.tensor([1.0, float("nan"), float("inf")]))
    torch.testing.assert_close(balance.error, torch.tensor([1.0, 0.0]))


def test_balanced_weights_forget_a_sample_that_exploded():
    """Errors of 1e20 for one batch; remembered as they are, the mean would need 5,000 batches to come back."""
    balance, t = firm.TimeBalance(bins=1), torch.tensor([0.5, 0.5])
    balance(t, torch.tensor([1.0, 1.0]))
    balance(t, torch.tensor([1e20, 2.0]))
    assert float(balance.error) == pytest.approx(0.99 + 0.01 * (100 + 2) / 2)  # counted as a hundred times the mean
    for _ in range(50):
        balance(t, torch.tensor([1.0, 1.0]))
    assert float(balance.error) == pytest.approx(1, abs=0.35)


def test_balanced_loss_makes_all_times_count_alike():
    x_1, x_0 = torch.randn(2, 64, 1, 4, 4)
    t = firm.stratified_times(64, generator=torch.Generator().manual_seed(0))
    z = (x_1 + (1 - t)[:, None, None, None]).requires_grad_()  # error falls by 10^4 towards t = 1
    balance = firm.TimeBalance()
    firm.velocity_loss(Constant(z), Identity(), x_1, x_1, x_0, t, weights=balance).backward()
    share = (z.grad * (z - x_1)).flatten(1).sum(1).detach()  # of each sample in the loss
    assert float(share.max() / share.min()) < 4
    assert "error" in balance.state_dict()


def test_uniform_weights_are_the_plain_mean():
    error, t = torch.tensor([1.0, 5.0]), torch.tensor([0.1, 0.9])
    assert weighted_loss(error, t, "uniform") == 3
    torch.testing.assert_close(weighted_loss(error, t), (firm.omega(t) * error).mean())
