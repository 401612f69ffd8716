"""Bytes from outside -> a checked document, or an error that lists what is wrong and never repeats the input.

Two readers look at the same bytes: ours refuses what JSON libraries let pass (duplicate keys, NaN, numbers beyond
2^53, lone surrogates, depth) and lists that are too long, then pydantic validates the contract in strict mode.
"""

import json
import re
from typing import TypeVar

from pydantic import ValidationError

from planner.errors import ContractError, Fault, JsonError
from planner.problem.contract import Contract
from planner.problem.faults import contract_faults
from planner.problem.limits import length_fault
from planner.units import LARGEST_INTEGER

__all__ = ["MOST_DEPTH", "MOST_FAULTS", "MOST_KEYS", "check_json", "contract_faults", "read_document"]

MOST_DEPTH = 64
MOST_KEYS = 10_000  # of one object
MOST_FAULTS = 20  # listed; the rest is counted

_Document = TypeVar("_Document", bound=Contract)


class _RefusedError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


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


def check_json(data: bytes) -> object:
    """The JSON value in ``data``, with the looseness of JSON readers refused.

    Raises ``JsonError`` (json_invalid, json_depth, encoding) where the bytes are not one JSON value, and
    ``ContractError`` (duplicate_key, not_finite, range, unicode, too_many_items) where the value is no document.
    """
    text = _decoded(data)
    try:
        value: object = json.loads(
            text, object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant
        )
    except _RefusedError as refused:
        raise ContractError((Fault(refused.code, "", str(refused)),)) from None
    except RecursionError:
        raise _depth_error() from None
    except json.JSONDecodeError as error:
        message = f"not one JSON value: {error.msg} at line {error.lineno} column {error.colno}"
        raise JsonError((Fault("json_invalid", "", message),)) from None
    _check_depth(value)
    if _SURROGATE_ESCAPE.search(text):
        _check_unicode(value)
    return value


_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def _decoded(data: bytes) -> str:
    if data[:3] == b"\xef\xbb\xbf":
        raise JsonError((Fault("encoding", "", "found a byte order mark, expected UTF-8 without one"),))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8 at byte {error.start}"
        raise JsonError((Fault("encoding", "", message),)) from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(pairs) > MOST_KEYS:
        raise _RefusedError("too_many_items", f"an object with {len(pairs)} keys, expected at most {MOST_KEYS}")
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _RefusedError("duplicate_key", "an object with the same key twice")
    return result


def _int(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > LARGEST_INTEGER:
        raise _RefusedError("range", f"a whole number of {len(digits.lstrip('-'))} digits, expected at most 2^53-1")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise _RefusedError("not_finite", "a number too large to be finite")
    if abs(value) > LARGEST_INTEGER:
        raise _RefusedError("range", "a number beyond 2^53-1")
    return value


def _constant(name: str) -> float:
    raise _RefusedError("not_finite", f"found {name}, expected a finite number")


def _depth_error() -> JsonError:
    return JsonError((Fault("json_depth", "", f"nested deeper than {MOST_DEPTH} levels"),))


def _check_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MOST_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise _depth_error()


def _children(value: object) -> list[object]:
    """The containers inside a container."""
    if isinstance(value, dict):
        return [child for child in value.values() if isinstance(child, dict | list)]
    if isinstance(value, list):
        return [child for child in value if isinstance(child, dict | list)]
    return []


def _check_unicode(value: object) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            _check_text(item)
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.keys())
            waiting.extend(item.values())


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ContractError((Fault("unicode", "", "a string with a lone surrogate"),)) from None


_SCHEMA_TEXT = re.compile(r"[a-z]{1,20}/[0-9]{1,6}|no schema")  # anything else is not repeated


def _check_schema(value: object, kind: type[Contract]) -> None:
    if not isinstance(value, dict):
        raise ContractError((Fault("type", "", f"found {_json_type(value)}, expected an object"),))
    field = kind.model_fields.get("schema_version")
    if field is None:
        return
    (expected,) = field.annotation.__args__  # type: ignore[union-attr]  # Literal["plan/1"]
    if value.get("schema") != expected:
        found = value.get("schema", "no schema")
        said = found if isinstance(found, str) and _SCHEMA_TEXT.fullmatch(found) else "another"
        raise ContractError((Fault("schema", "/schema", f"found {said}, supported: {expected}"),))


def _json_type(value: object) -> str:
    names: list[tuple[type, str]] = [(bool, "a boolean"), (str, "a string"), (list, "an array")]
    return next((name for kind, name in names if isinstance(value, kind)), "null" if value is None else "a number")
