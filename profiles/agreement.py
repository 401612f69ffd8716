"""All ranks must have made the same model: their samples are pooled and their memory figures dealt out by number."""

from collections.abc import Sequence

from planner.errors import ModelError
from planner.problem.contract import Contract
from planner.problem.profile import Layer
from profiles.protocol import Description

__all__ = ["require_one_model"]

_OF_THE_MODEL = ("model_class", "model_fingerprint", "reads", "tied", "measured", "split", "update_params")


def require_one_model(descriptions: Sequence[Description], factory: str) -> None:
    """Raises ``ModelError`` (models_differ) with the first rank that differs from rank 0, and in what."""
    first = descriptions[0]
    for rank, other in enumerate(descriptions):
        difference = _layers_difference(first.layers, other.layers) or _difference(first, other, _OF_THE_MODEL)
        if difference is not None:
            raise ModelError(
                f"{factory} made another model on rank {rank} than on rank 0: {difference}; "
                "expected the same model on every rank",
                code="models_differ",
                pointer=factory,
            )


def _layers_difference(expected: Sequence[Layer], found: Sequence[Layer]) -> str | None:
    if len(found) != len(expected):
        return f"found {len(found)} layers, rank 0 has {len(expected)}"
    names = tuple(name for name in Layer.model_fields if name != "fingerprint")
    for number, (mine, its) in enumerate(zip(expected, found, strict=True)):
        difference = _difference(mine, its, (*names, "fingerprint"))  # it alone says nothing to a person
        if difference is not None:
            return f"layer {number} ({its.id!r}): {difference}"
    return None


def _difference(expected: Contract, found: Contract, names: Sequence[str]) -> str | None:
    for name in names:
        mine, its = getattr(expected, name), getattr(found, name)
        if mine != its:
            return f"found {name} {_short(its)}, rank 0 has {_short(mine)}"
    return None


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
