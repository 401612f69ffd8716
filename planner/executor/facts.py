"""What one rank knows before it touches a weight or sends a message, and the part of it that all must agree on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner import __version__
from planner.cutting.cut import cut_model
from planner.cutting.layer import CutModel
from planner.errors import ExecutorError, HandshakeError
from planner.executor.devices import device_kind
from planner.executor.layout import StageLayout, layouts, local_samples
from planner.executor.shapes import BatchShape, Extent, LayerShapes, TensorShape, batch_shape, layer_shapes
from planner.executor.sums import BucketPlan, bucket_plans
from planner.executor.support import refuse_clipped, refuse_stale, refuse_unsupported
from planner.executor.team import Team
from planner.executor.weights import WeightTable, check_model, check_trained, weight_table
from planner.plan.plan import Plan
from planner.schedules.lower import LoweredPlan, Send, lower

__all__ = ["Facts", "Wish", "comparable", "gather_facts"]


@dataclass(frozen=True)
class Wish:
    """What the caller of ``Executor`` gave."""

    plan: Plan
    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer_factory: Callable[[Iterable[nn.Parameter]], Optimizer]
    cut: Sequence[str] | None
    seed: int
    emulate: bool
    most_stale: int  # updates between a forward and its backward that the caller accepts
    max_gradient_norm: float | None


@dataclass(frozen=True)
class Facts:
    """What this rank worked out alone, without moving a weight or sending a message."""

    lowered: LoweredPlan
    cut: CutModel
    layouts: dict[tuple[int, int], StageLayout]
    shapes: LayerShapes
    batch: BatchShape
    table: WeightTable
    buckets: tuple[BucketPlan, ...]


def gather_facts(wish: Wish, team: Team) -> Facts:
    """Raises what this rank alone can find wrong."""
    plan = wish.plan
    refuse_unsupported(plan)
    refuse_stale(plan, wish.most_stale)
    refuse_clipped(plan, wish.max_gradient_norm)
    if team.num_ranks != plan.num_ranks:
        raise HandshakeError(
            f"found {team.num_ranks} ranks, expected the plan's {plan.num_ranks}", code="world_size", pointer="/nodes"
        )
    _check_device(wish, team)
    cut = cut_model(wish.model, wish.cut)
    check_model(plan, cut)
    check_trained(plan, cut)
    _check_causal(plan, cut)
    batch = batch_shape(plan, wish.model)
    lowered = lower(plan)
    table = weight_table(plan, cut)
    return Facts(
        lowered=lowered,
        cut=cut,
        layouts=layouts(plan),
        shapes=layer_shapes(cut.layers, plan.graph, batch, extents=_extents(plan, lowered)),
        batch=batch,
        table=table,
        buckets=bucket_plans(lowered.pieces, table, plan.graph),
    )


def _check_device(wish: Wish, team: Team) -> None:
    found = device_kind(team.device)
    expected = wish.plan.group_kind(wish.plan.group_of_rank[team.rank])
    if found != expected and not wish.emulate:
        raise HandshakeError(
            f"rank {team.rank} is a {found!r}, the plan is for {expected!r}: "
            "to run it all the same give planner run --emulate, or emulate=True to the Executor",
            code="device_kind",
            pointer="/nodes",
        )


def _check_causal(plan: Plan, cut: CutModel) -> None:
    """A slice knows nothing of the tokens behind it."""
    if all(batch.num_slices == 1 for batch in plan.micro_batches):
        return
    for layer in cut.layers:
        if not layer.causal:
            raise ExecutorError(
                f"layer {layer.id!r} is not causal, expected causal layers: the plan cuts samples into slices",
                code="not_causal",
                pointer=layer.id,
            )


def _extents(plan: Plan, lowered: LoweredPlan) -> set[Extent]:
    """How many samples and tokens a rank or a message holds, anywhere in the plan."""
    found = {
        Extent(local_samples(plan, stage, rank, micro_batch=number).size, batch.tokens(part).size)
        for number, batch in enumerate(plan.micro_batches)
        for part in range(batch.num_slices)
        for stage in plan.routes[batch.route]
        for rank in plan.groups[plan.stages[stage].group]
    }
    messages = (entry.message for entries in lowered.lists for entry in entries if isinstance(entry, Send))
    return found | {Extent(one.samples.size, sum(part.size for part in one.tokens)) for one in messages}


def comparable(wish: Wish, facts: Facts) -> dict[str, str]:
    """What must be equal on all ranks, by name; the code of a difference is the name's first word."""
    plan = wish.plan
    found = {
        "plan": plan.digest,
        "schema": plan.schema_version,
        "version of planner": __version__,
        "version of torch": str(torch.__version__),
        "model": facts.cut.fingerprint,
        "cut": "automatic" if wish.cut is None else " ".join(wish.cut),
        "seed": str(wish.seed),
        "max_gradient_norm": str(wish.max_gradient_norm),
        "weights": facts.table.digest,
        "batch": TensorShape((facts.batch.samples, *facts.batch.inner), facts.batch.dtype).text,
    }
    for (route, _), layout in sorted(facts.layouts.items()):
        for border in layout.given:
            for layer in border.layers:
                found[f"border {border.text} route {route} layer {layer}"] = _shapes_text(facts.shapes, layer)
    for number, bucket in enumerate(facts.buckets):
        found[f"bucket {number}"] = bucket.text
    return found


def _shapes_text(shapes: LayerShapes, layer: int) -> str:
    return " or ".join(of_layer[layer].text for of_layer in shapes.by_extent.values())
