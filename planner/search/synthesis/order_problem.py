"""What synthesis is asked for: stages with their times and kept bytes on groups with limits, and what must come first.

One order problem is one placement: line, loop, V, wave or several routes, each stage on one route. Times are whole
ticks of any length (nanoseconds where the plan is real), kept bytes whole units of any size. ``I`` is the whole
backward where a stage does not split ``W``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.errors import PlanError

__all__ = ["OrderProblem"]


@dataclass(frozen=True)
class OrderProblem:
    """One entry a stage unless said; stages are numbered route by route or not, routes say their order.

    ``backward_weight_ns``: 0 where the weight gradient is part of the input gradient's instruction.
    ``forward_message_ns``: from the stage before on the route, 0 for the first and for a hand-over;
    ``backward_message_ns``: the gradient's, from the stage behind. ``num_micro_batches``: of each route.
    """

    group_of_stage: tuple[int, ...]
    routes: tuple[tuple[int, ...], ...]
    num_micro_batches: tuple[int, ...]
    forward_ns: tuple[int, ...]
    backward_input_ns: tuple[int, ...]
    backward_weight_ns: tuple[int, ...]
    forward_message_ns: tuple[int, ...]
    backward_message_ns: tuple[int, ...]
    kept: tuple[int, ...]
    limit: tuple[int, ...]  # of each group

    def __post_init__(self) -> None:
        visited = sorted(stage for route in self.routes for stage in route)
        if visited != list(range(self.num_stages)):
            message = f"found the stages {visited[:16]} on the routes, expected each of {self.num_stages} once"
            raise PlanError(message, code="route", pointer="/routes")
        if set(self.group_of_stage) != set(range(self.num_groups)):
            message = f"found stages on {len(set(self.group_of_stage))} groups, expected all of {self.num_groups}"
            raise PlanError(message, code="idle", pointer="/stages")
        if len(self.num_micro_batches) != len(self.routes) or min(self.num_micro_batches) < 1:
            message = f"found micro-batches {self.num_micro_batches[:16]}, expected at least one on each route"
            raise PlanError(message, code="idle", pointer="/micro_batches")

    @property
    def num_stages(self) -> int:
        return len(self.group_of_stage)

    @property
    def num_groups(self) -> int:
        return len(self.limit)

    @cached_property
    def route_of_stage(self) -> tuple[int, ...]:
        found = {stage: number for number, route in enumerate(self.routes) for stage in route}
        return tuple(found[stage] for stage in range(self.num_stages))

    @cached_property
    def before(self) -> tuple[int, ...]:
        """The stage before on the route; -1 for the first."""
        return self._shifted([(-1, *route[:-1]) for route in self.routes])

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """The stage behind on the route; -1 for the last."""
        return self._shifted([(*route[1:], -1) for route in self.routes])

    def _shifted(self, shifted: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        pairs = (zip(route, others, strict=True) for route, others in zip(self.routes, shifted, strict=True))
        found = {stage: other for pair in pairs for stage, other in pair}
        return tuple(found[stage] for stage in range(self.num_stages))

    def later_legs(self, stage: int) -> tuple[int, ...]:
        """Later stages of its group on its route, in order."""
        return self._later_legs[stage]

    @cached_property
    def _later_legs(self) -> tuple[tuple[int, ...], ...]:
        found: dict[int, tuple[int, ...]] = {}
        for route in self.routes:
            behind: dict[int, tuple[int, ...]] = {}
            for stage in reversed(route):
                group = self.group_of_stage[stage]
                found[stage] = behind.get(group, ())
                behind[group] = (stage, *found[stage])
        return tuple(found[stage] for stage in range(self.num_stages))

    def micro_batches_of(self, stage: int) -> int:
        return self.num_micro_batches[self.route_of_stage[stage]]

    def splits(self, stage: int) -> bool:
        """Whether its weight gradient is an instruction of its own."""
        return self.backward_weight_ns[stage] > 0

    def count(self, stage: int, operation: str) -> int:
        """How many instructions of an operation a stage has."""
        return 0 if operation == "W" and not self.splits(stage) else self.micro_batches_of(stage)

    def duration_ns(self, stage: int, operation: str) -> int:
        return {"F": self.forward_ns, "I": self.backward_input_ns, "W": self.backward_weight_ns}[operation][stage]

    def work_ns(self, stage: int) -> int:
        """Of one micro-batch."""
        return self.forward_ns[stage] + self.backward_input_ns[stage] + self.backward_weight_ns[stage]

    @cached_property
    def group_work_ns(self) -> tuple[int, ...]:
        """Of the whole step."""
        found = [0] * self.num_groups
        for stage, group in enumerate(self.group_of_stage):
            found[group] += self.work_ns(stage) * self.micro_batches_of(stage)
        return tuple(found)

    @property
    def num_instructions(self) -> int:
        return sum(self.count(stage, operation) for stage in range(self.num_stages) for operation in "FIW")
