"""Score many candidates at once: those that differ only in where layers are cut and what is recomputed.

A lineup is a space, a family, a number of stages and the device class of each group. The compute part of a step is one
pass over the family's order with a vector over candidates; sums and updates are added as the simulator adds them, so a
score equals the simulated step of the plan. Only for plain chains (every layer reads the one before, all are trained).
Nothing is recomputed under a family that splits the backward: W would need again what I brought back.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.costs.links import Place
from planner.costs.price import ProblemCosts
from planner.costs.stages import GRADIENT_BYTES
from planner.costs.sums import sum_ns
from planner.plan.instruction import Operation
from planner.plan.mesh import cut
from planner.problem.options import Family
from planner.search.bounds import quick_schedule_ns
from planner.search.candidate import Candidate, Choice, blocks_of
from planner.search.devices import Block
from planner.search.orders import ChainShape, chain_groups, chain_order, chain_splits, splits_backward
from planner.search.partition import Integers
from planner.search.space import Space
from planner.search.tables import ClassTables

__all__ = ["Batch", "Lineup"]


class Batch(NamedTuple):
    """``cuts`` [candidate, stage + 1]: first layers and the end; ``recomputes`` [candidate, stage]."""

    cuts: Integers
    recomputes: np.ndarray

    def take(self, rows: Integers) -> "Batch":
        return Batch(self.cuts[rows], self.recomputes[rows])


@dataclass(frozen=True, eq=False)
class Lineup:
    """``classes``: of each group."""

    space: Space
    costs: ProblemCosts
    family: Family
    classes: tuple[int, ...]
    num_stages: int

    @property
    def num_groups(self) -> int:
        return len(self.classes)

    @cached_property
    def shape(self) -> ChainShape:
        return ChainShape(self.family, self.num_groups, self.num_stages, self.space.degrees.num_micro_batches)

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """The group of each stage."""
        return chain_groups(self.family, self.num_groups, self.num_stages)

    def legs(self, group: int) -> list[int]:
        """The stages of a group."""
        return [stage for stage, owner in enumerate(self.groups) if owner == group]

    @cached_property
    def splits(self) -> bool:
        return splits_backward(self.family)

    @cached_property
    def split_stages(self) -> tuple[bool, ...]:
        """Whether visits of each stage have I and W."""
        return chain_splits(self.shape)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return blocks_of(self.space, self.classes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The different numbers of samples of a micro-batch."""
        return tuple(sorted(set(self.space.samples)))

    def tables(self, stage: int, size: int) -> ClassTables:
        """Of a stage, for micro-batches of ``size`` samples."""
        rank_samples = -(-size // self.space.degrees.data)
        return self.space.tables[self.classes[self.groups[stage]]][rank_samples]

    def holds(self, space: Space, candidate: Candidate) -> bool:
        """Whether the candidate is one of this lineup."""
        shape = (candidate.family, candidate.classes, len(candidate.stages))
        return space is self.space and shape == (self.family, self.classes, self.num_stages)

    def candidate(self, batch: Batch, row: int) -> Candidate:
        layers, recomputes = batch.cuts[row].tolist(), batch.recomputes[row].tolist()
        stages = tuple(
            Choice(self.classes[self.groups[s]], recomputes[s], layers[s], layers[s + 1])
            for s in range(self.num_stages)
        )
        return Candidate(self.family, self.num_groups, stages)

    @cached_property
    def bound_ns(self) -> int:
        """No plan of the lineup takes a shorter step: its own devices at work, whatever the order."""
        used = sorted(set(self.classes))
        tables = [self.tables(self.classes.index(number), self.sizes[0]) for number in used]
        work = [found.least_layer_ns if self.splits else found.layer_ns for found in tables]
        way = [found.least_way_ns if self.splits else found.layer_ns for found in tables]
        counts = [self.classes.count(number) for number in used]
        return quick_schedule_ns(work, counts, way_ns=way, num_micro_batches=self.space.degrees.num_micro_batches)

    def durations_ns(self, batch: Batch, size: int) -> dict[Operation, Integers]:
        """Of each operation of the family, [stage, candidate]."""
        spans = [(self.tables(s, size), (batch.cuts[:, s], batch.cuts[:, s + 1])) for s in range(self.num_stages)]
        whole = [
            np.where(batch.recomputes[:, stage], tables.recomputed_backward_ns[span], tables.backward_ns[span])
            for stage, (tables, span) in enumerate(spans)
        ]
        forward = [
            (tables.split_forward_ns if splits else tables.forward_ns)[span]
            for (tables, span), splits in zip(spans, self.split_stages, strict=True)
        ]
        found: dict[Operation, Integers] = {"F": np.array(forward)}
        found["B"] = np.array(whole)
        if self.splits:
            found["I"] = np.array([tables.backward_input_ns[span] for tables, span in spans])
            found["W"] = np.array([tables.backward_weight_ns[span] for tables, span in spans])
        return found

    def bounds_ns(self, batch: Batch) -> Integers:
        """By candidate: its path before each group's first stage, the group's work, the path back."""
        duration = self.durations_ns(batch, self.sizes[0])
        backward, way_back = duration["B"], duration["B"]
        if self.splits:  # a W may come last, which nothing follows
            backward, way_back = np.minimum(backward, duration["I"] + duration["W"]), np.zeros_like(backward)
        work = self.space.degrees.num_micro_batches * (duration["F"] + backward)
        best = np.zeros(len(batch.cuts), np.int64)
        before = np.zeros_like(best)
        for group in range(self.num_groups):
            best = np.maximum(best, before + work[self.legs(group)].sum(axis=0))
            before = before + duration["F"][group] + way_back[group]
        return best

    def compute_ends_ns(self, batch: Batch) -> Integers:
        """When the last backward of each stage ends, [stage, candidate]."""
        order = chain_order(self.shape)
        durations = {size: self.durations_ns(batch, size) for size in self.sizes}
        delays = {size: self._delays_ns(batch, size) for size in self.sizes}
        ends = np.zeros((len(order) + 1, len(batch.cuts)), np.int64)  # the last row is "nothing": place -1
        last = np.zeros((self.num_stages, len(batch.cuts)), np.int64)
        for place, entry in enumerate(order):
            size = self.space.samples[entry.micro_batch]
            start = ends[entry.before]
            if entry.giver >= 0:
                direction = 0 if entry.operation == "F" else 1
                start = np.maximum(start, ends[entry.giver] + delays[size][direction][entry.stage])
            ends[place] = start + durations[size][entry.operation][entry.stage]
            if entry.operation != "F":
                last[entry.stage] = ends[place]
        return last

    def _delays_ns(self, batch: Batch, size: int) -> tuple[Integers, Integers]:
        """Message of the activation into a stage and of the gradient into it, [stage, candidate]."""
        into, back = np.zeros((2, self.num_stages, len(batch.cuts)), np.int64)
        for stage in range(1, self.num_stages):
            forward_ns, backward_ns = self._borders_ns[stage, size]
            into[stage] = forward_ns[batch.cuts[:, stage]]
            back[stage - 1] = backward_ns[batch.cuts[:, stage]]
        return into, back

    @cached_property
    def _borders_ns(self) -> dict[tuple[int, int], tuple[Integers, Integers]]:
        """(stage, size) -> messages of the border before the stage, by its first layer: activation and gradient."""
        found = {}
        for stage in range(1, self.num_stages):
            one, other = self.blocks[self.groups[stage - 1]], self.blocks[self.groups[stage]]
            for size in self.sizes:
                if self.hands_over(stage):
                    found[stage, size] = (np.zeros(self.space.num_layers, np.int64),) * 2
                    continue
                tables = self.tables(stage - 1, size)
                outputs = [0, *(price.output_bytes for price in tables.prices[:-1])]
                into = self._messages_ns(one, other, size, outputs)
                found[stage, size] = (into, self._messages_ns(other, one, size, outputs))
        return found

    def hands_over(self, stage: int) -> bool:
        """Whether the stage before it lies on the same group: nothing is sent."""
        return stage > 0 and self.groups[stage - 1] == self.groups[stage]

    def _messages_ns(self, sender: Block, receiver: Block, size: int, output_bytes: list[int]) -> Integers:
        """Of each output of the fullest rank: all ranks send their samples to their partners at once."""
        data, fullest = self.space.degrees.data, -(-size // self.space.degrees.data)
        partners = zip(sender.places, receiver.places, strict=True)
        different = {
            (one.node_group, other.node_group, one.node == other.node, cut(size, data, number).size): (one, other)
            for number, (one, other) in enumerate(partners)
        }
        by_bytes = {
            num_bytes: max(
                self.costs.links.message_ns(one, other, -(-samples * num_bytes // fullest))
                for (_, _, _, samples), (one, other) in different.items()
            )
            for num_bytes in set(output_bytes)
        }
        return np.array([by_bytes[num_bytes] for num_bytes in output_bytes])

    def step_ns(self, batch: Batch, ends_ns: Integers, row: int) -> int:
        """The whole step of one candidate: updates wait for all sums (gradient norm), then follow on each group."""
        ready = ends_ns[:, row].tolist()
        open_ns = max(self._sum_ends_ns(batch, row, ready))
        updates = [0] * self.num_groups
        clocks = [0] * self.num_groups
        for stage in range(self.num_stages):
            group = self.groups[stage]
            clocks[group] = max(clocks[group], ready[stage])
        for stage, update in enumerate(self._updates_ns(batch, row)):
            updates[self.groups[stage]] += update
        return max(max(clock, open_ns) + update for clock, update in zip(clocks, updates, strict=True))

    def _stage_of(self, batch: Batch, row: int) -> list[int]:
        """The stage of each layer."""
        cuts = batch.cuts[row].tolist()
        return [stage for stage in range(self.num_stages) for _ in range(cuts[stage], cuts[stage + 1])]

    def _sum_ends_ns(self, batch: Batch, row: int, ready_ns: list[int]) -> list[int]:
        holders: dict[int, set[int]] = defaultdict(set)
        for layer, stage in enumerate(self._stage_of(batch, row)):
            holders[self.space.graph.weight_of[layer]].add(stage)
        params: dict[tuple[int, ...], int] = defaultdict(int)
        for weight, stages in holders.items():
            params[tuple(sorted(stages))] += self._params[weight]
        return [
            max(ready_ns[stage] for stage in stages) + self._sum_ns(stages, size * GRADIENT_BYTES)
            for stages, size in params.items()
        ]

    @cached_property
    def _params(self) -> dict[int, int]:
        """Weight -> trained parameters: of layers that share it the largest."""
        found: dict[int, int] = defaultdict(int)
        for layer, facts in enumerate(self.costs.problem.profiles[0].layers):
            weight = self.space.graph.weight_of[layer]
            found[weight] = max(found[weight], facts.num_trained_params)
        return found

    @cached_property
    def _sums_ns(self) -> dict[tuple[tuple[Place, ...], int], int]:
        return {}

    def _sum_ns(self, stages: tuple[int, ...], num_bytes: int) -> int:
        groups = sorted({self.groups[stage] for stage in stages})
        places = tuple(place for group in groups for place in self.blocks[group].places)
        if len(places) == 1:
            return 0
        key = (places, num_bytes)
        if key not in self._sums_ns:
            self._sums_ns[key] = sum_ns(self.costs.links, places, num_bytes)
        return self._sums_ns[key]

    def _updates_ns(self, batch: Batch, row: int) -> list[int]:
        """By stage; a weight that two stages of a group share is updated once."""
        found, seen = [], set[tuple[int, int]]()
        cuts = batch.cuts[row].tolist()
        for stage in range(self.num_stages):
            group = self.groups[stage]
            kind = self.space.classes[self.classes[group]].device_kind
            overheads = self.costs.kinds[kind].profile.overheads
            held = {(group, self.space.graph.weight_of[layer]) for layer in range(cuts[stage], cuts[stage + 1])} - seen
            seen |= held
            num_params = sum(self._params[weight] for _, weight in held)
            found.append(overheads.update_ns + round(num_params * overheads.update_ns_per_million_params / 1e6))
        return found
