"""L-BFGS with a strong Wolfe line search for a batch of independent problems, evaluated together.

Each problem makes the iterations that ``torch.optim.LBFGS(line_search_fn="strong_wolfe")`` makes for it alone, with its
own history, step lengths and end. A problem that is done waits for the others, so that no result depends on its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vecdot

ValueAndGradient = Callable[[Tensor], tuple[Tensor, Tensor]]  # z (B, n) -> f (B,), its gradient (B, n)
ENOUGH_DECREASE, ENOUGH_FLATNESS = 1e-4, 0.9  # c1 and c2 of the strong Wolfe conditions
SMALLEST_GRADIENT, SMALLEST_CHANGE = 1e-7, 1e-9  # a problem ends below one of these
SMALLEST_CURVATURE = 1e-10  # s'y of a pair worth keeping


@dataclass
class State:
    """Where B problems of n variables stand; `start` makes one, `minimize` moves it on."""

    z: Tensor  # (B, n)
    s: Tensor  # (H, B, n), the last H steps of every problem: a ring, the pair p of a problem stands at p mod H
    y: Tensor  # (H, B, n), the changes of the gradient over these steps
    pairs: Tensor  # (B,), pairs (s, y) kept so far, the overwritten ones too
    scale: Tensor  # (B,), the inverse Hessian before any pair is this times the identity
    step: Tensor  # (B, n), the last step
    g: Tensor  # (B, n), the gradient before it
    iterations: Tensor  # (B,), made so far
    evaluations: Tensor  # (B,), of the function, as each problem alone would have made


def start(z: Tensor, history: int = 100) -> State:
    """The state at z (B, n), with room for `history` pairs a problem."""
    s, y = (z.new_zeros(history, *z.shape) for _ in range(2))
    step, g = (torch.zeros_like(z) for _ in range(2))
    pairs, iterations, evaluations = (torch.zeros(len(z), dtype=torch.long, device=z.device) for _ in range(3))
    return State(z.clone(), s, y, pairs, torch.ones_like(z[:, 0]), step, g, iterations, evaluations)


def minimize(function: ValueAndGradient, state: State, iterations: int = 20) -> None:
    """Move `state` on by `iterations`, fewer for a problem that converges or makes 5/4 as many evaluations.

    The same as one ``step`` of torch's optimizer: called again, it continues with the history.
    """
    limit = iterations * 5 // 4
    f, g = function(state.z)
    evaluations = torch.ones_like(state.evaluations)
    active = g.abs().amax(1) > SMALLEST_GRADIENT
    for _ in range(iterations):
        if not active.any():
            break
        d = _direction(state, g, active)
        slope = vecdot(g, d)
        first = (1 / g.abs().sum(1)).clamp(max=1)  # nothing is known of the curvature yet
        t = torch.where(state.iterations == 0, first, 1.0)
        state.iterations = state.iterations + active
        active = active & (slope <= -SMALLEST_CHANGE)

        before = Point(torch.zeros_like(t), f, slope, g)
        after, used = _search(function, state.z, d, t, before, active, limit - evaluations)
        state.step = torch.where(active[:, None], after.t[:, None] * d, state.step)
        state.z = torch.where(active[:, None], state.z + state.step, state.z)
        f, g = torch.where(active, after.f, f), torch.where(active[:, None], after.g, g)
        evaluations = evaluations + used

        moved = (state.step.abs().amax(1) > SMALLEST_CHANGE) & ((f - before.f).abs() >= SMALLEST_CHANGE)
        active = active & moved & (evaluations < limit) & (g.abs().amax(1) > SMALLEST_GRADIENT)
    state.evaluations = state.evaluations + evaluations


def _direction(state: State, g: Tensor, active: Tensor) -> Tensor:
    """Keep the pair of the last step, then minus the inverse Hessian times g, by the two-loop recursion."""
    history, rows = len(state.s), torch.arange(len(g), device=g.device)
    y = g - state.g
    curvature = vecdot(state.step, y)  # zero before the first step
    keep = active & (curvature > SMALLEST_CURVATURE)
    slot = state.pairs % history
    state.s[slot, rows] = torch.where(keep[:, None], state.step, state.s[slot, rows])
    state.y[slot, rows] = torch.where(keep[:, None], y, state.y[slot, rows])
    state.pairs = state.pairs + keep
    state.scale = torch.where(keep, curvature / vecdot(y, y), state.scale)
    state.g = torch.where(active[:, None], g, state.g)

    d, kept = -g, []
    for back in range(1, min(history, int(state.pairs.max())) + 1):  # from the newest pair
        slot = (state.pairs - back) % history
        s, y = state.s[slot, rows], state.y[slot, rows]
        rho = torch.where(back <= state.pairs, 1 / vecdot(s, y), 0.0)  # 0: this problem has fewer pairs
        alpha = rho * vecdot(s, d)
        d = d - alpha[:, None] * y
        kept.append((slot, rho, alpha))
    d = state.scale[:, None] * d
    for slot, rho, alpha in reversed(kept):
        s, y = state.s[slot, rows], state.y[slot, rows]
        d = d + (alpha - rho * vecdot(y, d))[:, None] * s
    return d


@dataclass
class Point:
    """A point on the line z + t d of every problem."""

    t: Tensor  # (B,)
    f: Tensor  # (B,)
    slope: Tensor  # (B,), the derivative of f by t
    g: Tensor  # (B, n), the gradient of f


def _pick(mask: Tensor, a: Point, b: Point) -> Point:
    """`a` for the problems in `mask` (B,), `b` for the others."""
    t, f, slope = (torch.where(mask, u, v) for u, v in ((a.t, b.t), (a.f, b.f), (a.slope, b.slope)))
    return Point(t, f, slope, torch.where(mask[:, None], a.g, b.g))


def _search(
    function: ValueAndGradient, z: Tensor, d: Tensor, t: Tensor, before: Point, active: Tensor, limit: Tensor
) -> tuple[Point, Tensor]:
    """A point on z + t d that fulfills the strong Wolfe conditions, and the evaluations it took (B,).

    A problem goes forward in growing steps until an interval [low, high] must hold such a point, low being the best
    point so far (bracketing); then it shrinks the interval (zooming). It gives up after `limit` + 1 evaluations.
    """
    reach = d.abs().amax(1)
    tried = torch.zeros_like(limit)  # points after the first one
    bracketing, zooming = active, torch.zeros_like(active)
    stuck = torch.zeros_like(active)
    low = high = previous = before
    new = _evaluate(function, z, d, t)
    while True:
        # NaN counts as too high: the comparisons are written so that it fails them.
        decreased = new.f <= before.f + ENOUGH_DECREASE * new.t * before.slope
        flat = new.slope.abs() <= -ENOUGH_FLATNESS * before.slope

        shrinks = zooming & ~(decreased & (new.f < low.f))
        improves = zooming & ~shrinks
        turns = improves & ~flat & (new.slope * (high.t - low.t) >= 0)  # the minimum lies between low and new
        high = _pick(shrinks, new, _pick(turns, low, high))
        low = _pick(improves, new, low)
        low, high = _ordered(shrinks, low, high)
        zooming = zooming & ~(improves & flat)

        spent = bracketing & (tried >= limit)
        rises = bracketing & ~spent & ~(decreased & ((tried <= 1) | (new.f < previous.f)))
        found = bracketing & ~spent & ~rises & flat
        rises = rises | (bracketing & ~spent & ~found & (new.slope >= 0))
        low = _pick(found, new, _pick(spent, before, _pick(rises, previous, low)))
        high = _pick(spent | rises, new, high)
        low, high = _ordered(spent | rises, low, high)
        bracketing, zooming = bracketing & ~(spent | found | rises), zooming | rises

        zooming = zooming & (tried < limit) & ((high.t - low.t).abs() * reach >= SMALLEST_CHANGE)
        if not (bracketing | zooming).any():
            return low, torch.where(active, tried + 1, 0)
        further = _cubic_minimum(previous, new, new.t + 0.01 * (new.t - previous.t), 10 * new.t)
        between, stuck = _inside(low, high, stuck)
        stuck = stuck & zooming
        previous = _pick(bracketing, new, previous)
        new = _evaluate(function, z, d, torch.where(bracketing, further, torch.where(zooming, between, new.t)))
        tried = tried + (bracketing | zooming)


def _evaluate(function: ValueAndGradient, z: Tensor, d: Tensor, t: Tensor) -> Point:
    f, g = function(z + t[:, None] * d)
    return Point(t, f, vecdot(g, d), g)


def _ordered(mask: Tensor, low: Point, high: Point) -> tuple[Point, Point]:
    """Exchange the two for the problems in `mask` where `high` has the lower value."""
    swap = mask & (high.f < low.f)
    return _pick(swap, high, low), _pick(swap, low, high)


def _inside(low: Point, high: Point, stuck: Tensor) -> tuple[Tensor, Tensor]:
    """The next point of [low, high], and whether it came close to an end.

    A point within a tenth of an end is accepted once; at the end itself, or twice in a row, it is moved inwards.
    """
    left, right = torch.minimum(low.t, high.t), torch.maximum(low.t, high.t)
    t, margin = _cubic_minimum(low, high, left, right), 0.1 * (right - left)
    close = torch.minimum(right - t, t - left) < margin
    move = close & (stuck | (t >= right) | (t <= left))
    inwards = torch.where((t - right).abs() < (t - left).abs(), right - margin, left + margin)
    return torch.where(move, inwards, t), close & ~move


def _cubic_minimum(a: Point, b: Point, lower: Tensor, upper: Tensor) -> Tensor:
    """Where the cubic with the values and slopes of `a` and `b` is lowest within the bounds; the middle if nowhere."""
    swap = a.t > b.t
    a, b = _pick(swap, b, a), _pick(swap, a, b)
    d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    d2 = square.clamp(min=0).sqrt()
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return torch.where(square >= 0, torch.minimum(torch.maximum(t, lower), upper), (lower + upper) / 2)
