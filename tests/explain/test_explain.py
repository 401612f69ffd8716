"""Explanations against worked examples and against the simulator itself."""

import random

import pytest

from planner.check.structure import check_plan
from planner.costs.price import price_plan
from planner.errors import PlanError, PriceError
from planner.explain.changes import conditions, plans_near
from planner.explain.critical import critical_path
from planner.explain.explain import explain
from planner.plan.plan import Plan, Provenance
from planner.problem.problem import Problem
from planner.simulate.simulate import simulate
from tests.helpers.command import two_stage_plan
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload
from tests.helpers.prices import random_prices
from tests.helpers.random_plans import random_plan


def step_ns(plan: Plan, problem: Problem) -> int:
    return simulate(plan, price_plan(plan, problem)).step_ns


def free_links() -> Problem:
    """Two stages of two layers, 4 samples a micro-batch, messages that take 1 ns: F is 8 ms, B 16 ms."""
    return make_problem(cluster=make_cluster(latency_ns=0, bytes_per_us=10**6))


def test_the_critical_path_of_two_stages() -> None:
    """0F0 | 1F0 1B0 1F1 1B1 | 0B1: 8 + 48 + 16 = 72 ms; group 0 is on the path for 24 of them."""
    problem = free_links()
    plan = two_stage_plan(problem)
    path = critical_path(plan, price_plan(plan, problem))
    compute = {(one.group, one.stage): one.time_ns for one in path if one.kind == "compute"}
    assert compute == {(1, 1): 48_000_000, (0, 0): 24_000_000}
    assert sum(one.time_ns for one in path) == step_ns(plan, problem)
    assert sum(one.share for one in path) == pytest.approx(1)
    messages = {(one.group, one.to_group) for one in path if one.kind == "message"}
    assert messages == {(0, 1), (1, 0)}


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_of_the_path_are_the_step_of_any_plan(seed: int) -> None:
    source = random.Random(seed)
    plan = random_plan(source)
    prices = random_prices(source, plan)
    path = critical_path(plan, prices)
    assert sum(one.time_ns for one in path) == simulate(plan, prices).step_ns


def heavy_head() -> Problem:
    return make_problem(
        profiles=[make_profile(layer_forward_ns=[1_000_000] * 3 + [9_000_000])],
        cluster=make_cluster(latency_ns=0, bytes_per_us=10**6),
    )


def test_a_head_heavier_than_the_mean_stage_is_named() -> None:
    """Of 4 samples: stage 0 = 2 layers x 12 ms, stage 1 = 12 + 108 ms, mean 72 ms; layer 3 alone takes 108."""
    problem = heavy_head()
    found = {one.code: one for one in explain(two_stage_plan(problem), problem).bindings}
    head = found["heavy_layer"]
    assert (head.layer, head.stage, head.cost_ns) == (3, 1, 2 * (108 - 72) * 10**6)
    assert "layer 3 ('layers.3') alone takes 108 ms of a micro-batch on stage 1, the mean group 72 ms" in head.message
    assert found["uneven_stages"].cost_ns == 2 * (120 - 72) * 10**6
    assert found["stage"].stage == 1


def test_the_dearest_binding_comes_first_and_even_stages_bind_nothing() -> None:
    problem = free_links()
    found = explain(two_stage_plan(problem), problem)
    costs = [one.cost_ns or 0 for one in found.bindings]
    assert costs == sorted(costs, reverse=True)
    assert {one.code for one in found.bindings} == {"stage", "few_micro_batches"}
    (few,) = [one for one in found.bindings if one.code == "few_micro_batches"]
    assert (few.cost_ns or 0) // 10**6 == 24  # 72 - 48 ms
    assert "2 micro-batches over 2 groups" in few.message


def test_a_slow_link_binds_and_twice_the_speed_helps() -> None:
    problem = make_problem(cluster=make_cluster(latency_ns=0, bytes_per_us=1))
    plan = two_stage_plan(problem)
    found = explain(plan, problem)
    (link,) = [one for one in found.bindings if one.code == "link"]
    assert "messages between groups 0 and 1" in link.message
    faster = make_problem(cluster=make_cluster(latency_ns=0, bytes_per_us=2))
    (what_if,) = [one for one in found.what_if if "twice as fast" in one.change]
    assert what_if.step_ns == step_ns(plan, faster)
    assert what_if.gain == pytest.approx((found.step_ns - what_if.step_ns) / found.step_ns)


def test_a_faster_device_is_the_same_as_faster_layers() -> None:
    problem = make_problem(profiles=[make_profile(layer_forward_ns=(1_100_000,) * 4)])
    plan = two_stage_plan(problem)
    (what_if,) = [one for one in explain(plan, problem).what_if if "10 % faster" in one.change]
    assert what_if.step_ns == step_ns(plan, make_problem())


def test_memory_binds_and_more_of_it_opens_a_plan() -> None:
    """Stage 1 is dearer; moving layer 2 to group 0 needs more than the limit there, and 10 % more memory allow it."""
    profile = make_profile(layer_forward_ns=[1_000_000, 1_000_000, 1_000_000, 3_000_000], saved_bytes=100_000)
    roomy = make_problem(profiles=[profile])
    plan = two_stage_plan(roomy)
    moved = next(one.plan for one in plans_near(plan, roomy) if one.change == "layer 2 moves from stage 1 to stage 0")
    need = max(simulate(moved, price_plan(moved, roomy)).peak_bytes or ())
    tight = make_problem(profiles=[profile], cluster=make_cluster(usable_bytes=need - 1))
    found = explain(plan, tight)
    (more,) = [one for one in found.what_if if "more memory" in one.change]
    assert more.change.endswith("layer 2 moves from stage 1 to stage 0")
    assert more.step_ns == step_ns(moved, roomy)
    (other,) = [one for one in found.alternatives if one.change == "layer 2 moves from stage 1 to stage 0"]
    assert (other.short_bytes, other.step_ns) == (1, step_ns(moved, roomy))
    assert not [one for one in explain(plan, roomy).bindings if one.code == "memory"]
    peak = max(simulate(plan, price_plan(plan, roomy)).peak_bytes or ())
    full = make_problem(profiles=[profile], cluster=make_cluster(usable_bytes=peak + 1))
    (memory,) = [one for one in explain(plan, full).bindings if one.code == "memory"][:1]
    assert memory.have_bytes == (memory.need_bytes or 0) + 1
    assert memory.cost_ns is None


def test_every_plan_near_a_plan_is_legal_and_holds_the_same_samples() -> None:
    problem = make_problem(workload=make_workload(global_batch_size=8))
    plan = two_stage_plan(problem)
    near = list(plans_near(plan, problem))
    changes = [one.change for one in near]
    assert "layer 1 moves from stage 0 to stage 1" in changes
    assert "stage 0 recomputes all its layers" in changes
    assert "the order of gpipe" in changes
    assert len(set(changes)) == len(changes)
    for one in near:
        assert check_plan(one.plan).ok, one.change
        assert sum(batch.samples for batch in one.plan.micro_batches) == 8
        assert one.plan.digest != plan.digest
    assert len({one.plan.digest for one in near}) == len(near)


def test_conditions_change_one_fact_each() -> None:
    profiles = [make_profile(kind="cpu-a"), make_profile(kind="cpu-b")]
    problem = make_problem(profiles=profiles, cluster=make_cluster(("cpu-a", 1, 2), ("cpu-b", 1, 1)))
    found = list(conditions(problem))
    assert [one.change for one in found] == [
        "the inside_node link of cpu-a is twice as fast",
        "the between_nodes link of cpu-a to cpu-b is twice as fast",
        "cpu-a computes 10 % faster",
        "cpu-b computes 10 % faster",
    ]
    assert len({one.problem.digest for one in found} | {problem.digest}) == 5


def test_what_the_profile_cannot_price_is_said() -> None:
    """Measured at 8 samples alone, priced down to 4: four micro-batches of 2 are too far from that."""
    problem = make_problem(profiles=[make_profile(micro_batch_sizes=(8,))])
    plan = two_stage_plan(problem)
    found_by = Provenance(
        planner="0",
        family="1f1b",
        solver="none",
        seed=0,
        limit="optimal",
        search_ns=0,
        profiles=(problem.profiles[0].digest,),
    )
    found = explain(plan.model_copy(update={"provenance": found_by}), problem)
    (line,) = found.not_priced
    assert line.startswith("4 micro-batches instead of 2: layer 0")
    assert "1 micro-batch instead of 2" in [one.change for one in found.alternatives]


def test_memory_is_not_credited_with_a_gain_that_needs_none() -> None:
    """6 + 6 | 1 + 1 ms: moving layer 1 gains 24 ms of 288 and fits as it is, however much memory there is."""
    problem = make_problem(profiles=[make_profile(layer_forward_ns=[6_000_000, 6_000_000, 1_000_000, 1_000_000])])
    found = explain(two_stage_plan(problem), problem)
    assert any(one.gain > 0 and one.short_bytes == 0 for one in found.alternatives)
    (more,) = [one for one in found.what_if if "more memory" in one.change]
    assert (more.step_ns, more.gain) == (found.step_ns, 0.0)
    assert "no plan near this one needs it" in more.change


def test_a_plan_of_other_work_is_not_explained() -> None:
    problem = make_problem()
    plan = two_stage_plan(problem)
    other = make_problem(profiles=problem.profiles, workload=make_workload(global_batch_size=4))
    with pytest.raises(PlanError, match="hold 8 samples, expected 4") as caught:
        explain(plan, other)
    assert (caught.value.code, caught.value.pointer) == ("global_batch", "/micro_batches")


def test_a_step_above_the_longest_duration_is_refused() -> None:
    """Six visits of 4 x 10^14 ns follow one another: 2.4 x 10^15 ns, no document can state that."""
    problem = make_problem(profiles=[make_profile(per_instruction_ns=4 * 10**14)])
    with pytest.raises(PriceError, match="expected at most 1000000000000000 ns") as caught:
        explain(two_stage_plan(problem), problem)
    assert caught.value.code == "range"
    assert str(step_ns(two_stage_plan(problem), problem)) in caught.value.message
