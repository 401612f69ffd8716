"""JSON documents with one thing changed, and what reading them says."""

import copy
import json
from typing import TypeVar

import pytest

from planner.errors import DocumentError
from planner.problem.canonical import document_bytes
from planner.problem.contract import Contract
from planner.problem.reading import read_document

__all__ = ["edited", "json_of", "refusal", "without"]

Json = dict[str, object]
_Document = TypeVar("_Document", bound=Contract)


def json_of(document: Contract) -> Json:
    """A document as JSON, defaults written out."""
    value: Json = json.loads(document_bytes(document))
    return value


def edited(value: Json, pointer: str, new: object) -> Json:
    """A copy with ``new`` at the JSON pointer; the last part may be a new key, or ``-`` to append."""
    result = copy.deepcopy(value)
    place, last = _place(result, pointer)
    if isinstance(place, list) and last == "-":
        place.append(new)
    else:
        place[int(last) if isinstance(place, list) else last] = new
    return result


def without(value: Json, pointer: str) -> Json:
    """A copy without what stands at the JSON pointer."""
    result = copy.deepcopy(value)
    place, last = _place(result, pointer)
    del place[int(last) if isinstance(place, list) else last]
    return result


def _place(value: object, pointer: str):  # type: ignore[no-untyped-def]
    *path, last = pointer.split("/")[1:]
    for part in path:
        value = value[int(part) if isinstance(value, list) else part]  # type: ignore[index]
    return value, last


def refusal(value: Json | bytes, kind: type[_Document]) -> DocumentError:
    """The error that refuses a document; the test fails where it is accepted."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(DocumentError) as caught:
        read_document(data, kind)
    return caught.value
