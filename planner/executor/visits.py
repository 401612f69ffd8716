"""The visits of one rank: what lives of each, where its rows are, and what is handed to stages of the same group."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from planner.executor.gathering import update_of_micro_batch
from planner.executor.layout import StageLayout, local_samples
from planner.executor.messages import Arrival
from planner.executor.shapes import Extent
from planner.executor.slices import CarriedTensors, SlicePlace
from planner.executor.stage import StageRunner, VisitState
from planner.plan.borders import is_handover
from planner.plan.instruction import Visit
from planner.plan.mesh import Range
from planner.plan.plan import Plan

__all__ = ["LocalVisit", "Visits"]


@dataclass
class LocalVisit:
    """One visit of this rank.

    ``rows``: its samples, counted from the micro-batch's first, which is ``first_row`` of the global batch; ``tokens``:
    its part of them, None where the whole plan leaves samples whole. ``place``: where the micro-batch has slices;
    ``update``: which one gathers its weight gradients.
    ``arrivals`` and ``returns``: posted receives of what its F and its first backward wait for.
    """

    visit: Visit
    state: VisitState
    runner: StageRunner
    rows: Range
    first_row: int
    num_tokens: int
    tokens: slice | None
    place: SlicePlace | None
    update: int
    arrivals: list[Arrival] = field(default_factory=list)
    returns: list[Arrival] = field(default_factory=list)

    @property
    def layout(self) -> StageLayout:
        return self.runner.layout

    @property
    def extent(self) -> Extent:
        return Extent(self.rows.size, self.num_tokens)

    @property
    def batch_part(self) -> slice | tuple[slice, slice]:
        """Where inputs and labels of the visit stand in the global batch."""
        rows = slice(self.first_row + self.rows.first, self.first_row + self.rows.end)
        return rows if self.tokens is None else (rows, self.tokens)

    def local(self, samples: Range) -> slice | None:
        """Part of this rank's rows; None for all of them."""
        if samples == self.rows:
            return None
        return slice(samples.first - self.rows.first, samples.end - self.rows.first)


class Visits:
    """Made when they are first asked for. ``runners``: of this rank's stages, by (route, stage)."""

    def __init__(self, plan: Plan, runners: dict[tuple[int, int], StageRunner], rank: int) -> None:
        self._plan, self._runners, self._rank = plan, runners, rank
        self._found: dict[Visit, LocalVisit] = {}
        self._carried: dict[tuple[int, int], CarriedTensors] = defaultdict(CarriedTensors)
        self._updates = update_of_micro_batch(plan)
        self._longest = max(batch.cuts[-1] for batch in plan.micro_batches)
        self._cuts_tokens = any(batch.cuts != (0, self._longest) for batch in plan.micro_batches)

    def of(self, visit: Visit) -> LocalVisit:
        if visit not in self._found:
            self._found[visit] = self._make(visit)
        return self._found[visit]

    def _make(self, visit: Visit) -> LocalVisit:
        plan, batch = self._plan, self._plan.micro_batches[visit.micro_batch]
        tokens = batch.tokens(visit.slice)
        place = None
        if batch.num_slices > 1:
            carried = self._carried[visit.stage, visit.micro_batch]
            place = SlicePlace(tokens.first, visit.slice == batch.num_slices - 1, carried)
        return LocalVisit(
            visit=visit,
            state=VisitState(),
            runner=self._runners[batch.route, visit.stage],
            rows=local_samples(plan, visit.stage, self._rank, micro_batch=visit.micro_batch),
            first_row=plan.first_sample(visit.micro_batch),
            num_tokens=tokens.size,
            tokens=slice(*tokens) if self._cuts_tokens else None,
            place=place,
            update=self._updates[visit.micro_batch],
        )

    def hand_over(self, found: LocalVisit) -> Callable[[], None]:
        """Outputs for other stages of this group: same memory, fresh leaves."""
        pairs: list[tuple[VisitState, int]] = []
        for border in found.layout.given:
            if is_handover(self._plan, border.sender, border.receiver):
                reader = self.of(found.visit._replace(stage=border.receiver))
                pairs += [(reader.state, layer) for layer in border.layers]
        given = found.state.given

        def hand_over() -> None:
            for state, layer in pairs:
                state.taken[layer] = given[layer].detach()

        return hand_over

    def hand_back(self, found: LocalVisit) -> Callable[[dict[int, Tensor]], None]:
        """Gradients for other stages of this group."""
        targets: list[tuple[VisitState, int, int]] = []
        for border in found.layout.taken:
            if is_handover(self._plan, border.sender, border.receiver):
                source = self.of(found.visit._replace(stage=border.sender))
                targets += [(source.state, border.receiver, layer) for layer in border.gradient_layers]

        def hand_back(back: dict[int, Tensor]) -> None:
            for state, reader, layer in targets:
                state.returned[reader, layer] = back[layer]

        return hand_back
