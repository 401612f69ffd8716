"""Which plans this executor carries out. What it cannot is refused by name, before any process group is used.

A legal plan may say more than this version runs: spread inside a group other than over samples, slices, several
updates. Nothing is approximated.
"""

from collections.abc import Callable

from planner.errors import UnsupportedPlanError
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import BACKWARDS
from planner.plan.plan import Plan
from planner.units import counted

__all__ = ["refuse_unsupported"]


def refuse_unsupported(plan: Plan) -> None:
    """Raises ``UnsupportedPlanError`` that names the first feature that this executor lacks."""
    for rule in _RULES:
        rule(plan)


def _unsupported(feature: str, found: str, pointer: str) -> UnsupportedPlanError:
    return UnsupportedPlanError(
        f"the executor does not run {feature}: found {found}", code="unsupported_plan", pointer=pointer
    )


def _meshes(plan: Plan) -> None:
    for number, stage in enumerate(plan.stages):
        for axis in ("tensor", "context", "experts", "shards"):
            degree = getattr(stage.mesh, axis)
            if degree > 1:
                raise _unsupported(f"{axis} > 1", f"{axis} {degree} in stage {number}", f"/stages/{number}/mesh/{axis}")


def _recompute(plan: Plan) -> None:
    for number, stage in enumerate(plan.stages):
        layers = stage.recompute.get("selective")
        if layers:
            found = f"layers {list(layers)[:8]} of stage {number}"
            raise _unsupported("selective recompute", found, f"/stages/{number}/recompute/selective")


def _micro_batches(plan: Plan) -> None:
    tokens = plan.micro_batches[0].cuts[-1]
    for number, batch in enumerate(plan.micro_batches):
        pointer = f"/micro_batches/{number}/cuts"
        if batch.num_slices > 1:
            raise _unsupported("slices", f"{counted(batch.num_slices, 'slice')} of micro-batch {number}", pointer)
        if batch.cuts[-1] != tokens:
            found = f"{batch.cuts[-1]} tokens in micro-batch {number}, {tokens} in micro-batch 0"
            raise _unsupported("micro-batches of different lengths", found, pointer)


def _precision(plan: Plan) -> None:
    if plan.precision != "fp32":
        raise _unsupported("reduced precision", plan.precision, "/precision")


def _updates(plan: Plan) -> None:
    updates = Dependencies(plan).num_updates
    if updates > 1:
        raise _unsupported("several updates in a step", f"{counted(updates, 'update')} of a stage", "/streams")
    backward = any(i.operation in BACKWARDS for stream in plan.instructions for i in stream)
    if backward and not updates:
        raise _unsupported("gradients kept for a later plan", "backward instructions without G and U", "/streams")


def _losses(plan: Plan) -> None:
    read = {source for reads in plan.graph.layer_reads for source in reads.sources}
    for layer in range(plan.graph.num_layers - 1):
        if layer not in read:
            raise _unsupported("a loss beside the last layer's", f"layer {layer}, which no layer reads", "/graph/reads")


_RULES: tuple[Callable[[Plan], None], ...] = (
    _meshes,
    _recompute,
    _micro_batches,
    _precision,
    _updates,
    _losses,
)
