"""One part of what a search looks through: all plans of given degrees, with the costs of all their stages.

A space knows what its plans are made of and what bounds them; it chooses nothing. Device classes that the profile
cannot price for these degrees are left out and named in ``unpriced``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.costs.layers import LayerPrice, RankShape
from planner.costs.links import message_ns
from planner.costs.price import ProblemCosts
from planner.costs.stages import StateCut, layer_state_bytes
from planner.errors import PriceError
from planner.plan.graph import LayerGraph
from planner.problem.options import Constraints
from planner.problem.profile import ModelProfile
from planner.search.bounds import any_schedule_ns
from planner.search.degrees import Degrees
from planner.search.devices import DeviceClass, device_classes
from planner.search.partition import Integers
from planner.search.tables import ClassTables, spans

__all__ = ["Space", "TableBuilder", "layer_graph", "make_space"]


@dataclass(frozen=True, eq=False)
class Space:
    """``tables[class][rank samples]``: costs by device class, for each number of samples that a rank can have."""

    degrees: Degrees
    graph: LayerGraph
    classes: tuple[DeviceClass, ...]
    tables: tuple[dict[int, ClassTables], ...]
    samples: tuple[int, ...]  # of each micro-batch
    untrained: frozenset[int]
    recompute: tuple[bool, ...]
    unpriced: tuple[PriceError, ...]

    @property
    def num_layers(self) -> int:
        return self.graph.num_layers

    @property
    def num_blocks(self) -> int:
        return sum(len(device_class.blocks) for device_class in self.classes)

    def rank_samples(self, micro_batch: int) -> int:
        """Of the fullest rank."""
        return -(-self.samples[micro_batch] // self.degrees.data)

    def full(self, device_class: int) -> ClassTables:
        """The costs for the largest micro-batches."""
        return self.tables[device_class][self.degrees.micro_batch_size]

    @cached_property
    def is_plain_chain(self) -> bool:
        """Each layer reads the one before it, and every layer is trained."""
        return not self.graph.reads and not self.untrained

    @cached_property
    def bound_ns(self) -> int:
        """No schedule of any plan of this space takes a shorter step (``any_schedule``)."""
        least = [min(tables) for tables in self.tables]
        smallest = [tables[size] for tables, size in zip(self.tables, least, strict=True)]
        counts = [len(device_class.blocks) for device_class in self.classes]
        return any_schedule_ns(
            [self._without_untrained(tables, tables.least_layer_ns) for tables in smallest],
            counts,
            way_ns=[self._without_untrained(tables, tables.least_way_ns) for tables in smallest],
            num_micro_batches=self.degrees.num_micro_batches,
        )

    def _without_untrained(self, tables: ClassTables, times_ns: Integers) -> Integers:
        """A layer without trained weights may need no backward."""
        found = times_ns.copy()
        for layer in self.untrained:
            found[layer] = tables.prices[layer].forward_ns
        return found


def layer_graph(profile: ModelProfile) -> LayerGraph:
    """The graph of the model, as plans state it."""
    return LayerGraph(
        model=profile.model.fingerprint,
        num_layers=len(profile.layers),
        reads=profile.model.reads,
        tied=tuple(sorted(tied.layers for tied in profile.model.tied)),
    )


def make_space(costs: ProblemCosts, degrees: Degrees, constraints: Constraints) -> Space:
    """The space of ``degrees``; it may hold no class at all."""
    problem = costs.problem
    graph = layer_graph(problem.profiles[0])
    samples = degrees.samples(problem.workload.global_batch_size)
    sizes = sorted({-(-count // degrees.data) for count in samples})
    classes, tables, unpriced = [], [], []
    unused = constraints.unused_kinds
    found_classes = device_classes(
        problem.cluster, data=degrees.data, unused_kinds=unused, most_blocks=graph.num_layers
    )
    for device_class in found_classes:
        builder = TableBuilder(costs, graph, constraints, device_class, StateCut())
        try:
            found = {size: builder.build(size) for size in sizes}
        except PriceError as error:
            unpriced.append(error)
            continue
        classes.append(device_class)
        tables.append(found)
    return Space(
        degrees=degrees,
        graph=graph,
        classes=tuple(classes),
        tables=tuple(tables),
        samples=samples,
        untrained=frozenset(n for n, layer in enumerate(problem.profiles[0].layers) if not layer.num_trained_params),
        recompute=tuple(mode == "full" for mode in (constraints.recompute or ("none", "full"))),
        unpriced=tuple(unpriced),
    )


@dataclass(frozen=True)
class TableBuilder:
    """Makes the tables of one device class; ``state_cut``: tensor degree and how the state is dealt to the ranks."""

    costs: ProblemCosts
    graph: LayerGraph
    constraints: Constraints
    device_class: DeviceClass
    state_cut: StateCut

    def build(self, rank_samples: int) -> ClassTables:
        """Raises ``PriceError`` where the profile has no price."""
        kind = self.costs.kinds[self.device_class.device_kind]
        length = self.costs.problem.workload.sequence_length
        shape = RankShape(rank_samples, 0, length, self.state_cut.tensor)
        prices = tuple(kind.layer(layer, shape) for layer in range(self.graph.num_layers))
        border_bytes = self._border_bytes(prices)
        return ClassTables(
            device_class=self.device_class,
            prices=prices,
            per_instruction_ns=kind.profile.overheads.per_instruction_ns,
            allowed=self._allowed(),
            state_bytes=self._state_bytes,
            border_bytes=border_bytes,
            border_ns=np.array([2 * self._message_ns(int(size)) for size in border_bytes], np.int64),
            trained_params=np.array([layer.num_trained_params for layer in kind.profile.layers], np.int64),
        )

    def _border_bytes(self, prices: Sequence[LayerPrice]) -> Integers:
        """What the first layer of a stage reads from stages before it."""
        reads = self.graph.layer_reads
        return np.array([sum(prices[s].output_bytes for s in reads[layer].sources) for layer in range(len(prices))])

    def _message_ns(self, num_bytes: int) -> int:
        """Over the best link that reaches this node group; 0 where there is none, as with a single rank."""
        cluster, name = self.costs.problem.cluster, self.device_class.node_group
        links = [cluster.link(name, name, "inside_node")]
        links += [cluster.link(group.name, name, "between_nodes") for group in cluster.node_groups]
        return min((message_ns(link, num_bytes) for link in links if link is not None), default=0)

    def _allowed(self) -> np.ndarray:
        size = self.graph.num_layers
        first, end = np.arange(size)[:, None], np.arange(size + 1)[None, :]
        allowed = end > first
        for pin in self.constraints.pins:
            if pin.device_kind != self.device_class.device_kind:
                allowed &= ~((first <= pin.layer) & (pin.layer < end))
        return allowed

    @cached_property
    def _state_bytes(self) -> Integers:
        """[first, end]; of layers of the stage that share a weight the largest counts."""
        layers = self.costs.kinds[self.device_class.device_kind].profile.layers
        own = [layer_state_bytes(layer, self.costs.problem.workload, self.state_cut) for layer in layers]
        if not self.graph.tied:
            return spans(np.array(own, np.int64))
        size = self.graph.num_layers
        found = np.zeros((size, size + 1), np.int64)
        for first in range(size):
            largest: dict[int, int] = {}
            total = 0
            for layer in range(first, size):
                weight = self.graph.weight_of[layer]
                held = largest.get(weight, 0)
                largest[weight] = max(held, own[layer])
                total += largest[weight] - held
                found[first, layer + 1] = total
        return found
