"""The types of a model's weights against the precision that it is measured, planned and trained in.

Nothing is converted on the way: a plan is made for the model as it is trained, and its fingerprint covers the types.
"""

import torch

from planner.cutting.layer import CutLayer, CutModel
from planner.errors import ModelError
from planner.problem.workload import Precision

__all__ = ["DTYPES", "require_precision"]

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def require_precision(model: CutModel, precision: Precision) -> None:
    """Raises ``ModelError`` naming the first layer with a weight of another type."""
    for layer in model.layers:
        _require(layer, precision)


def _require(layer: CutLayer, precision: Precision) -> None:
    expected = DTYPES[precision]
    for name, parameter in layer.parameters.items():
        if parameter.is_floating_point() and parameter.dtype != expected:
            raise ModelError(
                f"layer {layer.id!r}: found {name!r} in {_short(parameter.dtype)}, expected {_short(expected)} "
                f"({precision}): make the model in {_short(expected)}{_advice(parameter.dtype)}",
                code="precision_mismatch",
                pointer=layer.id,
            )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _advice(found: torch.dtype) -> str:
    fitting = next((precision for precision, dtype in DTYPES.items() if dtype == found), None)
    return f", or ask for the precision {fitting}" if fitting else ""
