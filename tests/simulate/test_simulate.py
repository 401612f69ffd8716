"""The simulator: the contract's example, hand-made cases, and equality with a plain recursion on random plans."""

import json
import random
from dataclasses import replace

import pytest

from planner.costs.prices import BorderPrice, PlanPrices, VisitPrice
from planner.errors import PlanError
from planner.plan.instruction import Instruction
from planner.plan.plan import Plan
from planner.problem.reading import read_document
from planner.schedules.build import build_plan
from planner.schedules.families import FAMILIES, family_plan
from planner.schedules.family import FamilyShape
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Event, Timeline
from tests.helpers.plain_times import PlainTimes
from tests.helpers.plans import Line, line_plan, make_parts, make_prices
from tests.helpers.prices import random_prices
from tests.helpers.random_plans import random_plan

MS = 1_000_000
GB = 10**9

# the example of docs/plan-contract.md section 7: two unequal replicas, tied embedding and head
EXAMPLE = {
    "schema": "plan/1",
    "problem": "6f" + "0" * 62,
    "precision": "bf16",
    "graph": {"model": "9c" + "0" * 62, "num_layers": 6, "tied": [[0, 5]]},
    "nodes": [
        {"node_group": "big", "device_kind": "A100-SXM-80GB", "num_ranks": 4},
        {"node_group": "small", "device_kind": "L4", "num_ranks": 1},
    ],
    "groups": [[0, 1], [2, 3], [4]],
    "stages": [
        {"group": 0, "first_layer": 0, "end_layer": 3, "mesh": {"tensor": 2, "border": "sharded"}},
        {"group": 1, "first_layer": 3, "end_layer": 6, "mesh": {"data": 2, "shards": 2, "sharded": "optimizer"}},
        {"group": 2, "first_layer": 0, "end_layer": 6, "recompute": {"full": [1, 2, 3, 4]}},
    ],
    "routes": [[0, 1], [2]],
    "micro_batches": [{"route": 0, "samples": 4, "cuts": [0, 2048]}] * 3
    + [{"route": 1, "samples": 1, "cuts": [0, 1024, 2048]}],
    "streams": [
        "0F0 0F1 0B0 0F2 0B1 0B2 0G0 0U0",
        "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2 1G0 1U0",
        "2F3.0 2F3.1 2R3.1 2B3.1 2R3.0 2B3.0 2G0 2U0",
    ],
}


def with_streams(plan: Plan, *streams: str) -> Plan:
    document = plan.model_dump(mode="json") | {"streams": list(streams)}
    return read_document(json.dumps(document).encode(), Plan)


def test_the_example_of_the_contract() -> None:
    """F I W 3 ms on stages 0 and 1, F R 4 ms a slice on stage 2, B = 2 F, message 0.2, sum 0.4, U 0.5 ms.

    Group 2 is busy from 0 to 32.0, then 0.4 + 0.5. State 2, 3, 6 GB; a visit keeps 1, 1, 0.2 GB, R brings back 0.8.
    """
    plan = read_document(json.dumps(EXAMPLE).encode(), Plan)
    small = VisitPrice(3 * MS, 6 * MS, 3 * MS, 3 * MS, kept_bytes=GB)
    large = VisitPrice(4 * MS, 8 * MS, 0, 0, recompute_ns=4 * MS, kept_bytes=GB // 5, restored_bytes=4 * GB // 5)
    whole, first, second = (plan.visit_shape(b, k) for b, k in ((0, 0), (3, 0), (3, 1)))
    prices = PlanPrices(
        visits={(0, whole): small, (1, whole): small, (2, first): large, (2, second): large},
        borders={(0, 1, whole): BorderPrice(MS // 5, MS // 5, 0)},
        sum_ns=(2 * MS // 5,) * 3,
        update_ns=(MS // 2,) * 3,
        state_bytes=(2 * GB, 3 * GB, 6 * GB),
        limit_bytes=(79 * GB, 79 * GB, 22 * GB),
        costs="measured",
    )
    timeline = simulate(plan, prices)
    assert timeline.step_ns == 32_900_000
    assert round(timeline.bubble, 4) == 0.1337
    assert timeline.peak_bytes == (4 * GB, 5 * GB, 36 * GB // 5)


def test_events_of_a_tiny_pipeline() -> None:
    """2 groups, 1 micro-batch, F 3, B 5, message 2, sum 4, U 1: 0-3, 5-8, 8-13, 15-20; sums to 24, updates to 25.

    Both updates wait for both sums: the gradient's norm needs all.
    """
    plan = line_plan("1f1b", 2, 1)
    prices = make_prices(plan, lambda stage: VisitPrice(3, 5, 0, 0), message_ns=lambda a, b: 2, sum_ns=4, update_ns=1)
    timeline = simulate(plan, prices)
    spans = [[(str(e.instruction), e.start_ns, e.end_ns) for e in events] for events in timeline.events]
    assert spans == [
        [("0F0", 0, 3), ("0B0", 15, 20), ("0G0", 20, 20), ("0U0", 24, 25)],
        [("1F0", 5, 8), ("1B0", 8, 13), ("1G0", 13, 13), ("1U0", 24, 25)],
    ]
    assert timeline.step_ns == 25
    assert timeline.bubble == pytest.approx(1 - (9 + 9) / 50)


def test_the_bubble_weighs_groups_by_their_ranks() -> None:
    """3 ranks busy 4 of 10 ns, 1 rank busy 8 of 10."""
    one, other = Instruction("F", 0, 0), Instruction("F", 1, 0)
    timeline = Timeline(events=((Event(one, 0, 4),), (Event(other, 2, 10),)), step_ns=10, num_ranks=(3, 1))
    assert timeline.bubble == pytest.approx(1 - (3 * 4 + 1 * 8) / 40)


def test_several_updates_wait_only_for_their_own_sums() -> None:
    """Asynchronous 1F1B, 2 groups, 2 micro-batches, F 1, B 2, sum 10, U 1; the groups share no weight.

    Group 1: F0 1-2, B0 2-4, sum to 14, U0 14-15, F1 15-16, B1 16-18, sum to 28, U1 28-29.
    Group 0: F0 F1 0-2, B0 4-6, sum to 16, U0 16-17, B1 18-20, sum to 30, U1 30-31.
    """
    plan = with_streams(line_plan("1f1b", 2, 2), "0F0 0F1 0B0 0G0 0U0 0B1 0G1 0U1", "1F0 1B0 1G0 1U0 1F1 1B1 1G1 1U1")
    timeline = simulate(plan, make_prices(plan, lambda stage: VisitPrice(1, 2, 0, 0), sum_ns=10, update_ns=1))
    ends = {str(event.instruction): event.end_ns for events in timeline.events for event in events}
    assert (ends["1U0"], ends["1U1"], ends["0U0"], ends["0U1"]) == (15, 29, 17, 31)
    assert timeline.step_ns == 31


@pytest.mark.parametrize("seed", range(12))
def test_several_updates_equal_a_plain_recursion(seed: int) -> None:
    """Asynchronous 1F1B on random lines, first and last layer tied now and then, everything priced at random."""
    source = random.Random(seed)
    p, m = source.randint(1, 4), source.randint(1, 5)
    tied = ((0, p - 1),) if p > 1 and source.random() < 0.5 else ()
    base = build_plan(make_parts([Line(p, p, m)], num_layers=p, tied=tied), "1f1b")
    streams = []
    for stream in base.streams:
        words, count = list[str](), 0
        for word in (word for word in stream.split(" ") if not set(word) & {"G", "U"}):
            words.append(word)
            if "B" in word:
                stage = word.partition("B")[0]
                words += [f"{stage}G{count}", f"{stage}U{count}"]
                count += 1
        streams.append(" ".join(words))
    plan = with_streams(base, *streams)
    assert_as_recursion(plan, random_prices(source, plan))


def test_a_message_lives_from_its_send_to_the_end_of_its_reader() -> None:
    """GPipe, 2 groups, 3 micro-batches, F 1 on the first, 10 on the second group, 7 bytes a message, nothing kept.

    All three activations are sent by 3, the first is read until 11: 21 bytes. Gradients come one a backward (20 ns)
    and are read at once (1 ns): 7 bytes.
    """
    plan = line_plan("gpipe", 2, 3)
    prices = make_prices(
        plan, lambda stage: VisitPrice(1, 1, 0, 0) if stage == 0 else VisitPrice(10, 20, 0, 0), message_bytes=7
    )
    assert simulate(plan, prices).peak_bytes == (7, 21)


def test_blocked_streams_are_named() -> None:
    plan = with_streams(line_plan("1f1b", 2, 2), "0F0 0B0 0F1 0B1 0G0 0U0", "1F0 1F1 1B0 1B1 1G0 1U0")
    with pytest.raises(PlanError, match="group 0 stands at 0B0, which waits for 1B0; group 1 stands at 1F1") as found:
        simulate(plan, make_prices(plan, lambda stage: VisitPrice(1, 1, 0, 0)))
    assert found.value.code == "deadlock"


@pytest.mark.parametrize(
    ("stream", "waits"),
    [
        ("0B0 0F0 0F1 0B1 0G0 0U0", "0B0, which waits for 0F0"),
        ("0F0 0F1 0W0 0I0 0B1 0G0 0U0", "0W0, which waits for 0I0"),
    ],
)
def test_an_order_that_its_own_stage_blocks_is_named(stream: str, waits: str) -> None:
    plan = with_streams(line_plan("1f1b", 1, 2), stream)
    with pytest.raises(PlanError, match=waits):
        simulate(plan, make_prices(plan, lambda stage: VisitPrice(1, 1, 1, 1)))


@pytest.mark.parametrize("part", range(4))
def test_simulation_equals_a_plain_recursion(part: int) -> None:
    """Times, step and peaks of 250 random plans: meshes, routes, skips, ties, slices, split backwards, recompute."""
    for seed in range(250):
        source = random.Random(1000 * part + seed)
        plan = random_plan(source)
        assert_as_recursion(plan, random_prices(source, plan))


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_equals_a_plain_recursion(family: str) -> None:
    """Copies of layers, two routes on a group, attention stages on all routes, head parts, updates in between."""
    found = 0
    for seed, (num_groups, num_micro_batches) in enumerate(((1, 2), (2, 2), (2, 5), (3, 6), (4, 4), (4, 8))):
        shape = FamilyShape(num_groups, num_micro_batches)
        if FAMILIES[family].refusal(shape) is None:
            plan = family_plan(family, shape)
            assert_as_recursion(plan, random_prices(random.Random(seed), plan))
            found += 1
    assert found >= 2


def assert_as_recursion(plan: Plan, prices: PlanPrices) -> None:
    timeline, plain = simulate(plan, prices), PlainTimes(plan.model_dump(mode="json"), prices)
    for stream, events in zip(plain.facts.streams, timeline.events, strict=True):
        assert [(e.start_ns, e.end_ns) for e in events] == [(plain.start_ns(o), plain.end_ns(o)) for o in stream]
    assert timeline.step_ns == plain.step_ns()
    assert list(timeline.peak_bytes or ()) == plain.peak_bytes()


@pytest.mark.parametrize("seed", range(30))
def test_more_time_never_makes_a_step_shorter_and_the_bounds_hold(seed: int) -> None:
    source = random.Random(seed)
    plan = random_plan(source)
    prices = random_prices(source, plan)
    timeline = simulate(plan, prices)
    longer = replace(prices, visits={k: v._replace(forward_ns=v.forward_ns + 10**7) for k, v in prices.visits.items()})
    assert simulate(plan, longer).step_ns >= timeline.step_ns
    assert timeline.step_ns >= max(timeline.busy_ns)
    assert 0 <= timeline.bubble < 1


def test_a_plan_without_updates_ends_with_its_last_backward() -> None:
    plan = with_streams(build_plan(make_parts([Line(1, 1, 2)], num_layers=1), "1f1b"), "0F0 0B0 0F1 0B1")
    assert simulate(plan, make_prices(plan, lambda stage: VisitPrice(1, 2, 0, 0))).step_ns == 6
