"""The types of a model's weights against the precision that it is measured, planned and trained in.

Nothing is converted on the way: a plan is made for the model as it is trained, and its fingerprint covers the types.
"""

import torch

from planner.cutting.layer import CutModel
from planner.errors import Fault, ModelError
from planner.problem.workload import Precision

__all__ = ["DTYPES", "precision_fault", "require_precision"]

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def require_precision(model: CutModel, precision: Precision) -> None:
    """Raises ``ModelError`` naming the first layer with a weight of another type."""
    fault = precision_fault(model, precision)
    if fault is not None:
        raise ModelError(fault.message, code=fault.code, pointer=fault.pointer)


def precision_fault(model: CutModel, precision: Precision) -> Fault | None:
    """The first layer with a weight of another type, or None."""
    expected = DTYPES[precision]
    for layer in model.layers:
        for name, parameter in layer.parameters.items():
            if parameter.is_floating_point() and parameter.dtype != expected:
                found, wanted = _short(parameter.dtype), _short(expected)
                advice = f"make the model in {wanted}{_or_ask(parameter.dtype)}"
                message = f"layer {layer.id!r}: found {name!r} in {found}, expected {wanted} ({precision}): {advice}"
                return Fault("precision_mismatch", layer.id, message)
    return None


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _or_ask(found: torch.dtype) -> str:
    fitting = next((precision for precision, dtype in DTYPES.items() if dtype == found), None)
    return f", or ask for the precision {fitting}" if fitting else ""
