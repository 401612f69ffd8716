"""A plan and its prices as flat arrays, one entry an instruction: durations, predecessors, message times and bytes.

Instructions are numbered group by group in the order of the streams (docs/plan-contract.md section 3 says what waits
for what; the table of neighbours is ``Dependencies.neighbours``). What an instruction waits for on its own stage stands
in its own stream, so its place is all that counts; what crosses a border is a column of predecessors.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.costs.prices import BorderPrice, PlanPrices, VisitPrice
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction
from planner.plan.plan import Plan

__all__ = ["Column", "InstructionArrays", "Integers", "instruction_arrays"]

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_NONE = -1


class Column(NamedTuple):
    """At most one neighbour of each instruction: its number (or -1), how long its message takes, its bytes."""

    before: Integers
    delay_ns: Integers
    message_bytes: Integers


@dataclass(frozen=True)
class InstructionArrays:
    """``first``: number of the first instruction of each group, and of all at the end. ``operation``: its letter.

    ``visit_prices``: one row an instruction, columns as ``VisitPrice``; rows of G and U are zero.
    ``misplaced``: stands before an instruction of its own stage that it waits for.
    ``first_backward`` and ``last_backward``: whether it is that of its visit.
    """

    first: tuple[int, ...]
    operation: npt.NDArray[np.uint8]
    stage: Integers
    duration_ns: Integers
    columns: tuple[Column, ...]
    misplaced: Mask
    visit_prices: Integers
    first_backward: Mask
    last_backward: Mask
    goes_backward: Mask  # the visit has a backward
    restored_before: Mask  # the visit has an R

    def is_operation(self, letters: str) -> Mask:
        return np.isin(self.operation, np.frombuffer(letters.encode(), np.uint8))


def instruction_arrays(plan: Plan, prices: PlanPrices) -> InstructionArrays:
    """The arrays of a plan; ``prices`` must hold every visit and border of it."""
    table = _Table(plan)
    visit_prices = table.visit_prices(prices)
    return InstructionArrays(
        first=table.first,
        operation=table.operation,
        stage=table.stage,
        duration_ns=table.durations(visit_prices, np.array(prices.update_ns, np.int64)),
        columns=tuple(table.columns(prices)),
        misplaced=table.misplaced(),
        visit_prices=visit_prices,
        first_backward=table.is_first_backward,
        last_backward=table.is_last_backward,
        goes_backward=table.of_visit(table.first_of_visit) != _NONE,
        restored_before=table.of_visit(table.recompute) != _NONE,
    )


class _Table:
    """Instructions by number, and the number of each visit's F, R and backward."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        flat = [instruction for stream in plan.instructions for instruction in stream]
        sizes = [len(stream) for stream in plan.instructions]
        self.first = tuple(int(number) for number in np.cumsum([0, *sizes]))
        self.operation = np.frombuffer("".join(i.operation for i in flat).encode(), np.uint8)
        self.stage = _integers((i.stage for i in flat), len(flat))
        self.is_visit = ~np.isin(self.operation, np.frombuffer(b"GU", np.uint8))
        self._number_visits(flat)
        self.forward, self.recompute = self._scatter("F"), self._scatter("R")
        self.first_of_visit = self._scatter("W", "I", "B")
        numbers = np.arange(len(flat))
        self.is_forward = self.operation == ord("F")
        self.is_first_backward = self.is_visit & (self.of_visit(self.first_of_visit) == numbers)
        backwards = np.isin(self.operation, np.frombuffer(b"BIW", np.uint8))
        last = np.full(self.num_visits, _NONE)
        np.maximum.at(last, self.visit[backwards], numbers[backwards])
        self.is_last_backward = backwards & (last[self.visit] == numbers)

    def _number_visits(self, flat: Sequence[Instruction]) -> None:
        """Visit = stage x place of the slice among all slices of the step."""
        batches = self.plan.micro_batches
        self.num_slices = np.array([batch.num_slices for batch in batches])
        first_slice = np.concatenate([[0], np.cumsum(self.num_slices)])
        self.total_slices = int(first_slice[-1])
        self.num_visits = self.total_slices * len(self.plan.stages)
        self.micro_batch = np.where(self.is_visit, _integers((i.number for i in flat), len(flat)), 0)
        self.slice = _integers((i.slice for i in flat), len(flat))
        self.place = first_slice[self.micro_batch] + self.slice
        self.visit = self.stage * self.total_slices + self.place
        shapes = [self.plan.visit_shape(b, k) for b, batch in enumerate(batches) for k in range(batch.num_slices)]
        self.shapes = list(dict.fromkeys(shapes))
        number = {shape: n for n, shape in enumerate(self.shapes)}
        self.shape = np.array([number[shape] for shape in shapes])[self.place]

    def _scatter(self, *operations: str) -> Integers:
        """By visit: the number of its instruction with one of ``operations``, the last named wins; -1 for none."""
        found = np.full(self.num_visits, _NONE)
        for operation in operations:
            (numbers,) = np.nonzero(self.operation == ord(operation))
            found[self.visit[numbers]] = numbers
        return found

    def of_visit(self, by_visit: Integers) -> Integers:
        """By instruction: the entry of its visit; -1 for G and U."""
        return np.where(self.is_visit, by_visit[self.visit], _NONE)

    def visit_prices(self, prices: PlanPrices) -> Integers:
        keys = np.where(self.is_visit, self.stage * len(self.shapes) + self.shape, _NONE)

        def price(key: int) -> VisitPrice:
            stage, shape = divmod(key, len(self.shapes))
            return prices.visits[stage, self.shapes[shape]] if key != _NONE else VisitPrice(0, 0, 0, 0)

        return _look_up(keys, price)

    def durations(self, visit_prices: Integers, update_ns: Integers) -> Integers:
        fields = VisitPrice._fields
        found = np.where(self.operation == ord("U"), update_ns[self.stage], 0)
        for letter, field in zip("FBIWR", fields[:5], strict=True):
            found = np.where(self.operation == ord(letter), visit_prices[:, fields.index(field)], found)
        return found

    def misplaced(self) -> Mask:
        """F before the F of the slice before; R before F; backward before its F or R or the later slice; W before I."""
        numbers = np.arange(len(self.operation))
        forward, first = self.of_visit(self.forward), self.of_visit(self.first_of_visit)
        later = self.slice + 1 < self.num_slices[self.micro_batch]
        of_later = np.where(later, self.first_of_visit[np.minimum(self.visit + 1, self.num_visits - 1)], _NONE)
        before = np.where(self.is_forward & (self.slice > 0), self.forward[np.maximum(self.visit - 1, 0)], _NONE)
        before = np.where(self.operation == ord("R"), forward, before)
        ready = np.maximum(np.maximum(forward, self.of_visit(self.recompute)), of_later)
        before = np.where(self.is_first_backward, ready, before)
        before = np.where((self.operation == ord("W")) & ~self.is_first_backward, first, before)
        return np.asarray(before > numbers)

    def columns(self, prices: PlanPrices) -> Iterable[Column]:
        """One column for each neighbour: what F reads, what the first backward gets its gradient from."""
        neighbours = Dependencies(self.plan).neighbours
        num_stages = len(self.plan.stages)
        routes = np.array([batch.route for batch in self.plan.micro_batches])
        row = routes[self.micro_batch] * num_stages + self.stage
        most = max((max(len(found.reads), len(found.readers)) for found in neighbours.values()), default=0)
        for number in range(most):
            reads = np.full(len(self.plan.routes) * num_stages, _NONE)
            readers = reads.copy()
            for (route, stage), found in neighbours.items():
                reads[route * num_stages + stage] = found.reads[number] if number < len(found.reads) else _NONE
                readers[route * num_stages + stage] = found.readers[number] if number < len(found.readers) else _NONE
            neighbour = np.where(self.is_forward, reads[row], np.where(self.is_first_backward, readers[row], _NONE))
            yield self._column(neighbour, prices)

    def _column(self, neighbour: Integers, prices: PlanPrices) -> Column:
        exists = neighbour != _NONE
        visit = np.where(exists, neighbour * self.total_slices + self.place, 0)
        before = np.where(exists, np.where(self.is_forward, self.forward[visit], self.first_of_visit[visit]), _NONE)
        num_stages, num_shapes = len(self.plan.stages), len(self.shapes)
        sender = np.where(self.is_forward, neighbour, self.stage)
        receiver = np.where(self.is_forward, self.stage, neighbour)
        keys = np.where(exists, (sender * num_stages + receiver) * num_shapes + self.shape, _NONE)

        def price(key: int) -> BorderPrice:
            if key == _NONE:
                return BorderPrice(0, 0, 0)
            border, shape = divmod(key, num_shapes)
            return prices.borders[(*divmod(border, num_stages), self.shapes[shape])]

        found = _look_up(keys, price)
        return Column(before, np.where(self.is_forward, found[:, 0], found[:, 1]), found[:, 2])


def _integers(values: Iterable[int], count: int) -> Integers:
    return np.fromiter(values, np.int64, count)


def _look_up(keys: Integers, price: Callable[[int], tuple[int, ...]]) -> Integers:
    """One row of prices for each key; every different key is asked once."""
    different, place = np.unique(keys, return_inverse=True)
    return np.array([price(int(key)) for key in different], np.int64)[place]
