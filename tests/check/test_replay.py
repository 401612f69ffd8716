"""Replay of lists in three network models: the minimal cases, and agreement with an independent machine."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.check.queues import MESSAGE_MODELS
from planner.check.replay import replay
from planner.check.structure import check_lowered
from planner.plan.plan import Plan
from planner.problem.options import Family
from planner.schedules.lower import Compute, Entry, LoweredPlan, Receive, Send, lower
from tests.helpers.exhaustive import MODELS, Machine, every_order
from tests.helpers.exhaustive_rules import read_facts
from tests.helpers.neutral import neutral_lists
from tests.helpers.plans import Line, line_plan, make_parts
from tests.helpers.random_plans import random_plan

Lists = list[list[Entry]]


def codes(plan: Plan, lowered: LoweredPlan) -> list[str]:
    """By model: ok, deadlock or wrong_data."""
    faults = [replay(plan, lowered, model) for model in MESSAGE_MODELS]
    return ["ok" if fault is None else fault.code for fault in faults]


def edited(lowered: LoweredPlan, edit: Callable[[Lists], None]) -> LoweredPlan:
    lists = [list(entries) for entries in lowered.lists]
    edit(lists)
    return replace(lowered, lists=tuple(map(tuple, lists)))


def late_receives(lowered: LoweredPlan) -> LoweredPlan:
    """Every receive right before the instruction that reads it."""

    def edit(lists: Lists) -> None:
        for rank, entries in enumerate(lists):
            posted = [entry for entry in entries if isinstance(entry, Receive)]
            moved: list[Entry] = []
            for entry in entries:
                if isinstance(entry, Compute):
                    moved += [r for r in posted if lowered.readers[r.message.tag] == entry.instruction]
                if not isinstance(entry, Receive):
                    moved.append(entry)
            lists[rank] = moved

    return edited(lowered, edit)


def test_lowered_1f1b_ends_in_all_models() -> None:
    plan = line_plan("1f1b", 2, 2)
    assert codes(plan, lower(plan)) == ["ok", "ok", "ok"]


def test_a_receive_right_before_its_use_blocks_under_rendezvous() -> None:
    """g0 F0 SENDa0 F1 SENDa1 RECVg0 B0 .., g1 RECVa0 F0 B0 SENDg0 RECVa1 ..: SENDa1 stands against SENDg0."""
    plan = line_plan("1f1b", 2, 2)
    late = late_receives(lower(plan))
    assert codes(plan, late) == ["ok", "deadlock", "deadlock"]
    fault = replay(plan, late, "pair_queues")
    assert fault is not None
    assert "rank 0's send of the activation of 0F1 from rank 0 to 1 waits" in fault.message
    assert "rank 1's send of the gradient of 1B0 from rank 1 to 0 waits" in fault.message


def ring_plan() -> Plan:
    """Three groups, three routes of two stages: each rank sends right, then receives from its left."""
    parts = make_parts([Line(3, 3, 1)], num_layers=3)
    stage = parts.stages[0]
    stages, routes = [], []
    for group in range(3):
        stages.append(stage.model_copy(update={"group": group, "first_layer": 0, "end_layer": 1}))
        stages.append(stage.model_copy(update={"group": (group + 1) % 3, "first_layer": 1, "end_layer": 3}))
        routes.append((2 * group, 2 * group + 1))
    batches = tuple(parts.micro_batches[0].model_copy(update={"route": route}) for route in range(3))
    streams = tuple(f"{2 * group}F{group} {(2 * group - 1) % 6}F{(group - 1) % 3}" for group in range(3))
    return Plan(
        schema_version="plan/1",
        problem=parts.problem,
        precision=parts.precision,
        graph=parts.graph,
        nodes=parts.nodes,
        groups=parts.groups,
        stages=tuple(stages),
        routes=tuple(routes),
        micro_batches=batches,
        streams=streams,
    )


def test_a_ring_that_sends_first_blocks_with_one_queue_a_rank() -> None:
    plan = ring_plan()
    lowered = lower(plan)
    assert codes(plan, lowered) == ["ok", "ok", "ok"]
    send_first = edited(lowered, _sort_sends_first)
    assert codes(plan, send_first) == ["ok", "ok", "deadlock"]


def _sort_sends_first(lists: Lists) -> None:
    for entries in lists:
        entries.sort(key=_send_before_receive)


def _send_before_receive(entry: Entry) -> int:
    """First run, send, receive, second run."""
    if isinstance(entry, Compute):
        return 0 if entry.instruction.stage % 2 == 0 else 3
    return 1 if isinstance(entry, Send) else 2


def test_swapped_receives_are_wrong_data_in_every_model() -> None:
    def swap(lists: Lists) -> None:
        first, second = [place for place, entry in enumerate(lists[1]) if isinstance(entry, Receive)][:2]
        lists[1][first], lists[1][second] = lists[1][second], lists[1][first]

    plan = line_plan("1f1b", 2, 2)
    swapped = edited(lower(plan), swap)
    assert codes(plan, swapped) == ["wrong_data"] * 3
    fault = check_lowered(plan, swapped)
    assert fault is not None
    assert fault.code == "wrong_data"


@pytest.mark.parametrize("seed", range(12))
def test_all_orders_of_events_have_one_outcome(seed: int) -> None:
    """Replay is confluent: every interleaving of two small lists ends as the one order that check takes."""
    source = random.Random(seed)
    family: Family = source.choice(("1f1b", "gpipe"))
    plan = line_plan(family, 2, 2)
    lowered = lower(plan) if seed < 2 else edited(lower(plan), lambda lists: _move_some(source, lists))
    facts, lists = read_facts(plan.model_dump(mode="json")), neutral_lists(lowered)
    names = {"ok": "ok", "deadlock": "stuck", "wrong_data": "wrong"}
    for model, code in zip(MODELS, codes(plan, lowered), strict=True):
        assert every_order(facts, lists, model) == {names[code]}


@pytest.mark.parametrize("kind", [Send, Receive])
def test_a_lost_end_is_found(kind: type[Entry]) -> None:
    def lose(lists: Lists) -> None:
        rank = next(rank for rank, entries in enumerate(lists) if any(isinstance(entry, kind) for entry in entries))
        lists[rank].remove(next(entry for entry in lists[rank] if isinstance(entry, kind)))

    plan = line_plan("1f1b", 2, 2)
    lost = edited(lower(plan), lose)
    fault = check_lowered(plan, lost)
    assert fault is not None
    assert fault.code == "unmatched"
    assert "ok" not in codes(plan, lost)


@pytest.mark.parametrize("seed", range(6))
def test_replay_agrees_with_an_independent_machine_on_moved_entries(seed: int) -> None:
    """Sends, receives, sums and instructions of one rank, moved at random: 40 lists a seed."""
    source = random.Random(seed)
    names = {"ok": "ok", "deadlock": "stuck", "wrong_data": "wrong"}
    met: Counter[str] = Counter()
    for _ in range(40):
        plan = random_plan(source)
        lowered = edited(lower(plan), lambda lists: _move_some(source, lists))
        facts = read_facts(plan.model_dump(mode="json"))
        machine = [Machine(facts, neutral_lists(lowered), model).run(random.Random(seed)) for model in MODELS]
        found = [names[code] for code in codes(plan, lowered)]
        assert found == machine, plan.model_dump_json()
        met.update(found)
    assert min(met[name] for name in ("ok", "stuck")) >= 10, met


def _move_some(source: random.Random, lists: Lists) -> None:
    for _ in range(source.randint(1, 3)):
        entries = source.choice(lists)
        if source.random() < 0.5:  # not far: often still legal
            place = source.randrange(max(1, len(entries) - 1))
            entries[place : place + 2] = reversed(entries[place : place + 2])
        else:
            entry = entries.pop(source.randrange(len(entries)))
            entries.insert(source.randint(0, len(entries)), entry)
