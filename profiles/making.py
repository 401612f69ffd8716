"""Make a user's model in a measuring process, and say in their words what went wrong."""

from torch import nn

from planner.errors import DeviceError, ModelError, PlannerError
from profiles.blame import FAILURES, blame
from profiles.source import ModelSource, load_named

__all__ = ["make_model"]


def make_model(source: ModelSource) -> nn.Module:
    """What the factory gives. Raises ``ModelError`` where it fails or that is no model."""
    factory = load_named(source.factory, source.folder)
    try:
        made = factory()
    except PlannerError:
        raise
    except FAILURES as error:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            raise DeviceError(f"{source.factory} ran out of memory: {blame(error)}", code="no_memory") from None
        message = f"{source.factory} failed: {blame(error)}"
        raise ModelError(message, code="factory_failed", pointer=source.factory) from None
    if not isinstance(made, nn.Module):
        raise ModelError(
            f"{source.factory} gave {type(made).__name__}, expected an nn.Module",
            code="bad_source",
            pointer=source.factory,
        )
    return made
