"""Find the plan with the shortest simulated step: the one page that wires the search.

1. Spread: where the target allows tensor degrees, or device kinds in any order are too many to look through, the
   engine of ``planner.search.chains`` finds the best stages spread over data x tensor ranks; very large clusters end
   here. The steps below look for something shorter.
2. Spaces: one for each data degree and micro-batch size, the most promising bound first.
3. Seeds: the exact partition programme chooses devices and cuts of one-stage-a-group plans; borders move from there.
4. Everything: lineups small enough are enumerated whole, interleaved ones too, pruned by bounds; the others climbed.
5. The best plan is written out, simulated, checked without any solver code and bounded. A search that has ended by
   itself with nothing left out is ``optimal``: no plan of its space has a shorter simulated step.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from planner.costs.price import ProblemCosts
from planner.errors import PlanError, SolverError
from planner.plan.answer import Answer, Limit, Progress, Reason
from planner.plan.plan import Plan
from planner.problem.contract import LongestDuration
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
from planner.search.finish import Origin, finished_plan
from planner.search.reasons import reasons, warnings
from planner.search.relaxation import relaxations
from planner.search.reorder import Reordering
from planner.search.seeds import seed
from planner.search.space import Space, make_space
from planner.search.spread.run import SpreadRun
from planner.units import NS_PER_SECOND

__all__ = ["Listener", "search"]

_SAY_EVERY_S = 0.25
_WALL_SHARE = 0.9  # of the time limit; the rest is for writing the plan out
_NAMED_WALL_SHARE = 0.45  # where orders are made afterwards
_UNITS_A_SPACE = 1_000_000
_UNITS_A_LINEUP = 100_000
_UNITS_A_START = 5_000  # stage and layer
_SEEDS_SHARE = 0.5  # of the budget
_SYNTHESIS_SHARE = 0.25  # of the time limit, in units of work, after the rest
_SPREAD_SHARE = 0.5  # of the time limit
_LIMITS = ("optimal", "deterministic", "wall", "killed")
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
    it was stopped before the first plan, ``PriceError`` (range) where the best step is longer than a plan can state.
    """
    check_options(problem, options)
    return _Search(problem, options, listener or Listener()).run()


def _if_in_range(time_ns: int | None) -> int | None:
    """None for what no document can state."""
    return None if time_ns is None or time_ns > LongestDuration else time_ns


class _Search:
    def __init__(self, problem: Problem, options: SearchOptions, listener: Listener) -> None:
        self._options = options
        self._listener = listener
        self._costs = ProblemCosts(problem)
        self._started_s = self._said_s = time.monotonic()
        self._next_sent_s = 0.0
        self._phase, self._done, self._spaces = "bounds", 0, list[Space]()
        self._spaces_seen: list[Space] = []
        self._refusal: PlanError | None = None
        self._has_open_ways = False  # a way out was not looked through to its end
        self._spread = SpreadRun(self._costs, options, self._deadline_s(_SPREAD_SHARE), self._asked_to_stop)
        leaves_time = options.schedules == "synthesised"
        self._contest = Contest(
            costs=self._costs,
            budget=self._budget(_BUDGET_SHARE),
            deadline_s=self._deadline_s(_NAMED_WALL_SHARE if leaves_time else _WALL_SHARE),
            last_deadline_s=self._deadline_s(_WALL_SHARE),
            stop=self._asked_to_stop,
            on_better=self._on_better,
            seed=options.seed,
        )

    def run(self) -> Answer:
        limit = self._until_stopped(self._search_named)
        best = self._contest.best
        if self._options.schedules == "synthesised" and best is not None and not self._listener.stop():
            limit = max(limit, self._until_stopped(self._search_orders), key=_LIMITS.index)
        return self._answer(limit)

    def _until_stopped(self, part: Callable[[], bool]) -> Limit:
        """What ended a part of the search; it says itself whether it has left nothing out."""
        try:
            return "optimal" if part() else "deterministic"
        except Stopped as stopped:
            return "wall" if stopped.limit == "wall" else "deterministic"

    def _answer(self, limit: Limit) -> Answer:
        best, found = self._contest.best, self._spaces_seen
        limit = self._spread.limit_with(limit)
        if best is not None or self._spread.best is not None:
            plan = self._written(best, limit) if best is not None else self._spread_plan(limit)
            return Answer(status="succeeded", limit=limit, plan=plan, warnings=self._warnings(found))
        if limit == "wall":
            raise SolverError("no plan was found before the search was ended", code="no_plan_in_time")
        why = reasons(self._costs, found, self._constraints)
        ways = relaxations(self._costs.problem, self._options, why, self._has_plan)
        found_warnings = self._warnings(found)
        return Answer(status="infeasible", limit=limit, reasons=why, relaxations=ways, warnings=found_warnings)

    def first_plan(self) -> Entry | None:
        """Some plan, unwritten; the listener stops the search when it has heard of one."""
        self._until_stopped(self._search_named)
        return self._contest.best

    def _has_plan(self, problem: Problem, options: SearchOptions) -> bool:
        """Whether a relaxed problem has a plan: a search up to its first one, in what is left of the time."""
        end_s, found = self._deadline_s(_WALL_SHARE), list[Plan]()

        def enough() -> bool:
            return bool(found) or time.monotonic() > end_s or self._listener.stop()

        if enough():
            self._has_open_ways = True
            return False
        check_options(problem, options)
        inner = _Search(problem, options, Listener(on_incumbent=found.append, stop=enough))
        works = inner.first_plan() is not None
        self._has_open_ways |= not works and enough()
        return works

    def _search_named(self) -> bool:
        """Whether no plan with a named order is shorter."""
        self._look_for_spread()
        for degrees in self._degrees():
            self._contest.spend(_UNITS_A_SPACE)
            self._spaces_seen.append(make_space(self._costs, degrees, self._constraints))
        usable = [space for space in self._spaces_seen if space.classes]
        self._spaces = sorted(usable, key=lambda space: (space.bound_ns, space.degrees))
        return self._look_everywhere()

    def _search_orders(self) -> bool:
        """Whether no order of any plan is shorter: only the bound can tell."""
        self._phase = "synthesis"
        self._contest.extend(self._budget(_SYNTHESIS_SHARE), deadline_s=self._deadline_s(_WALL_SHARE))
        floor_ns = self._bound_ns
        reordering = Reordering(self._contest, self._constraints, floor_ns)
        try:
            reordering.run()
        finally:
            self._refusal = reordering.refusal
        return self._contest.best_ns <= floor_ns

    def _budget(self, share: float) -> int:
        return int(share * self._options.time_limit_ns) if self._options.mode == "reproducible" else _NO_BUDGET

    def _deadline_s(self, share: float) -> float:
        return self._started_s + share * self._options.time_limit_ns / 1e9

    def _warnings(self, spaces: Sequence[Space]) -> tuple[Reason, ...]:
        found = warnings(self._costs, spaces, self._options)
        if self._has_open_ways:
            text = "the time was up before all ways out were looked for: there may be others than those listed"
            found = (*found, Reason(code="ways_out_cut", message=text))
        if self._refusal is None:
            return found
        return (
            *found,
            Reason(code="no_synthesis", message=f"of some plans no order was made: {self._refusal.message}"),
        )

    @property
    def _constraints(self) -> Constraints:
        return self._options.constraints

    def _degrees(self) -> Iterator[Degrees]:
        if not self._spread.stands_alone:
            yield from allowed_degrees(self._costs.problem, self._constraints)

    def _look_for_spread(self) -> None:
        """Its step is what everything else must beat."""
        self._phase = "spread"
        self._spread.run()
        if self._spread.best is not None:
            self._contest.known_ns = self._spread.best.step_ns
        if self._spread.best is not None and self._spread.best.step_ns <= LongestDuration:
            self._listener.on_incumbent(self._spread_plan("killed"))
        self._phase = "bounds"

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
        spread = [] if self._spread.bound_ns is None else [self._spread.bound_ns]
        return min([*spread, *(space.bound_ns for space in self._spaces)])

    def _on_better(self, entry: Entry) -> None:
        """Hand it out, though not so often that writing and checking takes more than a tenth of the time."""
        now_s = time.monotonic()
        if now_s >= self._next_sent_s and entry.step_ns <= LongestDuration:
            self._listener.on_incumbent(self._written(entry, "killed"))
            written_s = time.monotonic()
            self._next_sent_s = written_s + max(_SAY_EVERY_S, 10 * (written_s - now_s))

    def _say(self) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s < _SAY_EVERY_S:
            return
        self._said_s = now_s
        has_plan = self._contest.best is not None or self._spread.best is not None
        progress = Progress(
            phase=self._phase,
            incumbent_ns=_if_in_range(self._contest.best_ns if has_plan else None),
            bound_ns=_if_in_range(self._bound_ns if self._spaces else self._spread.bound_ns),
            candidates_done=self._done,
            candidates_total=len(self._spaces),
        )
        self._listener.on_progress(progress)

    def _written(self, entry: Entry, limit: Limit) -> Plan:
        """The plan with its prediction, checked as if somebody else had made it."""
        made = self._contest.written(entry)
        assert made.timeline.step_ns == entry.step_ns, f"scored {entry.step_ns}, simulated {made.timeline.step_ns}"
        family = entry.candidate.family if entry.method is None else "synthesised"
        return finished_plan(made, self._costs.problem, self._origin(family, entry.method, limit, self._bound_ns))

    def _spread_plan(self, limit: Limit) -> Plan:
        assert self._spread.best is not None
        assert self._spread.bound_ns is not None
        bound_ns = self._bound_ns if self._spaces else self._spread.bound_ns
        return finished_plan(self._spread.best.made, self._costs.problem, self._origin("1f1b", None, limit, bound_ns))

    def _origin(self, family: str, method: str | None, limit: Limit, bound_ns: int) -> Origin:
        search_ns = round((time.monotonic() - self._started_s) * NS_PER_SECOND)
        return Origin(family, method, bound_ns, self._options.seed, limit, search_ns)
