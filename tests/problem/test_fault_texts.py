"""Every refusal of a document says what was expected in our words; pydantic's own words never come out."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from planner.errors import DocumentError
from planner.plan.plan import Plan
from planner.problem.cluster import Cluster
from planner.problem.contract import Contract
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from planner.problem.request import Request
from planner.problem.workload import Workload
from tests.helpers import service_documents as documents

VALUES: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    7,
    2**53 - 1,
    0.5,
    "",
    "Zq9\aMarker",  # no name: names that passed their own check may come back
    "x" * 5000,
    [],
    [None],
    {},
    {"a": 1},
)
PYDANTIC = (
    "Input should",
    "Value error",
    "should be",
    "valid ",
    "expected another value",
    "Unable to",
    "Field required",
)


def plan() -> dict[str, Any]:
    profiles = (ModelProfile.model_validate_json(json.dumps(documents.profile())),)
    cluster = Cluster.model_validate_json(json.dumps(documents.cluster()))
    workload = Workload.model_validate_json(json.dumps(documents.workload()))
    return documents.plan_for(Problem(profiles, cluster, workload))


DOCUMENTS: dict[str, tuple[type[Contract], Any]] = {
    "profile": (ModelProfile, documents.profile),
    "cluster": (Cluster, documents.cluster),
    "request": (Request, lambda: {**documents.request(), "constraints": {"families": ["1f1b"], "pins": []}}),
    "plan": (Plan, plan),
}


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place of a JSON value; of an array the first item stands for all."""
    yield at
    if isinstance(value, dict):
        for key, child in value.items():
            yield from places(child, (*at, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*at, 0))


def changed(document: Any, place: tuple[str | int, ...], value: object) -> Any:
    if not place:
        return value
    document = copy.deepcopy(document)
    parent = document
    for part in place[:-1]:
        parent = parent[part]
    parent[place[-1]] = value
    return document


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_wrong_value_at_every_place_is_refused_in_our_words(name: str) -> None:
    contract, make = DOCUMENTS[name]
    document = make()
    refused = 0
    for place in places(document):
        for value in VALUES:
            try:
                read_document(json.dumps(changed(document, place, value)).encode(), contract)
            except DocumentError as error:
                refused += 1
                for fault in error.faults:
                    text = f"{place} = {str(value)[:20]}: {fault}"
                    assert not any(words in fault.message for words in PYDANTIC), text
                    assert "Zq9" not in fault.message or fault.code == "stream_text", text
                    assert "1 items" not in fault.message, text
                    assert fault.code == fault.code.lower(), text
                    assert fault.code.count("_") <= 3, text
                places_of = [fault.pointer for fault in error.faults if fault.code != "too_short"]
                alone = [fault for fault in error.faults if fault.code == "too_short"]
                assert not any(one.startswith(fault.pointer + "/") for fault in alone for one in places_of)
    assert refused > 100


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("workload", "global_batch_size"), "8", "found a string, expected a whole number"),
        (("workload", "global_batch_size"), 8.0, "found a number with a fraction or exponent, expected a whole number"),
        (("workload",), [], "found an array, expected an object"),
        (("profiles",), [], "expected at least 1 item"),
        (("profiles",), {}, "found an object, expected an array"),
        (("seed",), None, "found null, expected a whole number"),
        (("mode",), "slow", "expected 'reproducible' or 'fast'"),
        (("profiles", 0, "device", "kind"), 3, "found a whole number, expected a string"),
    ],
)
def test_one_fault_one_sentence(place: tuple[str | int, ...], value: object, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_document(json.dumps(changed(documents.request(), place, value)).encode(), Request)
    assert [fault.message for fault in caught.value.faults] == [message]
    assert caught.value.faults[0].pointer == "/" + "/".join(str(part) for part in place)


@pytest.mark.parametrize(
    ("data", "code", "pointer"),
    [
        (b'{"schema":"request/1","workload":{"a":1,"b":2,"a":3}}', "duplicate_key", "/workload"),
        (b'{"schema":"request/1","profiles":[{"device":{"kind":"a\\ud800"}}]}', "unicode", "/profiles/0/device/kind"),
        (b'{"schema":"request/1","profiles":[{"\\udc00":1}]}', "unicode", "/profiles/0"),
    ],
)
def test_faults_of_the_json_name_their_place(data: bytes, code: str, pointer: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_document(data, Request)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)
