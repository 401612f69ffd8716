"""``planner simulate``: what a plan would take on a problem, without a search."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import (
    ClusterOption,
    ForceOption,
    JsonOption,
    PlanArgument,
    ProfilesOption,
    WorkloadOption,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from planner.costs.prices import PlanPrices
    from planner.plan.plan import Plan
    from planner.simulate.timeline import Timeline

__all__ = ["simulate"]


def simulate(
    plan_file: PlanArgument,
    profiles: ProfilesOption,
    cluster: ClusterOption,
    workload: WorkloadOption,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the timeline for Perfetto or Chrome.")
    ] = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Predict the step of a plan: time, bubble, peak memory of each group."""
    from planner.cli.files import read_plan
    from planner.cli.output import Destination, check_destination, emit, emit_json, show_tables
    from planner.cli.problem_files import read_problem
    from planner.costs.price import price_plan
    from planner.simulate.simulate import simulate as simulate_plan

    destination = Destination(trace, force)
    check_destination(destination)
    plan = read_plan(plan_file)
    prices = price_plan(plan, read_problem(profiles, cluster, workload))
    timeline = simulate_plan(plan, prices)
    if trace is not None:
        from planner.simulate.trace import chrome_trace

        emit(chrome_trace(plan, timeline), destination)
    if json_output:
        emit_json(_as_json(plan, prices, timeline))
    else:
        show_tables(*_tables(plan, prices, timeline))


def _as_json(plan: "Plan", prices: "PlanPrices", timeline: "Timeline") -> dict[str, object]:
    return {
        "plan": plan.digest,
        "step_ns": timeline.step_ns,
        "bubble": timeline.bubble,
        "busy_ns": list(timeline.busy_ns),
        "peak_bytes": None if timeline.peak_bytes is None else list(timeline.peak_bytes),
        "limit_bytes": list(prices.limit_bytes),
        "sum_ns": list(prices.sum_ns),
        "update_ns": list(prices.update_ns),
        "costs": prices.costs,
    }


def _tables(plan: "Plan", prices: "PlanPrices", timeline: "Timeline") -> "list[RenderableType]":
    from planner.cli.drawing import draw_timeline
    from planner.cli.output import terminal_columns
    from planner.cli.plan_tables import facts_table, new_table
    from planner.units import bytes_text, time_text

    facts = [
        ("plan", plan.digest),
        ("predicted step", time_text(timeline.step_ns)),
        ("bubble", f"{timeline.bubble:.1%}"),
        ("costs", prices.costs),
    ]
    groups = new_table("groups", ["#group", "#busy", "#state", "#peak", "#limit"])
    peaks = timeline.peak_bytes or (0,) * len(plan.groups)
    for group, busy_ns in enumerate(timeline.busy_ns):
        sizes = (prices.state_bytes[group], peaks[group], prices.limit_bytes[group])
        groups.add_row(str(group), time_text(busy_ns), *map(bytes_text, sizes))
    drawing = draw_timeline(timeline, width=terminal_columns())
    return [facts_table("simulation", facts), "", groups, "", "timeline (predicted)", drawing]
