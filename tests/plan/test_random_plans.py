"""Damaged plans: refused with a code, or sound enough that every question to them has an answer."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import DocumentError
from planner.plan.borders import is_handover, transfers
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Visit, stream_text
from planner.plan.pieces import pieces, staleness
from planner.plan.plan import Plan
from planner.problem.canonical import document_bytes
from planner.problem.reading import read_document
from tests.helpers.damage import damaged
from tests.helpers.plan_json import EXAMPLE, chain_json, plan_json

Json = dict[str, object]
SKIPS = plan_json(
    groups=[[0, 1], [2]],
    stages=[
        {"group": 0, "first_layer": 0, "end_layer": 1, "mesh": {"data": 2}},
        {"group": 1, "first_layer": 1, "end_layer": 3, "recompute": {"full": [1]}},
        {"group": 0, "first_layer": 3, "end_layer": 4, "mesh": {"tensor": 2}},
    ],
    routes=[[0, 1, 2]],
    micro_batches=[{"route": 0, "samples": 2, "cuts": [0, 3, 8]}, {"route": 0, "samples": 3, "cuts": [0, 5]}],
    graph={"reads": [{"layer": 2, "sources": [0, 1]}, {"layer": 3, "sources": [0], "detached": [2]}]},
    backwards={1: "IW"},
)
GOOD = {"example": EXAMPLE, "chain": chain_json(3, 3), "skips": SKIPS}


def _ask_everything(plan: Plan) -> None:
    dependencies = Dependencies(plan)
    known = {instruction for stream in plan.instructions for instruction in stream}
    for stream in plan.instructions:
        for instruction in stream:
            assert all(wait.instruction in known for wait in dependencies.waits(instruction))
    for visit in plan.visit_operations:
        dependencies.last_backward(visit)
        for source in dependencies.of_stage(visit.micro_batch, visit.stage).reads:
            _border_is_whole(plan, source, visit)
    assert len(staleness(plan)) == len(plan.stages)
    summed = [weight for piece in pieces(plan) for weight in piece.weights]
    assert len(summed) == len(set(summed))
    assert plan.group_of_rank
    slices = [batch.num_slices for batch in plan.micro_batches]
    assert tuple(stream_text(stream, slices) for stream in plan.instructions) == plan.streams
    again = read_document(document_bytes(plan), Plan)
    assert (again, again.digest) == (plan, plan.digest)


def _border_is_whole(plan: Plan, source: int, visit: Visit) -> None:
    """As many cells arrive as the receivers hold at the border."""
    shape = plan.visit_shape(visit.micro_batch, visit.slice)
    mesh = plan.stages[visit.stage].mesh
    copies = mesh.tensor if mesh.border == "whole" else 1
    arrived = sum(transfer.num_tokens for transfer in transfers(plan, source, visit.stage, visit))
    assert arrived == shape.samples * (shape.end_token - shape.first_token) * copies
    if is_handover(plan, source, visit.stage):
        assert all(t.sender == t.receiver for t in transfers(plan, source, visit.stage, visit))


@pytest.mark.parametrize("name", list(GOOD))
def test_an_undamaged_plan_answers_everything(name: str) -> None:
    _ask_everything(read_document(json.dumps(GOOD[name]).encode(), Plan))


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
@pytest.mark.parametrize("name", list(GOOD))
def test_damaged_fields_are_refused_or_harmless(name: str, data: st.DataObject) -> None:
    _read_or_refuse(damaged(data, GOOD[name]))


@settings(max_examples=300)
@given(st.data())
@pytest.mark.parametrize("name", list(GOOD))
def test_damaged_streams_are_refused_or_harmless(name: str, data: st.DataObject) -> None:
    """Instructions dropped, doubled, swapped, moved to another group, of another operation."""
    streams = [str(stream).split(" ") for stream in GOOD[name]["streams"]]  # type: ignore[attr-defined]
    for _ in range(data.draw(st.integers(1, 3))):
        stream = data.draw(st.sampled_from(streams))
        if not stream:
            continue
        place = data.draw(st.integers(0, len(stream) - 1))
        change = data.draw(st.sampled_from(["drop", "double", "swap", "move", "operation"]))
        text = stream.pop(place)
        if change == "operation":
            old = next(character for character in text if character.isalpha())
            stream.insert(place, text.replace(old, data.draw(st.sampled_from("FRBIWGU"))))
        elif change != "drop":
            stream.insert(data.draw(st.integers(0, len(stream))), text)
            other = {"double": stream, "swap": [], "move": data.draw(st.sampled_from(streams))}[change]
            other.insert(data.draw(st.integers(0, len(other))), text)
    _read_or_refuse({**GOOD[name], "streams": [" ".join(stream) for stream in streams]})


def _read_or_refuse(value: Json) -> None:
    try:
        plan = read_document(json.dumps(value).encode(), Plan)
    except DocumentError as error:
        for fault in error.faults:
            assert fault.code.isidentifier()
            assert 0 < len(fault.message) <= 512
            assert fault.pointer.isprintable()
        return
    _ask_everything(plan)
