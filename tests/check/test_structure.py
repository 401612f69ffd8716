"""Verdicts on plans alone: facts, warnings, and the first fault of documents."""

import json
import random

import pytest

from planner.check.structure import check_document, check_plan, require_legal
from planner.errors import PlanError
from planner.plan.plan import Plan
from planner.problem.canonical import document_bytes
from planner.problem.reading import read_document
from planner.schedules.build import build_plan
from tests.helpers.plans import Line, line_plan, make_parts
from tests.helpers.random_plans import random_plan


def with_streams(plan: Plan, *streams: str) -> Plan:
    return read_document(json.dumps(plan.model_dump(mode="json") | {"streams": list(streams)}).encode(), Plan)


def test_the_facts_of_a_plan() -> None:
    """Two replicas of 1F1B with 2 groups, 2 and 1 micro-batches of 4 samples: 3 x (2 F + 2 B) + 4 x (G U)."""
    plan = build_plan(make_parts([Line(2, 2, 2), Line(2, 2, 1)], num_layers=2), "1f1b")
    verdict = check_plan(plan)
    assert verdict.ok
    assert verdict.facts is not None
    facts = verdict.facts
    assert (facts.num_ranks, facts.num_groups, facts.num_stages, facts.num_routes) == (4, 4, 4, 2)
    assert (facts.num_micro_batches, facts.num_samples, facts.num_instructions) == (3, 12, 20)
    assert (facts.num_messages, facts.num_sums, facts.num_updates) == (6, 2, 1)
    assert facts.digest == plan.digest
    assert facts.staleness == (0, 0, 0, 0)
    assert verdict.warnings == ()


def test_receives_that_wait_are_counted() -> None:
    """GPipe, 5 micro-batches: all 5 activations are posted at group 1 before it starts."""
    facts = check_plan(line_plan("gpipe", 2, 5)).facts
    assert facts is not None
    assert facts.most_posted == 5


def test_asynchronous_1f1b_is_legal_but_stated() -> None:
    """p = 2, an update after each micro-batch: stage 0 goes backward with weights one update old."""
    plan = with_streams(line_plan("1f1b", 2, 2), "0F0 0F1 0B0 0G0 0U0 0B1 0G1 0U1", "1F0 1B0 1G0 1U0 1F1 1B1 1G1 1U1")
    verdict = check_plan(plan)
    assert verdict.ok
    assert verdict.facts is not None
    assert verdict.facts.staleness == (1, 0)
    assert [(w.code, w.pointer) for w in verdict.warnings] == [("staleness", "/stages/0")]
    assert "up to 1 update old" in verdict.warnings[0].message


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", "json_invalid"),
        (b'{"schema": "plan/2"}', "schema"),
        (b'{"schema": "plan/1"}', "missing"),
    ],
)
def test_documents_that_are_no_plan(data: bytes, code: str) -> None:
    verdict = check_document(data)
    assert verdict.fault is not None
    assert verdict.fault.code == code
    assert verdict.facts is None
    assert not verdict.ok


def test_the_first_bad_instruction_is_named() -> None:
    document = line_plan("1f1b", 2, 2).model_dump(mode="json")
    document["streams"][1] = "1F0 1B0 1F1 1B1 1B1 1G0 1U0"
    fault = check_document(json.dumps(document).encode()).fault
    assert fault is not None
    assert fault.code == "stream_twice"
    assert "group 1: 1B1 stands twice" in fault.message


def test_a_deadlock_names_the_blocked_heads_and_their_place() -> None:
    plan = with_streams(line_plan("1f1b", 2, 2), "0F0 0B0 0F1 0B1 0G0 0U0", "1F0 1F1 1B0 1B1 1G0 1U0")
    fault = check_plan(plan).fault
    assert fault is not None
    assert (fault.code, fault.pointer) == ("deadlock", "/streams/0/1")
    assert "group 0 stands at 0B0, which waits for 1B0" in fault.message
    assert "group 1 stands at 1F1, which waits for 0F1" in fault.message
    with pytest.raises(PlanError, match="group 0 stands at 0B0") as error:
        require_legal(plan)
    assert (error.value.code, error.value.pointer) == (fault.code, fault.pointer)


def test_legal_plans_pass_as_documents_too() -> None:
    for seed in range(20):
        plan = random_plan(random.Random(seed))
        require_legal(plan)
        assert check_document(document_bytes(plan)) == check_plan(plan)
