"""One JSON value from bytes, with the looseness of JSON libraries refused.

Duplicate keys (the last would win), NaN and infinities, numbers that other readers round (beyond 2^53-1), lone
surrogates, depth, objects with very many keys, byte order marks. RFC 8259 leaves most of these open; I-JSON (RFC 7493)
forbids them.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from planner.errors import ContractError, Fault, JsonError
from planner.problem.faults import pointer_text
from planner.units import LARGEST_INTEGER

__all__ = ["MOST_DEPTH", "MOST_KEYS", "check_json"]

MOST_DEPTH = 64
MOST_KEYS = 10_000  # of one object
_LONG_INTEGER = re.compile(r"[0-9]{16}")  # 2^53-1 has 16 digits
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def check_json(data: bytes) -> object:
    """The JSON value in ``data``, with the looseness of JSON readers refused.

    Raises ``JsonError`` (json_invalid, json_depth, encoding) where the bytes are not one JSON value, and
    ``ContractError`` (duplicate_key, not_finite, range, unicode, too_many_items) where the value is no document.
    """
    text = _decoded(data)
    refusals = _Refusals()
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=refusals.pairs,
            parse_float=refusals.real,
            parse_int=refusals.whole if _LONG_INTEGER.search(text) else None,  # a call a number costs a third of all
            parse_constant=refusals.constant,
        )
    except RecursionError:
        raise _depth_error() from None
    except json.JSONDecodeError as error:
        message = f"not one JSON value: {error.msg} at line {error.lineno} column {error.colno}"
        raise JsonError((Fault("json_invalid", "", message),)) from None
    _check_depth(value)
    if refusals.found:
        raise ContractError((_first_refused(value),))
    if _SURROGATE_ESCAPE.search(text):
        _check_unicode(value)
    return value


def _decoded(data: bytes) -> str:
    if data[:3] == b"\xef\xbb\xbf":
        raise JsonError((Fault("encoding", "", "found a byte order mark, expected UTF-8 without one"),))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"found bytes that are not UTF-8 at byte {error.start}, expected UTF-8"
        raise JsonError((Fault("encoding", "", message),)) from None


class _Refused(NamedTuple):
    """Stands in the value where something was refused, so that its place can be told."""

    code: str
    message: str


class _Refusals:
    """What the JSON reader calls; whatever no document may hold becomes a ``_Refused``."""

    def __init__(self) -> None:
        self.found = False

    def _refuse(self, code: str, message: str) -> _Refused:
        self.found = True
        return _Refused(code, message)

    def pairs(self, pairs: list[tuple[str, object]]) -> object:
        if len(pairs) > MOST_KEYS:
            return self._refuse(
                "too_many_items", f"found an object with {len(pairs)} keys, expected at most {MOST_KEYS}"
            )
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        return self._refuse("duplicate_key", "found a key twice in this object, expected each key once")

    def whole(self, digits: str) -> object:
        if len(digits) > 17 or abs(int(digits)) > LARGEST_INTEGER:
            text = f"found a whole number of {len(digits.lstrip('-'))} digits"
            return self._refuse("range", f"{text}, expected at most {LARGEST_INTEGER} (2^53-1)")
        return int(digits)

    def real(self, digits: str) -> object:
        value = float(digits)
        if math.isinf(value):
            return self._refuse("not_finite", "found a number too large to be finite, expected a finite number")
        if abs(value) > LARGEST_INTEGER:
            return self._refuse("range", f"found a larger number, expected at most {LARGEST_INTEGER} (2^53-1)")
        return value

    def constant(self, name: str) -> object:
        return self._refuse("not_finite", f"found {name}, expected a finite number")


def _first_refused(value: object) -> Fault:
    """The first ``_Refused`` in the order of the text."""
    found = next(_refused(value, ()))
    return Fault(found.refused.code, pointer_text(found.location), found.refused.message)


class _Found(NamedTuple):
    location: tuple[str | int, ...]
    refused: _Refused


def _refused(value: object, location: tuple[str | int, ...]) -> Iterator[_Found]:
    if isinstance(value, _Refused):
        yield _Found(location, value)
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _refused(child, (*location, key))
    elif isinstance(value, list):
        for number, child in enumerate(value):
            yield from _refused(child, (*location, number))


def _depth_error() -> JsonError:
    return JsonError(
        (Fault("json_depth", "", f"found more than {MOST_DEPTH} levels of nesting, expected at most {MOST_DEPTH}"),)
    )


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
    waiting = [_Text((), value)]
    while waiting:
        location, item = waiting.pop()
        if isinstance(item, str):
            _check_text(item, location)
        elif isinstance(item, list):
            waiting.extend(_Text((*location, number), child) for number, child in enumerate(item))
        elif isinstance(item, dict):
            waiting.extend(_Text(location, key) for key in item)
            waiting.extend(_Text((*location, key), child) for key, child in item.items())


class _Text(NamedTuple):
    """A value that may hold text, and where it stands."""

    location: tuple[str | int, ...]
    value: object


def _check_text(text: str, location: tuple[str | int, ...]) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        message = "found half of a surrogate pair in a text, expected whole characters"
        raise ContractError((Fault("unicode", pointer_text(location), message),)) from None
