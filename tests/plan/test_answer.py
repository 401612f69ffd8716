"""What a solver child says: one event a line, exactly one member, an answer that is whole."""

import json

import pytest

from planner.plan.answer import ChildEvent
from planner.problem.canonical import document_bytes
from planner.problem.reading import read_document
from tests.helpers.edits import refusal
from tests.helpers.plan_json import EXAMPLE

Json = dict[str, object]
REASON: Json = {"code": "memory", "message": "stage 0 needs 2 GB, 'a' has 1 GB", "layer": 0}


def _event(**members: object) -> Json:
    return {"schema": "child/1", **members}


@pytest.mark.parametrize(
    "event",
    [
        _event(progress={"phase": "partition", "bound_ns": 5}),
        _event(incumbent=EXAMPLE),
        _event(answer={"status": "succeeded", "limit": "optimal", "plan": EXAMPLE}),
        _event(answer={"status": "infeasible", "limit": "optimal", "reasons": [REASON]}),
        _event(answer={"status": "succeeded", "limit": "wall", "plan": EXAMPLE, "warnings": [REASON]}),
        _event(failure={"code": "out_of_memory", "message": "x"}),
        _event(failure={"code": "internal", "message": "x"}, answer=None),
    ],
)
def test_an_event_is_one_line_and_comes_back(event: Json) -> None:
    read = read_document(json.dumps(event).encode(), ChildEvent)
    line = document_bytes(read)
    assert b"\n" not in line
    assert read_document(line, ChildEvent) == read


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (_event(), "event"),
        (_event(progress={"phase": "a"}, failure={"code": "internal", "message": "x"}), "event"),
        (_event(answer={"status": "succeeded", "limit": "optimal"}), "answer"),
        (_event(answer={"status": "infeasible", "limit": "optimal"}), "answer"),
        (_event(answer={"status": "infeasible", "limit": "optimal", "plan": EXAMPLE, "reasons": [REASON]}), "answer"),
        (_event(answer={"status": "succeeded", "limit": "optimal", "plan": EXAMPLE, "reasons": [REASON]}), "answer"),
        (_event(answer={"status": "succeeded", "limit": "tired", "plan": EXAMPLE}), "choice"),
        (_event(failure={"code": "bored", "message": "x"}), "choice"),
        (_event(failure={"code": "internal", "message": "x" * 1025}), "limit"),
        (_event(done=True), "unknown_field"),
        ({"schema": "child/2", "progress": {"phase": "a"}}, "schema"),
    ],
)
def test_an_event_that_is_no_event(event: Json, code: str) -> None:
    assert refusal(event, ChildEvent).code == code
