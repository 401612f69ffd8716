"""Synthesis for a whole plan: its placement and prices as an order problem, and the plan with the best streams.

The plan says what is split: a stage whose visits have I and W keeps them, one with B keeps B. Memory is what the
simulator's walk says in the end: messages and transients are set aside before, and where a made plan still needs more
than a group has, it is made again within tighter limits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from planner.costs.prices import PlanPrices, VisitPrice
from planner.errors import InfeasibleError, PlanError
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import VISIT_OPERATIONS, Instruction, Operation, stream_text
from planner.plan.plan import Plan
from planner.schedules.updates import with_updates
from planner.search.synthesis.engine import OnWork, nobody
from planner.search.synthesis.order_problem import OrderProblem
from planner.search.synthesis.synthesise import Effort, synthesise
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline
from planner.units import counted

__all__ = ["SynthesisedPlan", "order_problem", "synthesised_plan"]

_ATTEMPTS = 4  # at limits that the memory walk accepts
_SERVED = {"FB": "B", "FIW": "IW", "FI": "I"}  # operations of a visit -> its backward
_OPERATIONS: Mapping[str, tuple[Operation, ...]] = {"B": ("B",), "I": ("I",), "IW": ("I", "W")}


class SynthesisedPlan(NamedTuple):
    """``method``: how the order was found; "given" where none was better."""

    plan: Plan
    timeline: Timeline
    method: str


def synthesised_plan(
    plan: Plan, prices: PlanPrices, effort: Effort | None = None, *, on_work: OnWork = nobody
) -> SynthesisedPlan:
    """The plan with the streams of the shortest simulated step that fits; the plan itself where none is better.

    Raises ``PlanError`` (synthesis) as ``order_problem``. Prediction and provenance are left out. ``on_work``: as of
    ``Engine``.
    """
    problem = order_problem(plan, prices)
    bare = plan.model_copy(update={"prediction": None, "provenance": None})
    best = SynthesisedPlan(bare, simulate(plan, prices), "given")
    spare = [0] * len(plan.groups)
    for _ in range(_ATTEMPTS):
        try:
            limit = tuple(most - less for most, less in zip(problem.limit, spare, strict=True))
            found = synthesise(replace(problem, limit=limit), effort, starts=[_route_numbers(plan)], on_work=on_work)
        except (InfeasibleError, PlanError):
            return best  # tighter limits let nothing end
        made = _with_streams(bare, found.streams)
        timeline = simulate(made, prices)
        over = _over(timeline, prices)
        if max(over) == 0:
            better = timeline.step_ns < best.timeline.step_ns or max(_over(best.timeline, prices)) > 0
            return SynthesisedPlan(made, timeline, found.method) if better else best
        spare = [set_aside + more for set_aside, more in zip(spare, over, strict=True)]
    return best


def _over(timeline: Timeline, prices: PlanPrices) -> list[int]:
    peaks = timeline.peak_bytes or (0,) * len(prices.limit_bytes)
    return [max(0, peak - limit) for peak, limit in zip(peaks, prices.limit_bytes, strict=True)]


def order_problem(plan: Plan, prices: PlanPrices) -> OrderProblem:
    """What synthesis may order.

    Raises ``PlanError`` (synthesis) for a plan that is no set of chains of whole visits: slices, recompute
    instructions, skips, shared stages, several updates, micro-batches of a route that differ.
    """
    _check_chains(plan)
    backwards = _backwards(plan)
    visits = [_visit_price(plan, prices, stage) for stage in range(len(plan.stages))]
    forward_message_ns, backward_message_ns = [0] * len(visits), [0] * len(visits)
    kept = [visit.kept_bytes for visit in visits]
    for route, stages in enumerate(plan.routes):
        shape = plan.visit_shape(_micro_batches(plan, route)[0], 0)
        for sender, receiver in pairwise(stages):
            border = prices.borders[sender, receiver, shape]
            forward_message_ns[receiver] = border.forward_ns
            backward_message_ns[sender] = border.backward_ns
            kept[receiver] += border.message_bytes
    splits = [backward == "IW" for backward in backwards]
    return OrderProblem(
        group_of_stage=tuple(stage.group for stage in plan.stages),
        routes=plan.routes,
        num_micro_batches=tuple(len(_micro_batches(plan, route)) for route in range(len(plan.routes))),
        forward_ns=tuple(visit.forward_ns for visit in visits),
        backward_input_ns=tuple(_first_backward_ns(visit, name) for visit, name in zip(visits, backwards, strict=True)),
        backward_weight_ns=tuple(v.backward_weight_ns if split else 0 for v, split in zip(visits, splits, strict=True)),
        forward_message_ns=tuple(forward_message_ns),
        backward_message_ns=tuple(backward_message_ns),
        kept=tuple(kept),
        limit=_limits(plan, prices, visits),
    )


def _first_backward_ns(visit: VisitPrice, backward: str) -> int:
    return visit.backward_ns if backward == "B" else visit.backward_input_ns


def _limits(plan: Plan, prices: PlanPrices, visits: Sequence[VisitPrice]) -> tuple[int, ...]:
    """By group: without state and the largest transient."""
    transient = [0] * len(plan.groups)
    for stage, visit in zip(plan.stages, visits, strict=True):
        most = max(visit.forward_transient_bytes, visit.backward_transient_bytes + visit.restored_bytes)
        transient[stage.group] = max(transient[stage.group], most)
    zipped = zip(prices.limit_bytes, prices.state_bytes, transient, strict=True)
    return tuple(max(0, limit - state - most) for limit, state, most in zipped)


def _check_chains(plan: Plan) -> None:
    dependencies = Dependencies(plan)
    stages = sorted(stage for route in plan.routes for stage in route)
    if stages != list(range(len(plan.stages))):
        raise _refused("a stage on several routes", "/routes")
    if dependencies.num_updates > 1:
        raise _refused(f"{counted(dependencies.num_updates, 'update')} in a step", "/streams")
    for number, batch in enumerate(plan.micro_batches):
        first = _micro_batches(plan, batch.route)[0]
        if batch.num_slices > 1 or plan.visit_shape(number, 0) != plan.visit_shape(first, 0):
            raise _refused("slices, or micro-batches of a route that differ", f"/micro_batches/{number}")
    for route, chain in enumerate(plan.routes):
        for stage, before, behind in zip(chain, (None, *chain[:-1]), (*chain[1:], None), strict=True):
            found = dependencies.neighbours[route, stage]
            expected = [() if other is None else (other,) for other in (before, behind)]
            if [found.reads, found.readers] != expected:
                raise _refused(f"stage {stage} beside a chain", f"/routes/{route}")


def _backwards(plan: Plan) -> list[str]:
    """By stage: B, IW or I, the same for all its visits."""
    found: dict[int, set[str]] = {}
    for visit, operations in plan.visit_operations.items():
        found.setdefault(visit.stage, set()).add(operations)
    for stage, texts in sorted(found.items()):
        if len(texts) > 1 or not texts <= set(_SERVED):
            raise _refused(f"visits {sorted(texts)} of stage {stage}", "/streams")
    return [_SERVED[min(found[stage])] for stage in range(len(plan.stages))]


def _refused(found: str, pointer: str) -> PlanError:
    message = f"found {found}, expected chains of whole visits F B, F I W or F I"
    return PlanError(message, code="synthesis", pointer=pointer)


def _micro_batches(plan: Plan, route: int) -> list[int]:
    return [number for number, batch in enumerate(plan.micro_batches) if batch.route == route]


def _visit_price(plan: Plan, prices: PlanPrices, stage: int) -> VisitPrice:
    (route,) = (number for number, members in enumerate(plan.route_members) if stage in members)
    return prices.visits[stage, plan.visit_shape(_micro_batches(plan, route)[0], 0)]


def _route_numbers(plan: Plan) -> list[list[Instruction]]:
    """The visits of the plan's streams, micro-batches counted on their route."""
    place = {b: n for route in range(len(plan.routes)) for n, b in enumerate(_micro_batches(plan, route))}
    return [
        [one._replace(number=place[one.number]) for one in stream if one.operation in VISIT_OPERATIONS]
        for stream in plan.instructions
    ]


def _with_streams(plan: Plan, streams: Sequence[Sequence[Instruction]]) -> Plan:
    """The plan with other streams, which check themselves again."""
    backwards = _backwards(plan)
    batches = [_micro_batches(plan, route) for route in range(len(plan.routes))]
    route_of = {stage: route for route, stages in enumerate(plan.routes) for stage in stages}

    def named(one: Instruction) -> Iterator[Instruction]:
        number = batches[route_of[one.stage]][one.number]
        if one.operation in "FW":
            yield one._replace(number=number)
            return
        splits = one.operation == "I" and backwards[one.stage] == "IW"
        operations: str = "I" if splits else backwards[one.stage]  # a W that takes no time follows its I
        for operation in _OPERATIONS[operations]:
            yield Instruction(operation, one.stage, number)

    whole = [with_updates(other for one in stream for other in named(one)) for stream in streams]
    updates = Dependencies(plan).num_updates
    kept = [[one for one in stream if updates or one.operation in VISIT_OPERATIONS] for stream in whole]
    texts = tuple(stream_text(stream, [batch.num_slices for batch in plan.micro_batches]) for stream in kept)
    return Plan.model_validate(plan.model_copy(update={"streams": texts}).model_dump())
