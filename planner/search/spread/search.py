"""The best spread plan of a problem with a certificate: arms in order of their bounds.

Arms are refined together, the most promising ones first, until the rest is excluded by its bounds. Every cut on the way
is worth what the formula of ``planner.search.spread.model`` says; the arms that are left are refined once more with
messages counted on every stage, which gives cuts of another kind. The best few are written out and simulated. The bound
holds for that formula inside the arms: one route, one stage a group, every stage on one node group, 1F1B.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.costs.price import ProblemCosts
from planner.problem.options import Constraints, Target
from planner.search.chains.chain import Chain
from planner.search.chains.refine import Certificate, Effort, refine_chains
from planner.search.contest import Made
from planner.search.partition import NO_PLAN, Cut
from planner.search.space import layer_graph
from planner.search.spread.arms import Arm, Reach, arms, tensor_degrees
from planner.search.spread.model import model_step_ns
from planner.search.spread.plans import spread_plan
from planner.simulate.simulate import simulate

__all__ = ["Spread", "SpreadSearch", "reach_of"]

_TOLERANCE = 0.0005
_ARMS_AT_ONCE = 8
_MOST_TABLE_BYTES = 100_000_000  # of one evaluation
_MOST_EVALUATIONS = 1_000
_MOST_SIMULATED = 3


class Spread(NamedTuple):
    """A plan that fits, and what no cut of any arm can beat; both values by the formula."""

    made: Made
    arm: Arm
    cut: Cut
    model_ns: int
    model_bound_ns: int

    @property
    def step_ns(self) -> int:
        return self.made.timeline.step_ns


class _Opened(NamedTuple):
    """What the engine knows of several arms together."""

    step_ns: int
    bound_ns: int


class _Ranked(NamedTuple):
    model_ns: int
    arm: Arm
    cut: Cut


def _in_order(found: Iterable[Arm]) -> list[Arm]:
    return sorted(found, key=lambda arm: (arm.bound_ns, arm.degrees))


def _solvable(arm: Arm) -> Arm | None:
    """With as many tensor degrees as the exact programme can hold."""
    found: Arm | None = arm
    while found is not None and found.table_bytes > _MOST_TABLE_BYTES:
        found = found.coarser()
    return found if found is not None and found.fewest_stages <= found.most_stages else None


def reach_of(costs: ProblemCosts, constraints: Constraints, target: Target) -> Reach:
    """How far the plans of a target may be spread."""
    if target == "any":
        return Reach(tensor_degrees(costs, constraints), shares_optimizer=True)
    allowed = () if constraints.tensor_degrees and 1 not in constraints.tensor_degrees else (1,)
    return Reach({group.name: allowed for group in costs.problem.cluster.node_groups}, shares_optimizer=False)


@dataclass
class SpreadSearch:
    """``go_on``: asked between evaluations; it may raise to end everything."""

    costs: ProblemCosts
    constraints: Constraints
    reach: Reach
    go_on: Callable[[], bool]
    evaluations: int = 0
    was_ended: bool = False  # by ``go_on``
    _ranked: dict[tuple[int, Cut], _Ranked] = field(default_factory=dict)

    def arms(self) -> list[Arm]:
        """Every arm, the least bound first."""
        graph = layer_graph(self.costs.problem.profiles[0])
        every = arms(self.costs, self.constraints, self.reach, graph)
        return _in_order(arm for arm in every if arm.fewest_stages <= arm.most_stages)

    def best(self, every: Sequence[Arm]) -> Spread | None:
        """Of all arms; None where nothing fits, or nothing was found in time.

        Arms too large for the exact programme take part without their smallest tensor degrees, then as a whole, for
        the bound.
        """
        large = [arm for arm in every if arm.table_bytes > _MOST_TABLE_BYTES]
        solvable = _in_order(arm for arm in map(_solvable, every) if arm is not None)
        left, solved = self._opened(solvable, NO_PLAN)
        if left and self._goes_on():
            self._refined([(arm, arm.patient_chain) for arm in left], NO_PLAN)
        _, bounded = self._opened(large, solved.step_ns)
        bound_ns = min(solved.bound_ns, bounded.bound_ns)
        simulated = [self._simulated(entry, bound_ns) for entry in self._few_best()]
        fitting = [spread for spread in simulated if spread.made.fits]
        return min(fitting, key=lambda spread: spread.step_ns, default=None)

    def _opened(self, waiting: Sequence[Arm], known_ns: int) -> tuple[list[Arm], _Opened]:
        """Refine arms until the rest cannot be better than what is known; those that may still hold something."""
        step_ns, bound_ns, rest, left = known_ns, NO_PLAN, list(waiting), list[Arm]()
        while rest and rest[0].bound_ns < step_ns and self._goes_on():
            batch, rest = rest[:_ARMS_AT_ONCE], rest[_ARMS_AT_ONCE:]
            last = self._refined([(arm, arm.chain) for arm in batch], step_ns)
            left += [batch[number] for number in sorted({last.chain, *last.open_chains}) if number >= 0]
            bound_ns, step_ns = min(bound_ns, last.bound_ns), min(step_ns, last.step_ns)
        bound_ns = min(bound_ns, rest[0].bound_ns) if rest else bound_ns
        return left, _Opened(step_ns, bound_ns)

    def _goes_on(self) -> bool:
        self.was_ended = self.was_ended or not self.go_on()
        return self.evaluations < _MOST_EVALUATIONS and not self.was_ended

    def _refined(self, batch: Sequence[tuple[Arm, Chain]], known_ns: int) -> Certificate:
        """The last certificate; every cut on the way is ranked."""
        before = self.evaluations
        for found in refine_chains(
            [chain for _, chain in batch], Effort(_TOLERANCE, _MOST_TABLE_BYTES), cutoff_ns=known_ns
        ):
            self.evaluations = before + found.evaluations
            if found.cut is not None:
                arm = batch[found.chain][0]
                key = (id(arm), found.cut)
                if key not in self._ranked:
                    self._ranked[key] = _Ranked(model_step_ns(arm, found.cut), arm, found.cut)
            if not self._goes_on():
                break
        return found

    def _few_best(self) -> Iterator[_Ranked]:
        yield from sorted(self._ranked.values(), key=lambda entry: entry.model_ns)[:_MOST_SIMULATED]

    def _simulated(self, entry: _Ranked, bound_ns: int) -> Spread:
        plan = spread_plan(entry.arm, entry.cut)
        prices = self.costs.price(plan)
        return Spread(Made(plan, prices, simulate(plan, prices)), entry.arm, entry.cut, entry.model_ns, bound_ns)
