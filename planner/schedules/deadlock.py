"""The error for streams that cannot go on: every blocked group with its next instruction and what that waits for."""

from collections.abc import Callable, Mapping

from planner.errors import PlanError
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import VISIT_OPERATIONS, Instruction
from planner.plan.plan import Plan

__all__ = ["deadlock_error", "instruction_text"]

_MOST_HEADS = 8  # written out; the rest is counted


def instruction_text(plan: Plan, instruction: Instruction) -> str:
    """The instruction as the plan's streams write it."""
    if instruction.operation not in VISIT_OPERATIONS:
        return instruction.text(num_slices=1)
    return instruction.text(num_slices=plan.micro_batches[instruction.number].num_slices)


def deadlock_error(
    plan: Plan, places: Mapping[int, int], *, dependencies: Dependencies, is_done: Callable[[Instruction], bool]
) -> PlanError:
    """``places``: blocked group -> place of its next instruction in its stream."""
    heads = []
    for group, place in sorted(places.items())[:_MOST_HEADS]:
        head = plan.instructions[group][place]
        missing = [wait.instruction for wait in dependencies.waits(head) if not is_done(wait.instruction)]
        waits = ", ".join(instruction_text(plan, instruction) for instruction in missing[:3])
        heads.append(f"group {group} stands at {instruction_text(plan, head)}, which waits for {waits}")
    hidden = len(places) - len(heads)
    tail = f"; and {hidden} groups more" if hidden > 0 else ""
    group, place = min(places.items())
    return PlanError(f"deadlock: {'; '.join(heads)}{tail}", code="deadlock", pointer=f"/streams/{group}/{place}")
