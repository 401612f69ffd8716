"""When sums end and updates may start (docs/plan-contract.md sections 3 and 5).

The sum of a piece starts when the last of its stages is ready, on all groups. With one update a step, every update
waits for all sums (gradient norm); with several, an update waits for the sums of its own stage's pieces.
"""

from collections import defaultdict
from collections.abc import Sequence

from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction
from planner.plan.pieces import Piece, pieces
from planner.plan.plan import Plan

__all__ = ["SumClock"]


class SumClock:
    """Told of every G, it knows when each gate opens; a gate is what the updates of a (stage, number) wait for."""

    def __init__(self, plan: Plan, sum_ns: Sequence[int]) -> None:
        self._pieces = pieces(plan)
        self._sum_ns = sum_ns
        dependencies = Dependencies(plan)
        self._one_update = dependencies.num_updates == 1
        self._missing_stages: dict[tuple[int, int], int] = {}  # (piece, update)
        self._ready_ns: dict[tuple[int, int], int] = defaultdict(int)
        self._missing_sums: dict[int, int] = defaultdict(int)  # by gate
        self._open_ns: dict[int, int] = defaultdict(int)
        self._gates = {
            key: 0 if self._one_update else number
            for number, key in enumerate(
                (i.stage, i.number) for s in plan.instructions for i in s if i.operation == "U"
            )
        }
        for update in range(dependencies.num_updates):
            self._expect(update)
        self.last_end_ns = 0

    def _expect(self, update: int) -> None:
        for number, piece in enumerate(self._pieces):
            if (piece.stages[0], update) in self._gates:
                self._missing_stages[number, update] = len(piece.stages)
                for gate in self._gates_of(piece, update):
                    self._missing_sums[gate] += 1

    def _gates_of(self, piece: Piece, update: int) -> set[int]:
        return {self._gates[stage, update] for stage in piece.stages}

    @property
    def num_gates(self) -> int:
        return max(self._gates.values(), default=-1) + 1

    def gate(self, update: Instruction) -> int:
        """The gate of a U."""
        return self._gates[update.stage, update.number]

    def ready(self, instruction: Instruction, end_ns: int) -> list[tuple[int, int]]:
        """A G has ended: the gates that open by it, each with its time."""
        opened = []
        for number, piece in enumerate(self._pieces):
            if instruction.stage not in piece.stages:
                continue
            key = (number, instruction.number)
            self._missing_stages[key] -= 1
            self._ready_ns[key] = max(self._ready_ns[key], end_ns)
            if self._missing_stages[key] == 0:
                sum_end_ns = self._ready_ns[key] + self._sum_ns[number]
                opened += self._summed(self._gates_of(piece, instruction.number), sum_end_ns)
        return opened

    def _summed(self, gates: set[int], end_ns: int) -> list[tuple[int, int]]:
        self.last_end_ns = max(self.last_end_ns, end_ns)
        opened = []
        for gate in sorted(gates):
            self._missing_sums[gate] -= 1
            self._open_ns[gate] = max(self._open_ns[gate], end_ns)
            if self._missing_sums[gate] == 0:
                opened.append((gate, self._open_ns[gate]))
        return opened
