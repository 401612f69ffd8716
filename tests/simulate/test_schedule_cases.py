"""Replay of streams with unequal costs, memory limits and message times: every step to the tick.

The cases and their values: tests/data/schedule_cases. The streams of the named families that split the backward are
written here by their rules: ZB-H1 (Qi et al. 2023) and ZB-V (Qi et al. 2024).
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.check.structure import check_plan
from planner.costs.prices import VisitPrice
from planner.plan.plan import Plan
from planner.problem.reading import read_document
from planner.schedules.build import build_plan
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline
from tests.helpers.plans import Line, line_plan, make_parts, make_prices

DATA = Path(__file__).parent.parent / "data" / "schedule_cases"
CASES: dict[str, Any] = json.loads((DATA / "cases.json").read_text())


def with_streams(plan: Plan, streams: list[str]) -> Plan:
    return read_document(json.dumps(plan.model_dump(mode="json") | {"streams": streams}).encode(), Plan)


def v_plan(num_groups: int, num_micro_batches: int, streams: list[str]) -> Plan:
    """2p stages: down the groups and back up."""
    parts = make_parts([Line(num_groups, 2 * num_groups, num_micro_batches)], num_layers=2 * num_groups)
    plan = build_plan(parts, "gpipe").model_dump(mode="json")
    for number, stage in enumerate(plan["stages"]):
        stage["group"] = number if number < num_groups else 2 * num_groups - 1 - number
    return read_document(json.dumps(plan | {"streams": streams}).encode(), Plan)


def replayed(plan: Plan, case: dict[str, Any], placement: dict[str, Any]) -> Timeline:
    """At the case's ticks; a visit keeps 1 byte, so that peaks count stages."""

    def price(stage: int) -> VisitPrice:
        names = ("forward_ticks", "backward_input_ticks", "backward_weight_ticks")
        forward, inputs, weights = (placement[name][stage] for name in names)
        return VisitPrice(forward, inputs + weights, inputs, weights, kept_bytes=1)

    return simulate(plan, make_prices(plan, price, message_ns=lambda a, b: int(case["message_ticks"])))


def in_place(stream: str) -> str:
    """B -> I W."""
    words = [
        part for w in stream.split(" ") for part in ((w.replace("B", "I"), w.replace("B", "W")) if "B" in w else (w,))
    ]
    return " ".join(word for word in words if not set(word) & {"G", "U"})


def zb_h(group: int, num_micro_batches: int, *, first: int, lag: int) -> str:
    """``first`` forwards; then I k, W (k - lag), the next F; then the other W."""
    m = num_micro_batches
    words = [f"{group}F{k}" for k in range(min(first, m))]
    for k in range(m):
        words.append(f"{group}I{k}")
        words += [f"{group}W{k - lag}"] if k >= lag else []
        words += [f"{group}F{first + k}"] if first + k < m else []
    return " ".join(words + [f"{group}W{k}" for k in range(max(0, m - lag), m)])


class ZbV:
    """Stages a = d and b = 2p-1-d of group d; built for at least 2p-1 micro-batches, those beyond m dropped."""

    def __init__(self, num_groups: int, group: int, num_micro_batches: int) -> None:
        self.words: list[tuple[str, str, int]] = []
        self.next: dict[tuple[str, str], int] = {}
        self.most = max(num_micro_batches, 2 * num_groups - 1)
        self.names = {"a": group, "b": 2 * num_groups - 1 - group}
        self.num_micro_batches = num_micro_batches
        p, d = num_groups, group
        self.add("aF", 2 * (p - d) - 1)
        self.add("bF aF", d)
        self.add("bF bI bW", p - d)
        while self.left("aF") or self.left("bF"):
            self.add("aF aI aW bF bI bW", 1)
        self.add("aI bI", d)
        self.add("aI aW", p - d)
        self.add("bW", self.most)
        self.add("aW", self.most)

    def left(self, name: str) -> bool:
        return self.next.get((name[0], name[1]), 0) < self.most

    def add(self, pattern: str, times: int) -> None:
        for _ in range(times):
            for name in pattern.split(" "):
                key = (name[0], name[1])
                number = self.next.get(key, 0)
                if number < self.most:
                    self.words.append((*key, number))
                    self.next[key] = number + 1

    def text(self) -> str:
        return " ".join(f"{self.names[s]}{o}{n}" for s, o, n in self.words if n < self.num_micro_batches)


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: str(case["name"]))
def test_named_streams_with_unequal_stages(case: dict[str, Any]) -> None:
    """1F1B with a fused backward, 1F1B with W in place, ZB-H1 and ZB-V, as far as they fit the memory limit."""
    p, m, placements = case["groups"], case["micro_batches"], case["placements"]
    line = placements["line"]
    counts = line.get("one_f_one_b_warm_up_counts")
    fused = replayed(line_plan("1f1b", p, m, forwards_first=counts), case, line)
    assert fused.step_ns == line["named_steps"]["one_f_one_b"]
    within(fused, line)
    base = line_plan("1f1b", p, m, forwards_first=counts)
    split = replayed(with_streams(base, [in_place(stream) for stream in base.streams]), case, line)
    assert split.step_ns == line["named_steps"]["one_f_one_b_w_in_place"]
    if line["named_steps"]["zb_h1"] is not None:
        streams = [zb_h(group, m, first=p - group, lag=group) for group in range(p)]
        assert replayed(with_streams(base, streams), case, line).step_ns == line["named_steps"]["zb_h1"]
    v = placements["v"]
    if v["named_steps"]["zb_v"] is not None:
        streams = [ZbV(p, group, m).text() for group in range(p)]
        timeline = replayed(v_plan(p, m, streams), case, v)
        assert timeline.step_ns == v["named_steps"]["zb_v"]
        within(timeline, v)


def within(timeline: Timeline, placement: dict[str, Any]) -> None:
    """The memory limit of the case, counted in stages."""
    assert timeline.peak_bytes is not None
    pairs = zip(timeline.peak_bytes, placement["memory_stage_activations"], strict=True)
    assert all(found <= limit for found, limit in pairs)


STREAMS = [
    (case, kind, placement)
    for case in CASES["cases"]
    for kind, placement in case["placements"].items()
    if (DATA / str(placement["best_known_stream"])).is_file()
]


def test_the_cases_have_streams_of_their_own() -> None:
    assert len(STREAMS) >= 6


@pytest.mark.parametrize(
    ("case", "kind", "placement"), STREAMS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_synthesised_streams_take_their_step_within_their_memory(
    case: dict[str, Any], kind: str, placement: dict[str, Any]
) -> None:
    streams = (DATA / placement["best_known_stream"]).read_text().splitlines()
    p, m = case["groups"], case["micro_batches"]
    plan = with_streams(line_plan("1f1b", p, m), streams) if kind == "line" else v_plan(p, m, streams)
    timeline = replayed(plan, case, placement)
    assert timeline.step_ns == placement["best_known_step"]
    assert timeline.step_ns >= placement["bound_step"]
    within(timeline, placement)


@pytest.mark.parametrize("num_groups", [4, 8])
@pytest.mark.parametrize("rounds", [2, 4])
def test_split_families_with_equal_stages(num_groups: int, rounds: int) -> None:
    """F = I = W = 1: ZB-H1 idles p-1 and keeps p, ZB-H2 p-1 and 2p-1, ZB-V (stages of half the size) (p-1)/2 and p."""
    p, m = num_groups, rounds * num_groups
    base, unit = line_plan("1f1b", p, m), VisitPrice(2, 4, 2, 2, kept_bytes=2)
    for first, lag, most in (
        (lambda d: p - d, lambda d: d, p),
        (lambda d: 2 * (p - d) - 1, lambda d: 2 * d, 2 * p - 1),
    ):
        plan = with_streams(base, [zb_h(d, m, first=first(d), lag=lag(d)) for d in range(p)])
        timeline = simulate(plan, make_prices(plan, lambda stage: unit))
        assert timeline.step_ns / 2 - 3 * m == p - 1
        assert max(timeline.peak_bytes or ()) == 2 * most
    plan = v_plan(p, m, [ZbV(p, d, m).text() for d in range(p)])
    timeline = simulate(plan, make_prices(plan, lambda stage: VisitPrice(1, 2, 1, 1, kept_bytes=1)))
    assert timeline.step_ns / 2 - 3 * m == (p - 1) / 2
    assert max(timeline.peak_bytes or ()) == 2 * p


def chimera_plan() -> Plan:
    """Two routes over mirrored stages, p = m = 4: d = stages 0..3 on groups 0..3, u = stages 4..7 on groups 3..0."""
    streams = [
        "d0F0 d0F1 u3F0 u3B0 u3F1 u3B1 d0B0 d0B1",
        "d1F0 u2F0 d1F1 u2F1 u2B0 d1B0 u2B1 d1B1",
        "u1F0 d2F0 u1F1 d2F1 d2B0 u1B0 d2B1 u1B1",
        "u0F0 u0F1 d3F0 d3B0 d3F1 d3B1 u0B0 u0B1",
    ]
    parts = make_parts([Line(4, 4, 2), Line(4, 4, 2)], num_layers=4)
    mirrored = [stage.model_copy(update={"group": 3 - number}) for number, stage in enumerate(parts.stages[4:])]
    shared = replace(parts, stages=(*parts.stages[:4], *mirrored))
    texts = [" ".join(_renamed(word) for word in stream.split(" ")) for stream in streams]
    return Plan(
        schema_version="plan/1",
        problem=shared.problem,
        precision=shared.precision,
        graph=shared.graph,
        nodes=(shared.nodes[0].model_copy(update={"num_ranks": 4}),),
        groups=shared.groups[:4],
        stages=shared.stages,
        routes=shared.routes,
        micro_batches=shared.micro_batches,
        streams=tuple(texts),
    )


def _renamed(word: str) -> str:
    """``u3F1`` -> stage 4 + 3, micro-batch 2 + 1."""
    up = word[0] == "u"
    return f"{int(word[1]) + 4 * up}{word[2]}{int(word[3]) + 2 * up}"


def test_chimera_takes_16() -> None:
    """Bubble time 2(p-2) = 4 at p = m = 4; groups keep 3, 4, 4, 3 visits."""
    plan = chimera_plan()
    timeline = simulate(plan, make_prices(plan, lambda stage: VisitPrice(1, 2, 0, 0, kept_bytes=1)))
    assert timeline.step_ns == 16
    assert timeline.peak_bytes == (3, 4, 4, 3)
    assert check_plan(plan).ok
