"""The record of a run, and the comparison of what was predicted with what was measured."""

import random

import pytest

from planner.costs.prices import VisitPrice
from planner.errors import ContractError, PlanError
from planner.plan.plan import Plan, Prediction
from planner.problem.canonical import document_bytes
from planner.problem.reading import read_document
from planner.simulate.compare import compare
from planner.simulate.run_record import RecordedStep, RunRecord, recorded_step, recorded_timeline
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline
from tests.helpers.plans import line_plan, make_prices
from tests.helpers.random_plans import random_plan


def timeline_of(plan: Plan, forward_ns: int, backward_ns: int) -> Timeline:
    return simulate(plan, make_prices(plan, lambda stage: VisitPrice(forward_ns, backward_ns, 0, 0)))


def record_of(plan: Plan, *timelines: Timeline) -> RunRecord:
    steps = tuple(recorded_step(plan, n, timeline=timeline, loss=1.0 / (n + 1)) for n, timeline in enumerate(timelines))
    return RunRecord(schema_version="run/1", plan=plan.digest, num_ranks=plan.num_ranks, steps=steps)


def test_a_record_keeps_the_timeline_through_its_bytes() -> None:
    for seed in range(20):
        plan = random_plan(random.Random(seed))
        timeline = simulate(plan, make_prices(plan, lambda stage: VisitPrice(3, 5, 2, 3, 1, kept_bytes=7)))
        record = read_document(document_bytes(record_of(plan, timeline)), RunRecord)
        assert recorded_timeline(plan, record.steps[0]) == timeline


def test_the_text_of_an_event() -> None:
    plan = line_plan("1f1b", 1, 1)
    step = recorded_step(plan, 3, timeline=timeline_of(plan, 10, 20), loss=2.5)
    assert step.events == ("0F0:0:10 0B0:10:30 0G0:30:30 0U0:30:30",)
    assert (step.number, step.step_ns, step.loss) == (3, 30, 2.5)


@pytest.mark.parametrize("line", ["0F0:0", "0F0:9:3", "0F0:0:x", "F0:0:1", "0F0:-1:2", "0F0:0:1:2", "0F0:0:1  0B0"])
def test_events_that_cannot_be_read_are_refused(line: str) -> None:
    document = {"schema": "run/1", "plan": "0" * 64, "num_ranks": 1}
    step = {"number": 0, "step_ns": 9, "loss": 1.0, "events": [line]}
    with pytest.raises(ContractError) as found:
        read_document(str(document | {"steps": [step]}).replace("'", '"').encode(), RunRecord)
    assert found.value.code == "event_text"


def test_steps_must_ascend() -> None:
    step = RecordedStep(number=1, step_ns=9, loss=1.0)
    with pytest.raises(ValueError, match="ascend"):
        RunRecord(schema_version="run/1", plan="0" * 64, num_ranks=1, steps=(step, step))


def test_errors_of_steps_and_of_instructions() -> None:
    """One group, one micro-batch, predicted F 10, B 20, step 30. Measured steps 40 (F 10, B 30) and 25 (F 5, B 20).

    Errors 30/40 - 1 = -0.25 and 30/25 - 1 = +0.2; median of the steps 32.5 -> 32; F: median 7.5, B: median 25.
    """
    plan = line_plan("1f1b", 1, 1)
    record = record_of(plan, timeline_of(plan, 10, 30), timeline_of(plan, 5, 20))
    found = compare(plan, record, predicted=timeline_of(plan, 10, 20))
    assert [step.error for step in found.steps] == pytest.approx([-0.25, 0.2])
    assert found.median_error == pytest.approx(0.225)
    assert (found.predicted_ns, found.measured_ns) == (30, 32)
    by_operation = {deviation.operation: deviation for deviation in found.deviations}
    assert (by_operation["F"].measured_ns, by_operation["B"].measured_ns) == (8, 25)
    assert found.worst is not None
    assert found.worst.operation == "B"  # 5 ns of the step against 2.5
    assert str(found.worst) == "B of stage 0: predicted 20 ns, measured 25 ns (-20.0%)"


def test_the_stage_that_makes_the_step_long_is_the_worst() -> None:
    """4 micro-batches: 4 x 3 ns on F of stage 1 weigh more than 1 x 5 ns would."""
    plan = line_plan("1f1b", 2, 4)
    slow = make_prices(plan, lambda stage: VisitPrice(10 + 3 * stage, 20, 0, 0), update_ns=5)
    quick = make_prices(plan, lambda stage: VisitPrice(10, 20, 0, 0))
    found = compare(plan, record_of(plan, simulate(plan, slow)), predicted=simulate(plan, quick))
    assert found.worst is not None
    assert (found.worst.stage, found.worst.operation, found.worst.cost_ns) == (1, "F", 12)


def test_the_plan_s_own_prediction_serves_without_a_timeline() -> None:
    plan = line_plan("1f1b", 1, 1)
    with pytest.raises(PlanError, match="no prediction") as missing:
        compare(plan, record_of(plan, timeline_of(plan, 10, 20)))
    assert missing.value.code == "prediction_missing"
    prediction = Prediction(
        step_ns=33,
        bound_ns=30,
        bound_model="any_schedule",
        bubble=0.0,
        peak_bytes=(0,),
        memory_limit_bytes=(1,),
        costs="measured",
    )
    predicted = plan.model_copy(update={"prediction": prediction})
    found = compare(predicted, record_of(plan, timeline_of(plan, 10, 20)))
    assert found.error == pytest.approx(0.1)
    assert found.deviations == ()
    assert found.worst is None


def test_a_record_of_another_plan_is_refused() -> None:
    plan, other = line_plan("1f1b", 1, 1), line_plan("1f1b", 1, 2)
    with pytest.raises(PlanError, match=other.digest[:12]) as found:
        compare(plan, record_of(other, timeline_of(other, 1, 1)), predicted=timeline_of(plan, 1, 1))
    assert found.value.code == "plan_mismatch"
