"""Orders made for the very costs of the best plans: which plans, from where, with how much effort.

1. Starts: the best plans that the search has met, one of each shape; then every placement (line, loop, V, wave) on the
   device orders of the best of them, cut evenly. Each with whole backwards and, where the profiles have I and W of
   every layer, with split ones.
2. Those whose bound is below the best step get a little effort each, the most promising first; the best few get more.
3. Borders of the best plan move by one layer, the order is made anew, as long as that helps.

Everything is counted in units of work and ends with the budget; no plan is offered that is not simulated and fits.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, get_args

from planner.errors import PlanError
from planner.plan.instruction import Instruction, stream_text
from planner.plan.plan import Plan
from planner.problem.options import Constraints, Family
from planner.schedules.families import FAMILIES
from planner.schedules.split import fused, split_in_place
from planner.search.assemble import assemble
from planner.search.candidate import Candidate, Choice
from planner.search.contest import Contest, Entry
from planner.search.enumeration import even_batches, have_parts
from planner.search.lineup import Lineup
from planner.search.orders import ChainShape, splits_backward
from planner.search.space import Space
from planner.search.synthesis.bounds import best_step_bound
from planner.search.synthesis.plans import SynthesisedPlan, order_problem, synthesised_plan
from planner.search.synthesis.synthesise import Effort

__all__ = ["Reordering"]

_MOST_INSTRUCTIONS = 100_000
_MOST_MET = 12  # plans that the search has met
_MOST_LINEUPS = 4  # orders of devices that get every placement
_CUTS = 4  # of each placement
_REFINED = 3
_UNITS_AN_INSTRUCTION = 10_000
_WALKED = 2_000_000  # instructions, move by move
_PLAIN: dict[str, Family] = {"line": "1f1b", "loop": "interleaved", "v": "wave", "wave": "wave"}


class _Start(NamedTuple):
    """A plan whose order is to be made; ``family``: where its stages and its first order come from."""

    space: Space
    candidate: Candidate
    splits: bool
    family: str


class _Tried(NamedTuple):
    """``method``: how its order was found."""

    start: _Start
    found: SynthesisedPlan
    method: str

    @property
    def step_ns(self) -> int:
        return self.found.timeline.step_ns


@dataclass
class Reordering:
    """``floor_ns``: no plan takes a shorter step."""

    contest: Contest
    constraints: Constraints
    floor_ns: int
    refusal: PlanError | None = None  # why some plan's order cannot be made
    _done: set[tuple[int, Candidate, bool]] = field(default_factory=set)

    def run(self) -> None:
        """Until nothing is left to try. Raises ``Stopped`` with the budget."""
        tried = [found for start in self._promising() if (found := self._try(start, _little())) is not None]
        best = sorted(tried, key=lambda one: one.step_ns)[:_REFINED]
        refined = [self._refined(one) for one in best]
        for one in sorted(refined, key=lambda one: one.step_ns)[:1]:
            self._climb(one)

    def _promising(self) -> Iterator[_Start]:
        """Starts whose bound is below the best step, least bound first."""
        ranked = []
        for number, start in enumerate([*self._met(), *self._placed()]):
            key = (id(start.space), start.candidate, start.splits)
            if key not in self._done and _size(start) <= _MOST_INSTRUCTIONS:
                self._done.add(key)
                bound_ns = self._bound_ns(start)
                if bound_ns is not None:
                    ranked.append((bound_ns, number, start))
        for bound_ns, _, start in sorted(ranked, key=lambda one: one[:2]):
            if bound_ns < self.contest.best_ns and self.contest.best_ns > self.floor_ns:
                yield start

    def _met(self) -> Iterator[_Start]:
        for entry in self.contest.met()[:_MOST_MET]:
            yield from self._both(entry.space, entry.candidate, entry.candidate.family)

    def _placed(self) -> Iterator[_Start]:
        """Every placement on the device orders of the best plans."""
        lineups = {(id(e.space), e.candidate.classes): e for e in reversed(self.contest.met())}
        for entry in list(reversed(lineups.values()))[:_MOST_LINEUPS]:
            classes, space = entry.candidate.classes, entry.space
            for family, legs in self._placements(len(classes)):
                lineup = Lineup(space, self.contest.costs, family, classes, legs * len(classes))
                if self._is_allowed(lineup):
                    for batch in even_batches(lineup, most=_CUTS):
                        for row in range(len(batch.cuts)):
                            yield from self._both(space, lineup.candidate(batch, row), family)

    def _placements(self, num_groups: int) -> Iterator[tuple[Family, int]]:
        """Those of the allowed families, with plain families that lie there."""
        allowed = {FAMILIES[family].placement for family in self._families}
        if "line" in allowed:
            yield "1f1b", 1
        for legs in range(2, self.constraints.most_legs + 1 if num_groups > 1 else 0):
            if "loop" in allowed:
                yield "interleaved", legs
            if "wave" in allowed or ("v" in allowed and legs == 2):
                yield "wave", legs

    @property
    def _families(self) -> tuple[Family, ...]:
        return self.constraints.families or get_args(Family)

    def _is_allowed(self, lineup: Lineup) -> bool:
        most = self.constraints.most_stages or lineup.space.num_layers
        count = lineup.num_stages
        return count <= min(most, lineup.space.num_layers) and self.constraints.num_stages in (None, count)

    def _both(self, space: Space, candidate: Candidate, family: str) -> Iterator[_Start]:
        """With whole backwards and with split ones; a stage that recomputes keeps its whole ones."""
        plain = candidate._replace(family=_PLAIN[FAMILIES[candidate.family].placement])
        keeps = not all(stage.recomputes for stage in candidate.stages)
        if keeps and have_parts(space, candidate.classes) and any(map(splits_backward, self._families)):
            yield _Start(space, plain, True, family)
        yield _Start(space, plain, False, family)

    def _bound_ns(self, start: _Start) -> int | None:
        """None where its order cannot be made, or a layer does not lie where it is pinned."""
        self.contest.spend_on_plan()
        if not all(
            start.space.full(s.device_class).allowed[s.first_layer, s.end_layer] for s in start.candidate.stages
        ):
            return None
        plan = self._plan(start)
        try:
            return best_step_bound(order_problem(plan, self.contest.costs.price(plan))).step_ns
        except PlanError as error:
            self.refusal = self.refusal or error
            return None

    def _plan(self, start: _Start) -> Plan:
        plan = assemble(self.contest.costs, start.space, start.candidate)
        return _split(plan) if start.splits else _whole(plan)

    def _try(self, start: _Start, effort: Effort, before: _Tried | None = None) -> _Tried | None:
        """Offer what was found, with the order of ``before`` among the tried ones; None where nothing fits."""
        self.contest.spend_on_plan()
        plan = self._plan(start)
        if before is not None:
            plan = _with_streams(plan, before.found.plan.streams)
        prices = self.contest.costs.price(plan)
        found = synthesised_plan(plan, prices, effort, on_work=self._count)
        peaks = found.timeline.peak_bytes or ()
        if any(need > have for need, have in zip(peaks, prices.limit_bytes, strict=True)):
            return None
        method = found.method.replace("given", start.family if before is None else before.method, 1)
        entry = Entry(
            found.timeline.step_ns, start.space, start.candidate, found.plan, f"{method}, from {start.family}"
        )
        self.contest.offer_made(entry)
        return _Tried(start, found, method)

    def _count(self, instructions: int) -> None:
        self.contest.spend(_UNITS_AN_INSTRUCTION * instructions)

    def _refined(self, tried: _Tried) -> _Tried:
        if self.contest.best_ns <= self.floor_ns:
            return tried
        return self._try(tried.start, _much(_size(tried.start)), tried) or tried

    def _climb(self, tried: _Tried) -> None:
        """Move borders by one layer as long as that shortens the step."""
        moved = True
        while moved and self.contest.best_ns > self.floor_ns:
            moved = False
            for start in self._neighbours(tried.start):
                found = self._try(start, _little(), tried)
                if found is not None and found.step_ns < tried.step_ns:
                    tried, moved = found, True
                    break
        self._refined(tried)

    def _neighbours(self, start: _Start) -> Iterator[_Start]:
        """Not yet tried, their bound below the best step."""
        for stages in _moved_borders(start.candidate.stages):
            near = start._replace(candidate=start.candidate._replace(stages=stages))
            key = (id(near.space), near.candidate, near.splits)
            if key not in self._done:
                self._done.add(key)
                bound_ns = self._bound_ns(near)
                if bound_ns is not None and bound_ns < self.contest.best_ns:
                    yield near


def _little() -> Effort:
    return Effort(templates=4, shakes=6, moves=0)


def _much(num_instructions: int) -> Effort:
    return Effort(templates=24, shakes=60, moves=min(6_000, _WALKED // num_instructions))


def _size(start: _Start) -> int:
    """Instructions, about."""
    candidate, degrees = start.candidate, start.space.degrees
    shape = ChainShape(candidate.family, candidate.num_groups, len(candidate.stages), degrees.num_micro_batches)
    return shape.num_instructions * 3 // 2 if start.splits else shape.num_instructions


def _moved_borders(stages: tuple[Choice, ...]) -> Iterator[tuple[Choice, ...]]:
    cuts = [stages[0].first_layer, *(stage.end_layer for stage in stages)]
    for border in range(1, len(stages)):
        for move in (-1, 1):
            moved = [*cuts[:border], cuts[border] + move, *cuts[border + 1 :]]
            if all(one < other for one, other in pairwise(moved)):
                yield tuple(
                    stage._replace(first_layer=first, end_layer=end)
                    for stage, (first, end) in zip(stages, pairwise(moved), strict=True)
                )


def _split(plan: Plan) -> Plan:
    """Every B of a stage that keeps everything becomes I W."""
    keeps = {number for number, stage in enumerate(plan.stages) if not stage.recomputes}
    return _changed(plan, [[one for i in stream for one in _parts(i, keeps)] for stream in plan.instructions])


def _parts(instruction: Instruction, keeps: set[int]) -> list[Instruction]:
    return split_in_place([instruction]) if instruction.stage in keeps else [instruction]


def _whole(plan: Plan) -> Plan:
    return _changed(plan, [fused(stream) for stream in plan.instructions])


def _changed(plan: Plan, streams: list[list[Instruction]]) -> Plan:
    slices = [batch.num_slices for batch in plan.micro_batches]
    return _with_streams(plan, tuple(stream_text(stream, slices) for stream in streams))


def _with_streams(plan: Plan, streams: tuple[str, ...]) -> Plan:
    """Which checks itself again."""
    return Plan.model_validate(plan.model_copy(update={"streams": streams}).model_dump())
