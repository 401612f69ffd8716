"""The best plan so far, and what a candidate must do to replace it: a shorter step that fits.

Scores of plain chains come from ``planner.search.lineup``; all others are simulated as whole plans. Work is counted in
units of about a nanosecond, so that a search with a budget ends at the same place on every machine.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from planner.costs.price import ProblemCosts
from planner.costs.prices import PlanPrices
from planner.plan.plan import Plan
from planner.schedules.families import FAMILIES
from planner.search.assemble import assemble
from planner.search.candidate import Candidate
from planner.search.fitting import fitting
from planner.search.lineup import Batch, Lineup
from planner.search.orders import ChainShape, chain_order
from planner.search.space import Space
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline

__all__ = ["Contest", "Entry", "Made", "Stopped"]

_ROWS_AT_ONCE = 512
_UNITS_AN_INSTRUCTION = 8_000  # of one numpy step, whatever its length
_UNITS_AN_ORDERED = 5_000  # instruction of a family's streams, made and brought in order
_UNITS_A_ROW = 8
_UNITS_A_BATCH = 200_000  # a stage: bounds, then memory
_UNITS_A_CUT = 100
_UNITS_A_FIT = 1_000
_UNITS_A_PLAN = 5_000_000  # assembled, priced and simulated


class Stopped(Exception):  # noqa: N818  # not an error: the search ends with what it has
    """The budget, the time or the caller's patience is at an end; ``limit`` says which."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class Made(NamedTuple):
    """A candidate written out and simulated."""

    plan: Plan
    prices: PlanPrices
    timeline: Timeline

    @property
    def fits(self) -> bool:
        """Every group has the memory that it needs."""
        peaks = self.timeline.peak_bytes or ()
        return all(need <= limit for need, limit in zip(peaks, self.prices.limit_bytes, strict=True))


class Entry(NamedTuple):
    """A plan that fits. ``plan``: with an order made for its costs, and ``method``, how; None: of its family."""

    step_ns: int
    space: Space
    candidate: Candidate
    plan: Plan | None = None
    method: str | None = None


@dataclass
class Contest:
    """``budget``: units of work. ``stop``: asked by the caller.

    ``deadline_s``: of ``time.monotonic``, once there is a plan; before the first it is ``last_deadline_s``.
    """

    costs: ProblemCosts
    budget: int
    deadline_s: float
    last_deadline_s: float
    stop: Callable[[], bool]
    on_better: Callable[[Entry], None]
    seed: int = 0
    best: Entry | None = None
    known_ns: int = np.iinfo(np.int64).max  # a step that is known from elsewhere: only shorter ones count
    spent: int = 0
    refused: int = 0  # candidates that the simulator's memory walk refused
    _seen: set[tuple[int, Candidate]] = field(default_factory=set)
    _met: dict[tuple[int, str, tuple[int, ...], int], Entry] = field(default_factory=dict)
    _ordered: set[ChainShape] = field(default_factory=set)

    @property
    def best_ns(self) -> int:
        return self.best.step_ns if self.best is not None else self.known_ns

    def spend(self, units: int) -> None:
        """Count work. Raises ``Stopped`` where there is none left to do."""
        self.spent += units
        if self.stop():
            raise Stopped("wall")
        if time.monotonic() > (self.last_deadline_s if self.best is None else self.deadline_s):
            raise Stopped("wall")
        if self.spent > self.budget:
            raise Stopped("deterministic")

    def extend(self, units: int, *, deadline_s: float) -> None:
        """More work from here on, whatever was left."""
        self.budget, self.deadline_s = self.spent + units, deadline_s

    def simulated(self, space: Space, candidate: Candidate) -> Made:
        return self._made(assemble(self.costs, space, candidate))

    def written(self, entry: Entry) -> Made:
        return self._made(entry.plan) if entry.plan is not None else self.simulated(entry.space, entry.candidate)

    def _made(self, plan: Plan) -> Made:
        prices = self.costs.price(plan)
        return Made(plan, prices, simulate(plan, prices))

    def offer(self, space: Space, candidate: Candidate) -> None:
        """Simulate one candidate as a whole plan; each once."""
        key = (id(space), candidate)
        if key in self._seen:
            return
        self._seen.add(key)
        self.spend(_UNITS_A_PLAN)
        made = self.simulated(space, candidate)
        self.refused += not made.fits
        if made.fits and made.timeline.step_ns < self.best_ns:
            self._take(Entry(made.timeline.step_ns, space, candidate))

    def spend_on_plan(self) -> None:
        self.spend(_UNITS_A_PLAN)

    def offer_made(self, entry: Entry) -> None:
        """A plan that is simulated and fits."""
        if entry.step_ns < self.best_ns:
            self._take(entry)

    def met(self) -> list[Entry]:
        """The best plan of each shape that was the best one day or near it; shortest step first."""
        return sorted(self._met.values(), key=lambda entry: entry.step_ns)

    def offer_all(self, lineup: Lineup, batch: Batch) -> None:
        """Score every candidate of a batch whose bound is below the best step, the most promising first."""
        if not lineup.space.is_plain_chain:
            for row in range(len(batch.cuts)):
                self.offer(lineup.space, lineup.candidate(batch, row))
            return
        self.spend(lineup.num_stages * (_UNITS_A_BATCH + _UNITS_A_CUT * len(batch.cuts)))
        bounds_ns = lineup.bounds_ns(batch)
        (rows,) = np.nonzero(bounds_ns < self.best_ns)
        rows = rows[np.argsort(bounds_ns[rows], kind="stable")]
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            chosen = rows[first : first + _ROWS_AT_ONCE]
            if bounds_ns[chosen[0]] >= self.best_ns:
                return
            self._offer_fitting(lineup, batch.take(chosen[bounds_ns[chosen] < self.best_ns]))

    def _offer_fitting(self, lineup: Lineup, batch: Batch) -> None:
        self.spend(lineup.num_stages * (_UNITS_A_BATCH + _UNITS_A_FIT * len(batch.cuts)))
        fits = fitting(lineup, batch)
        (rows,) = np.nonzero(fits.possible)
        if len(rows):
            self._score(lineup, batch.take(rows), fits.sure[rows])

    def _score(self, lineup: Lineup, batch: Batch, sure: np.ndarray) -> None:
        self._spend_on_order(lineup.shape)
        order = chain_order(lineup.shape)
        self.spend(len(order) * (_UNITS_AN_INSTRUCTION + _UNITS_A_ROW * len(batch.cuts)))
        ends_ns = lineup.compute_ends_ns(batch)
        computed = ends_ns.max(axis=0)
        rows = [row for row in np.argsort(computed, kind="stable").tolist() if computed[row] < self.best_ns]
        scores = sorted((lineup.step_ns(batch, ends_ns, row), row) for row in rows)
        for step_ns, row in scores:
            entry = Entry(step_ns, lineup.space, lineup.candidate(batch, row))
            if step_ns >= self.best_ns:
                if sure[row]:
                    self._meet(entry)
                return
            if sure[row]:
                self._take(entry)
            else:
                self.offer(lineup.space, entry.candidate)

    def _meet(self, entry: Entry) -> None:
        candidate = entry.candidate
        key = (id(entry.space), FAMILIES[candidate.family].placement, candidate.classes, len(candidate.stages))
        if key not in self._met or entry.step_ns < self._met[key].step_ns:
            self._met[key] = entry

    def _spend_on_order(self, shape: ChainShape) -> None:
        """Of each shape once."""
        if shape not in self._ordered:
            self._ordered.add(shape)
            self.spend(_UNITS_AN_ORDERED * shape.num_instructions)

    def _take(self, entry: Entry) -> None:
        self.best = entry
        self._meet(entry)
        self.on_better(entry)
