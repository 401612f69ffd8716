"""Interleaved 1F1B for any number of micro-batches and any number of stages.

Method: Narayanan et al. 2021 with rounds of near-equal sizes: k = max(1, floor(m/p)) rounds, all of at least p
micro-batches when m >= p, so the bubble is 3(p-1)/v for every m >= p. Forward list: round by round, for each leg all
micro-batches of the round; backward list: the same with legs in reverse. Warm-up 2(p-1-d) + (v-1) x largest round.
Where the last leg does not fill all groups, the streams of the full placement lose the instructions of the stages that
do not exist: an order that ends stays one that ends.
"""

from planner.errors import PlanError
from planner.plan.instruction import BACKWARD, FORWARD, Instruction
from planner.plan.mesh import cut
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.placements import loop, one_route, too_few_stages
from planner.schedules.shape import Shape, Streams, one_by_one
from planner.units import counted

__all__ = ["INTERLEAVED", "interleaved", "round_sizes"]


def interleaved(shape: Shape) -> Streams:
    """The streams of all groups."""
    if shape.num_stages < shape.num_groups:
        found = f"{counted(shape.num_stages, 'stage')} on {counted(shape.num_groups, 'group')}"
        message = f"found {found}, expected at least one stage a group"
        raise PlanError(message, code="family", pointer="/stages")
    if max(shape.slices) > 1:
        message = f"found micro-batches of {counted(max(shape.slices), 'slice')}, expected 1 for interleaved 1F1B"
        raise PlanError(message, code="family", pointer="/micro_batches")
    return [_stream(shape, group) for group in range(shape.num_groups)]


def round_sizes(num_micro_batches: int, num_groups: int) -> list[int]:
    """Micro-batches of each round; larger rounds first."""
    rounds = max(1, num_micro_batches // num_groups)
    return [cut(num_micro_batches, rounds, number).size for number in reversed(range(rounds))]


def _stream(shape: Shape, group: int) -> list[Instruction]:
    legs = range(-(-shape.num_stages // shape.num_groups))
    sizes = round_sizes(shape.num_micro_batches, shape.num_groups)
    forwards, backwards, first = list[Instruction](), list[Instruction](), 0
    for size in sizes:
        batches = range(first, first + size)
        forwards += [Instruction(FORWARD, leg * shape.num_groups + group, b) for leg in legs for b in batches]
        backwards += [
            Instruction(BACKWARD, leg * shape.num_groups + group, b) for leg in reversed(legs) for b in batches
        ]
        first += size
    warm_up = 2 * (shape.num_groups - 1 - group) + (len(legs) - 1) * max(sizes)
    full = one_by_one(forwards, backwards, warm_up=warm_up)
    return [instruction for instruction in full if instruction.stage < shape.num_stages]


def _interleaved(shape: FamilyShape) -> PlanLists:
    p, num_stages = shape.num_groups, shape.num_stages or 2 * shape.num_groups
    return one_route(shape, loop(p, num_stages), interleaved(Shape(p, num_stages, (1,) * shape.num_micro_batches)))


INTERLEAVED = FamilySpec(
    name="interleaved",
    summary="1F1B over several stages a group; the bubble of 1F1B divided by them, for any number of micro-batches",
    source="Narayanan et al. 2021, arXiv 2104.04473",
    placement="loop",
    build=_interleaved,
    refuse=too_few_stages,
    options=frozenset({"num_stages"}),
)
