"""An independent interpreter: lowers a plan's JSON by its own walk and replays it, element by element, in random order.

It shares no code with the project. Tensors are sets of (sample, token); an instruction runs on a rank when the rank
has every element that it needs. Messages and sums carry no tags: in each network model the two ends that stand first
meet, and it counts as wrong when they do not mean the same. Models: ``buffered`` one queue a directed pair of ranks,
``pair`` one queue a pair at each end, ``rank`` one queue a rank.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.helpers.exhaustive_rules import Cell, Facts, Order, broken_rule, read_facts

__all__ = ["MODELS", "Entry", "Machine", "Needs", "every_order", "lists_of", "verdict"]

MODELS = ("buffered", "pair", "rank")
Element = tuple[int, int]  # sample, token


class Entry(NamedTuple):
    """One entry of a rank's list: ``run``, ``send``, ``receive`` or ``sum``.

    ``subject``: the order to run; (kind, writer stage, reader stage, batch, part) of a message; (weights, update) of a
    sum. ``peers``: the other rank, or all members.
    """

    what: str
    subject: tuple[Any, ...]
    peers: tuple[int, ...] = ()
    elements: frozenset[Element] = frozenset()


def verdict(document: dict[str, Any], seed: int) -> str | None:
    """None for a legal plan; else a broken rule, ``stuck`` or ``wrong``."""
    broken = broken_rule(document)
    if broken:
        return broken
    facts = read_facts(document)
    lists = lists_of(facts)
    if lists is None:
        return "stuck"
    for model in MODELS:
        found = Machine(facts, lists, model).run(random.Random(seed))
        if found != "ok":
            return found
    return None


def held(facts: Facts, stage: int, position: int, cell: Cell) -> frozenset[Element]:
    """What the rank at a position has of a stage's border tensor."""
    mesh, batch = facts.stages[stage]["mesh"], facts.batches[cell.batch]
    data, context, tensor = mesh["data"], mesh["context"], mesh["tensor"]
    e, b, a = position % tensor, position // tensor % context, position // tensor // context
    samples = range(batch["samples"] * a // data, batch["samples"] * (a + 1) // data)
    first, end = batch["cuts"][cell.part], batch["cuts"][cell.part + 1]
    pieces, wanted = (2 * context, [b, 2 * context - 1 - b]) if mesh["exchange"] == "zigzag" else (context, [b])
    tokens = []
    for piece in wanted:
        low, high = (end - first) * piece // pieces, (end - first) * (piece + 1) // pieces
        part = list(range(first + low, first + high))
        if mesh["border"] == "sharded":
            part = part[len(part) * e // tensor : len(part) * (e + 1) // tensor]
        tokens += part
    return frozenset((sample, token) for sample in samples for token in tokens)


def ranks_of(facts: Facts, stage: int) -> list[int]:
    return list(facts.document["groups"][facts.stages[stage]["group"]])


def messages(facts: Facts, writer: int, reader: int, cell: Cell) -> list[tuple[int, int, frozenset[Element]]]:
    """(from rank, to rank, elements), chosen element by element; nothing for what a rank has itself."""
    mesh, givers = facts.stages[writer]["mesh"], ranks_of(facts, writer)
    holdings = [held(facts, writer, position, cell) for position in range(len(givers))]
    found: dict[tuple[int, int], set[Element]] = defaultdict(set)
    for position, rank in enumerate(ranks_of(facts, reader)):
        for element in held(facts, reader, position, cell):
            having = [place for place, holding in enumerate(holdings) if element in holding]
            if rank in (givers[place] for place in having):
                continue
            if mesh["border"] == "whole":
                having = [place for place in having if place % mesh["tensor"] == position % mesh["tensor"]]
            (place,) = having
            found[givers[place], rank].add(element)
    return [(*ends, frozenset(elements)) for ends, elements in sorted(found.items())]


class Needs:
    """Who needs what of whom."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.letters = facts.letters()
        self.orders = {order for stream in facts.streams for order in stream}
        self.gives = {cell.stage for cell, letters in self.letters.items() if set(letters) & set("BI")}

    def sources(self, cell: Cell) -> set[int]:
        """Stages whose output the cell reads."""
        holder = self.facts.holder[self.facts.batches[cell.batch]["route"]]
        found = {holder[s] for layer in self.facts.layers(cell.stage) for s, _ in self.facts.reads[layer]}
        return found - {cell.stage}

    def givers(self, cell: Cell) -> set[int]:
        """Stages that give the cell gradient."""
        holder = self.facts.holder[self.facts.batches[cell.batch]["route"]]
        pairs = ((la, s) for la, sources in enumerate(self.facts.reads) for s, goes_back in sources if goes_back)
        found = {holder[layer] for layer, source in pairs if holder[source] == cell.stage}
        return (found & self.gives) - {cell.stage}

    def first_backward(self, cell: Cell) -> Order | None:
        letter = next((found for found in "BIW" if found in self.letters[cell]), None)
        return Order(letter, *cell) if letter else None

    def own(self, order: Order) -> set[Order]:
        """Orders of the same stage that must be over."""
        cell = Cell(*order[1:])
        if order.letter == "F":
            return {Order("F", *cell[:2], cell.part - 1)} if cell.part else set()
        if order.letter == "R":
            return {Order("F", *cell)}
        if order != self.first_backward(cell):
            return {Order("I", *cell)}
        later = Cell(*cell[:2], cell.part + 1)
        found = {Order("R" if "R" in self.letters[cell] else "F", *cell)}
        if later in self.letters and (back := self.first_backward(later)):
            found.add(back)
        return found

    def sharers(self, update: Order) -> set[Order]:
        """The G that an update waits for."""
        ready = {order for order in self.orders if order.letter == "G" and order.number == update.number}
        if all(order.number == 0 for order in self.orders if order.letter == "U"):
            return ready
        weights = {self.facts.weight[layer] for layer in self.facts.layers(update.stage)}
        return {o for o in ready if weights & {self.facts.weight[la] for la in self.facts.layers(o.stage)}}

    def others(self, order: Order) -> list[tuple[str, Order]]:
        """Orders of other stages whose tensors are needed."""
        cell = Cell(*order[1:])
        if order.letter == "F":
            return [("activation", Order("F", stage, *cell[1:])) for stage in sorted(self.sources(cell))]
        if order.letter in "BIW" and order == self.first_backward(cell):
            found = [self.first_backward(Cell(stage, *cell[1:])) for stage in sorted(self.givers(cell))]
            return [("gradient", back) for back in found if back]
        return []


def lists_of(facts: Facts) -> list[list[Entry]] | None:
    """The lists of all ranks: groups walked one order at a time; None where they cannot be walked to their end."""
    needs, places = Needs(facts), [0] * len(facts.streams)
    lists: list[list[Entry]] = [[] for rank in range(sum(map(len, facts.document["groups"])))]
    done: set[Order] = set()
    takers = _takers(needs)
    moved = True
    while moved:
        moved = False
        for group, stream in enumerate(facts.streams):
            if places[group] == len(stream):
                continue
            order = stream[places[group]]
            if order.letter == "U":
                wanted = needs.sharers(order)
            elif order.letter == "G":
                wanted = set()
            else:
                wanted = needs.own(order) | {other for _, other in needs.others(order)}
            if wanted <= done:
                moved, places[group] = True, places[group] + 1
                done.add(order)
                for rank in facts.document["groups"][group]:
                    lists[rank].append(Entry("run", order))
                _add_messages(facts, lists, order, takers[order])
                _add_sums(facts, lists, order, done)
    return lists if all(place == len(stream) for place, stream in zip(places, facts.streams, strict=True)) else None


def _takers(needs: Needs) -> dict[Order, list[tuple[str, Order]]]:
    found: dict[Order, list[tuple[str, Order]]] = defaultdict(list)
    for order in sorted(needs.orders):
        if order.letter not in "GU":
            for kind, other in needs.others(order):
                found[other].append((kind, order))
    return found


def _add_messages(facts: Facts, lists: list[list[Entry]], order: Order, takers: list[tuple[str, Order]]) -> None:
    for kind, taker in takers:
        for sender, receiver, elements in messages(facts, order.stage, taker.stage, Cell(*order[1:])):
            subject = (kind, order.stage, taker.stage, order.number, order.part)
            lists[sender].append(Entry("send", subject, (receiver,), elements))
            lists[receiver].append(Entry("receive", subject, (sender,), elements))


def _add_sums(facts: Facts, lists: list[list[Entry]], order: Order, done: set[Order]) -> None:
    if order.letter != "G":
        return
    stages: dict[int, set[int]] = defaultdict(set)
    for other in (o for stream in facts.streams for o in stream if o.letter == "G" and o.number == order.number):
        for layer in facts.layers(other.stage):
            stages[facts.weight[layer]].add(other.stage)
    pieces: dict[frozenset[int], list[int]] = defaultdict(list)
    for weight, holders in sorted(stages.items()):
        pieces[frozenset(holders)].append(weight)
    for holders, weights in pieces.items():
        if order.stage in holders and all(Order("G", stage, order.number, 0) in done for stage in holders):
            members = tuple(sorted({rank for stage in holders for rank in ranks_of(facts, stage)}))
            for rank in members:
                lists[rank].append(Entry("sum", (*weights, order.number), members))


class Machine:
    """Replays lists. Any rank may move next, and any two ends that stand first may meet next."""

    def __init__(self, facts: Facts, lists: Sequence[Sequence[Entry]], model: str) -> None:
        self.facts, self.lists, self.model = facts, lists, model
        self.needs = Needs(facts)
        self.places = [0] * len(lists)
        self.waiting: list[list[Entry]] = [[] for _ in lists]
        self.done: list[set[Order]] = [set() for _ in lists]
        self.has: list[dict[tuple[Any, ...], set[Element]]] = [defaultdict(set) for _ in lists]

    def run(self, source: random.Random) -> str:
        """``ok``, ``stuck`` or ``wrong``."""
        ranks = list(range(len(self.lists)))
        moved = True
        while moved:
            moved = False
            source.shuffle(ranks)
            for rank in ranks:
                for _ in range(source.randint(1, 6)):  # sometimes one entry, sometimes far
                    if not self.can_walk(rank):
                        break
                    self.walk(rank)
                    moved = True
            meetings = self.meetings()
            source.shuffle(meetings)
            for ends in meetings:
                moved = True
                if not self.meet(ends):
                    return "wrong"
        over = all(place == len(entries) for place, entries in zip(self.places, self.lists, strict=True))
        return "ok" if over and not any(self.waiting) else "stuck"

    def copy(self) -> "Machine":
        made = Machine.__new__(Machine)
        made.facts, made.lists, made.model, made.needs = self.facts, self.lists, self.model, self.needs
        made.places, made.waiting = list(self.places), [list(waiting) for waiting in self.waiting]
        made.done = [set(done) for done in self.done]
        made.has = [defaultdict(set, {key: set(found) for key, found in has.items()}) for has in self.has]
        return made

    def can_walk(self, rank: int) -> bool:
        if self.places[rank] == len(self.lists[rank]):
            return False
        entry = self.lists[rank][self.places[rank]]
        return entry.what != "run" or self._has_all(rank, Order(*entry.subject))

    def _has_all(self, rank: int, order: Order) -> bool:
        if order.letter == "G":
            return True
        if order.letter == "U":
            ready = all(o in self.done[r] for o in self.needs.sharers(order) for r in ranks_of(self.facts, o.stage))
            return ready and not any(entry.what == "sum" for entry in self.waiting[rank])
        if not self.needs.own(order) <= self.done[rank]:
            return False
        cell, mine = Cell(*order[1:]), ranks_of(self.facts, order.stage)
        for kind, other in self.needs.others(order):
            subject = (kind, other.stage, order.stage, *cell[1:])
            wanted = held(self.facts, order.stage, mine.index(rank), cell)
            theirs = ranks_of(self.facts, other.stage)
            found = set(self.has[rank][subject])
            if rank in theirs and other in self.done[rank]:
                found |= held(self.facts, other.stage, theirs.index(rank), cell)
            if not wanted <= found:
                return False
        return True

    def walk(self, rank: int) -> None:
        entry = self.lists[rank][self.places[rank]]
        self.places[rank] += 1
        if entry.what == "run":
            self.done[rank].add(Order(*entry.subject))
        else:
            self.waiting[rank].append(entry)

    def meetings(self) -> list[list[tuple[int, Entry]]]:
        """Sets of ends that stand first and belong together; no end is in two of them."""
        found, taken = [], set[tuple[int, int]]()
        for rank, waiting in enumerate(self.waiting):
            for entry in waiting:
                ends = self._ends(rank, entry)
                if ends and not any((r, id(s)) in taken for r, s in ends):
                    taken |= {(r, id(s)) for r, s in ends}
                    found.append(ends)
        return found

    def _ends(self, rank: int, entry: Entry) -> list[tuple[int, Entry]] | None:
        if not self._is_first(rank, entry):
            return None
        ends = [(rank, entry)]
        for peer in entry.peers:
            if peer != rank:
                other = next((s for s in self.waiting[peer] if self._is_first(peer, s) and _fit(rank, entry, s)), None)
                if other is None:
                    return None
                ends.append((peer, other))
        return ends

    def _is_first(self, rank: int, entry: Entry) -> bool:
        """Nothing that was put before it into the same queue still stands."""
        for other in self.waiting[rank]:
            if other is entry:
                return True
            if self._share_a_queue(entry, other):
                return False
        return False

    def _share_a_queue(self, entry: Entry, other: Entry) -> bool:
        """Of one rank."""
        if self.model == "rank":
            return True
        if other.peers != entry.peers or (other.what == "sum") != (entry.what == "sum"):
            return False
        return entry.what == "sum" or self.model == "pair" or other.what == entry.what

    def meet(self, ends: list[tuple[int, Entry]]) -> bool:
        """Whether they mean the same."""
        for rank, entry in ends:
            place = next(n for n, other in enumerate(self.waiting[rank]) if other is entry)
            del self.waiting[rank][place]
            if entry.what == "receive":
                self.has[rank][entry.subject] |= entry.elements
        return len({(entry.subject, entry.elements) for _, entry in ends}) == 1


def every_order(facts: Facts, lists: Sequence[Sequence[Entry]], model: str) -> set[str]:
    """The outcomes of all orders of events, each state visited once; for lists of a dozen entries."""
    outcomes, seen, states = set[str](), set[object](), [Machine(facts, lists, model)]
    while states:
        machine = states.pop()
        key = (tuple(machine.places), tuple(tuple(map(id, waiting)) for waiting in machine.waiting))
        if key in seen:
            continue
        seen.add(key)
        following = list(_following(machine))
        outcomes |= {outcome for outcome, _ in following if outcome}
        states += [state for outcome, state in following if not outcome]
        if not following:
            over = all(place == len(entries) for place, entries in zip(machine.places, lists, strict=True))
            outcomes.add("ok" if over and not any(machine.waiting) else "stuck")
    return outcomes


def _following(machine: Machine) -> Iterator[tuple[str, Machine]]:
    """Every next state by one event; with ``wrong`` where two ends met that do not belong together."""
    for rank in range(len(machine.lists)):
        if machine.can_walk(rank):
            state = machine.copy()
            state.walk(rank)
            yield "", state
    for ends in machine.meetings():
        state = machine.copy()
        yield "" if state.meet(ends) else "wrong", state


def _fit(rank: int, entry: Entry, other: Entry) -> bool:
    if entry.what == "sum":
        return other.what == "sum" and other.peers == entry.peers
    return {entry.what, other.what} == {"send", "receive"} and other.peers == (rank,)
