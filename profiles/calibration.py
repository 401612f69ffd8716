"""Fit what layer profiles cannot see from measured steps of a plan: the load of a training run, and the runtime.

Layers are measured alone; a training step also pays for the runtime around every instruction, and may meet another
load than the profiling did. Of the measured steps the lower median is the reference. Two things are fitted to it, in
this order, so that the simulated step of the plan takes as long as the reference did:

1. the load factor: how much longer the reference's F, R and B took together than their layers' profiled times;
2. the constant of an instruction (cost model, section 8): what is left of the step, never negative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.costs.price import price_plan
from planner.errors import ProblemError
from planner.plan.instruction import VISIT_OPERATIONS
from planner.plan.plan import Plan
from planner.problem.canonical import document_bytes
from planner.problem.problem import Problem
from planner.problem.profile import Calibration, ModelProfile
from planner.problem.reading import read_document
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline

__all__ = ["calibrate"]

_FACTORS = (0.01, 100.0)  # beyond these it is no load but another device or a broken clock


def calibrate(problem: Problem, plan: Plan, measured: Sequence[Timeline]) -> tuple[ModelProfile, ...]:
    """The problem's profiles with fitted load factor and constant, and an entry for each measured step.

    An entry's prediction is the one before the fit. Raises ``ProblemError`` where nothing was measured.
    """
    if not measured or min(timeline.step_ns for timeline in measured) == 0:
        raise ProblemError("found no measured step, expected at least one", code="missing")
    reference = sorted(measured, key=lambda timeline: timeline.step_ns)[(len(measured) - 1) // 2]  # load only adds
    before_ns = max(1, _step_ns(problem, plan))
    entries = tuple(
        Calibration(plan=plan.digest, predicted_ns=before_ns, measured_ns=timeline.step_ns) for timeline in measured
    )
    bare = _with_load_factor(_with_constant(problem, 0), plan, reference)
    fitted = _with_constant(bare, _constant_ns(bare, plan, reference.step_ns))
    return tuple(_recorded(profile, entries) for profile in fitted.profiles)


def _recorded(profile: ModelProfile, entries: tuple[Calibration, ...]) -> ModelProfile:
    """Read anew: a copy keeps what the first one has worked out of itself (its digest)."""
    copy = profile.model_copy(update={"calibration": profile.calibration + entries})
    return read_document(document_bytes(copy), ModelProfile)


def _with_load_factor(bare: Problem, plan: Plan, reference: Timeline) -> Problem:
    """The factor is 1 where the reference has no instructions of layers, or the profile no times for them."""
    even = _with_factor(bare, 1.0)
    predicted_ns = _work_ns(simulate(plan, price_plan(plan, even)))
    measured_ns = _work_ns(reference)
    if not predicted_ns or not measured_ns:
        return even
    return _with_factor(bare, min(max(measured_ns / predicted_ns, _FACTORS[0]), _FACTORS[1]))


def _work_ns(timeline: Timeline) -> int:
    """All instructions that run layers."""
    events = (event for group in timeline.events for event in group)
    return sum(event.end_ns - event.start_ns for event in events if event.instruction.operation in VISIT_OPERATIONS)


def _constant_ns(bare: Problem, plan: Plan, target_ns: int) -> int:
    """Bisection: a step grows by at least the constant, as some instruction is on its longest path."""
    low, high = 0, max(0, target_ns - _step_ns(bare, plan)) + 1  # low: short enough (or 0), high: too long
    while high - low > 1:
        middle = (low + high) // 2
        if _step_ns(_with_constant(bare, middle), plan) <= target_ns:
            low = middle
        else:
            high = middle
    return low


def _step_ns(problem: Problem, plan: Plan) -> int:
    return simulate(plan, price_plan(plan, problem)).step_ns


def _with_constant(problem: Problem, per_instruction_ns: int) -> Problem:
    return _with_overheads(problem, {"per_instruction_ns": per_instruction_ns})


def _with_factor(problem: Problem, load_factor: float) -> Problem:
    return _with_overheads(problem, {"load_factor": load_factor})


def _with_overheads(problem: Problem, update: Mapping[str, float]) -> Problem:
    def changed(profile: ModelProfile) -> ModelProfile:
        return profile.model_copy(update={"overheads": profile.overheads.model_copy(update=update)})

    return replace(problem, profiles=tuple(changed(profile) for profile in problem.profiles))
