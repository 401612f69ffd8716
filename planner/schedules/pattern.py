"""Streams as patterns over the two stages of a group in a V: ``aF bI`` = stage a forward, stage b backward-input.

The n-th time a stage has an operation it is of micro-batch n.
"""

from collections import Counter
from collections.abc import Iterable
from typing import cast

from planner.plan.instruction import BACKWARD_INPUT, BACKWARD_WEIGHT, Instruction, Operation

__all__ = ["PatternStream"]


class PatternStream:
    """The stream of group d of a V over p groups: stage a = d on the way down, b = 2p-1-d on the way up."""

    def __init__(self, num_groups: int, group: int, num_micro_batches: int) -> None:
        self.instructions: list[Instruction] = []
        self._stages = {"a": group, "b": 2 * num_groups - 1 - group}
        self._num_micro_batches = num_micro_batches
        self._next: Counter[str] = Counter()

    def left(self, word: str) -> int:
        """How often ``word`` is still to come."""
        return self._num_micro_batches - self._next[word]

    def add(self, pattern: str, times: int = 1) -> None:
        """The words of the pattern in turn; a word that has reached its last micro-batch is left out."""
        for _ in range(times):
            for word in pattern.split(" "):
                if self.left(word) > 0:
                    operation = cast(Operation, word[1])
                    self.instructions.append(Instruction(operation, self._stages[word[0]], self._next[word]))
                    self._next[word] += 1

    def add_pending(self, pattern: Iterable[str]) -> None:
        """For each stage letter in turn: every W whose I has been."""
        for letter in pattern:
            self.add(
                letter + BACKWARD_WEIGHT, self._next[letter + BACKWARD_INPUT] - self._next[letter + BACKWARD_WEIGHT]
            )

    def first(self, num_micro_batches: int) -> list[Instruction]:
        """Without the micro-batches from ``num_micro_batches`` on."""
        return [instruction for instruction in self.instructions if instruction.number < num_micro_batches]
