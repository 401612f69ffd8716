"""Messages on shared links, against hand-made cases and a replay that goes moment by moment."""

import random
from collections import defaultdict

import pytest

from planner.costs.prices import PlanPrices, VisitPrice
from planner.errors import PlanError
from planner.plan.graph import Node
from planner.plan.plan import Plan
from planner.simulate.arrays import InstructionArrays, instruction_arrays
from planner.simulate.links import SharedLinks, node_adapters, simulate_on_links
from planner.simulate.program import make_program
from planner.simulate.simulate import simulate
from tests.helpers.plans import Line, line_plan, make_parts, make_prices
from tests.helpers.prices import random_prices
from tests.helpers.random_plans import random_plan
from tests.helpers.streams import plan_with_streams

FORWARD_ONLY = ("0F0 0F1 0F2", "1F0 1F1 1F2")


def ends(plan: Plan, prices: PlanPrices, links: SharedLinks) -> dict[str, int]:
    timeline = simulate_on_links(plan, prices, links)
    return {str(event.instruction): event.end_ns for events in timeline.events for event in events}


def test_messages_on_one_link_leave_one_after_the_other() -> None:
    """F takes 1, a message 10: three messages ready at 1, 2, 3 arrive at 11, 21, 31 instead of 11, 12, 13."""
    plan = plan_with_streams(line_plan("gpipe", 2, 3), FORWARD_ONLY)
    prices = make_prices(plan, lambda stage: VisitPrice(1, 0, 0, 0), message_ns=lambda a, b: 10)
    found = ends(plan, prices, SharedLinks({(0, 1): (0,)}))
    assert [found[f"1F{b}"] for b in range(3)] == [12, 22, 32]
    free = ends(plan, prices, SharedLinks({}))
    assert [free[f"1F{b}"] for b in range(3)] == [12, 13, 14]


def test_latency_holds_no_link() -> None:
    """Of 10 a message holds its link for 4: arrivals 11, 15, 19."""
    plan = plan_with_streams(line_plan("gpipe", 2, 3), FORWARD_ONLY)
    prices = make_prices(plan, lambda stage: VisitPrice(1, 0, 0, 0), message_ns=lambda a, b: 10)
    found = ends(plan, prices, SharedLinks({(0, 1): (0,)}, latency_ns=6))
    assert [found[f"1F{b}"] for b in range(3)] == [12, 16, 20]


def test_two_replicas_share_an_adapter() -> None:
    """Two lines, each from node 0 to node 1, one micro-batch: the second message waits for the first, forth and back.

    F 1, B 2, message 10. Line 0: 0F ends 1, message 1..11, 1F 12, 1B 14, back 14..24, 0B 26. Line 1: its message waits
    for the link until 11, arrives 21, 3F 22, 3B 24, back 24..34 (free since 24), 2B 36.
    """
    parts = make_parts([Line(2, 2, 1), Line(2, 2, 1)], num_layers=2)
    streams = {"0F0 0B0": 0, "1F0 1B0": 1, "2F1 2B1": 2, "3F1 3B1": 3}
    plan = Plan(
        schema_version="plan/1",
        problem=parts.problem,
        precision=parts.precision,
        graph=parts.graph,
        nodes=(
            Node(node_group="a", device_kind="cpu", num_ranks=2),
            Node(node_group="a", device_kind="cpu", num_ranks=2),
        ),
        groups=((0,), (2,), (1,), (3,)),
        stages=parts.stages,
        routes=parts.routes,
        micro_batches=parts.micro_batches,
        streams=tuple(streams),
    )
    prices = make_prices(plan, lambda stage: VisitPrice(1, 2, 0, 0), message_ns=lambda a, b: 10)
    links = node_adapters(plan)
    assert links.links_of == {(0, 1): (0, 3), (1, 0): (2, 1), (2, 3): (0, 3), (3, 2): (2, 1)}
    found = ends(plan, prices, links)
    assert found == {"0F0": 1, "1F0": 12, "1B0": 14, "0B0": 26, "2F1": 1, "3F1": 22, "3B1": 24, "2B1": 36}


def test_borders_inside_a_node_share_nothing() -> None:
    assert node_adapters(line_plan("1f1b", 4, 4)).links_of == {}


def test_a_deadlock_is_named() -> None:
    plan = plan_with_streams(line_plan("1f1b", 2, 2), ["0F0 0B0 0F1 0B1 0G0 0U0", "1F0 1F1 1B0 1B1 1G0 1U0"])
    with pytest.raises(PlanError, match="group 0 stands at 0B0, which waits for 1B0"):
        simulate_on_links(plan, make_prices(plan, lambda stage: VisitPrice(1, 1, 0, 0)), SharedLinks({}))


@pytest.mark.parametrize("part", range(2))
def test_without_shared_links_it_is_the_plain_simulation(part: int) -> None:
    for seed in range(30):
        source = random.Random(100 * part + seed)
        plan = random_plan(source)
        prices = random_prices(source, plan)
        assert simulate_on_links(plan, prices, SharedLinks({})) == simulate(plan, prices)


def random_links(source: random.Random, arrays: InstructionArrays) -> SharedLinks:
    """A few links for the borders of a plan, some borders over two."""
    borders = set()
    for column in arrays.columns:
        for reader, writer in enumerate(column.before.tolist()):
            if writer >= 0 and column.delay_ns[reader]:
                borders.add((int(arrays.stage[writer]), int(arrays.stage[reader])))
    links_of = {
        border: tuple(sorted(source.sample(range(3), source.choice((1, 1, 2)))))
        for border in sorted(borders)
        if source.random() < 0.8
    }
    return SharedLinks(links_of, latency_ns=source.choice((0, 3)))


def moment_by_moment(plan: Plan, prices: PlanPrices, links: SharedLinks) -> list[int]:
    """The ends of all instructions of the program, by a clock that ticks: no heap, no order of events."""
    arrays = instruction_arrays(plan, prices)
    program = make_program(plan, arrays, prices).as_lists()
    count = len(program.duration_ns)
    waits: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for index, writer in enumerate(program.before):
        if writer < count:
            waits[index % count].append((int(writer), int(program.delay_ns[index])))
    firsts = set(program.first)
    end: list[int | None] = [None] * count
    arrival: dict[tuple[int, int], int] = {}
    free: dict[int, int] = defaultdict(int)
    clock = 0
    while any(found is None or found >= clock for found in end):
        for writer in [n for n in range(count) if end[n] == clock]:
            for reader in sorted(waits):
                for sender, delay in waits[reader]:
                    if sender == writer:
                        leaves = clock
                        if reader < len(arrays.stage):
                            held = links.links_of.get((int(arrays.stage[writer]), int(arrays.stage[reader])), ())
                            leaves = max([clock, *(free[link] for link in held)])
                            for link in held:
                                free[link] = leaves + max(0, delay - links.latency_ns)
                        arrival[writer, reader] = leaves + delay
        for number in range(count):
            before = end[number - 1] if number not in firsts else 0
            arrived = [arrival.get((writer, number)) for writer, _ in waits[number]]
            ready = [clock + 1 if time is None else time for time in (before, *arrived)]
            if end[number] is None and max(ready) <= clock:
                end[number] = clock + int(program.duration_ns[number])
        clock += 1
    return [found for found in end if found is not None]


def test_random_links_against_a_ticking_clock() -> None:
    for seed in range(25):
        source = random.Random(seed)
        plan = random_plan(source)
        prices = random_prices(source, plan, longest_ns=20)
        words = [" ".join(w for w in stream.split(" ") if not set(w) & {"G", "U"}) for stream in plan.streams]
        plan = plan_with_streams(plan, words)  # G takes no time: a clock that ticks needs some
        prices = PlanPrices(**{**vars(prices), "sum_ns": ()})
        arrays = instruction_arrays(plan, prices)
        links = random_links(source, arrays)
        timeline = simulate_on_links(plan, prices, links)
        found = [event.end_ns for events in timeline.events for event in events]
        assert found == moment_by_moment(plan, prices, links), seed
        assert timeline.step_ns >= simulate(plan, prices).step_ns
