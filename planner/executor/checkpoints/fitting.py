"""May this checkpoint go into this run? Asked before anything of the run is changed."""

from planner.errors import CheckpointError
from planner.executor.checkpoints.manifest import Manifest
from planner.executor.checkpoints.optimizer_state import optimizer_kind
from planner.executor.checkpoints.rank_state import RankState, model_name
from planner.executor.tensor_file import TENSOR_TYPES
from planner.executor.weights import Weight

__all__ = ["require_fitting"]

_SHOWN = 5


def require_fitting(manifest: Manifest, state: RankState, where: str) -> None:
    """Raises ``CheckpointError``: another model, precision or optimizer, other names, shapes or types."""
    _require_same("model", "model_mismatch", manifest.model, state.plan.graph.model, where)
    _require_same("precision", "precision_mismatch", manifest.precision, state.plan.precision, where)
    _require_same("optimizer", "optimizer_mismatch", manifest.optimizer.kind, optimizer_kind(state.optimizer), where)
    saved = {name: pieces[0] for name, pieces in manifest.by_name().items() if name.startswith("model.")}
    expected = {model_name(weight.name): weight for weight in state.weights}
    missing, extra = sorted(expected.keys() - saved.keys()), sorted(saved.keys() - expected.keys())
    if missing or extra:
        raise CheckpointError(
            f"{where} lacks {_names(missing)} and has {_names(extra)} beside the model's weights",
            code="checkpoint_names",
            pointer=where,
        )
    for name, weight in expected.items():
        found, wanted = f"{saved[name].dtype} {list(saved[name].shape)}", _said(weight)
        _require_same(name, "checkpoint_shape", found, wanted, where)


def _require_same(what: str, code: str, found: str, expected: str, where: str) -> None:
    if found != expected:
        raise CheckpointError(f"{where} has {what} {found}, expected {expected}", code=code, pointer=where)


def _said(weight: Weight) -> str:
    return f"{TENSOR_TYPES[weight.dtype]} {list(weight.shape)}"


def _names(names: list[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
