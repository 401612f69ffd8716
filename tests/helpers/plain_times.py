"""A simulator without arrays, sweeps or tricks: longest paths by recursion over the independent reading of a plan."""

import sys
from collections import defaultdict
from typing import Any, NamedTuple

from planner.costs.prices import PlanPrices, VisitPrice
from planner.plan.plan import VisitShape
from tests.helpers.exhaustive import Needs
from tests.helpers.exhaustive_rules import Cell, Facts, Order, read_facts

__all__ = ["PlainTimes"]

_LETTERS = "FBIWR"


class _Span(NamedTuple):
    """Bytes that live in ``[first_ns, end_ns)`` on a group."""

    group: int
    first_ns: int
    end_ns: int
    num_bytes: int


class PlainTimes:
    """Start and end of each order of a plan's JSON at given prices; times and bytes follow the contract's section 3."""

    def __init__(self, document: dict[str, Any], prices: PlanPrices) -> None:
        self.facts: Facts = read_facts(document)
        self.prices = prices
        self.needs = Needs(self.facts)
        self.before: dict[Order, Order] = {}
        for stream in self.facts.streams:
            self.before.update(zip(stream[1:], stream, strict=False))
        self._ends: dict[Order, int] = {}
        self._starts: dict[Order, int] = {}
        sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))

    def shape(self, cell: Cell) -> VisitShape:
        cuts = self.facts.batches[cell.batch]["cuts"]
        return VisitShape(self.facts.batches[cell.batch]["samples"], cuts[cell.part], cuts[cell.part + 1])

    def price(self, order: Order) -> VisitPrice:
        return self.prices.visits[order.stage, self.shape(Cell(*order[1:]))]

    def duration_ns(self, order: Order) -> int:
        if order.letter == "U":
            return self.prices.update_ns[order.stage]
        return 0 if order.letter == "G" else self.price(order)[_LETTERS.index(order.letter)]

    def message_ns(self, kind: str, writer: Order, reader: Order) -> int:
        ends = (writer.stage, reader.stage) if kind == "activation" else (reader.stage, writer.stage)
        border = self.prices.borders[(*ends, self.shape(Cell(*reader[1:])))]
        return border.forward_ns if kind == "activation" else border.backward_ns

    def start_ns(self, order: Order) -> int:
        if order not in self._starts:
            ready = [0]
            if order in self.before:
                ready.append(self.end_ns(self.before[order]))
            if order.letter == "U":
                ready += [self.sum_end_ns(piece, order.number) for piece in self.pieces_before(order)]
            elif order.letter != "G":
                ready += [self.end_ns(other) for other in self.needs.own(order)]
                found = self.needs.others(order)
                ready += [self.end_ns(other) + self.message_ns(kind, other, order) for kind, other in found]
            self._starts[order] = max(ready)
        return self._starts[order]

    def end_ns(self, order: Order) -> int:
        if order not in self._ends:
            self._ends[order] = self.start_ns(order) + self.duration_ns(order)
        return self._ends[order]

    def pieces(self) -> list[frozenset[int]]:
        """Stages of each piece, by the piece's lowest weight."""
        trained = {order.stage for order in self.needs.orders if order.letter == "G"}
        stages: dict[int, set[int]] = defaultdict(set)
        for stage in trained:
            for layer in self.facts.layers(stage):
                stages[self.facts.weight[layer]].add(stage)
        return list(dict.fromkeys(frozenset(found) for _, found in sorted(stages.items())))

    def pieces_before(self, update: Order) -> list[int]:
        one = all(order.number == 0 for order in self.needs.orders if order.letter == "U")
        return [number for number, stages in enumerate(self.pieces()) if one or update.stage in stages]

    def sum_end_ns(self, piece: int, update: int) -> int:
        ready = (self.end_ns(Order("G", stage, update, 0)) for stage in self.pieces()[piece])
        return max(ready) + self.prices.sum_ns[piece]

    def step_ns(self) -> int:
        return max(self.end_ns(order) for order in self.needs.orders)

    def peak_bytes(self) -> list[int]:
        """Everything that lives at each moment at which something begins, added up."""
        spans = [span for order in self.needs.orders if order.letter not in "GU" for span in self._spans(order)]
        peaks = []
        for group, state in enumerate(self.prices.state_bytes):
            mine = [span for span in spans if span.group == group]
            moments = {span.first_ns for span in mine}
            alive = (sum(s.num_bytes for s in mine if s.first_ns <= now < s.end_ns) for now in moments)
            peaks.append(state + max(alive, default=0))
        return peaks

    def _spans(self, order: Order) -> list[_Span]:
        cell, price = Cell(*order[1:]), self.price(order)
        group = self.facts.stages[order.stage]["group"]
        start, end = self.start_ns(order), self.end_ns(order)
        backward = [Order(found, *cell) for found in "BIW" if found in self.needs.letters[cell]]
        last_ns = max((self.end_ns(found) for found in backward), default=end)
        restores = "R" in self.needs.letters[cell]
        found = []
        if order.letter == "F":
            found = [_Span(group, start, last_ns, price.kept_bytes)]
        elif order.letter == "R":
            found = [_Span(group, start, last_ns, price.restored_bytes)]
        elif order == self.needs.first_backward(cell) and not restores:
            found = [_Span(group, start, end, price.restored_bytes)]
        working = price.forward_transient_bytes if order.letter in "FR" else price.backward_transient_bytes
        found.append(_Span(group, start, end, working))
        for kind, writer in self.needs.others(order):
            ends = (writer.stage, order.stage) if kind == "activation" else (order.stage, writer.stage)
            size = self.prices.borders[(*ends, self.shape(cell))].message_bytes
            found.append(_Span(group, self.end_ns(writer), end, size))
        return found
