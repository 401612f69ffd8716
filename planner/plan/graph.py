"""Facts that stand beside the five lists: the layer graph and the nodes that the ranks run on."""

from functools import cached_property
from typing import NamedTuple

from planner.problem.contract import Contract, Count, Digest, Index, Many, Name
from planner.problem.profile import Reads

__all__ = ["LayerGraph", "LayerReads", "Node"]


class LayerReads(NamedTuple):
    """What one layer reads; neither sources nor detached: it reads the batch."""

    sources: tuple[int, ...]
    detached: tuple[int, ...]

    @property
    def reads_batch(self) -> bool:
        return not self.sources and not self.detached


class LayerGraph(Contract):
    """Facts of the model, copied from the profile so that a plan can be checked alone."""

    model: Digest  # fingerprint: the executor refuses another model
    num_layers: Count
    reads: Many[Reads] = ()  # only layers that do not simply read the layer before them; ascending
    tied: Many[Many[Index]] = ()  # layers that share weights; disjoint, ascending

    @cached_property
    def layer_reads(self) -> tuple[LayerReads, ...]:
        """What each layer reads, the default written out."""
        stated = {reads.layer: LayerReads(reads.sources, reads.detached) for reads in self.reads}
        default = [LayerReads((layer - 1,) if layer else (), ()) for layer in range(self.num_layers)]
        return tuple(stated.get(layer, default[layer]) for layer in range(self.num_layers))

    @cached_property
    def weight_of(self) -> tuple[int, ...]:
        """The number of each layer's weight: its own number, or the lowest of the layers that it is tied to."""
        lowest = {layer: min(layers) for layers in self.tied for layer in layers}
        return tuple(lowest.get(layer, layer) for layer in range(self.num_layers))


class Node(Contract):
    """A machine; ranks are numbered node by node, in the order of the plan's list."""

    node_group: Name  # of the cluster: its links price the messages
    device_kind: Name
    num_ranks: Count
