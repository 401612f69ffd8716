"""A lower bound of the step that holds for every order of the same instructions: head + work + tail of a group.

Method: without streams, what an instruction waits for is the contract's section 3 alone, and micro-batches do not meet.
Longest paths then give the earliest start of each instruction and the least time after its end. A group works for the
sum of its durations between the earliest of its starts and the least of its tails. The longest path is a bound too.
Sums and the waits for them are left out, memory as well: the bound holds under any limit.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from planner.costs.prices import PlanPrices, VisitPrice
from planner.plan.dependencies import Dependencies, Wait
from planner.plan.instruction import VISIT_OPERATIONS, Instruction
from planner.plan.plan import Plan

__all__ = ["BOUND_MODEL", "order_bound_ns"]

BOUND_MODEL = "head + work + tail"

_FIELDS = dict(zip("FBIWR", VisitPrice._fields[:5], strict=True))


class _Path(NamedTuple):
    """Of an instruction: when it can start at the earliest, and how long the step goes on after its end."""

    head_ns: int
    tail_ns: int


def order_bound_ns(plan: Plan, prices: PlanPrices) -> int:
    """No order of the plan's instructions on the same groups ends earlier."""
    durations = _Durations(plan, prices)
    paths = {key: _paths(found, durations) for key, found in _representatives(plan).items()}
    longest = max((p.head_ns + durations.of(i) + p.tail_ns for one in paths.values() for i, p in one.items()))
    bounds = [longest]
    for group, stream in enumerate(plan.instructions):
        own = [p for one in paths.values() for i, p in one.items() if plan.stages[i.stage].group == group]
        work_ns = sum(durations.of(instruction) for instruction in stream)
        bounds.append(min(p.head_ns for p in own) + work_ns + min(p.tail_ns for p in own))
    return max(bounds)


def _representatives(plan: Plan) -> dict[tuple[object, ...], list[Instruction]]:
    """The instructions of one micro-batch of each kind: same route, samples, cuts and operations."""
    batches: dict[int, list[Instruction]] = {}
    for stream in plan.instructions:
        for instruction in stream:
            if instruction.operation in VISIT_OPERATIONS:
                batches.setdefault(instruction.number, []).append(instruction)
    found: dict[tuple[object, ...], list[Instruction]] = {}
    for number, instructions in batches.items():
        batch = plan.micro_batches[number]
        kind = frozenset((i.operation, i.stage, i.slice) for i in instructions)
        found.setdefault((batch.route, batch.samples, batch.cuts, kind), instructions)
    return found


class _Durations:
    """What instructions and waits take."""

    def __init__(self, plan: Plan, prices: PlanPrices) -> None:
        self._plan, self._prices = plan, prices
        self.dependencies = Dependencies(plan)

    def of(self, instruction: Instruction) -> int:
        if instruction.operation == "U":
            return self._prices.update_ns[instruction.stage]
        if instruction.operation == "G":
            return 0
        shape = self._plan.visit_shape(instruction.number, instruction.slice)
        price: int = getattr(self._prices.visits[instruction.stage, shape], _FIELDS[instruction.operation])
        return price

    def message_ns(self, wait: Wait, reader: Instruction) -> int:
        if wait.kind not in ("activation", "gradient"):
            return 0
        shape = self._plan.visit_shape(reader.number, reader.slice)
        if wait.kind == "activation":
            return self._prices.borders[wait.instruction.stage, reader.stage, shape].forward_ns
        return self._prices.borders[reader.stage, wait.instruction.stage, shape].backward_ns


def _paths(instructions: Iterable[Instruction], durations: _Durations) -> Mapping[Instruction, _Path]:
    """Longest paths among the instructions of one micro-batch."""
    waits = {one: durations.dependencies.waits(one) for one in instructions}
    order = _sorted(waits)
    heads: dict[Instruction, int] = {}
    tails = dict.fromkeys(order, 0)
    for one in order:
        arrivals = (
            heads[w.instruction] + durations.of(w.instruction) + durations.message_ns(w, one) for w in waits[one]
        )
        heads[one] = max(arrivals, default=0)
    for one in reversed(order):
        after_ns = durations.of(one) + tails[one]
        for wait in waits[one]:
            before = wait.instruction
            tails[before] = max(tails[before], durations.message_ns(wait, one) + after_ns)
    return {one: _Path(heads[one], tails[one]) for one in order}


def _sorted(waits: Mapping[Instruction, tuple[Wait, ...]]) -> list[Instruction]:
    """Everything behind what it waits for; a plan's dependencies have no cycle."""
    order: dict[Instruction, None] = {}
    stack = list(waits)
    while stack:
        one = stack[-1]
        missing = [wait.instruction for wait in waits[one] if wait.instruction not in order]
        if missing:
            stack += missing
        else:
            order[stack.pop()] = None
    return list(order)
