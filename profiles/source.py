"""Where a model to be measured comes from: a factory named ``MODULE:FACTORY`` or ``PATH.py:FACTORY``.

The name travels to the measuring processes, each of which calls the factory; nothing is pickled. The folder is
searched last, so that files beside the user's model never hide an installed package.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated

from pydantic import Field

from planner.errors import ModelError
from planner.problem.contract import Contract, Many, Name
from profiles.blame import FAILURES, blame

__all__ = ["ModelSource", "load_named"]

_Named = Annotated[str, Field(pattern=r"^[^:]+:[A-Za-z_][A-Za-z0-9_.]*$", max_length=1024)]


class ModelSource(Contract):
    """How to make the model, and how its last output becomes a loss."""

    factory: _Named  # called without arguments, gives an nn.Module
    loss: _Named | None = None  # loss(output, labels) -> sum; None: cross entropy of tokens, else squared error
    cut: Many[Name] | None = None  # None: the automatic cut
    folder: str = "."  # where MODULE is looked for when it is not installed


def load_named(text: str, folder: str) -> Callable[..., object]:
    """The function that ``MODULE:NAME`` names. Raises ``ModelError`` where there is none."""
    place, _, name = text.partition(":")
    try:
        module = _file_module(Path(folder, place)) if place.endswith(".py") else _module(place, folder)
    except ModelError:
        raise
    except FAILURES as error:
        raise ModelError(f"cannot import {place!r}: {blame(error)}", code="bad_source", pointer=text) from None
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ModelError(
            f"{place!r} has no function {name!r}, expected MODULE:FACTORY", code="bad_source", pointer=text
        )
    return found


def _module(name: str, folder: str) -> ModuleType:
    where = str(Path(folder).resolve())
    if where not in sys.path:
        sys.path.append(where)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        message = f"cannot import {name!r} (searched the installation and {where}): {error}"
        raise ModelError(message, code="bad_source", pointer=name) from None


def _file_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ModelError(f"no Python file {str(path)!r}", code="bad_source", pointer=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
