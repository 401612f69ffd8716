"""Several updates a step: gradients by the update that gathers them, weights by the version that a visit has seen.

Every rank applies update n of a weight once, at the first U(., n) of a stage that holds it, when the sum over all its
holders is done (docs/plan-contract.md section 5). There is no common gradient norm and no common decision to skip: an
update waits only for stages that share its weights.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.executor.gathering import update_of_visit
from planner.executor.messages import ConnectionLostError
from planner.executor.sums import BucketPlan
from planner.executor.team import Circle
from planner.executor.versions import Version, WeightVersions
from planner.executor.weights import WeightTable
from planner.plan.instruction import Instruction, Visit
from planner.plan.plan import Plan

__all__ = ["Rolling", "Trained"]

_Action = Callable[[], None]


class Trained(NamedTuple):
    """What a rank trains: ``buckets`` are those that it has a part in."""

    table: WeightTable
    parameters: Mapping[str, nn.Parameter]
    buckets: tuple[BucketPlan, ...]
    circles: Mapping[tuple[int, ...], Circle]


@dataclass
class _Gradients:
    """Of one update; ``flats`` by the number of the bucket, whose parts they are in ``by_name`` from the start."""

    by_name: dict[str, Tensor] = field(default_factory=dict)
    flats: dict[int, Tensor] = field(default_factory=dict)


class Rolling:
    """The updates of one rank in a step that has several."""

    def __init__(
        self, plan: Plan, trained: Trained, *, versions: WeightVersions, optimizer: Optimizer, rank: int
    ) -> None:
        self._plan, self._trained, self._versions, self._optimizer = plan, trained, versions, optimizer
        self._updates = update_of_visit(plan)
        self._names = _names_by_stage(plan, trained.table, trained.parameters, rank=rank)
        self._gradients: dict[int, _Gradients] = {}
        self._works: dict[int, list[dist.Work]] = defaultdict(list)  # by update
        self._held: dict[Visit, Version] = {}
        self._applied: set[tuple[int, str]] = set()  # (update, weight)

    def begin(self) -> None:
        self._gradients.clear()
        self._works.clear()
        self._held.clear()
        self._versions.begin()

    def end(self) -> None:
        self._versions.end()

    def forward(self, visit: Visit, action: _Action) -> _Action:
        """F, which fixes the version of the visit; without a backward it lets it go at once."""
        names, versions, held = self._names[visit.stage], self._versions, self._held
        keeps = any(operation in self._plan.visit_operations[visit] for operation in "BIW")

        def forward() -> None:
            version = versions.hold(names)
            action()
            if keeps:
                held[visit] = version
            else:
                versions.release(version)

        return forward

    def backward(self, instruction: Instruction, action: _Action) -> _Action:
        """R, B, I or W with the weights of its F; weight gradients go to the update that gathers the visit."""
        visit, held, versions = instruction.visit, self._held, self._versions
        update = self._updates.get(visit)
        is_last = self._plan.visit_operations[visit].rstrip("R").endswith(instruction.operation)
        recomputes = self._plan.stages[visit.stage].recomputes

        def backward() -> None:
            version = held[visit]
            gradients = self._of(update).by_name if update is not None else {}
            for name, alias in version.items():
                alias.grad = gradients.get(name)
            with versions.installed(version) if recomputes else nullcontext():
                action()
            for name, alias in version.items():
                if alias.grad is not None:
                    gradients[name] = alias.grad
                alias.grad = None
            if is_last:
                versions.release(held.pop(visit))

        return backward

    def start(self, piece: int, update: int) -> _Action:
        """The sums of a piece; this rank may hold a part that no visit of its own has worked on."""
        buckets = [(number, plan) for number, plan in enumerate(self._trained.buckets) if plan.piece == piece]
        circles, works = self._trained.circles, self._works

        def start() -> None:
            flats = self._of(update).flats
            try:
                works[update] += [circles[plan.holders].allreduce([flats[number]]) for number, plan in buckets]
            except RuntimeError as error:
                raise ConnectionLostError(None, error) from error

        return start

    def update(self, instruction: Instruction) -> _Action:
        """U: the weights of the stage that no U of the same number updated before it; called in the list's order."""
        number = instruction.number
        names = [name for name in self._names[instruction.stage] if (number, name) not in self._applied]
        self._applied.update((number, name) for name in names)
        parameters = self._trained.parameters
        is_last = len([one for one in self._applied if one[0] == number]) == len(parameters)

        def update() -> None:
            self._finish(number)
            gradients = self._of(number).by_name
            self._versions.leave_old(names)
            for name in names:
                parameters[name].grad = gradients.get(name)
            self._optimizer.step()
            for name in names:
                parameters[name].grad = None
            if is_last:
                del self._gradients[number]

        return update

    def _finish(self, update: int) -> None:
        """The sums of an update that were started are done."""
        try:
            for work in self._works.pop(update, ()):
                work.wait()
        except RuntimeError as error:
            raise ConnectionLostError(None, error) from error

    def _of(self, update: int) -> _Gradients:
        if update not in self._gradients:
            self._gradients[update] = self._fresh()
        return self._gradients[update]

    def _fresh(self) -> _Gradients:
        found, parameters = _Gradients(), self._trained.parameters
        for number, plan in enumerate(self._trained.buckets):
            own = [parameters[weight.name] for weight in plan.weights]
            found.flats[number] = flat = torch.zeros(plan.num_elements, dtype=own[0].dtype, device=own[0].device)
            parts = torch.split(flat, [parameter.numel() for parameter in own])
            for weight, part in zip(plan.weights, parts, strict=True):
                found.by_name[weight.name] = part.view(weight.shape)
        return found


def _names_by_stage(
    plan: Plan, table: WeightTable, parameters: Mapping[str, nn.Parameter], *, rank: int
) -> dict[int, Sequence[str]]:
    """The trained weights of each stage of the rank."""
    return {
        number: [name for name in parameters if set(table.weights[name].layers) & set(stage.layers)]
        for number, stage in enumerate(plan.stages)
        if rank in plan.groups[stage.group]
    }
