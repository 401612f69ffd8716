"""Fit what layer profiles cannot see from measured steps of a plan: the load of a training run, and the runtime.

Layers are measured alone; a training step also pays for the runtime around every instruction, and may meet another
load than the profiling did. Two things are fitted, in this order, so that the simulated step of the reference plan
takes as long as the measured steps' lower median:

1. the profile's statistic: of minimum, lower quartile, median and mean the largest with which the layers alone do not
   take longer than the steps did (under the load of the steps the layers ran like that);
2. the constant of an instruction (cost model, section 8), never negative.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median_low

from planner.costs.price import price_plan
from planner.errors import ProblemError
from planner.plan.plan import Plan
from planner.problem.canonical import document_bytes
from planner.problem.problem import Problem
from planner.problem.profile import Calibration, ModelProfile, Statistic
from planner.problem.reading import read_document
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline

__all__ = ["calibrate"]

_STATISTICS: tuple[Statistic, ...] = ("min_ns", "p25_ns", "median_ns", "mean_ns")


def calibrate(problem: Problem, plan: Plan, measured: Sequence[Timeline]) -> tuple[ModelProfile, ...]:
    """The problem's profiles with fitted statistic and constant, and an entry for each measured step.

    An entry's prediction is the one before the fit. Raises ``ProblemError`` where nothing was measured.
    """
    if not measured or min(timeline.step_ns for timeline in measured) == 0:
        raise ProblemError("found no measured step, expected at least one", code="missing")
    target_ns = median_low(timeline.step_ns for timeline in measured)  # of two steps the quicker: load only adds
    before_ns = max(1, _step_ns(problem, plan))
    entries = tuple(
        Calibration(plan=plan.digest, predicted_ns=before_ns, measured_ns=timeline.step_ns) for timeline in measured
    )
    bare = _with_statistic(_with_constant(problem, 0), plan, target_ns)
    fitted = _with_constant(bare, _constant_ns(bare, plan, target_ns))
    return tuple(_recorded(profile, entries) for profile in fitted.profiles)


def _recorded(profile: ModelProfile, entries: tuple[Calibration, ...]) -> ModelProfile:
    """Read anew: a copy keeps what the first one has worked out of itself (its digest)."""
    copy = profile.model_copy(update={"calibration": profile.calibration + entries})
    return read_document(document_bytes(copy), ModelProfile)


def _with_statistic(bare: Problem, plan: Plan, target_ns: int) -> Problem:
    def read(statistic: Statistic) -> Problem:
        return _changed(bare, lambda profile: profile.model_copy(update={"statistic": statistic}))

    steps_ns = {statistic: _step_ns(read(statistic), plan) for statistic in _STATISTICS}
    short_enough = [statistic for statistic in _STATISTICS if steps_ns[statistic] <= target_ns]
    if not short_enough:
        return read(min(_STATISTICS, key=steps_ns.__getitem__))
    return read(max(short_enough, key=steps_ns.__getitem__))


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
    def changed(profile: ModelProfile) -> ModelProfile:
        overheads = profile.overheads.model_copy(update={"per_instruction_ns": per_instruction_ns})
        return profile.model_copy(update={"overheads": overheads})

    return _changed(problem, changed)


def _changed(problem: Problem, change: Callable[[ModelProfile], ModelProfile]) -> Problem:
    return replace(problem, profiles=tuple(change(profile) for profile in problem.profiles))
