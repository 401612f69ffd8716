"""Good candidates of a space from the exact partition programme, best first; they chose devices and cuts together.

The programme's step is a model, so the cut that it certifies is where the simulated search starts, not its answer. It
runs with memory that surely suffices, then with the least that any replay needs.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from planner.costs.price import ProblemCosts
from planner.problem.options import Constraints, Family
from planner.search.bounds import bottleneck_start_ns
from planner.search.contest import Contest
from planner.search.enumeration import have_parts
from planner.search.feasibility import CapacityProgram, bisect_bottleneck, window_program
from planner.search.lineup import Batch, Lineup
from planner.search.partition import NO_PLAN, Cut, PartitionProblem, StageOption, best_cut
from planner.search.refinement import refine
from planner.search.space import Space

__all__ = ["partition_problem", "seed"]

_FAMILIES: tuple[Family, ...] = ("1f1b", "gpipe")  # whose memory the programme knows
_SPLIT: tuple[Family, ...] = ("zb-h1", "zb-h2")  # on the same cuts
_MOST_EVALUATIONS = 40
_TOLERANCE = 0.002  # of the model's gap
_FAR = 1.1  # a model's bound this far above the best simulated step: the model is at most 6 % high
_MOST_TABLE_BYTES = 200_000_000  # a larger space starts from even cuts
_DEAR_EVALUATION = 50_000_000  # units
_UNITS_OF_BISECTION = 500_000_000
_UNITS_A_TABLE_ENTRY = 2  # of one evaluation: stages x layers x options x vectors of devices x reach
_UNITS_A_ROW = 20_000  # stages x layers x options


def seed(contest: Contest, space: Space, constraints: Constraints) -> list[tuple[Lineup, Batch]]:
    """Offer the programme's cuts in every family; the last cut of each run is given back to climb from."""
    families = [f for f in _FAMILIES if not constraints.families or f in constraints.families]
    split = [f for f in _SPLIT if not constraints.families or f in constraints.families]
    found, seen = [], set[bytes]()
    for family in families or split[:1]:
        for surely in (True, False):
            problem = partition_problem(space, family, constraints, surely=surely)
            if problem is None or _table_bytes(problem) > _MOST_TABLE_BYTES:
                continue
            if (key := _memory_key(problem)) in seen:
                continue
            seen.add(key)
            last: Cut | None = None
            for last in _cuts(contest, problem):
                for lineup, batch in _lineups(contest, space, (*families, *split), problem=problem, cut=last):
                    contest.offer_all(lineup, batch)
            if last is not None:
                found += _lineups(contest, space, (*families, *split), problem=problem, cut=last)
    return found


def _lineups(
    contest: Contest, space: Space, families: Sequence[Family], *, problem: PartitionProblem, cut: Cut
) -> list[tuple[Lineup, Batch]]:
    """The cut in each family that can have it."""
    made = [_lineup(space, contest.costs, family, problem, cut) for family in families]
    return [
        (lineup, batch)
        for lineup, batch in made
        if not lineup.splits or (have_parts(space, lineup.classes) and not batch.recomputes.any())
    ]


def _table_bytes(problem: PartitionProblem) -> int:
    """Of one evaluation."""
    num_vectors = math.prod(count + 1 for count in problem.counts)
    return 24 * (len(problem.in_flight) + 1) * (problem.num_layers + 1) * num_vectors


def _memory_key(problem: PartitionProblem) -> bytes:
    """Equal for problems in which memory allows the same: at every position the same stages."""
    fits = [
        option.most_in_flight >= in_flight for option in problem.options for in_flight in sorted(set(problem.in_flight))
    ]
    if all(bool(np.array_equal(found, fits[0])) for found in fits):
        return np.packbits(fits[0]).tobytes()
    return np.packbits(fits).tobytes()


def _cuts(contest: Contest, problem: PartitionProblem) -> Iterator[Cut]:
    """Each new best cut of the refinement, until the model's gap is small or nothing of interest is left."""
    before: Cut | None = None
    start_ns = _start_ns(contest, problem)
    for certificate in islice(refine(problem, start_ns=start_ns), _MOST_EVALUATIONS):
        contest.spend(_units_of_evaluation(problem))
        if certificate.cut != before:
            yield certificate.cut
        before = certificate.cut
        value_ns = certificate.cut.step_ns(problem.num_micro_batches)
        if value_ns - certificate.bound_ns <= _TOLERANCE * certificate.bound_ns:
            return
        if certificate.bound_ns > _FAR * contest.best_ns:
            return


def _units_of_evaluation(problem: PartitionProblem) -> int:
    rows = len(problem.in_flight) * problem.num_layers * len(problem.options)
    return rows * (_UNITS_A_ROW + _UNITS_A_TABLE_ENTRY * problem.num_layers * len(problem.vectors))


def _start_ns(contest: Contest, problem: PartitionProblem) -> int:
    """Proven to be below every bottleneck; where evaluations are dear, the integer programme raises it first."""
    low_ns = bottleneck_start_ns(problem)
    if _units_of_evaluation(problem) < _DEAR_EVALUATION:
        return low_ns
    cut = best_cut(problem, NO_PLAN)
    contest.spend(_units_of_evaluation(problem) + _UNITS_OF_BISECTION)
    if cut is None:
        return low_ns

    def program_at(limit_ns: int) -> CapacityProgram:
        return window_program(problem, limit_ns)

    found = bisect_bottleneck(program_at, low_ns=low_ns, high_ns=cut.bottleneck_ns, seed=contest.seed, tolerance=0.01)
    return found.proven_ns


def partition_problem(
    space: Space, family: Family, constraints: Constraints, *, surely: bool
) -> PartitionProblem | None:
    """One stage a group; None where the constraints leave no number of stages."""
    most = min(space.num_layers, space.num_blocks, constraints.num_stages or constraints.most_stages or 2**31)
    fewest = constraints.num_stages or 1
    if fewest > most:
        return None
    m = space.degrees.num_micro_batches
    choices = [(number, recomputes) for number in range(len(space.classes)) for recomputes in space.recompute]
    return PartitionProblem(
        options=tuple(_option(space, number, recomputes, surely) for number, recomputes in choices),
        counts=tuple(len(device_class.blocks) for device_class in space.classes),
        num_micro_batches=m,
        in_flight=tuple(m if family == "gpipe" else min(j, m) for j in range(1, most + 1)),
        usable_bytes=tuple(device_class.usable_bytes for device_class in space.classes),
        fewest_stages=fewest,
    )


def _option(space: Space, device_class: int, recomputes: bool, surely: bool) -> StageOption:
    tables, smallest = space.full(device_class), space.tables[device_class][min(space.tables[device_class])]
    fits = tables.surely_in_flight(recomputes=recomputes) if surely else smallest.most_in_flight(recomputes=recomputes)
    again = np.array([price.forward_ns for price in tables.prices]) if recomputes else 0
    state = tables.layer_state_bytes.copy()
    for tied in space.graph.tied:
        state[list(tied[1:])] = 0  # counted with the first; the programme's start may be lower, never wrong
    return StageOption(
        kind=device_class,
        size=1,
        time_ns=tables.times_ns(recomputes=recomputes),
        most_in_flight=fits,
        layer_ns=tables.layer_ns + again,
        layer_state_bytes=state,
    )


def _lineup(
    space: Space, costs: ProblemCosts, family: Family, problem: PartitionProblem, cut: Cut
) -> tuple[Lineup, Batch]:
    options = [divmod(pick.option, len(space.recompute)) for pick in cut.stages]
    cuts = [0, *(pick.end_layer for pick in cut.stages)]
    recomputes = [space.recompute[mode] for _, mode in options]
    lineup = Lineup(space, costs, family, tuple(device_class for device_class, _ in options), len(cut.stages))
    return lineup, Batch(np.array([cuts], np.int64), np.array([recomputes], np.bool_))
