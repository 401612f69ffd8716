"""Proven lower bounds. Each names the model that it belongs to and is compared with values of that model only.

``bottleneck_start_ns``: no cut has a smaller largest stage. A linear programme spreads each layer over the options,
each kind works at most count x T and holds at most its memory. The solver's dual prices are used, not its value: for
any prices lam, mu >= 0 with sum lam_k count_k = 1 weak duality gives
``T >= sum_l min_o size_o (lam_k t_o(l) + mu_k state_o(l)) - sum_k mu_k count_k usable_k``.

``any_schedule_ns``: whatever the order of instructions and whoever does what, a step of m micro-batches takes at least
the work over the speed of all devices, m times the dearest layer on its best option, and the path of one micro-batch.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ortools.linear_solver import pywraplp

from planner.search.partition import Integers, PartitionProblem, StageOption

__all__ = ["any_schedule_ns", "bottleneck_start_ns", "quick_schedule_ns"]

_ROUNDING = 1e-9  # of sums of floats; taken off every bound


def bottleneck_start_ns(problem: PartitionProblem) -> int:
    """The largest time that is proven to be below every bottleneck."""
    best = np.min([option.layer_ns for option in problem.options], axis=0)
    spread_ns = _spread_ns(problem.options, problem.counts, problem.usable_bytes)
    return max(int(best.max()), spread_ns) - 1


def any_schedule_ns(
    layer_ns: Sequence[Integers], counts: Sequence[int], *, way_ns: Sequence[Integers], num_micro_batches: int
) -> int:
    """``layer_ns``: least forward + backward of each layer, by kind; ``counts``: devices of each kind.

    ``way_ns``: of those what stands between the arrival of an activation and the departure of its gradient.
    """
    used = [(times, count) for times, count in zip(layer_ns, counts, strict=True) if count]
    best = np.min([times for times, _ in used], axis=0)
    options = [
        StageOption(kind, 1, np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int64), times, np.zeros_like(times))
        for kind, (times, _) in enumerate(used)
    ]
    spread_ns = _spread_ns(options, [count for _, count in used], [1] * len(used), num_micro_batches=num_micro_batches)
    return max(spread_ns, num_micro_batches * int(best.max()), _way_ns(way_ns, counts))


def _way_ns(way_ns: Sequence[Integers], counts: Sequence[int]) -> int:
    """Of one micro-batch there and back, each layer on its best device."""
    return int(np.min([times for times, count in zip(way_ns, counts, strict=True) if count], axis=0).sum())


def quick_schedule_ns(
    layer_ns: Sequence[Integers], counts: Sequence[int], *, way_ns: Sequence[Integers], num_micro_batches: int
) -> int:
    """As ``any_schedule_ns``, a little lower where kinds differ by more than a factor; without a linear programme.

    Prices are speeds on the whole model: any prices give a bound.
    """
    speeds = [1 / max(1, int(times.sum())) for times in layer_ns]
    total = math.fsum(speed * count for speed, count in zip(speeds, counts, strict=True))
    shares = [times * (speed / total) for times, speed in zip(layer_ns, speeds, strict=True)]
    value = num_micro_batches * math.fsum(np.min(shares, axis=0).tolist())
    best = np.min(layer_ns, axis=0)
    spread_ns = math.ceil(value - max(1.0, value) * _ROUNDING)
    return max(spread_ns, num_micro_batches * int(best.max()), _way_ns(way_ns, counts))


class _Prices(NamedTuple):
    """Of one ns and of one byte, by kind."""

    time: tuple[float, ...]
    memory: tuple[float, ...]


def _spread_ns(
    options: Sequence[StageOption], counts: Sequence[int], usable_bytes: Sequence[int], *, num_micro_batches: int = 1
) -> int:
    """Whole ns, up; ``num_micro_batches`` of them in turn."""
    if len({option.kind for option in options}) == 1 and len(options) == 1:
        option = options[0]
        return -(-num_micro_batches * option.size * int(option.layer_ns.sum()) // counts[option.kind])
    prices = _dual_prices(options, counts, usable_bytes)
    value = num_micro_batches * _dual_value(options, counts, usable_bytes, prices)
    return math.ceil(value - max(1.0, abs(value)) * _ROUNDING)


def _dual_value(
    options: Sequence[StageOption], counts: Sequence[int], usable_bytes: Sequence[int], prices: _Prices
) -> float:
    costs = [
        option.size
        * (prices.time[option.kind] * option.layer_ns + prices.memory[option.kind] * option.layer_state_bytes)
        for option in options
    ]
    rent = math.fsum(
        price * count * size for price, count, size in zip(prices.memory, counts, usable_bytes, strict=True)
    )
    return math.fsum(np.min(costs, axis=0).tolist()) - rent


def _dual_prices(options: Sequence[StageOption], counts: Sequence[int], usable_bytes: Sequence[int]) -> _Prices:
    """Prices from the linear programme by GLOP; without an optimum every ns costs the same and bytes nothing."""
    even = _Prices((1 / sum(counts),) * len(counts), (0.0,) * len(counts))
    solver = pywraplp.Solver.CreateSolver("GLOP")
    assert solver is not None, "the wheel of ortools holds GLOP"
    scale = max(1, int(max(option.layer_ns.max() for option in options)))
    longest = solver.NumVar(0, solver.infinity(), "")
    work = [solver.Constraint(-solver.infinity(), 0) for _ in counts]
    memory = [solver.Constraint(-solver.infinity(), count) for count in counts]  # in devices full of state
    for kind, count in enumerate(counts):
        work[kind].SetCoefficient(longest, -count)
    for layer in range(len(options[0].layer_ns)):
        once = solver.Constraint(1, 1)
        for option in options:
            share = solver.NumVar(0, solver.infinity(), "")
            once.SetCoefficient(share, 1)
            work[option.kind].SetCoefficient(share, option.size * int(option.layer_ns[layer]) / scale)
            state = option.size * int(option.layer_state_bytes[layer]) / usable_bytes[option.kind]
            memory[option.kind].SetCoefficient(share, state)
    solver.Minimize(longest)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return even
    time = [max(0.0, -row.dual_value()) for row in work]
    total = math.fsum(price * count for price, count in zip(time, counts, strict=True))
    if total <= 0:
        return even
    per_byte = [max(0.0, -row.dual_value()) * scale / size for row, size in zip(memory, usable_bytes, strict=True)]
    return _Prices(tuple(price / total for price in time), tuple(price / total for price in per_byte))
