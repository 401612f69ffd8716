"""Which update gathers what: the visits whose weight gradients it sums, and the tokens that their loss is divided by.

Method: docs/plan-contract.md section 5: a loss is divided by the counted tokens of all micro-batches that the sum
gathers. An update of a stage gathers the weight gradients that stand before its G and after the G before it.
"""

from collections import defaultdict
from collections.abc import Callable

from torch import Tensor

from planner.errors import UnsupportedPlanError
from planner.plan.instruction import Visit
from planner.plan.plan import Plan

__all__ = ["BatchPart", "count_parts", "counted_parts", "update_of_micro_batch", "update_of_visit"]

BatchPart = tuple[slice, ...]  # rows, then tokens where a micro-batch does not have all of them


def update_of_visit(plan: Plan) -> dict[Visit, int]:
    """Visit -> the update that gathers its weight gradient; only visits that have one."""
    found: dict[Visit, int] = {}
    for stream in plan.instructions:
        passed: dict[int, int] = defaultdict(int)
        for instruction in stream:
            if instruction.operation == "G":
                passed[instruction.stage] += 1
            elif instruction.operation in ("B", "W"):
                found[instruction.visit] = passed[instruction.stage]
    return found


def update_of_micro_batch(plan: Plan) -> tuple[int, ...]:
    """By micro-batch. Raises ``UnsupportedPlanError`` where its stages or slices gather it in different updates."""
    found: dict[int, dict[int, Visit]] = defaultdict(dict)
    for visit, update in sorted(update_of_visit(plan).items()):
        found[visit.micro_batch].setdefault(update, visit)
    for micro_batch, updates in sorted(found.items()):
        if len(updates) > 1:
            places = ", ".join(f"update {n} of stage {visit.stage}" for n, visit in sorted(updates.items())[:4])
            raise UnsupportedPlanError(
                "the executor does not run micro-batches whose stages gather them in different updates: found "
                f"{places} for micro-batch {micro_batch}: its loss would be divided by two counts",
                code="unsupported_plan",
                pointer="/streams",
            )
    return tuple(next(iter(found[number]), 0) for number in range(len(plan.micro_batches)))


def counted_parts(plan: Plan) -> tuple[tuple[BatchPart, ...], ...]:
    """By update: the parts of the labels that its loss is divided by; all of them at once where that is possible."""
    updates = update_of_micro_batch(plan)
    longest = max(batch.cuts[-1] for batch in plan.micro_batches)
    if max(updates) == 0 and all(batch.cuts[-1] == longest for batch in plan.micro_batches):
        return (((slice(None),),),)
    found: list[list[BatchPart]] = [[] for _ in range(max(updates) + 1)]
    first = 0
    for batch, update in zip(plan.micro_batches, updates, strict=True):
        rows = slice(first, first + batch.samples)
        found[update].append((rows,) if batch.cuts[-1] == longest else (rows, slice(0, batch.cuts[-1])))
        first += batch.samples
    return tuple(tuple(parts) for parts in found)


def count_parts(
    count: Callable[[Tensor], int], labels: Tensor, parts: tuple[tuple[BatchPart, ...], ...]
) -> tuple[int, ...]:
    """What each update's loss is divided by."""
    return tuple(sum(int(count(labels[part])) for part in of_update) for of_update in parts)
