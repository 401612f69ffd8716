"""Which plans this executor carries out. What it cannot is refused by name, before any process group is used.

A legal plan may say more than this version runs: spread inside a group other than over samples. Nothing is
approximated.
"""

from collections.abc import Callable

from planner.errors import UnsupportedPlanError
from planner.executor.gathering import update_of_micro_batch
from planner.plan.dependencies import Dependencies
from planner.plan.pieces import staleness
from planner.plan.plan import Plan

__all__ = ["refuse_clipped", "refuse_stale", "refuse_unsupported"]


def refuse_unsupported(plan: Plan) -> None:
    """Raises ``UnsupportedPlanError`` that names the first feature that this executor lacks."""
    for rule in _RULES:
        rule(plan)


def refuse_stale(plan: Plan, most_stale: int) -> None:
    """Weights of a backward may be older than its update; that changes results, so the caller has to accept it."""
    found = staleness(plan)
    if max(found) > most_stale:
        stage = found.index(max(found))
        raise UnsupportedPlanError(
            f"stage {stage} updates its weights up to {max(found)} times between a forward and its backward, accepted "
            f"are {most_stale}: this changes results; give the Executor most_stale={max(found)} to run it all the same",
            code="stale_plan",
            pointer=f"/stages/{stage}",
        )


def refuse_clipped(plan: Plan, max_gradient_norm: float | None) -> None:
    """Updates that do not wait for each other have no common norm to be clipped by."""
    num_updates = Dependencies(plan).num_updates
    if max_gradient_norm is not None and num_updates > 1:
        raise _unsupported("max_gradient_norm with several updates in a step", f"{num_updates} updates", "/streams")


def _several_updates(plan: Plan) -> None:
    update_of_micro_batch(plan)


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


def _precision(plan: Plan) -> None:
    if plan.precision != "fp32":
        raise _unsupported("reduced precision", plan.precision, "/precision")


_RULES: tuple[Callable[[Plan], None], ...] = (
    _meshes,
    _recompute,
    _precision,
    _several_updates,
)
