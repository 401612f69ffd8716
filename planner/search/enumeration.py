"""Every candidate of a lineup, where they are few enough; otherwise a good start and small moves from it.

Recompute only costs time, so a stage recomputes exactly where it must: where keeping everything cannot fit. Between
"cannot" and "surely fits" both are tried, all such stages of a candidate alike.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, islice, pairwise, permutations, product
from math import comb

import numpy as np

from planner.costs.price import ProblemCosts
from planner.problem.options import Constraints, Family
from planner.schedules.families import FAMILIES
from planner.search.contest import Contest
from planner.search.fitting import fitting
from planner.search.lineup import Batch, Lineup
from planner.search.orders import ChainShape, serves
from planner.search.partition import Integers
from planner.search.space import Space

__all__ = [
    "QUICK_FAMILIES",
    "climb",
    "enumerate_lineup",
    "even_batches",
    "has_all_lineups",
    "have_parts",
    "lineups",
    "stage_counts",
    "start_batch",
]

_KEEP_LEAST_FIRST: tuple[tuple[Family, ...], ...] = (
    ("1f1b", "interleaved", "wave", "gpipe", "breadth-first"),  # whole backwards
    ("zb-h1", "zb-h2"),
)
QUICK_FAMILIES: tuple[Family, ...] = ("1f1b", "gpipe", "interleaved")
_MOST_ORDERED = 50_000  # instructions
_LOOPING = ("loop", "wave")
_MOST_CUTS = 100_000
_MOST_PLANS = 200
_MOST_SEQUENCES = 1024  # of device classes along a route
_MOST_ROUNDS = 60
_FAR = 1.1


def lineups(
    space: Space, costs: ProblemCosts, constraints: Constraints, families: Sequence[Family]
) -> Iterator[Lineup]:
    """Every lineup of a space as far as ``has_all_lineups``, few groups first."""
    most_stages = constraints.num_stages or constraints.most_stages or space.num_layers
    for num_groups in range(1, min(space.num_layers, space.num_blocks, most_stages) + 1):
        for classes in _sequences(space, num_groups):
            for family in _on_groups(num_groups, families, constraints):
                for num_stages in stage_counts(space, family, num_groups, constraints):
                    found = Lineup(space, costs, family, classes, num_stages)
                    priced = not found.splits or have_parts(space, classes)
                    if priced and _is_quick(found.shape) and serves(found.shape):
                        yield found


def _is_quick(shape: ChainShape) -> bool:
    """Whether its order is made soon enough: some families are list-scheduled."""
    return shape.family in QUICK_FAMILIES or shape.num_instructions <= _MOST_ORDERED


def have_parts(space: Space, classes: tuple[int, ...]) -> bool:
    """Whether I and W can be priced on all of the devices, for all micro-batches, and nothing must be recomputed."""
    return False in space.recompute and all(
        tables.splits for number in set(classes) for tables in space.tables[number].values()
    )


def has_all_lineups(space: Space, families: Sequence[Family]) -> bool:
    """Whether no order of device classes along a route is left out, and no number of stages of a family."""
    largest = [
        ChainShape(family, space.num_blocks, space.num_layers, space.degrees.num_micro_batches) for family in families
    ]
    return _has_all_sequences(space) and all(_is_quick(shape) for shape in largest)


def _has_all_sequences(space: Space) -> bool:
    most_groups = min(space.num_layers, space.num_blocks)
    return bool(len(space.classes) ** most_groups <= _MOST_SEQUENCES)


def _on_groups(num_groups: int, families: Sequence[Family], constraints: Constraints) -> Sequence[Family]:
    """On one group, families with one stage take equally long: of each way to go backward the one that keeps least
    stands. With a V the sum of gradients of one stage runs beside the other, earlier or later.
    """
    if num_groups > 1:
        return families
    allowed = constraints.families or families
    least = [next((family for family in kind if family in allowed), None) for kind in _KEEP_LEAST_FIRST]
    return [family for family in families if family in least or FAMILIES[family].placement == "v"]


def stage_counts(space: Space, family: Family, num_groups: int, constraints: Constraints) -> Iterator[int]:
    """How many stages of a family on so many groups the constraints allow."""
    for legs in _legs(family, num_groups, constraints):
        num_stages = num_groups * legs
        is_allowed = num_stages <= min(space.num_layers, constraints.most_stages or space.num_layers)
        if is_allowed and constraints.num_stages in (None, num_stages):
            yield num_stages


def _legs(family: Family, num_groups: int, constraints: Constraints) -> Sequence[int]:
    """With one stage a group a looping family is a line family that keeps more: only where no other is allowed."""
    placement, most = FAMILIES[family].placement, constraints.most_legs
    if placement == "v":
        return (2,) if most > 1 else ()
    if placement == "line" or num_groups == 1:
        return (1,)
    only = bool(constraints.families) and all(FAMILIES[f].placement in _LOOPING for f in constraints.families)
    return range(most, 0 if only else 1, -1)


def _sequences(space: Space, num_groups: int) -> Iterator[tuple[int, ...]]:
    """Device classes along a route, as far as there are blocks; where they are many, each class stands in one row."""
    counts = [len(device_class.blocks) for device_class in space.classes]
    if _has_all_sequences(space):
        found: Iterable[tuple[int, ...]] = product(range(len(counts)), repeat=num_groups)
    else:
        found = islice(_rows(counts, num_groups), _MOST_SEQUENCES)
    for sequence in found:
        if all(sequence.count(number) <= count for number, count in enumerate(counts)):
            yield sequence


def _rows(counts: list[int], num_groups: int) -> Iterator[tuple[int, ...]]:
    for order in permutations(range(len(counts))):
        for used in product(*(range(min(counts[number], num_groups) + 1) for number in order)):
            if sum(used) == num_groups:
                yield tuple(number for number, count in zip(order, used, strict=True) for _ in range(count))


def most_cuts(space: Space) -> int:
    """Of a lineup that is looked through as a whole; whole plans are slow to simulate."""
    return _MOST_CUTS if space.is_plain_chain else _MOST_PLANS


def enumerate_lineup(contest: Contest, lineup: Lineup) -> bool:
    """Offer every candidate; whether they were few enough, and none was left out."""
    if comb(lineup.space.num_layers - 1, lineup.num_stages - 1) > most_cuts(lineup.space):
        return False
    cuts = _promising(contest, lineup, _all_cuts(lineup.space.num_layers, lineup.num_stages))
    whole = True
    for variant, batch in enumerate(_with_recompute(lineup, cuts)):
        if variant and _open_rows(contest, lineup, batch):
            whole = lineup.num_stages == 1
        contest.offer_all(lineup, batch)
    return whole


def _promising(contest: Contest, lineup: Lineup, cuts: Integers) -> Integers:
    """Those that could be better than the best step if they recompute nothing."""
    if not lineup.space.is_plain_chain:
        return cuts
    nothing = Batch(cuts, np.zeros((len(cuts), lineup.num_stages), np.bool_))
    return np.asarray(cuts[lineup.bounds_ns(nothing) < contest.best_ns])


def _open_rows(contest: Contest, lineup: Lineup, batch: Batch) -> bool:
    """Whether a second way to recompute is still of interest: then mixtures of both are left out."""
    return bool(np.any((lineup.bounds_ns(batch) < contest.best_ns) & fitting(lineup, batch).possible))


@lru_cache(maxsize=64)
def _all_cuts(num_layers: int, num_stages: int) -> Integers:
    inner = list(combinations(range(1, num_layers), num_stages - 1))
    found = np.zeros((len(inner), num_stages + 1), np.int64)
    found[:, 1:-1] = np.array(inner, np.int64).reshape(len(inner), num_stages - 1)
    found[:, -1] = num_layers
    return found


def _with_recompute(lineup: Lineup, cuts: Integers) -> Iterator[Batch]:
    """The cuts with the recompute that they need; a second batch where that is not certain."""
    allowed = lineup.space.recompute
    nowhere = np.zeros((len(cuts), lineup.num_stages), np.bool_)
    if allowed == (True,):
        assert not lineup.splits, "nothing that splits is recomputed"
        yield Batch(cuts, ~nowhere)
    elif allowed == (False,) or lineup.splits:
        yield Batch(cuts, nowhere)
    elif lineup.num_stages > lineup.num_groups or lineup.family not in ("1f1b", "gpipe"):
        yield Batch(cuts, nowhere)
        if not fitting(lineup, Batch(cuts, nowhere)).sure.all():
            yield Batch(cuts, ~nowhere)
    else:
        possible, sure = _without_recompute(lineup, cuts)
        yield Batch(cuts, ~possible)
        unclear = np.any(possible & ~sure, axis=1)
        if unclear.any():
            yield Batch(cuts[unclear], ~sure[unclear])


def _without_recompute(lineup: Lineup, cuts: Integers) -> tuple[np.ndarray, np.ndarray]:
    """[candidate, stage]: whether keeping everything can fit, and whether it surely does."""
    m = lineup.space.degrees.num_micro_batches
    possible, sure = [], []
    for stage in range(lineup.num_stages):
        in_flight = m if lineup.family == "gpipe" else min(lineup.num_stages - stage, m)
        span = (cuts[:, stage], cuts[:, stage + 1])
        smallest, largest = lineup.tables(stage, lineup.sizes[0]), lineup.tables(stage, lineup.sizes[-1])
        possible.append(smallest.most_in_flight(recomputes=False)[span] >= in_flight)
        sure.append(largest.surely_in_flight(recomputes=False)[span] >= in_flight)
    return np.array(possible).T, np.array(sure).T


def start_batch(lineup: Lineup) -> Iterator[Batch]:
    """One cut whose largest stage is least for the lineup's devices, with the recompute that it needs."""
    num_layers, size = lineup.space.num_layers, lineup.sizes[-1]
    worst = np.full((lineup.num_stages + 1, num_layers + 1), np.iinfo(np.int64).max)
    ends = np.zeros_like(worst)
    worst[lineup.num_stages, num_layers] = 0
    for stage in range(lineup.num_stages - 1, -1, -1):
        times = lineup.tables(stage, size).times_ns(recomputes=False)
        for layer in range(num_layers):
            found = np.maximum(times[layer, layer + 1 :], worst[stage + 1, layer + 1 :])
            ends[stage, layer] = layer + 1 + int(found.argmin())
            worst[stage, layer] = found.min()
    cuts = [0]
    for stage in range(lineup.num_stages):
        cuts.append(int(ends[stage, cuts[-1]]))
    if cuts[-1] == num_layers and all(a < b for a, b in pairwise(cuts)):
        yield from _with_recompute(lineup, np.array([cuts], np.int64))


def even_batches(lineup: Lineup, *, most: int) -> Iterator[Batch]:
    """Some cuts with the least bounds, with the recompute that they need; one where there are too many to look at."""
    if comb(lineup.space.num_layers - 1, lineup.num_stages - 1) > most_cuts(lineup.space):
        yield from start_batch(lineup)
        return
    cuts = _all_cuts(lineup.space.num_layers, lineup.num_stages)
    bounds_ns = lineup.bounds_ns(Batch(cuts, np.zeros((len(cuts), lineup.num_stages), np.bool_)))
    yield from _with_recompute(lineup, cuts[np.argsort(bounds_ns, kind="stable")[:most]])


def climb(contest: Contest, lineup: Lineup, start: Batch) -> None:
    """Move borders by one or two layers as long as that shortens the best step.

    A start whose bound is far above the best step is left alone.
    """
    if lineup.space.is_plain_chain and int(lineup.bounds_ns(start).min()) > _FAR * contest.best_ns:
        return
    cuts = start.cuts
    for _ in range(_MOST_ROUNDS):
        before = contest.best_ns
        for batch in _with_recompute(lineup, _neighbours(cuts)):
            contest.offer_all(lineup, batch)
        best = contest.best
        if best is None or contest.best_ns == before or not lineup.holds(best.space, best.candidate):
            return
        cuts = np.array([[*(stage.first_layer for stage in best.candidate.stages), lineup.space.num_layers]], np.int64)


def _neighbours(cuts: Integers) -> Integers:
    """The cut itself, every border moved by one or two, and every pair of neighbouring borders moved alike."""
    rows = [cuts[0].tolist()]
    inner = range(1, cuts.shape[1] - 1)
    for border in inner:
        for move in (-2, -1, 1, 2):
            for width in (1, 2):
                row = cuts[0].tolist()
                for place in range(border, min(border + width, cuts.shape[1] - 1)):
                    row[place] += move
                rows.append(row)
    legal = {tuple(row): None for row in rows if all(a < b for a, b in pairwise(row))}
    return np.array(list(legal), np.int64)
