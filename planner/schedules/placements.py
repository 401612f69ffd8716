"""Where the stages of a route lie: line, loop, V and wave, and their mirror images; one layer a stage."""

from collections.abc import Sequence

from planner.plan.plan import MicroBatch, Stage
from planner.schedules.family import FamilyShape, PlanLists
from planner.schedules.shape import Streams
from planner.units import counted

__all__ = [
    "line",
    "loop",
    "mirrored",
    "one_route",
    "route_batches",
    "stages_on",
    "too_few_stages",
    "two_routes",
    "two_routes_refusal",
    "v",
    "wave",
]


def line(num_groups: int) -> list[int]:
    """Stage s on group s."""
    return list(range(num_groups))


def loop(num_groups: int, num_stages: int) -> list[int]:
    """Stage s on group ``s mod p``: interleaved, breadth-first; the last leg may be short."""
    return [stage % num_groups for stage in range(num_stages)]


def wave(num_groups: int, num_stages: int) -> list[int]:
    """Legs run down and up in turn, the turns are local: V (two legs) and Hanayo's waves; the last leg may be short."""
    both = [*range(num_groups), *reversed(range(num_groups))]
    return [both[stage % len(both)] for stage in range(num_stages)]


def v(num_groups: int) -> list[int]:
    """2p stages, group d holds d and 2p-1-d."""
    return wave(num_groups, 2 * num_groups)


def mirrored(groups: Sequence[int]) -> list[int]:
    """The same placement from the other end."""
    return [max(groups) - group for group in groups]


def stages_on(groups: Sequence[int]) -> list[Stage]:
    """One layer a stage, in the order of the route."""
    return [Stage(group=group, first_layer=layer, end_layer=layer + 1) for layer, group in enumerate(groups)]


def route_batches(shape: FamilyShape, *, num_routes: int = 1) -> tuple[MicroBatch, ...]:
    """The micro-batches dealt to the routes in turn, with the cuts of the shape; a token a slice if nothing is said."""
    cuts = shape.cuts or tuple(range((shape.num_slices or 1) + 1))
    batches = [MicroBatch(route=route, samples=1, cuts=cuts) for route in range(num_routes)]
    return tuple(batches[number % num_routes] for number in range(shape.num_micro_batches))


def one_route(shape: FamilyShape, groups: Sequence[int], streams: Streams) -> PlanLists:
    """Plan lists of one route whose stage s lies on ``groups[s]``."""
    return PlanLists(
        stages=tuple(stages_on(groups)),
        routes=(tuple(range(len(groups))),),
        micro_batches=route_batches(shape),
        streams=streams,
    )


def too_few_stages(shape: FamilyShape) -> str | None:
    """The refusal of looping families."""
    if shape.num_stages is not None and shape.num_stages < shape.num_groups:
        found = f"{counted(shape.num_stages, 'stage')} on {counted(shape.num_groups, 'group')}"
        return f"found {found}, expected at least one stage a group"
    return None


def two_routes(shape: FamilyShape, down: Sequence[int], up: Sequence[int], streams: Streams) -> PlanLists:
    """Plan lists of two routes with stages of their own; micro-batches go down and up in turn."""
    num_stages = len(down)
    return PlanLists(
        stages=(*stages_on(down), *stages_on(up)),
        routes=(tuple(range(num_stages)), tuple(range(num_stages, 2 * num_stages))),
        micro_batches=route_batches(shape, num_routes=2),
        streams=streams,
    )


def two_routes_refusal(shape: FamilyShape) -> str | None:
    """The refusal of families with two mirrored routes."""
    if shape.num_groups % 2:
        return f"found {counted(shape.num_groups, 'group')}, expected an even number: groups d and p-1-d are a pair"
    if shape.num_micro_batches < 2:
        return "found 1 micro-batch, expected at least one for each of the two routes"
    return None
