"""Keep or change a plan: each verdict by hand, and what a move costs."""

from typing import Any

import pytest

from planner.check.problem import check_against
from planner.costs.links import message_ns
from planner.costs.price import price_plan
from planner.errors import PlanError, PriceError
from planner.explain.changes import plans_near
from planner.explain.moving import move_between
from planner.explain.revalidate import Thresholds, revalidate
from planner.plan.plan import Plan, Prediction
from planner.problem.problem import Problem
from planner.simulate.simulate import simulate
from tests.helpers.command import two_stage_plan
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload


def near(plan: Plan, problem: Problem, change: str) -> Plan:
    return next(one.plan for one in plans_near(plan, problem) if one.change == change)


def uneven(num_params: int = 1_000) -> Problem:
    """6 + 6 | 1 + 1 takes 4 x 72 = 288 ms for two micro-batches of four samples, 6 | 6 + 1 + 1 takes 264 ms.

    The first: group 0 never waits. The second: 24 + (32 + 64) x 2 + 48, group 1 never waits in between.
    """
    times = [6_000_000, 6_000_000, 1_000_000, 1_000_000]
    return make_problem(profiles=[make_profile(layer_forward_ns=times, num_params=num_params)])


def stating(plan: Plan, step_ns: int) -> Plan:
    prediction = Prediction(
        step_ns=step_ns,
        bound_ns=1,
        bound_model="any_schedule",
        bubble=0.0,
        peak_bytes=(1, 1),
        memory_limit_bytes=(1, 1),
        costs="measured",
    )
    return plan.model_copy(update={"prediction": prediction})


def test_a_plan_that_is_best_is_kept() -> None:
    problem = make_problem()
    found = revalidate(two_stage_plan(problem), problem)
    assert (found.verdict, found.code, found.new_plan) == ("keep", "fits_best", None)
    assert found.step_ns == simulate(two_stage_plan(problem), price_plan(two_stage_plan(problem), problem)).step_ns


def test_a_gain_that_pays_is_taken() -> None:
    problem = uneven()
    plan = two_stage_plan(problem)
    found = revalidate(plan, problem)
    assert (found.verdict, found.code) == ("replan", "gain")
    assert found.new_plan == near(plan, problem, "layer 1 moves from stage 0 to stage 1")
    assert check_against(found.new_plan, problem).fault is None
    assert found.gain == pytest.approx((found.step_ns - found.new_step_ns) / found.step_ns)  # type: ignore[operator]
    assert found.even_after_steps == 1


def test_moving_one_layer_sends_its_weights_and_optimizer_state() -> None:
    """1,000 parameters under adamw in fp32: 4 bytes of weight and 8 of state each; gradients stay."""
    problem = uneven()
    plan = two_stage_plan(problem)
    move = move_between(plan, near(plan, problem, "layer 1 moves from stage 0 to stage 1"), problem)
    assert (move.moved_bytes, move.from_checkpoint_bytes) == (12_000, 0)
    assert move.moving_ns == message_ns(problem.cluster.links[0], 12_000)
    assert move_between(plan, plan, problem) == (move.model_copy(update={"moved_bytes": 0, "moving_ns": 0}))


def test_a_small_gain_is_no_reason() -> None:
    problem = uneven()
    found = revalidate(two_stage_plan(problem), problem, thresholds=Thresholds(smallest_gain=0.9))
    assert (found.verdict, found.code) == ("keep", "small_gain")
    assert found.new_plan is not None


def test_a_move_that_pays_too_late_is_not_made() -> None:
    """10 million parameters = 120 MB at 1 GB/s = 120 ms; a step gains 24 ms: 5 steps, 6 with the messages' latency."""
    problem = uneven(num_params=10_000_000)
    plan = two_stage_plan(problem)
    found = revalidate(plan, problem, thresholds=Thresholds(steps_left=4))
    assert found.even_after_steps in (5, 6)
    assert (found.verdict, found.code) == ("keep", "late_gain")
    longer = revalidate(plan, problem, thresholds=Thresholds(steps_left=found.even_after_steps or 0))
    assert (longer.verdict, longer.code) == ("replan", "gain")


def test_a_lost_node_ends_the_plan_and_its_weights_come_from_a_checkpoint() -> None:
    """Four ranks on two nodes, one stage each; the second node is gone and another plan uses the first alone."""
    before = make_problem(cluster=make_cluster(("cpu-a", 2, 1)))
    after = make_problem(cluster=make_cluster(("cpu-a", 1, 1)))
    plan = Plan.model_validate(
        {
            **two_stage_plan(before).model_dump(by_alias=True),
            "nodes": ({"node_group": "cpu-a", "device_kind": "cpu-a", "num_ranks": 1},) * 2,
        }
    )
    one_rank = Plan.model_validate(
        {
            **plan.model_dump(by_alias=True),
            "problem": after.digest,
            "nodes": plan.nodes[:1],
            "groups": ((0,),),
            "stages": ({"group": 0, "first_layer": 0, "end_layer": 4},),
            "routes": ((0,),),
            "streams": ("0F0 0B0 0F1 0B1 0G0 0U0",),
        }
    )
    found = revalidate(plan, after)
    assert (found.verdict, found.code, found.step_ns) == ("replan", "missing_nodes", None)
    assert "node group 'cpu-a' has 1 node, the plan uses 2" in found.message
    found = revalidate(plan, after, found=[one_rank])
    assert found.new_plan == one_rank
    assert found.move is not None
    assert (found.move.moved_bytes, found.move.from_checkpoint_bytes) == (0, 2 * 12_000)


def test_less_memory_ends_the_plan() -> None:
    problem = make_problem(cluster=make_cluster(usable_bytes=1000))
    found = revalidate(two_stage_plan(problem), problem)
    assert (found.verdict, found.code, found.step_ns) == ("replan", "memory", None)
    assert "group 0 needs" in found.message


def test_a_plan_that_became_slower_is_worth_a_search() -> None:
    problem = make_problem()
    plan = two_stage_plan(problem)
    now_ns = simulate(plan, price_plan(plan, problem)).step_ns
    assert revalidate(stating(plan, round(now_ns / 1.2)), problem).code == "slower"
    assert revalidate(stating(plan, round(now_ns / 1.05)), problem).code == "fits_best"


def test_a_batch_that_no_profile_prices_is_said() -> None:
    problem = make_problem(profiles=[make_profile(sequence_lengths=(1,))], workload=make_workload())
    found = revalidate(two_stage_plan(problem), problem)
    assert (found.verdict, found.code) == ("replan", "not_priced")
    assert "more than" in found.message


def test_another_model_is_refused() -> None:
    problem = make_problem(profiles=[make_profile(model="other")])
    with pytest.raises(PlanError, match="different models"):
        revalidate(two_stage_plan(), problem)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"global_batch_size": 4}, "global_batch"),
        ({"global_batch_size": 16}, "global_batch"),
        ({"sequence_length": 16}, "sequence_length"),
        ({"precision": "bf16"}, "precision_mismatch"),
    ],
)
def test_steps_of_different_work_are_not_compared(changed: dict[str, Any], code: str) -> None:
    profiles = [make_profile(precision=changed.get("precision", "fp32"))]
    after = make_problem(profiles=profiles, workload=make_workload(**changed))
    with pytest.raises(PlanError, match="other work") as caught:
        revalidate(two_stage_plan(make_problem()), after)
    assert caught.value.code == code


def test_a_plan_at_hand_that_does_less_work_is_not_a_shorter_one() -> None:
    """Half the samples in half the time is no gain."""
    problem = make_problem()
    plan = two_stage_plan(problem)
    batches = tuple(batch.model_copy(update={"samples": 2}) for batch in plan.micro_batches)
    less = Plan.model_validate({**plan.model_dump(by_alias=True), "micro_batches": batches})
    with pytest.raises(PlanError, match="hold 4 samples, expected 8") as caught:
        revalidate(plan, problem, found=[less])
    assert (caught.value.code, caught.value.pointer) == ("global_batch", "/plans/0/micro_batches")


def test_a_step_above_the_longest_duration_is_refused() -> None:
    problem = make_problem(profiles=[make_profile(per_instruction_ns=10**15)])
    with pytest.raises(PriceError, match="expected at most 1000000000000000 ns") as caught:
        revalidate(two_stage_plan(problem), problem)
    assert caught.value.code == "range"


def test_a_move_above_the_longest_duration_is_refused() -> None:
    """12 bytes a parameter at 1 MB/s: 10^12 parameters take 1.2 x 10^7 s."""
    problem = uneven(num_params=10**12)
    slow = make_problem(profiles=problem.profiles, cluster=make_cluster(bytes_per_us=1))
    plan = two_stage_plan(problem)
    with pytest.raises(PriceError, match="moving the weights takes") as caught:
        move_between(plan, near(plan, problem, "layer 1 moves from stage 0 to stage 1"), slow)
    assert caught.value.code == "range"
