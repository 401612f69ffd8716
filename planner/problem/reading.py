"""Bytes from outside -> a checked document, or an error that lists what is wrong and never repeats the input.

Two readers look at the same bytes: ours refuses what JSON libraries let pass (``strict_json``), another schema and
lists that are too long; then pydantic validates the contract in strict mode.
"""

import re
from typing import TypeVar

from pydantic import ValidationError

from planner.errors import ContractError, Fault
from planner.problem.contract import Contract
from planner.problem.faults import contract_faults, json_type
from planner.problem.limits import length_fault
from planner.problem.strict_json import MOST_DEPTH, MOST_KEYS, check_json

__all__ = ["MOST_DEPTH", "MOST_FAULTS", "MOST_KEYS", "check_json", "contract_faults", "read_document"]

MOST_FAULTS = 20  # listed; the rest is counted

_Document = TypeVar("_Document", bound=Contract)


def read_document(data: bytes, kind: type[_Document]) -> _Document:
    """A checked document of ``kind``. Raises ``JsonError`` or ``ContractError``."""
    value = check_json(data)
    _check_schema(value, kind)
    too_long = length_fault(value, kind)
    if too_long is not None:
        raise ContractError((too_long,))
    try:
        return kind.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise ContractError(contract_faults(error)) from None


_SCHEMA_TEXT = re.compile(r"[a-z]{1,20}/[0-9]{1,6}|no schema")  # anything else is not repeated


def _check_schema(value: object, kind: type[Contract]) -> None:
    if not isinstance(value, dict):
        raise ContractError((Fault("type", "", f"found {json_type(value)}, expected an object"),))
    field = kind.model_fields.get("schema_version")
    if field is None:
        return
    (expected,) = field.annotation.__args__  # type: ignore[union-attr]  # Literal["plan/1"]
    if value.get("schema") != expected:
        found = value.get("schema", "no schema")
        known = isinstance(found, str) and _SCHEMA_TEXT.fullmatch(found)
        said = found if known else "another text" if isinstance(found, str) else json_type(found)
        raise ContractError((Fault("schema", "/schema", f"found {said}, supported: {expected}"),))
