"""Lengths of lists, checked before anything is built from them: a list that is too long costs one look.

The limits are the ``max_length`` of the contracts' own fields, so they are written once.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple, get_args

from annotated_types import MaxLen

from planner.errors import Fault
from planner.problem.contract import Contract

__all__ = ["length_fault"]


class _Field(NamedTuple):
    key: str
    most: int | None
    inner: type[Contract] | None  # the contract that stands in the field, alone or as the items of a list


def length_fault(value: object, kind: type[Contract], pointer: str = "") -> Fault | None:
    """The first list of ``value`` that is longer than the contract allows, or None."""
    if not isinstance(value, dict):
        return None
    for field in _fields(kind):
        found = value.get(field.key)
        here = f"{pointer}/{field.key}"
        if isinstance(found, list) and field.most is not None and len(found) > field.most:
            return Fault("limit", here, f"found {len(found)} items, expected at most {field.most}")
        if field.inner is not None:
            for place, item in _items(found, here):
                fault = length_fault(item, field.inner, place)
                if fault is not None:
                    return fault
    return None


def _items(found: object, pointer: str) -> Iterator[tuple[str, object]]:
    if isinstance(found, list):
        yield from ((f"{pointer}/{number}", item) for number, item in enumerate(found))
    else:
        yield pointer, found


@cache
def _fields(kind: type[Contract]) -> tuple[_Field, ...]:
    """The fields of a contract that are bounded or hold something bounded."""
    fields = []
    for name, info in kind.model_fields.items():
        most = next((part.max_length for part in info.metadata if isinstance(part, MaxLen)), None)
        inner = next((held for held in _contracts(info.annotation) if _fields(held)), None)
        if inner is not None or (most is not None and info.annotation is not str):
            fields.append(_Field(info.alias or name, most, inner))
    return tuple(fields)


def _contracts(annotation: object) -> Iterator[type[Contract]]:
    if isinstance(annotation, type) and issubclass(annotation, Contract):
        yield annotation
    for argument in get_args(annotation):
        yield from _contracts(argument)
