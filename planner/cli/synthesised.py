"""Rows of ``planner schedule compare`` that no family names: orders made for the given times and memory limit.

Every placement that a family uses is tried with split backwards: line, loop, V, wave, two lines, two V. No solver is
loaded: templates, list scheduling and walks (``planner.search.synthesis``).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from planner.errors import InfeasibleError
from planner.plan.plan import MicroBatch, Stage
from planner.schedules.family import PlanLists
from planner.schedules.placements import line, loop, mirrored, stages_on, v, wave
from planner.search.synthesis.order_problem import OrderProblem
from planner.search.synthesis.synthesise import Effort, Synthesis, synthesise
from planner.simulate.scores import KEPT_BYTES, GroupCost, Score, score_lists, stage_costs

__all__ = ["synthesised_scores"]

_WORK = 120_000  # instructions handled for one placement, about a second
_MOST_TEMPLATES = 40

_PLACEMENTS: tuple[tuple[str, Callable[[int], list[list[int]]]], ...] = (
    ("line", lambda p: [line(p)]),
    ("loop", lambda p: [loop(p, 2 * p)]),
    ("v", lambda p: [v(p)]),
    ("wave", lambda p: [wave(p, 4 * p)]),
    ("two lines", lambda p: [line(p), mirrored(line(p))]),
    ("two v", lambda p: [v(p), mirrored(v(p))]),
)


class _Skeleton(NamedTuple):
    """Plan lists without streams."""

    stages: tuple[Stage, ...]
    routes: tuple[tuple[int, ...], ...]
    micro_batches: tuple[MicroBatch, ...]


def synthesised_scores(
    num_groups: int, num_micro_batches: int, cost: GroupCost, *, memory_units: float | None
) -> Iterator[Score]:
    """One row a placement; none where it has fewer micro-batches than routes, or where a person would have to wait."""
    for name, groups_of_routes in _PLACEMENTS:
        routes = groups_of_routes(num_groups)
        if num_micro_batches >= len(routes) and 3 * len(routes[0]) * num_micro_batches <= _WORK:
            skeleton = _skeleton(routes, num_micro_batches)
            yield _score(f"synthesised {name}", skeleton, cost, memory_units)


def _skeleton(groups_of_routes: list[list[int]], num_micro_batches: int) -> _Skeleton:
    """Stages route by route; micro-batches take the routes in turn."""
    stages: list[Stage] = []
    routes = []
    for groups in groups_of_routes:
        routes.append(tuple(range(len(stages), len(stages) + len(groups))))
        stages += stages_on(groups)
    batches = [MicroBatch(route=b % len(routes), samples=1, cuts=(0, 1)) for b in range(num_micro_batches)]
    return _Skeleton(tuple(stages), tuple(routes), tuple(batches))


def _score(name: str, skeleton: _Skeleton, cost: GroupCost, memory_units: float | None) -> Score:
    problem = _order_problem(skeleton, cost, memory_units)
    num_batches = len(skeleton.micro_batches)
    tries = _WORK // problem.num_instructions
    templates = min(_MOST_TEMPLATES, max(2, tries // 2))
    try:
        found = synthesise(problem, Effort(templates=templates, shakes=min(templates, tries // 2), moves=0))
    except InfeasibleError:
        return Score(name, None, f"no order found within {memory_units or num_batches:g} micro-batches")
    return score_lists(name, _lists(skeleton, found), cost, memory_units=memory_units)


def _order_problem(skeleton: _Skeleton, cost: GroupCost, memory_units: float | None) -> OrderProblem:
    groups = [stage.group for stage in skeleton.stages]
    num_groups, num_batches = max(groups) + 1, len(skeleton.micro_batches)
    costs = stage_costs(cost, num_groups, num_stages=len(skeleton.routes[0])) * len(skeleton.routes)
    limit = KEPT_BYTES * num_batches if memory_units is None else int(KEPT_BYTES * memory_units)
    borders = [pair for route in skeleton.routes for pair in pairwise(route) if groups[pair[0]] != groups[pair[1]]]
    forward_ns, input_ns, weight_ns, kept = zip(*costs, strict=True)
    return OrderProblem(
        group_of_stage=tuple(groups),
        routes=skeleton.routes,
        num_micro_batches=tuple(
            sum(batch.route == number for batch in skeleton.micro_batches) for number in range(len(skeleton.routes))
        ),
        forward_ns=forward_ns,
        backward_input_ns=input_ns,
        backward_weight_ns=weight_ns,
        forward_message_ns=_messages({after for _, after in borders}, len(groups), cost.link_ns),
        backward_message_ns=_messages({before for before, _ in borders}, len(groups), cost.link_ns),
        kept=kept,
        limit=(limit,) * num_groups,
    )


def _messages(stages: set[int], num_stages: int, link_ns: int) -> tuple[int, ...]:
    return tuple(link_ns if stage in stages else 0 for stage in range(num_stages))


def _lists(skeleton: _Skeleton, found: Synthesis) -> PlanLists:
    """The streams with the plan's numbers of micro-batches instead of the route's."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, batch in enumerate(skeleton.micro_batches):
        numbers[batch.route].append(number)
    route_of = {stage: number for number, route in enumerate(skeleton.routes) for stage in route}
    streams = [[i._replace(number=numbers[route_of[i.stage]][i.number]) for i in stream] for stream in found.streams]
    return PlanLists(*skeleton, streams)
