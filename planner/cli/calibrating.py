"""A profile calibrated by the record of a run."""

from pathlib import Path

from planner.cli.files import read_plan, read_run
from planner.errors import PlanError, ProblemError
from planner.problem.problem import Problem
from planner.problem.profile import ModelProfile
from planner.simulate.run_record import recorded_timeline

__all__ = ["calibrated_profile"]


def calibrated_profile(problem: Problem, plan_file: Path, run_file: Path, *, skip: int) -> ModelProfile:
    """The problem's first profile, its overhead fitted to the recorded steps after the first ``skip``."""
    from profiles.calibration import calibrate

    plan, record = read_plan(plan_file), read_run(run_file)
    if record.plan != plan.digest:
        message = f"the run is of plan {record.plan[:12]}, expected plan {plan.digest[:12]}"
        raise PlanError(message, code="plan_mismatch", pointer="/plan")
    measured = [found for step in record.steps[skip:] if (found := recorded_timeline(plan, step)) is not None]
    if not measured:
        message = f"the run has {len(record.steps)} steps, expected more than the {skip} that are left out"
        raise ProblemError(message, code="missing", pointer="/steps")
    return calibrate(problem, plan, measured)[0]
