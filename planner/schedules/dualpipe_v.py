"""DualPipeV: a V whose micro-batches pass each other in forward and backward, mostly with a fused backward.

Method: DeepSeek's DualPipe cut in half, as torch 2.13's ``ScheduleDualPipeV`` orders it, without overlapped pairs: what
may overlap stands one behind the other. Stages of group d: a = d, b = 2p-1-d.
"""

from collections import Counter, deque

from planner.plan.instruction import BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, FORWARD, Instruction, Operation
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.placements import one_route, v
from planner.units import counted

__all__ = ["DUALPIPE_V"]


class _Writer:
    """The next forward and the next backward of a stage are of its next micro-batch; W in the order of the I."""

    def __init__(self, num_groups: int, group: int) -> None:
        self.instructions: list[Instruction] = []
        self._stages = {"a": group, "b": 2 * num_groups - 1 - group}
        self._next: Counter[str] = Counter()
        self._pending: deque[Instruction] = deque()

    def add(self, pattern: str, times: int) -> None:
        """``aF``, ``bB``, ``aI`` by stage and operation; ``W`` = the oldest that is pending."""
        for _ in range(times):
            for word in pattern.split(" "):
                if word == BACKWARD_WEIGHT:
                    self.instructions.append(self._pending.popleft())
                elif word[1] == FORWARD:
                    self._append(FORWARD, word[0], kind="F")
                else:
                    self._append(BACKWARD if word[1] == BACKWARD else BACKWARD_INPUT, word[0], kind="backward")

    def _append(self, operation: Operation, letter: str, *, kind: str) -> None:
        number = self._next[letter + kind]
        self._next[letter + kind] = number + 1
        instruction = Instruction(operation, self._stages[letter], number)
        self.instructions.append(instruction)
        if operation == BACKWARD_INPUT:
            self._pending.append(instruction._replace(operation=BACKWARD_WEIGHT))


def _dualpipe_v(shape: FamilyShape) -> PlanLists:
    p, m = shape.num_groups, shape.num_micro_batches
    return one_route(shape, v(p), [_stream(p, group, m) for group in range(p)])


def _stream(p: int, d: int, m: int) -> list[Instruction]:
    writer, outer, inner = _Writer(p, d), p - d - 1, d + 1
    writer.add("aF", 2 * outer)
    writer.add("aF bF", inner)
    writer.add("bI W bF", outer)
    writer.add("aF bB bF aB", m - 2 * p + inner)
    writer.add("bB bF aB", outer)
    fused = inner // 2
    writer.add("bB aB", fused)
    if d % 2:
        writer.add("bI aI", inner - fused)
    else:
        writer.add("bB aI", 1)
        writer.add("bI aI", inner - fused - 1)
    writer.add("W aI", outer)
    writer.add("W", inner)
    return writer.instructions


def _refuse(shape: FamilyShape) -> str | None:
    if shape.num_micro_batches < 2 * shape.num_groups:
        found = counted(shape.num_micro_batches, "micro-batch")
        return f"found {found}, expected at least {2 * shape.num_groups}: twice the groups"
    return None


DUALPIPE_V = FamilySpec(
    name="dualpipe-v",
    summary="a V whose forwards and backwards take turns, without overlapped pairs; half the bubble of ZB-H1",
    source="DeepSeek 2025, DualPipe cut in half (torch 2.13 ScheduleDualPipeV)",
    placement="v",
    build=_dualpipe_v,
    refuse=_refuse,
)
