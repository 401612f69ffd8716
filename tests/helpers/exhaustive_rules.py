"""A second reading of the plan contract, from a plan's JSON alone: what a plan must state before it can be replayed.

Written against docs/plan-contract.md sections 2-4 and 9 and sharing no code with the project: the tests compare its
verdict with that of ``planner.check``.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["Cell", "Facts", "Order", "broken_rule", "read_facts"]

_ORDER = re.compile(r"^(\d+)([A-Z])(\d+)(?:\.(\d+))?$")


class Cell(NamedTuple):
    """A stage at work on one slice of one micro-batch."""

    stage: int
    batch: int
    part: int


class Order(NamedTuple):
    """One word of a stream."""

    letter: str
    stage: int
    number: int
    part: int


@dataclass
class Facts:
    """The five lists of a plan, with what follows from them."""

    document: dict[str, Any]
    streams: list[list[Order]]
    reads: list[list[tuple[int, bool]]]  # by layer: (source layer, gradient goes back)
    weight: list[int]
    holder: list[dict[int, int]]  # by route: layer -> stage

    @property
    def stages(self) -> list[dict[str, Any]]:
        return list(self.document["stages"])

    @property
    def batches(self) -> list[dict[str, Any]]:
        return list(self.document["micro_batches"])

    def layers(self, stage: int) -> range:
        return range(self.stages[stage]["first_layer"], self.stages[stage]["end_layer"])

    def route(self, batch: int) -> list[int]:
        return list(self.document["routes"][self.batches[batch]["route"]])

    def parts(self, batch: int) -> int:
        return len(self.batches[batch]["cuts"]) - 1

    def letters(self) -> dict[Cell, str]:
        found: dict[Cell, str] = defaultdict(str)
        for stream in self.streams:
            for order in stream:
                if order.letter in "FRBIW":
                    found[Cell(order.stage, order.number, order.part)] += order.letter
        return found


def broken_rule(document: dict[str, Any]) -> str | None:
    """A sentence on something that is wrong, or None; the order of rules is of no importance."""
    rules = (_spread, _routes, _words, _cells, _agreement, _gradients, _updates)
    for rule in rules:
        found = rule(document)
        if found:
            return f"{rule.__name__}: {found}"
    return None


def read_facts(document: dict[str, Any]) -> Facts:
    """The facts of a document that passed ``_spread`` and ``_routes``."""
    num_layers = document["graph"]["num_layers"]
    reads: list[list[tuple[int, bool]]] = [[(layer - 1, True)] if layer else [] for layer in range(num_layers)]
    for entry in document["graph"].get("reads", ()):
        reads[entry["layer"]] = [(s, True) for s in entry["sources"]] + [(s, False) for s in entry["detached"]]
    weight = list(range(num_layers))
    for layers in document["graph"].get("tied", ()):
        for layer in layers:
            weight[layer] = min(layers)
    holder = [
        {
            layer: stage
            for stage in route
            for layer in range(document["stages"][stage]["first_layer"], document["stages"][stage]["end_layer"])
        }
        for route in document["routes"]
    ]
    return Facts(document, [_orders(line) for line in document["streams"]], reads, weight, holder)


def _orders(line: str) -> list[Order]:
    found = []
    for word in line.split(" "):
        match = _ORDER.match(word)
        if match:
            stage, letter, number, part = match.groups()
            found.append(Order(letter, int(stage), int(number), int(part or 0)))
    return found


def _spread(document: dict[str, Any]) -> str | None:
    """Rules 1, 2, 6: ranks, groups, meshes; copies of a weight on one group are cut alike."""
    ranks = sorted(rank for group in document["groups"] for rank in group)
    if ranks != list(range(sum(node["num_ranks"] for node in document["nodes"]))):
        return "ranks"
    if len(document["streams"]) != len(document["groups"]):
        return "streams"
    for stage in document["stages"]:
        if not 0 <= stage["group"] < len(document["groups"]):
            return "group"
        mesh = stage["mesh"]
        if mesh["data"] * mesh["context"] * mesh["tensor"] != len(document["groups"][stage["group"]]):
            return "mesh"
        listed = [layer for layers in stage["recompute"].values() for layer in layers]
        if not set(listed) <= set(range(stage["first_layer"], stage["end_layer"])):
            return "recompute"
    return None


def _routes(document: dict[str, Any]) -> str | None:
    """Rules 4 and 5."""
    num_layers, stages, routes = document["graph"]["num_layers"], document["stages"], document["routes"]
    for route in routes:
        if any(not 0 <= stage < len(stages) for stage in route):
            return "no such stage"
        covered = [la for stage in route for la in range(stages[stage]["first_layer"], stages[stage]["end_layer"])]
        if covered != list(range(num_layers)):
            return f"route covers {covered}"
        if any(stages[stage]["first_layer"] >= stages[stage]["end_layer"] for stage in route):
            return "empty stage"
    if {stage for route in routes for stage in route} != set(range(len(stages))):
        return "idle stage"
    if {stage["group"] for stage in stages} != set(range(len(document["groups"]))):
        return "idle group"
    if {batch["route"] for batch in document["micro_batches"]} != set(range(len(routes))):
        return "idle route, or no such route"
    if len({repr(stage) for stage in stages}) < len(stages) or len({tuple(route) for route in routes}) < len(routes):
        return "double"
    for batch in document["micro_batches"]:
        cuts = batch["cuts"]
        if cuts[0] != 0 or any(b <= a for a, b in pairwise(cuts)):
            return "cuts"
        for stage in routes[batch["route"]]:
            mesh = stages[stage]["mesh"]
            least = mesh["context"] * (1 + (mesh["exchange"] == "zigzag"))
            least *= mesh["tensor"] if mesh["border"] == "sharded" else 1
            if batch["samples"] < mesh["data"] or min(b - a for a, b in pairwise(cuts)) < least:
                return "a rank without work"
    return _copies(document)


def _copies(document: dict[str, Any]) -> str | None:
    facts = read_facts(document)
    cuts: dict[tuple[int, int], tuple[object, ...]] = {}
    for number, stage in enumerate(facts.stages):
        for layer in facts.layers(number):
            cut = tuple(stage["mesh"][name] for name in ("tensor", "border", "experts", "shards", "sharded"))
            if cuts.setdefault((stage["group"], facts.weight[layer]), cut) != cut:
                return "copies"
    return None


def _words(document: dict[str, Any]) -> str | None:
    """Rule 7: every word is the one way to write something that its group does, and stands once."""
    facts, written = read_facts(document), Counter[str]()
    legal: dict[str, int] = {}
    for batch in range(len(facts.batches)):
        for stage in facts.route(batch):
            for part in range(facts.parts(batch)):
                tail = f".{part}" if facts.parts(batch) > 1 else ""
                for letter in "FRBIW":
                    legal[f"{stage}{letter}{batch}{tail}"] = facts.stages[stage]["group"]
    for group, line in enumerate(document["streams"]):
        for word in line.split(" "):
            match = re.fullmatch(r"(0|[1-9]\d*)[GU](0|[1-9]\d*)", word)
            if match:
                stage = int(match.group(1))
                owner = facts.stages[stage]["group"] if stage < len(facts.stages) else None
            else:
                owner = legal.get(word)
            if owner != group:
                return f"{word} of group {owner} on group {group}"
            written[word] += 1
    return next((f"{word} twice" for word, count in written.items() if count > 1), None)


def _cells(document: dict[str, Any]) -> str | None:
    """Rule 8."""
    facts = read_facts(document)
    letters = facts.letters()
    for batch in range(len(facts.batches)):
        for stage in facts.route(batch):
            for part in range(facts.parts(batch)):
                found = Counter(letters.get(Cell(stage, batch, part), ""))
                backward = "".join(sorted(letter for letter in found.elements() if letter in "BIW"))
                if found["F"] != 1 or backward not in ("", "B", "I", "W", "IW"):
                    return f"stage {stage} batch {batch}: {dict(found)}"
                if found["R"] > 1 or (found["R"] and not (backward and any(facts.stages[stage]["recompute"].values()))):
                    return "R"
    return None


def _agreement(document: dict[str, Any]) -> str | None:
    """Rule 9."""
    facts = read_facts(document)
    kinds: dict[int, set[tuple[bool, bool]]] = defaultdict(set)
    for cell, letters in facts.letters().items():
        kinds[cell.stage].add((bool(set(letters) & set("BIW")), bool(set(letters) & set("BW"))))
    if any(len(found) > 1 for found in kinds.values()):
        return "visits of a stage differ"
    trained: dict[int, set[bool]] = defaultdict(set)
    for stage, found in kinds.items():
        for layer in facts.layers(stage):
            trained[facts.weight[layer]].add(next(iter(found))[1])
    return "holders of a weight differ" if any(len(found) > 1 for found in trained.values()) else None


def _gradients(document: dict[str, Any]) -> str | None:
    """Rule 10: every visit that goes backward is given its gradient by all visits that read it."""
    facts = read_facts(document)
    letters = facts.letters()
    for cell, found in letters.items():
        if not set(found) & set("BIW"):
            continue
        holder = facts.holder[facts.batches[cell.batch]["route"]]
        for layer, sources in enumerate(facts.reads):
            reader = holder[layer]
            read = any(holder[source] == cell.stage for source, goes_back in sources if goes_back)
            if read and reader != cell.stage and not set(letters[Cell(reader, *cell[1:])]) & set("BI"):
                return f"stage {reader} gives stage {cell.stage} no gradient of batch {cell.batch}"
    return None


def _updates(document: dict[str, Any]) -> str | None:
    """Rule 11."""
    facts = read_facts(document)
    trains = {cell.stage for cell, letters in facts.letters().items() if set(letters) & set("BW")}
    words: dict[int, list[str]] = defaultdict(list)
    for stream in facts.streams:
        for order in stream:
            if order.letter in "GUBW":
                words[order.stage].append(f"{order.letter}{order.number if order.letter in 'GU' else ''}")
    counts: dict[int, int] = {}
    for stage, found in words.items():
        steps = [word for word in found if word[0] in "GU"]
        counts[stage] = len(steps) // 2
        if steps != [word for n in range(len(steps) // 2) for word in (f"G{n}", f"U{n}")]:
            return f"stage {stage}: {steps}"
        ready = [place for place, word in enumerate(found) if word[0] == "G"]
        if ready and stage in trains and any(word in ("B", "W") for word in found[ready[-1] :]):
            return f"stage {stage}: a gradient after its last G"
    if not any(counts.values()):
        return None
    if {stage for stage, count in counts.items() if count} != trains:
        return "G and U of other stages than those that train"
    numbers: dict[int, set[int]] = defaultdict(set)
    for stage in trains:
        for layer in facts.layers(stage):
            numbers[facts.weight[layer]].add(counts[stage])
    return "holders update unequally often" if any(len(found) > 1 for found in numbers.values()) else None
