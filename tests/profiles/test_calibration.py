"""Calibration by steps whose time is worked out by hand."""

from dataclasses import replace

import pytest

from planner.costs.price import price_plan
from planner.errors import ProblemError
from planner.plan.plan import Plan
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile, Statistics
from planner.schedules.build import build_plan
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline
from profiles.calibration import calibrate
from tests.helpers.documents import make_problem, make_profile
from tests.helpers.plans import Line, make_parts


def a_plan(problem: Problem, *, family: str = "1f1b") -> Plan:
    """Two stages of two layers, four micro-batches of two samples of 32 tokens."""
    parts = make_parts([Line(2, 2, 4)], num_layers=4, samples=2, tokens=32)
    group = problem.cluster.node_groups[0]
    nodes = (parts.nodes[0].model_copy(update={"node_group": group.name, "device_kind": group.device_kind}),)
    graph = parts.graph.model_copy(update={"model": problem.profiles[0].model.fingerprint})
    parts = replace(parts, nodes=nodes, graph=graph, problem=problem.digest)
    return build_plan(parts, "1f1b" if family == "1f1b" else "gpipe")


def step_ns(problem: Problem, plan: Plan) -> int:
    return simulate(plan, price_plan(plan, problem)).step_ns


def took(plan: Plan, *steps_ns: int) -> list[Timeline]:
    return [Timeline(events=((), ()), step_ns=step, num_ranks=(1, 1)) for step in steps_ns]


def test_the_constant_is_found_again() -> None:
    problem = make_problem(profiles=[make_profile(per_instruction_ns=12_345)])
    plan = a_plan(problem)
    measured_ns = step_ns(problem, plan)
    guess = make_problem(profiles=[make_profile(per_instruction_ns=777)])
    (fitted,) = calibrate(guess, plan, took(plan, measured_ns))
    assert fitted.overheads.per_instruction_ns == 12_345
    assert fitted.digest != guess.profiles[0].digest
    assert step_ns(replace(guess, profiles=(fitted,)), plan) == measured_ns


def test_each_measured_step_is_recorded_beside_the_prediction_before_the_fit() -> None:
    problem = make_problem()
    plan = a_plan(problem)
    before_ns = step_ns(problem, plan)
    (fitted,) = calibrate(problem, plan, took(plan, before_ns + 800, before_ns + 1_600))
    assert [(c.plan, c.predicted_ns, c.measured_ns) for c in fitted.calibration] == [
        (plan.digest, before_ns, before_ns + 800),
        (plan.digest, before_ns, before_ns + 1_600),
    ]
    # 4 F and 4 B of a stage, and the first F and last B of the other are on the longest path: 10 instructions
    # and of two steps the quicker counts
    assert fitted.overheads.per_instruction_ns == 800 // 10
    assert ModelProfile.model_validate_json(fitted.model_dump_json()) == fitted


def test_steps_quicker_than_the_quickest_samples_leave_no_constant() -> None:
    problem = make_problem(profiles=[make_profile(per_instruction_ns=500)])
    plan = a_plan(problem)
    (fitted,) = calibrate(problem, plan, took(plan, 1_000))
    assert fitted.overheads.per_instruction_ns == 0


def spread_out(found: Statistics | None) -> Statistics | None:
    """Samples whose quartile, median and mean are 2, 3 and 4 times their minimum."""
    if found is None:
        return None
    low = found.min_ns
    return found.model_copy(
        update={"p10_ns": low, "p25_ns": 2 * low, "median_ns": 3 * low, "mean_ns": 4 * low, "p90_ns": 9 * low}
    )


def noisy_profile() -> ModelProfile:
    profile = make_profile()
    return profile.model_copy(
        update={
            "measurements": tuple(
                m.model_copy(
                    update={
                        "points": tuple(
                            p.model_copy(update={"forward": spread_out(p.forward), "backward": spread_out(p.backward)})
                            for p in m.points
                        )
                    }
                )
                for m in profile.measurements
            )
        }
    )


@pytest.mark.parametrize(
    ("load", "statistic"), [(0.5, "min_ns"), (1.5, "min_ns"), (2.5, "p25_ns"), (3.5, "median_ns"), (6, "mean_ns")]
)
def test_the_statistic_that_the_load_allows_is_chosen(load: float, statistic: str) -> None:
    problem = make_problem(profiles=[noisy_profile()])
    plan = a_plan(problem)
    quiet = make_problem(profiles=[noisy_profile().model_copy(update={"statistic": "min_ns"})])
    (fitted,) = calibrate(problem, plan, took(plan, round(load * step_ns(quiet, plan))))
    assert fitted.statistic == statistic


def test_a_fit_to_one_schedule_serves_another() -> None:
    true = make_problem(profiles=[make_profile(per_instruction_ns=40_000)])
    guess = make_problem()
    plan, other = a_plan(true), a_plan(true, family="gpipe")
    fitted = replace(guess, profiles=calibrate(guess, plan, took(plan, step_ns(true, plan))))
    assert step_ns(fitted, other) == step_ns(true, other)


def test_nothing_measured_is_an_error() -> None:
    problem = make_problem()
    with pytest.raises(ProblemError) as caught:
        calibrate(problem, a_plan(problem), [])
    assert caught.value.code == "missing"
