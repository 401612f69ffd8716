"""Order problems for the tests of synthesis: the cases of tests/data/schedule_cases and placements of equal stages."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.schedules.placements import line, mirrored, v, wave
from planner.search.synthesis.order_problem import OrderProblem

__all__ = ["CASES", "case_problem", "equal_stages", "placements", "stages_on_routes"]

_FILE = Path(__file__).parent.parent / "data" / "schedule_cases" / "cases.json"
CASES: dict[str, Any] = json.loads(_FILE.read_text())


def placements(name: str, num_groups: int, legs: int = 2) -> list[list[int]]:
    """Groups of the stages of each route."""
    p = num_groups
    found = {
        "line": lambda: [line(p)],
        "loop": lambda: [[stage % p for stage in range(legs * p)]],
        "v": lambda: [v(p)],
        "wave": lambda: [wave(p, legs * p)],
        "two lines": lambda: [line(p), mirrored(line(p))],
        "two v": lambda: [v(p), mirrored(v(p))],
    }
    return found[name]()


def stages_on_routes(routes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Stages numbered route by route."""
    first, found = 0, []
    for groups in routes:
        found.append(tuple(range(first, first + len(groups))))
        first += len(groups)
    return tuple(found)


def messages(routes: Sequence[Sequence[int]], ticks: int, *, backwards: int) -> tuple[int, ...]:
    """By stage: from the stage before (0) or the stage behind (1); none inside a group."""
    found = []
    for groups in routes:
        for place, group in enumerate(groups):
            other = place + 1 if backwards else place - 1
            found.append(ticks if 0 <= other < len(groups) and groups[other] != group else 0)
    return tuple(found)


def equal_stages(
    routes: Sequence[Sequence[int]],
    num_micro_batches: int,
    *,
    limit: int,
    ticks: tuple[int, int, int] = (1, 1, 1),
    message: int = 0,
) -> OrderProblem:
    """F, I, W of ``ticks`` on every stage; a visit keeps 1; micro-batches dealt evenly."""
    groups = [group for route in routes for group in route]
    forward, inputs, weights = ((time,) * len(groups) for time in ticks)
    return OrderProblem(
        group_of_stage=tuple(groups),
        routes=stages_on_routes(routes),
        num_micro_batches=(num_micro_batches // len(routes),) * len(routes),
        forward_ns=forward,
        backward_input_ns=inputs,
        backward_weight_ns=weights,
        forward_message_ns=messages(routes, message, backwards=0),
        backward_message_ns=messages(routes, message, backwards=1),
        kept=(1,) * len(groups),
        limit=(limit,) * (max(groups) + 1),
    )


def case_problem(case: dict[str, Any], placement: str) -> OrderProblem:
    """One of the cases with unequal costs."""
    costs, p = case["placements"][placement], int(case["groups"])
    routes = placements(placement, p)
    return OrderProblem(
        group_of_stage=tuple(routes[0]),
        routes=stages_on_routes(routes),
        num_micro_batches=(int(case["micro_batches"]),),
        forward_ns=tuple(costs["forward_ticks"]),
        backward_input_ns=tuple(costs["backward_input_ticks"]),
        backward_weight_ns=tuple(costs["backward_weight_ticks"]),
        forward_message_ns=messages(routes, int(case["message_ticks"]), backwards=0),
        backward_message_ns=messages(routes, int(case["message_ticks"]), backwards=1),
        kept=(1,) * len(routes[0]),
        limit=tuple(costs["memory_stage_activations"]),
    )
