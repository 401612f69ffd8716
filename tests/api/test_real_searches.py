"""Searches over HTTP with the real solver child: trivial, renamed, infeasible and mixed clusters."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from planner.check.problem import check_against
from planner.costs.price import price_plan
from planner.plan.graph import LayerGraph, Node
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.problem import Problem
from planner.problem.reading import read_document
from planner.schedules.build import PlanParts, build_plan
from planner.simulate.simulate import simulate
from profiles.scale import scale_profile
from tests.api.conftest import Running, Start
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_request, make_workload
from tests.helpers.slow_link import MADE_NS, NAMED_NS, ONE_LINE, slow_link

WAIT = {"Prefer": "wait=60"}


@pytest.fixture
def real(start: Start) -> Iterator[Running]:
    with start(child_module="planner.search.child") as running:
        yield running


def answer(running: Running, problem: Problem, **changes: object) -> dict[str, Any]:
    request = {**make_request(problem).model_dump(mode="json"), **changes}
    response = running.client.post("/v1/plans", json=request, headers=WAIT)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def plan_of(found: dict[str, Any]) -> Plan:
    return read_document(json.dumps(found["plan_document"]).encode(), Plan)


def test_one_device_and_one_stage_is_a_plan(real: Running) -> None:
    problem = make_problem(
        profiles=[make_profile(layer_forward_ns=[10**6])],
        cluster=make_cluster(("cpu-a", 1, 1)),
        workload=make_workload(global_batch_size=1),
    )
    found = answer(real, problem)
    plan = plan_of(found)
    assert (found["status"], found["limit"]) == ("succeeded", "optimal")
    assert (plan.groups, len(plan.stages), plan.streams) == (((0,),), 1, ("0F0 0B0 0G0 0U0",))
    assert plan.prediction is not None
    assert plan.prediction.step_ns == plan.prediction.bound_ns == 3 * 10**6  # 1 ms forward, 2 ms backward
    assert check_against(plan, problem).ok


def test_made_orders_are_asked_for_in_the_request(real: Running) -> None:
    only = ONE_LINE.model_dump(mode="json")
    named = answer(real, slow_link(), constraints=only)
    made = answer(real, slow_link(), constraints=only, schedules="synthesised")
    steps = [plan.prediction.step_ns for plan in map(plan_of, (named, made)) if plan.prediction is not None]
    assert steps == [NAMED_NS, MADE_NS]
    provenance = plan_of(made).provenance
    assert provenance is not None
    assert provenance.family == "synthesised"
    request = {**make_request(slow_link()).model_dump(mode="json"), "schedules": "best"}
    refused = real.client.post("/v1/plans", json=request)
    assert refused.status_code == 422
    assert "/schedules" in refused.text


def test_renamed_devices_give_the_same_plan_up_to_names(real: Running) -> None:
    cluster = make_cluster(("cpu-a", 1, 1), ("cpu-a", 1, 1))
    names = {"cpu-a": "zeta", "cpu-a-2": "alpha"}
    text = cluster.model_dump_json()
    for old, new in sorted(names.items(), reverse=True):
        text = text.replace(f'"name":"{old}"', f'"name":"{new}"')
        text = text.replace(f'"source":"{old}"', f'"source":"{new}"').replace(f'"target":"{old}"', f'"target":"{new}"')
    renamed = read_document(text.encode(), type(cluster))
    swapped = renamed.model_copy(update={"node_groups": renamed.node_groups[::-1]})
    plans = [plan_of(answer(real, make_problem(cluster=one))) for one in (cluster, renamed, swapped)]
    shapes = {(plan.groups, plan.stages, plan.routes, plan.micro_batches, plan.streams) for plan in map(_shape, plans)}
    assert len(shapes) == 1
    assert len({plan.prediction.step_ns for plan in plans if plan.prediction}) == 1


class _shape:  # noqa: N801 - a view of a plan without the names of its nodes
    def __init__(self, plan: Plan) -> None:
        self.groups, self.routes, self.streams = plan.groups, plan.routes, plan.streams
        self.stages = tuple(stage.model_dump_json() for stage in plan.stages)
        self.micro_batches = tuple(batch.model_dump_json() for batch in plan.micro_batches)


def test_nothing_fits_says_what_is_short(real: Running) -> None:
    # 4 layers of 1,000 parameters at 16 bytes each on two ranks of 20,000 bytes: one layer alone needs
    # 16,000 of state and what a sample keeps, 4,000 and more
    problem = make_problem(cluster=make_cluster(("cpu-a", 1, 2), usable_bytes=15_000))
    found = answer(real, problem)
    assert (found["status"], found["plan"]) == ("infeasible", None)
    reasons = [reason for reason in found["reasons"] if reason["code"] == "memory"]
    assert reasons, found
    assert all(reason["device_kind"] == "cpu-a" for reason in reasons)
    assert all(reason["need_bytes"] > reason["have_bytes"] == 15_000 for reason in reasons)
    assert real.client.post("/v1/plans", json=make_request(problem).model_dump(mode="json")).json() == found


def test_a_mixed_cluster_gets_the_best_plan_and_the_slow_kind_fewer_layers(real: Running) -> None:
    fast = make_profile(kind="fast", layer_forward_ns=[1_000_000, 1_100_000, 1_000_000, 900_000, 1_000_000, 1_200_000])
    problem = make_problem(
        profiles=[fast, scale_profile(fast, "slow", 2.0)],
        cluster=make_cluster(("fast", 1, 1), ("slow", 1, 1)),
    )
    plan = plan_of(answer(real, problem, constraints={"micro_batch_sizes": [1, 2, 4, 8]}))
    assert plan.prediction is not None
    layers = {plan.group_kind(stage.group): 0 for stage in plan.stages}
    for stage in plan.stages:
        layers[plan.group_kind(stage.group)] += len(stage.layers)
    assert layers["slow"] < layers["fast"]
    assert check_against(plan, problem).ok
    assert plan.prediction.step_ns == min(brute_force(problem))


def brute_force(problem: Problem) -> Iterator[int]:
    """The step of every plan: kinds in any order, one to four stages a group, equal micro-batches."""
    num_layers, batch = problem.num_layers, problem.workload.global_batch_size
    for kinds in itertools.chain([("fast",), ("slow",)], itertools.permutations(("fast", "slow"))):
        for legs in range(1, 5 if len(kinds) > 1 else 2):
            num_stages = legs * len(kinds)
            for cuts in itertools.combinations(range(1, num_layers), num_stages - 1):
                bounds = (0, *cuts, num_layers)
                for samples in (1, 2, 4, 8):
                    yield from steps(problem, kinds=kinds, bounds=bounds, counts=(samples,) * (batch // samples))


def steps(
    problem: Problem, *, kinds: tuple[str, ...], bounds: tuple[int, ...], counts: tuple[int, ...]
) -> Iterator[int]:
    down, up = list(range(len(kinds))), list(reversed(range(len(kinds))))
    loop, wave = down * 4, (down + up) * 2
    whole = len(bounds) - 1 == len(kinds)
    for family, lies in (
        [("gpipe", down), ("1f1b", down)] if whole else [("interleaved", loop), ("breadth-first", loop), ("wave", wave)]
    ):
        parts = PlanParts(
            problem=problem.digest,
            precision="fp32",
            graph=LayerGraph(model=problem.profiles[0].model.fingerprint, num_layers=problem.num_layers),
            nodes=tuple(Node(node_group=kind, device_kind=kind, num_ranks=1) for kind in kinds),
            groups=tuple((rank,) for rank in range(len(kinds))),
            stages=tuple(
                Stage(group=lies[number], first_layer=first, end_layer=end)
                for number, (first, end) in enumerate(itertools.pairwise(bounds))
            ),
            routes=(tuple(range(len(bounds) - 1)),),
            micro_batches=tuple(
                MicroBatch(route=0, samples=samples, cuts=(0, problem.workload.sequence_length)) for samples in counts
            ),
        )
        plan = build_plan(parts, family)
        yield simulate(plan, price_plan(plan, problem)).step_ns


def test_a_step_that_no_plan_can_state_fails_with_its_length(real: Running) -> None:
    long = make_problem(profiles=[make_profile(per_instruction_ns=10**15)])
    body = make_request(long).model_dump(mode="json")
    accepted = real.client.post("/v1/plans", json=body, headers=WAIT)
    found = real.client.get(accepted.headers["Location"]).json()
    assert (found["state"], found["error"]["code"]) == ("failed", "range"), found
    assert "expected at most 1000000000000000 ns" in found["error"]["message"]
