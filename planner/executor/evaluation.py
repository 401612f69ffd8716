"""Forward only: modules as in evaluation, and the plan without its backward."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn

from planner.plan.instruction import stream_text
from planner.plan.plan import Plan

__all__ = ["only_forward", "without_dropout"]


@contextmanager
def without_dropout(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, no module of the layers is in training."""
    training = [module for module in {module for layer in layers for module in layer.modules()} if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


def only_forward(plan: Plan) -> Plan:
    """The same plan without its backward: what is legal in order stays so with parts left out."""
    slices = [batch.num_slices for batch in plan.micro_batches]
    streams = tuple(stream_text((i for i in stream if i.operation == "F"), slices) for stream in plan.instructions)
    fields = {name: getattr(plan, name) for name in Plan.model_fields}
    return Plan(**{**fields, "streams": streams, "prediction": None, "provenance": None})
