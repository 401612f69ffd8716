"""What goes where on a route, by layer: what a stage takes from others, what it gives, what it reads of the batch.

The plan's graph says which layers read which; a border carries the outputs that its receiver reads, ascending by
layer. Gradients go back for what is read with gradient.
"""

from collections import defaultdict
from dataclasses import dataclass

from planner.plan.mesh import Range
from planner.plan.plan import Plan

__all__ = ["Border", "StageLayout", "layouts", "local_samples"]


@dataclass(frozen=True)
class Border:
    """What ``receiver`` reads of ``sender``: ``layers`` of the sender, and which of them get a gradient back."""

    sender: int
    receiver: int
    layers: tuple[int, ...]
    gradient_layers: tuple[int, ...]

    @property
    def text(self) -> str:
        return f"{self.sender}->{self.receiver}"


@dataclass(frozen=True)
class StageLayout:
    """One stage on one route. ``taken`` and ``given``: borders by the other stage, ascending.

    ``loss_layers``: its layers whose outputs the loss is computed of.
    """

    stage: int
    taken: tuple[Border, ...]
    given: tuple[Border, ...]
    loss_layers: tuple[int, ...]
    reads_batch: bool

    @property
    def given_layers(self) -> tuple[int, ...]:
        """Layers whose outputs leave the stage."""
        return tuple(sorted({layer for border in self.given for layer in border.layers}))

    @property
    def gradient_inputs(self) -> frozenset[int]:
        """Layers of other stages that get a gradient back from this one."""
        return frozenset(layer for border in self.taken for layer in border.gradient_layers)


def layouts(plan: Plan) -> dict[tuple[int, int], StageLayout]:
    """(route, stage) -> layout."""
    gives_back = {i.stage for stream in plan.instructions for i in stream if i.operation in ("B", "I")}
    goes_back = {i.stage for stream in plan.instructions for i in stream if i.operation in ("B", "I", "W")}
    with_loss = _loss_layers(plan)
    found: dict[tuple[int, int], StageLayout] = {}
    for number, route in enumerate(plan.routes):
        borders = _borders(plan, route, gives_back, goes_back)
        for stage in route:
            layers = plan.stages[stage].layers
            found[number, stage] = StageLayout(
                stage=stage,
                taken=tuple(border for border in borders if border.receiver == stage),
                given=tuple(border for border in borders if border.sender == stage),
                loss_layers=tuple(layer for layer in layers if _has_loss(plan, layer, with_loss, stage in goes_back)),
                reads_batch=any(plan.graph.layer_reads[layer].reads_batch for layer in layers),
            )
    return found


def _loss_layers(plan: Plan) -> frozenset[int]:
    """Layers that no layer reads with gradient (docs/plan-contract.md section 8, local losses)."""
    read = {source for reads in plan.graph.layer_reads for source in reads.sources}
    return frozenset(range(plan.graph.num_layers)) - read


def _has_loss(plan: Plan, layer: int, with_loss: frozenset[int], goes_back: bool) -> bool:
    """The last layer always has one; a layer that is only read detached has one where its stage goes backward."""
    return layer == plan.graph.num_layers - 1 or (layer in with_loss and goes_back)


def _borders(plan: Plan, route: tuple[int, ...], gives_back: set[int], goes_back: set[int]) -> tuple[Border, ...]:
    holder = {layer: stage for stage in route for layer in plan.stages[stage].layers}
    read: dict[tuple[int, int], set[int]] = defaultdict(set)
    returned: dict[tuple[int, int], set[int]] = defaultdict(set)
    for layer, reads in enumerate(plan.graph.layer_reads):
        for source in (*reads.sources, *reads.detached):
            sender, receiver = holder[source], holder[layer]
            if sender == receiver:
                continue
            read[sender, receiver].add(source)
            if source in reads.sources and receiver in gives_back and sender in goes_back:
                returned[sender, receiver].add(source)
    return tuple(
        Border(sender, receiver, tuple(sorted(layers)), tuple(sorted(returned[sender, receiver])))
        for (sender, receiver), layers in sorted(read.items())
    )


def local_samples(plan: Plan, stage: int, rank: int, *, micro_batch: int) -> Range:
    """The samples of a micro-batch, counted from its first, that ``rank`` holds on ``stage``."""
    position = plan.groups[plan.stages[stage].group].index(rank)
    return plan.stages[stage].mesh.samples(position, plan.micro_batches[micro_batch].samples)
