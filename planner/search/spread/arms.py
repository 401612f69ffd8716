"""The chains of a problem: one arm for each data degree and micro-batch size.

Every stage of an arm is spread over ``data`` x tensor ranks of one node group: any tensor degree that the profiles
price and that divides a node, any group, recompute none or full. Tensor ranks stay inside a node. Degrees of a group
divide each other, so that stages fill nodes without gaps, the largest first. From data degree 2 on the optimizer state
may be dealt to the data ranks (ZeRO 1): the sum of gradients takes as long as before.

The time of a stage is its work; messages lengthen the way of a micro-batch and with it the round trips of 1F1B.
Memory is what surely suffices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.costs.links import message_ns
from planner.costs.price import ProblemCosts
from planner.costs.stages import GRADIENT_BYTES, StateCut
from planner.errors import PriceError
from planner.plan.graph import LayerGraph
from planner.problem.cluster import NodeGroup, Tier
from planner.problem.options import Constraints
from planner.search.chains.chain import Chain
from planner.search.chains.prices import fluid_ns
from planner.search.degrees import Degrees, allowed_degrees
from planner.search.devices import DeviceClass
from planner.search.partition import Integers, PartitionProblem, StageOption
from planner.search.space import TableBuilder
from planner.search.tables import ClassTables, spans

__all__ = ["Arm", "Reach", "StageChoice", "arms", "tensor_degrees"]


class Reach(NamedTuple):
    """How far stages may be spread inside a data rank, and whether data ranks may share the optimizer state."""

    tensor: dict[str, tuple[int, ...]]  # by node group
    shares_optimizer: bool


class StageChoice(NamedTuple):
    """What a stage of an arm may be."""

    group: int  # node group of the cluster
    tensor: int
    recomputes: bool


@dataclass(frozen=True, eq=False)
class Arm:
    """``tables``: by (node group, tensor degree), the fullest rank's costs."""

    costs: ProblemCosts
    constraints: Constraints
    degrees: Degrees
    shards: int
    tables: dict[tuple[int, int], ClassTables]

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        return self.costs.problem.cluster.node_groups

    @cached_property
    def choices(self) -> tuple[StageChoice, ...]:
        """Without recompute first, small degrees first: the plainest among equals wins."""
        modes = [mode == "full" for mode in (self.constraints.recompute or ("none", "full"))]
        return tuple(StageChoice(*key, again) for again in sorted(set(modes)) for key in sorted(self.tables))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Devices of each node group for one data rank."""
        used = {group for group, _ in self.tables}
        return tuple(
            group.num_ranks // self.degrees.data if number in used else 0 for number, group in enumerate(self.groups)
        )

    @cached_property
    def bound_ns(self) -> int:
        """No schedule of any plan of the arm takes a shorter step."""
        options = [
            replace(self._light_option(choice), layer_ns=self.tables[choice.group, choice.tensor].least_layer_ns)
            for choice in self.choices
        ]
        way_ns = np.min([tables.least_way_ns for tables in self.tables.values()], axis=0)
        return max(self.degrees.num_micro_batches * fluid_ns(options, self.counts), int(way_ns.sum()))

    def _light_option(self, choice: StageChoice) -> StageOption:
        tables, nothing = self.tables[choice.group, choice.tensor], np.zeros((0, 0), np.int64)
        again = np.array([price.forward_ns for price in tables.prices]) if choice.recomputes else 0
        return StageOption(
            choice.group, choice.tensor, nothing, nothing, tables.layer_ns + again, tables.layer_state_bytes
        )

    @cached_property
    def most_stages(self) -> int:
        limits, num_layers = self.constraints, len(next(iter(self.tables.values())).prices)
        smallest = min(tensor for _, tensor in self.tables)
        return min(num_layers, sum(self.counts) // smallest, limits.num_stages or limits.most_stages or num_layers)

    @cached_property
    def table_bytes(self) -> int:
        """Of one evaluation of the exact programme, about."""
        entries = 1
        for group, count in enumerate(self.counts):
            held = [tensor for number, tensor in self.tables if number == group]
            if held:
                entries *= min(count // min(held), self.most_stages * max(held) // min(held)) + 1
        levels = 1 if len({tensor for _, tensor in self.tables}) == 1 else self.most_stages
        return 8 * entries * levels * (len(next(iter(self.tables.values())).prices) + 1)

    def coarser(self) -> "Arm | None":
        """Without the smallest tensor degree of the group with the most vectors; None where each has one degree."""
        held: dict[int, list[int]] = {}
        for group, tensor in sorted(self.tables):
            held.setdefault(group, []).append(tensor)
        several = [group for group, degrees in held.items() if len(degrees) > 1]
        if not several:
            return None
        group = max(several, key=lambda number: (self.counts[number] // held[number][0], -number))
        return replace(
            self, tables={key: found for key, found in self.tables.items() if key != (group, held[group][0])}
        )

    @property
    def fewest_stages(self) -> int:
        return self.constraints.num_stages or 1

    @cached_property
    def chain(self) -> Chain:
        """Messages lengthen round trips to the end: no cut is worth less than this says."""
        front_ns = np.max([self._messages_ns(choice) for choice in self.choices], axis=0)
        return self._chain([self._option(choice) for choice in self.choices], front_ns)

    @cached_property
    def patient_chain(self) -> Chain:
        """Every stage waits for both messages of its border: hardly a cut is worth more than this says."""
        options = [self._option(choice) for choice in self.choices]
        messages_ns = [self._messages_ns(choice)[:, None] for choice in self.choices]
        pairs = zip(options, messages_ns, strict=True)
        return self._chain([replace(option, time_ns=option.time_ns + more_ns) for option, more_ns in pairs], None)

    def _chain(self, options: Sequence[StageOption], front_ns: Integers | None) -> Chain:
        m = self.degrees.num_micro_batches
        problem = PartitionProblem(
            options=tuple(options),
            counts=self.counts,
            num_micro_batches=m,
            in_flight=tuple(min(j, m) for j in range(1, self.most_stages + 1)),
            usable_bytes=tuple(group.usable_bytes for group in self.groups),
            fewest_stages=self.fewest_stages,
            front_ns=front_ns,
        )
        return Chain(problem)

    def _option(self, choice: StageChoice) -> StageOption:
        tables, light = self.tables[choice.group, choice.tensor], self._light_option(choice)
        backward_ns = tables.recomputed_backward_ns if choice.recomputes else tables.backward_ns
        stage_ns = tables.forward_ns + backward_ns
        return StageOption(
            kind=choice.group,
            size=choice.tensor,
            time_ns=stage_ns,
            most_in_flight=tables.surely_in_flight(recomputes=choice.recomputes),
            layer_ns=light.layer_ns,
            layer_state_bytes=light.layer_state_bytes,
            reduction_ns=self._after_ns(choice),
            way_ns=stage_ns + self._messages_ns(choice)[:, None],
        )

    def _messages_ns(self, choice: StageChoice) -> Integers:
        """Activation and gradient of the border in front of each layer."""
        tables = self.tables[choice.group, choice.tensor]
        return np.array([2 * self._message_ns(choice, int(size)) for size in tables.border_bytes], np.int64)

    def _message_ns(self, choice: StageChoice, num_bytes: int) -> int:
        """Over the slowest link that a neighbour may sit behind: another node as soon as there is one."""
        cluster, own = self.costs.problem.cluster, self.groups[choice.group]
        others = [group.name for group in self.groups if group.num_nodes > 1 or group.name != own.name]
        links = [cluster.link(name, own.name, "between_nodes") for name in others]
        links += [] if any(links) else [cluster.link(own.name, own.name, "inside_node")]
        return max((message_ns(link, num_bytes) for link in links if link is not None), default=0)

    def _after_ns(self, choice: StageChoice) -> Integers:
        """Sum of gradients over the data ranks as a ring, and the update; of every stage."""
        group, profile = self.groups[choice.group], self.costs.kinds[self.groups[choice.group].device_kind].profile
        params = spans(np.array([layer.num_trained_params for layer in profile.layers], np.int64))
        overheads = profile.overheads
        share = params / (choice.tensor * self.shards)
        update_ns = overheads.update_ns + np.round(share * overheads.update_ns_per_million_params / 1e6)
        data = self.degrees.data
        tier: Tier = "inside_node" if data * choice.tensor <= group.ranks_per_node else "between_nodes"
        link = self.costs.problem.cluster.link(group.name, group.name, tier)
        if data == 1 or link is None:
            return update_ns.astype(np.int64)
        parts = -(-params * GRADIENT_BYTES // (choice.tensor * data))
        by_bytes = {size: 2 * (data - 1) * message_ns(link, size) for size in np.unique(parts).tolist()}
        sums_ns = np.vectorize(by_bytes.__getitem__, otypes=[np.int64])(parts)
        return np.asarray(update_ns.astype(np.int64) + sums_ns)


def tensor_degrees(costs: ProblemCosts, constraints: Constraints) -> dict[str, tuple[int, ...]]:
    """By node group: what the profile of its kind prices, ascending; each divides the next one and the node."""
    found = {}
    for group in costs.problem.cluster.node_groups:
        profile = costs.kinds[group.device_kind].profile
        priced = [
            {point.tensor for point in profile.usable_points(layer) if point.context == point.experts == 1}
            for layer in range(len(profile.layers))
        ]
        fitting, above = list[int](), group.ranks_per_node
        for degree in sorted(set.intersection(*priced), reverse=True):
            is_wanted = not constraints.tensor_degrees or degree in constraints.tensor_degrees
            if is_wanted and above % degree == 0:
                fitting.append(degree)
                above = degree
        found[group.name] = tuple(reversed(fitting))
    return found


def arms(costs: ProblemCosts, constraints: Constraints, reach: Reach, graph: LayerGraph) -> Iterator[Arm]:
    """Every data degree and micro-batch size that the constraints allow and the profiles price."""
    builders: dict[tuple[int, int, int], TableBuilder] = {}
    for degrees in allowed_degrees(costs.problem, constraints):
        shards = degrees.data if reach.shares_optimizer else 1
        tables = {}
        for number, group in enumerate(costs.problem.cluster.node_groups):
            if group.device_kind in constraints.unused_kinds:
                continue
            for tensor in _held(reach.tensor[group.name], group.num_ranks // degrees.data):
                key = (number, tensor, shards)
                if key not in builders:
                    builders[key] = _builder((costs, constraints, graph), group, tensor, shards)
                try:
                    tables[number, tensor] = builders[key].build(degrees.micro_batch_size)
                except PriceError:
                    continue  # this size is beyond what the profile measured; the arm may have other kinds
        if tables:
            yield Arm(costs, constraints, degrees, shards, tables)


def _held(degrees: Sequence[int], count: int) -> list[int]:
    return [degree for degree in degrees if degree <= count]


def _builder(
    facts: tuple[ProblemCosts, Constraints, LayerGraph], group: NodeGroup, tensor: int, shards: int
) -> TableBuilder:
    costs, constraints, graph = facts
    cut = StateCut(tensor, shards, "optimizer" if shards > 1 else "nothing")
    device_class = DeviceClass(group.name, group.device_kind, group.usable_bytes, ())
    return TableBuilder(costs, graph, constraints, device_class, cut)
