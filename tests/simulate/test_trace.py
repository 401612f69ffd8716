"""The trace: what Perfetto and chrome://tracing need of it."""

import json
import random

from planner.costs.prices import VisitPrice
from planner.simulate.simulate import simulate
from planner.simulate.trace import chrome_trace
from tests.helpers.plans import line_plan, make_prices
from tests.helpers.random_plans import random_plan


def test_a_block_an_instruction_with_its_times_in_microseconds() -> None:
    plan = line_plan("1f1b", 2, 1)
    timeline = simulate(plan, make_prices(plan, lambda stage: VisitPrice(1500, 2500, 0, 0)))
    document = json.loads(chrome_trace(plan, timeline))
    blocks = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [(b["tid"], b["name"], b["ts"], b["dur"]) for b in blocks] == [
        (0, "0F0", 0.0, 1.5),
        (0, "0B0", 5.5, 2.5),
        (0, "0G0", 8.0, 0.0),
        (0, "0U0", 8.0, 0.0),
        (1, "1F0", 1.5, 1.5),
        (1, "1B0", 3.0, 2.5),
        (1, "1G0", 5.5, 0.0),
        (1, "1U0", 8.0, 0.0),
    ]
    names = [event["args"]["name"] for event in document["traceEvents"] if event["name"] == "thread_name"]
    assert names == ["group 0: cpu, ranks 0", "group 1: cpu, ranks 1"]
    assert document["otherData"]["plan"] == plan.digest


def test_every_instruction_stands_in_the_trace_and_equal_timelines_give_equal_bytes() -> None:
    for seed in range(10):
        plan = random_plan(random.Random(seed))
        prices = make_prices(plan, lambda stage: VisitPrice(3, 5, 2, 3, recompute_ns=1))
        trace = chrome_trace(plan, simulate(plan, prices))
        assert trace == chrome_trace(plan, simulate(plan, prices))
        blocks = [event for event in json.loads(trace)["traceEvents"] if event["ph"] == "X"]
        for group, stream in enumerate(plan.streams):
            assert [b["name"] for b in blocks if b["tid"] == group] == stream.split(" ")
