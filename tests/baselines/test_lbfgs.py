"""L-BFGS on a batch of independent problems: each one's iterations are those of torch's optimizer on it alone."""

import pytest
import torch
from torch import Tensor

from firm.baselines._lbfgs import minimize, start

N = 12


def rosenbrock(z: Tensor, steepness: float) -> Tensor:
    return (steepness * (z[1:] - z[:-1] ** 2) ** 2 + (1 - z[:-1]) ** 2).sum()


def quadratic(z: Tensor) -> Tensor:
    scales = torch.logspace(0, 3, N, dtype=z.dtype)
    return (scales * (z - 1) ** 2).sum() / 2


def wavy(z: Tensor) -> Tensor:
    """Many local minima: line searches that go far, turn and zoom."""
    return (z**2 / 20 + torch.cos(3 * z)).sum() + torch.log1p(z.square().sum())


PROBLEMS = {
    "Rosenbrock": lambda z: rosenbrock(z, 100),
    "mild Rosenbrock": lambda z: rosenbrock(z, 5),
    "quadratic": quadratic,
    "wavy": wavy,
    "flat": lambda z: 1e-3 * torch.log1p(z.square().sum()),  # small slopes: the first steps grow
    "at its minimum": lambda z: (z - z.detach()).square().sum(),
}


def batched(functions):
    """f (B,) and gradients (B, n) of the functions, and the list of points they were asked at."""
    asked = []

    def evaluate(z):
        asked.append(z)
        with torch.enable_grad():
            rows = [row.detach().requires_grad_() for row in z]
            values = [f(row) for f, row in zip(functions, rows, strict=True)]
            gradients = [torch.autograd.grad(v, row)[0] for v, row in zip(values, rows, strict=True)]
        return torch.stack(values).detach(), torch.stack(gradients)

    return evaluate, asked


def by_torch(function, z, rounds, iterations, history):
    """The points after every round, and how many evaluations torch's optimizer had made."""
    z = z.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([z], max_iter=iterations, history_size=history, line_search_fn="strong_wolfe")
    points, counts = [], []

    def closure():
        optimizer.zero_grad()
        value = function(z)
        value.backward()
        return value

    for _ in range(rounds):
        optimizer.step(closure)
        points.append(z.detach().clone())
        counts.append(optimizer.state[z]["func_evals"])
    return points, counts


def points_of(seed, batch):
    return 1.5 * torch.randn(batch, N, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(4))
def test_every_problem_is_solved_as_by_torch_alone(seed):
    z, rounds = points_of(seed, len(PROBLEMS)), 3
    evaluate, _ = batched(list(PROBLEMS.values()))
    state = start(z)
    expected = [by_torch(f, row, rounds, 6, 100) for f, row in zip(PROBLEMS.values(), z, strict=True)]
    for k in range(rounds):
        minimize(evaluate, state, 6)
        for b, (points, counts) in enumerate(expected):
            torch.testing.assert_close(state.z[b], points[k], rtol=1e-7, atol=1e-9)
            assert int(state.evaluations[b]) == counts[k]


@pytest.mark.parametrize("history", [1, 3])
def test_the_history_is_a_ring(history):
    z = points_of(7, 3)
    functions = [PROBLEMS[name] for name in ("mild Rosenbrock", "quadratic", "wavy")]
    evaluate, _ = batched(functions)
    state = start(z, history)
    for _ in range(3):
        minimize(evaluate, state, 5)
    assert state.s.shape == (history, 3, N)
    for b, function in enumerate(functions):
        points, counts = by_torch(function, z[b], 3, 5, history)
        torch.testing.assert_close(state.z[b], points[-1], rtol=1e-7, atol=1e-9)
        assert int(state.evaluations[b]) == counts[-1]


def test_it_converges_and_then_rests():
    z = points_of(1, 2)
    evaluate, asked = batched([quadratic, lambda row: (row - 2).square().sum()])
    state = start(z)
    for _ in range(8):
        minimize(evaluate, state, 20)
    torch.testing.assert_close(state.z, torch.tensor([[1.0], [2.0]], dtype=z.dtype).expand(2, N), atol=1e-4, rtol=0)
    state.z = torch.tensor([[1.0], [2.0]], dtype=z.dtype).repeat(1, N)  # the minimum itself
    before, count = state.z.clone(), len(asked)
    minimize(evaluate, state, 20)
    assert torch.equal(state.z, before)
    assert len(asked) == count + 1  # to see that there is nothing to do


def test_a_problem_does_not_see_its_batch():
    z, functions = points_of(2, 3), [PROBLEMS[name] for name in ("wavy", "Rosenbrock", "quadratic")]
    together = start(z)
    minimize(batched(functions)[0], together, 12)
    for b in range(3):
        alone = start(z[b : b + 1])
        minimize(batched(functions[b : b + 1])[0], alone, 12)
        torch.testing.assert_close(together.z[b], alone.z[0], rtol=1e-9, atol=1e-12)
        assert (together.evaluations[b], together.pairs[b]) == (alone.evaluations[0], alone.pairs[0])


def test_the_point_given_is_not_changed_and_no_gradients_are_kept():
    z = points_of(3, 2)
    given = z.clone()
    state = start(z)
    minimize(batched([quadratic, wavy])[0], state, 4)
    assert torch.equal(z, given)
    assert not torch.equal(state.z, given)
    assert not state.z.requires_grad


def test_values_that_are_not_finite_are_stepped_back_from():
    """A function that is NaN or infinite beyond a wall, with its minimum at the wall."""

    def wall(z, beyond):
        value = (z - 3).square().sum()
        return value if (z < 1).all() else value * beyond

    functions = [lambda z: wall(z, float("nan")), lambda z: wall(z, float("inf")), quadratic]
    z = torch.zeros(3, N, dtype=torch.float64)
    evaluate, _ = batched(functions)
    state = start(z)
    for _ in range(3):
        minimize(evaluate, state, 10)
    f, _ = evaluate(state.z)
    assert state.z.isfinite().all()
    assert (f < evaluate(z)[0]).all()


def test_single_precision():
    z = points_of(5, 2).float()
    state = start(z)
    for _ in range(6):
        minimize(batched([quadratic, lambda row: rosenbrock(row, 5)])[0], state, 20)
    assert state.z.dtype == torch.float32
    torch.testing.assert_close(state.z[0], torch.ones(N), atol=1e-3, rtol=0)
