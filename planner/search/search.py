"""Find the plan with the shortest simulated step: the one page that wires the search.

1. Spaces: one for each data degree and micro-batch size, the most promising bound first.
2. Seeds: the exact partition programme chooses devices and cuts of one-stage-a-group plans; borders move from there.
3. Everything: lineups small enough are enumerated whole, interleaved ones too, pruned by bounds; the others climbed.
4. The best plan is written out, simulated, checked without any solver code and bounded. A search that has ended by
   itself with nothing left out is ``optimal``: no plan of its space has a shorter simulated step.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import ortools

from planner import __version__
from planner.check.problem import check_against
from planner.costs.price import ProblemCosts
from planner.errors import SolverError
from planner.plan.answer import Answer, Limit, Progress, Reason
from planner.plan.plan import Plan, Prediction, Provenance
from planner.problem.options import Constraints, Family, SearchOptions
from planner.problem.problem import Problem, check_options
from planner.search.contest import Contest, Entry, Stopped
from planner.search.degrees import Degrees, allowed_degrees
from planner.search.enumeration import (
    QUICK_FAMILIES,
    climb,
    enumerate_lineup,
    has_all_lineups,
    lineups,
    start_batch,
)
from planner.search.reasons import reasons, warnings
from planner.search.seeds import seed
from planner.search.space import Space, make_space
from planner.units import NS_PER_SECOND

__all__ = ["Listener", "search"]

_SAY_EVERY_S = 0.25
_WALL_SHARE = 0.9  # of the time limit; the rest is for writing the plan out
_UNITS_A_SPACE = 1_000_000
_UNITS_A_LINEUP = 100_000
_UNITS_A_START = 5_000  # stage and layer
_SEEDS_SHARE = 0.5  # of the budget
_BUDGET_SHARE = 0.15  # of the time limit, in units of work: a slow machine reaches it before the wall
_NO_BUDGET = 2**62  # fast mode: work as long as the time lasts


def _silent(_: object) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Listener:
    """Who hears of a search, and whether it is asked to stop."""

    on_progress: Callable[[Progress], None] = _silent
    on_incumbent: Callable[[Plan], None] = _silent
    stop: Callable[[], bool] = lambda: False


def search(problem: Problem, options: SearchOptions, listener: Listener | None = None) -> Answer:
    """The best plan, or why nothing fits.

    Raises ``ProblemError`` where options and problem do not belong together, ``SolverError`` (no_plan_in_time) where
    it was stopped before the first plan.
    """
    check_options(problem, options)
    return _Search(problem, options, listener or Listener()).run()


class _Search:
    def __init__(self, problem: Problem, options: SearchOptions, listener: Listener) -> None:
        self._options = options
        self._listener = listener
        self._costs = ProblemCosts(problem)
        self._started_s = self._said_s = time.monotonic()
        self._next_sent_s = 0.0
        self._phase, self._done, self._spaces = "bounds", 0, list[Space]()
        limit_ns = options.time_limit_ns
        self._contest = Contest(
            costs=self._costs,
            budget=int(_BUDGET_SHARE * limit_ns) if options.mode == "reproducible" else _NO_BUDGET,
            deadline_s=self._started_s + _WALL_SHARE * limit_ns / 1e9,
            stop=self._asked_to_stop,
            on_better=self._on_better,
            seed=options.seed,
        )

    def run(self) -> Answer:
        found: list[Space] = []
        try:
            for degrees in self._degrees():
                self._contest.spend(_UNITS_A_SPACE)
                found.append(make_space(self._costs, degrees, self._constraints))
            usable = [space for space in found if space.classes]
            self._spaces = sorted(usable, key=lambda space: (space.bound_ns, space.degrees))
            limit: Limit = "optimal" if self._look_everywhere() else "deterministic"
        except Stopped as stopped:
            limit = "wall" if stopped.limit == "wall" else "deterministic"
        best = self._contest.best
        if best is not None:
            plan = self._written(best, limit)
            return Answer(status="succeeded", limit=limit, plan=plan, warnings=self._warnings(found))
        if limit == "wall":
            raise SolverError("no plan was found before the search was ended", code="no_plan_in_time")
        why = reasons(self._costs, found, self._constraints)
        return Answer(status="infeasible", limit=limit, reasons=why, warnings=self._warnings(found))

    def _warnings(self, spaces: Sequence[Space]) -> tuple[Reason, ...]:
        return warnings(self._costs, spaces, self._options)

    @property
    def _constraints(self) -> Constraints:
        return self._options.constraints

    def _degrees(self) -> Iterator[Degrees]:
        return allowed_degrees(self._costs.problem, self._constraints)

    def _asked_to_stop(self) -> bool:
        self._say()
        return self._listener.stop()

    def _look_everywhere(self) -> bool:
        """Seeds of all spaces, those of few devices first; then all lineups; whether nothing was left out."""
        self._phase = "partition"
        for space in self._open_spaces(sorted(self._spaces, key=lambda space: space.num_blocks)):
            if not self._seeded_enough():
                for lineup, batch in seed(self._contest, space, self._constraints):
                    climb(self._contest, lineup, batch)
        self._phase = "enumeration"
        whole = True
        for families in self._turns():
            found = [self._look_through(space, families) for space in self._open_spaces(self._spaces)]
            whole = whole and all(found)
        return whole

    def _turns(self) -> Iterator[tuple[Family, ...]]:
        """Quick families first: the others never take their time."""
        allowed = self._constraints.families or get_args(Family)
        quick = tuple(family for family in QUICK_FAMILIES if family in allowed)
        others = tuple(family for family in get_args(Family) if family in allowed and family not in quick)
        yield from (families for families in (quick, others) if families)

    def _seeded_enough(self) -> bool:
        """A share of the budget is spent on seeds; in fast mode that share of the time."""
        if self._options.mode == "reproducible":
            return self._contest.spent >= _SEEDS_SHARE * self._contest.budget
        seconds = self._contest.deadline_s - self._started_s
        return time.monotonic() - self._started_s >= _SEEDS_SHARE * seconds

    def _open_spaces(self, spaces: Sequence[Space]) -> Iterator[Space]:
        """Those that may still hold a better plan; the others are done."""
        self._done = 0
        for number, space in enumerate(spaces):
            self._done = number
            if space.bound_ns < self._contest.best_ns:
                yield space

    def _look_through(self, space: Space, families: Sequence[Family]) -> bool:
        whole = has_all_lineups(space, families)
        for lineup in lineups(space, self._costs, self._constraints, families):
            self._contest.spend(_UNITS_A_LINEUP)
            if space.is_plain_chain and lineup.bound_ns >= self._contest.best_ns:
                continue
            if not enumerate_lineup(self._contest, lineup):
                whole = False
                self._contest.spend(_UNITS_A_START * lineup.num_stages * space.num_layers)
                for batch in start_batch(lineup):
                    climb(self._contest, lineup, batch)
        return whole

    @cached_property
    def _bound_ns(self) -> int:
        """Of any schedule with any of the allowed degrees."""
        return min(space.bound_ns for space in self._spaces)

    def _on_better(self, entry: Entry) -> None:
        """Hand it out, though not so often that writing and checking takes more than a tenth of the time."""
        now_s = time.monotonic()
        if now_s >= self._next_sent_s:
            self._listener.on_incumbent(self._written(entry, "killed"))
            written_s = time.monotonic()
            self._next_sent_s = written_s + max(_SAY_EVERY_S, 10 * (written_s - now_s))

    def _say(self) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s < _SAY_EVERY_S:
            return
        self._said_s = now_s
        best = self._contest.best
        progress = Progress(
            phase=self._phase,
            incumbent_ns=best.step_ns if best else None,
            bound_ns=self._bound_ns if self._spaces else None,
            candidates_done=self._done,
            candidates_total=len(self._spaces),
        )
        self._listener.on_progress(progress)

    def _written(self, entry: Entry, limit: Limit) -> Plan:
        """The plan with its prediction, checked as if somebody else had made it."""
        made = self._contest.simulated(entry.space, entry.candidate)
        assert made.timeline.step_ns == entry.step_ns, f"scored {entry.step_ns}, simulated {made.timeline.step_ns}"
        assert self._bound_ns <= entry.step_ns, f"bound {self._bound_ns} ns above a step of {entry.step_ns} ns"
        problem, options = self._costs.problem, self._options
        prediction = Prediction(
            step_ns=made.timeline.step_ns,
            bound_ns=self._bound_ns,
            bound_model="any_schedule",
            bubble=made.timeline.bubble,
            peak_bytes=made.timeline.peak_bytes or (),
            memory_limit_bytes=made.prices.limit_bytes,
            costs=made.prices.costs,
        )
        provenance = Provenance(
            planner=__version__,
            family=entry.candidate.family,
            solver=f"ortools {ortools.__version__}",
            seed=options.seed,
            limit=limit,
            search_ns=round((time.monotonic() - self._started_s) * NS_PER_SECOND),
            profiles=tuple(sorted(profile.digest for profile in problem.profiles)),
        )
        plan = made.plan.model_copy(update={"prediction": prediction, "provenance": provenance})
        verdict = check_against(plan, problem)
        assert verdict.fault is None, f"the search wrote a plan that is refused: {verdict.fault}"
        return plan
