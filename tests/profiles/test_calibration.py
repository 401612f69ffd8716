"""Calibration by steps whose time is worked out by hand."""

from dataclasses import replace

import pytest

from planner.costs.price import price_plan
from planner.errors import ProblemError
from planner.plan.plan import Plan
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile, Overheads
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


def under_load(plan: Plan, problem: Problem, factor: float) -> Timeline:
    """A step in which every layer takes ``factor`` times its profiled time."""
    (profile,) = problem.profiles
    overheads = profile.overheads.model_copy(update={"load_factor": factor})
    return simulate(plan, price_plan(plan, replace(problem, profiles=(with_overheads(profile, overheads),))))


def with_overheads(profile: ModelProfile, overheads: Overheads) -> ModelProfile:
    return profile.model_copy(update={"overheads": overheads})


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.5])
def test_the_load_of_the_steps_multiplies_the_layers(factor: float) -> None:
    problem = make_problem(profiles=[make_profile(per_instruction_ns=0)])
    plan, other = a_plan(problem), a_plan(problem, family="gpipe")
    measured = under_load(plan, problem, factor)
    (fitted,) = calibrate(problem, plan, [measured])
    assert fitted.overheads.load_factor == pytest.approx(factor, rel=1e-6)
    calibrated = replace(problem, profiles=(fitted,))
    assert step_ns(calibrated, plan) == pytest.approx(measured.step_ns, abs=20)
    # and another schedule is predicted under the same load
    assert step_ns(calibrated, other) == pytest.approx(under_load(other, problem, factor).step_ns, rel=1e-5)


def test_a_calibrated_profile_is_calibrated_anew() -> None:
    problem = make_problem(profiles=[make_profile(per_instruction_ns=0)])
    plan = a_plan(problem)
    loaded = replace(problem, profiles=calibrate(problem, plan, [under_load(plan, problem, 3.0)]))
    (fitted,) = calibrate(loaded, plan, [under_load(plan, problem, 2.0)])
    assert fitted.overheads.load_factor == pytest.approx(2.0, rel=1e-6)
    assert len(fitted.calibration) == 2


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
