"""``planner verify``: predicted against measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import (
    ForceOption,
    JsonOption,
    OptionalClusterOption,
    OptionalProfilesOption,
    OptionalWorkloadOption,
    PlanArgument,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from planner.cli.output import Destination
    from planner.plan.plan import Plan
    from planner.problem.problem import Problem
    from planner.simulate.compare import Comparison, StepError
    from planner.simulate.timeline import Timeline

__all__ = ["verify"]

_MOST_STEPS_SHOWN = 50
_MOST_DEVIATIONS_SHOWN = 8


def verify(
    plan_file: PlanArgument,
    run_file: Annotated[Path, typer.Argument(metavar="RUN", help="A run/1 file that a run of the plan wrote.")],
    profiles: OptionalProfilesOption = None,
    cluster: OptionalClusterOption = None,
    workload: OptionalWorkloadOption = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the last measured step for Perfetto.")
    ] = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Compare the measured steps of a run with the plan's prediction.

    With --profile, --cluster and --workload the prediction is made anew and each instruction is compared too.
    """
    from planner.cli.files import read_plan, read_run
    from planner.cli.output import Destination, check_destination, emit_json, show_tables
    from planner.cli.problem_files import optional_problem
    from planner.simulate.compare import compare
    from planner.simulate.run_record import recorded_timeline

    destination = Destination(trace, force)
    check_destination(destination, inputs=[plan_file, run_file, *(profiles or []), cluster, workload])
    plan, record = read_plan(plan_file), read_run(run_file)
    problem = optional_problem(profiles, cluster, workload)
    comparison = compare(plan, record, predicted=None if problem is None else _predicted(plan, problem))
    measured = next((found for step in reversed(record.steps) if (found := recorded_timeline(plan, step))), None)
    if trace is not None:
        _write_trace(plan, measured, destination)
    _warn_below_bound(plan, comparison)
    if json_output:
        emit_json(_as_json(plan, comparison))
        return
    show_tables(*_tables(plan, comparison))
    if measured is not None:
        from planner.cli.drawing import draw_timeline
        from planner.cli.output import terminal_columns

        show_tables("", "timeline (measured, last recorded step)", draw_timeline(measured, width=terminal_columns()))


def _predicted(plan: "Plan", problem: "Problem") -> "Timeline":
    from planner.costs.price import price_plan
    from planner.simulate.simulate import simulate

    return simulate(plan, price_plan(plan, problem))


def _write_trace(plan: "Plan", measured: "Timeline | None", destination: "Destination") -> None:
    from planner.cli.output import emit
    from planner.errors import ProblemError
    from planner.simulate.trace import chrome_trace

    if measured is None:
        raise ProblemError("the run kept no events, expected those of one step", code="missing", pointer="/steps")
    emit(chrome_trace(plan, measured), destination)


def _bound_ns(plan: "Plan") -> int | None:
    return None if plan.prediction is None else plan.prediction.bound_ns


def _below_bound(plan: "Plan", comparison: "Comparison") -> "list[StepError]":
    """Steps that no plan can reach with these profiles."""
    bound_ns = _bound_ns(plan)
    return [] if bound_ns is None else [step for step in comparison.steps if step.measured_ns < bound_ns]


def _warn_below_bound(plan: "Plan", comparison: "Comparison") -> None:
    from planner.cli.talk import warn
    from planner.units import time_text

    below, bound_ns = _below_bound(plan, comparison), _bound_ns(plan)
    if below and bound_ns is not None:
        fastest_ns = min(step.measured_ns for step in below)
        warn(
            "below_bound",
            f"{len(below)} of {len(comparison.steps)} measured steps are below the proven bound (fastest "
            f"{time_text(fastest_ns)}, bound {time_text(bound_ns)}): the profile is stale, or was taken on another "
            "device or under another load. Measure again (planner profile run) or fit it to this run (planner profile "
            "calibrate), then search again",
        )


def _as_json(plan: "Plan", comparison: "Comparison") -> dict[str, object]:
    return {
        "plan": plan.digest,
        "predicted_ns": comparison.predicted_ns,
        "measured_ns": comparison.measured_ns,
        "error": comparison.error,
        "median_error": comparison.median_error,
        "bound_ns": _bound_ns(plan),
        "below_bound": [step.number for step in _below_bound(plan, comparison)],
        "steps": [step._asdict() for step in comparison.steps],
        "deviations": [deviation._asdict() for deviation in comparison.deviations],
    }


def _tables(plan: "Plan", comparison: "Comparison") -> "list[RenderableType]":
    from planner.cli.plan_tables import facts_table, new_table
    from planner.units import counted, time_text

    facts = [
        ("plan", plan.digest),
        ("predicted step", time_text(comparison.predicted_ns)),
        ("measured step", f"{time_text(comparison.measured_ns)} (median of {len(comparison.steps)})"),
        ("error", f"{comparison.error:+.1%} of the median step; median |error| {comparison.median_error:.1%}"),
    ]
    if (bound_ns := _bound_ns(plan)) is not None:
        below = len(_below_bound(plan, comparison))
        told = f"; {counted(below, 'measured step')} {'is' if below == 1 else 'are'} below it" if below else ""
        facts.append(("bound", time_text(bound_ns) + told))
    steps = new_table("steps", ["#step", "#measured", "#error"])
    for step in comparison.steps[:_MOST_STEPS_SHOWN]:
        steps.add_row(str(step.number), time_text(step.measured_ns), f"{step.error:+.1%}")
    tables: list[RenderableType] = [facts_table("predicted against measured", facts), "", steps]
    if comparison.deviations:
        parts = new_table(
            "instructions, costliest deviation first", ["#stage", "", "#predicted", "#measured", "#error"]
        )
        for found in comparison.deviations[:_MOST_DEVIATIONS_SHOWN]:
            times = (time_text(found.predicted_ns), time_text(found.measured_ns), f"{found.error:+.1%}")
            parts.add_row(str(found.stage), found.operation, *times)
        tables += ["", parts]
    return tables
