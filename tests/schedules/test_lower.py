"""Lowered lists: what stands where, and an independent replay of them in three network models."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from planner.errors import PlanError
from planner.plan.instruction import Instruction
from planner.plan.mesh import Mesh, Range
from planner.plan.plan import Plan
from planner.problem.reading import read_document
from planner.schedules.build import build_plan
from planner.schedules.lower import Compute, LoweredPlan, Message, Receive, Send, Sum, lower
from tests.helpers.exhaustive import MODELS, Machine
from tests.helpers.exhaustive_rules import read_facts
from tests.helpers.neutral import neutral_lists
from tests.helpers.plans import Line, line_plan, make_parts
from tests.helpers.random_plans import random_plan

FAMILY_CASES = [
    (family, p, m, legs, slices)
    for p in (2, 4, 8)
    for m in (p, 2 * p, 2 * p + 1)
    for family, legs, slices in (
        ("gpipe", 1, 1),
        ("gpipe", 2, 1),
        ("gpipe", 1, 3),
        ("1f1b", 1, 1),
        ("1f1b", 1, 3),
        ("interleaved", 2, 1),
        ("interleaved", 3, 1),
    )
]


def text(lowered: LoweredPlan, rank: int) -> str:
    """``0F0``, ``Sa0>1`` send of tag 0 ... to rank 1, ``Ra0<1`` receive from rank 1, ``+0`` sum of piece 0."""
    words = []
    for entry in lowered.lists[rank]:
        if isinstance(entry, Compute):
            words.append(str(entry.instruction))
        elif isinstance(entry, Send):
            words.append(f"S{entry.message.kind[0]}{entry.message.micro_batch}>{entry.message.receiver}")
        elif isinstance(entry, Receive):
            words.append(f"R{entry.message.kind[0]}{entry.message.micro_batch}<{entry.message.sender}")
        else:
            words.append(f"+{entry.piece}")
    return " ".join(words)


def outcomes(plan: Plan, lowered: LoweredPlan, seed: int = 0) -> list[str]:
    facts = read_facts(plan.model_dump(mode="json"))
    return [Machine(facts, neutral_lists(lowered), model).run(random.Random(seed)) for model in MODELS]


def test_both_ends_of_a_message_are_appended_at_one_moment() -> None:
    """1F1B, 2 groups, 2 micro-batches: group 0 walks to its first backward, so both receives stand first at group 1.

    Then group 1 walks to its end, so both gradients are received before group 0 goes on.
    """
    lowered = lower(line_plan("1f1b", 2, 2))
    assert text(lowered, 0) == "0F0 Sa0>1 0F1 Sa1>1 Rg0<1 Rg1<1 0B0 0B1 0G0 +0 0U0"
    assert text(lowered, 1) == "Ra0<0 Ra1<0 1F0 1B0 Sg0>0 1F1 1B1 Sg1>0 1G0 +1 1U0"


def test_a_message_says_what_it_carries() -> None:
    """Data 2 -> one rank: 5 samples are cut 2 + 3; two slices of 12 tokens are cut at 6."""
    parts = make_parts([Line(1, 1, 1, Mesh(data=2), 2), Line(1, 1, 1, Mesh(), 2)], num_layers=2, samples=5, tokens=12)
    stages = (
        parts.stages[0].model_copy(update={"end_layer": 1}),
        parts.stages[1].model_copy(update={"first_layer": 1}),
    )
    batches = (parts.micro_batches[0],)
    one = replace(parts, stages=stages, routes=((0, 1),), micro_batches=batches)
    lowered = lower(build_plan(one, "1f1b"))
    sent = [entry.message for entry in lowered.lists[1] if isinstance(entry, Send)]
    assert sent == [
        Message(0, "activation", 0, 1, 0, 0, 1, 2, Range(2, 5), (Range(0, 6),)),
        Message(1, "activation", 0, 1, 0, 1, 1, 2, Range(2, 5), (Range(6, 12),)),
    ]
    assert lowered.writers[:2] == (Instruction("F", 0, 0, 0), Instruction("F", 0, 0, 1))
    assert lowered.readers[:2] == (Instruction("F", 1, 0, 0), Instruction("F", 1, 0, 1))
    assert [entry.message.kind for entry in received(lowered, 1)] == ["gradient"] * 2


def received(lowered: LoweredPlan, rank: int) -> list[Receive]:
    return [entry for entry in lowered.lists[rank] if isinstance(entry, Receive)]


def test_a_handover_and_a_rank_s_own_part_are_no_messages() -> None:
    assert lower(line_plan("gpipe", 1, 3, legs=2)).num_messages == 0  # both stages on one group
    # 2 groups x 2 stages, 1 micro-batch: borders 0|1, 1|2, 2|3 cross, each forward and back
    assert lower(line_plan("interleaved", 2, 1, legs=2)).num_messages == 6


def test_a_frozen_front_gets_no_gradient() -> None:
    """Layer 0 has no weights: stage 0 goes forward only, and nobody sends it anything."""
    parts = make_parts([Line(2, 2, 2)], num_layers=2)
    plan = build_plan(replace(parts, untrained_layers=frozenset({0})), "1f1b")
    assert plan.streams == ("0F0 0F1", "1F0 1B0 1F1 1B1 1G0 1U0")
    assert received(lower(plan), 0) == []


def test_the_sum_of_a_piece_stands_where_its_last_stage_is_ready() -> None:
    """Two equal replicas of one stage each: one piece, summed by both after both have said G."""
    plan = build_plan(make_parts([Line(1, 1, 1), Line(1, 1, 2)], num_layers=1), "1f1b")
    lowered = lower(plan)
    assert text(lowered, 0) == "0F0 0B0 0G0 +0 0U0"
    assert text(lowered, 1) == "1F1 1B1 1F2 1B2 1G0 +0 1U0"
    assert lowered.pieces[0].members == (0, 1)


def test_tied_stages_of_one_route_share_a_sum() -> None:
    plan = build_plan(make_parts([Line(2, 2, 1)], num_layers=3, tied=((0, 2),)), "1f1b")
    lowered = lower(plan)
    by_rank = [[entry for entry in entries if isinstance(entry, Sum)] for entries in lowered.lists]
    tied = next(number for number, piece in enumerate(lowered.pieces) if piece.stages == (0, 1))
    assert Sum(tied, 0) in by_rank[0]
    assert Sum(tied, 0) in by_rank[1]


def test_streams_that_block_each_other_are_refused_with_their_heads() -> None:
    document = line_plan("1f1b", 2, 2).model_dump(mode="json")
    document["streams"] = ["0F0 0B0 0F1 0B1 0G0 0U0", "1F0 1F1 1B0 1B1 1G0 1U0"]
    plan = read_document(json.dumps(document).encode(), Plan)
    with pytest.raises(PlanError, match="group 0 stands at 0B0, which waits for 1B0; group 1 stands at 1F1") as found:
        lower(plan)
    assert found.value.code == "deadlock"
    assert found.value.pointer == "/streams/0/1"


@pytest.mark.parametrize(("family", "num_groups", "num_micro_batches", "legs", "slices"), FAMILY_CASES)
def test_every_family_ends_with_its_data_in_all_network_models(
    family: str, num_groups: int, num_micro_batches: int, legs: int, slices: int
) -> None:
    plan = line_plan(family, num_groups, num_micro_batches, legs=legs, num_slices=slices)  # type: ignore[arg-type]
    assert outcomes(plan, lower(plan)) == ["ok"] * 3


@pytest.mark.parametrize("seed", range(80))
def test_random_plans_end_with_their_data_in_all_network_models(seed: int) -> None:
    plan = random_plan(random.Random(20_000 + seed))
    lowered = lower(plan)
    assert outcomes(plan, lowered, seed) == ["ok"] * 3
    assert len(lowered.writers) == len(lowered.readers) == len(set(tags(lowered)))


def tags(lowered: LoweredPlan) -> Counter[int]:
    """Tags are dense, and unique for each ordered pair of ranks."""
    found: Counter[int] = Counter()
    for entries in lowered.lists:
        pairs = Counter((s.message.tag, s.message.receiver) for s in entries if isinstance(s, Send))
        assert all(count == 1 for count in pairs.values())
        found.update(tag for tag, _ in pairs)
    return found
