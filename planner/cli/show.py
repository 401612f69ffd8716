"""``planner show``: a plan as tables, its timeline in the terminal, the command of each host."""

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
    from rich.text import Text

    from planner.plan.plan import Plan
    from planner.simulate.timeline import Timeline

__all__ = ["show"]


def show(
    plan_file: PlanArgument,
    profiles: OptionalProfilesOption = None,
    cluster: OptionalClusterOption = None,
    workload: OptionalWorkloadOption = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Write the timeline for Perfetto or Chrome.")
    ] = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Show a plan: stages, groups, the timeline, how to start it.

    With --profile, --cluster and --workload the timeline is the predicted one; without them only the order is drawn.
    """
    from planner.cli.files import read_plan
    from planner.cli.output import Destination, check_destination, emit, emit_json, show_tables
    from planner.cli.plan_tables import facts_table, group_table, plan_summary, stage_table, torchrun_lines
    from planner.cli.problem_files import optional_problem

    destination = Destination(trace, force)
    check_destination(destination, inputs=[plan_file, *(profiles or []), cluster, workload])
    plan = read_plan(plan_file)
    problem = optional_problem(profiles, cluster, workload)
    from planner.cli.nominal import nominal_prices
    from planner.costs.price import price_plan
    from planner.simulate.simulate import simulate

    timeline = simulate(plan, nominal_prices(plan) if problem is None else price_plan(plan, problem))
    if trace is not None:
        from planner.simulate.trace import chrome_trace

        emit(chrome_trace(plan, timeline), destination)
    commands = torchrun_lines(plan, str(plan_file))
    if json_output:
        emit_json(_as_json(plan, timeline if problem else None, commands))
        return
    heading = "timeline (predicted)" if problem else "timeline (order only: every layer costs the same)"
    drawing = _drawing(timeline, None if problem else "one step")
    show_tables(facts_table("plan", plan_summary(plan)), "", group_table(plan), "", stage_table(plan), "", heading)
    show_tables(drawing, "", "start with" if len(commands) == 1 else "start with, on each host in this order")
    for line in commands:
        typer.echo(f"  {line}")


def _drawing(timeline: "Timeline", end: str | None) -> "Text":
    from planner.cli.drawing import draw_timeline
    from planner.cli.output import terminal_columns

    return draw_timeline(timeline, width=terminal_columns(), end=end)


def _as_json(plan: "Plan", timeline: "Timeline | None", commands: list[str]) -> dict[str, object]:
    found: dict[str, object] = {
        "plan": plan.digest,
        "problem": plan.problem,
        "num_ranks": plan.num_ranks,
        "num_nodes": len(plan.nodes),
        "groups": [list(ranks) for ranks in plan.groups],
        "stages": [stage.model_dump(mode="json") for stage in plan.stages],
        "num_micro_batches": len(plan.micro_batches),
        "prediction": None if plan.prediction is None else plan.prediction.model_dump(mode="json"),
        "provenance": None if plan.provenance is None else plan.provenance.model_dump(mode="json"),
        "commands": commands,
    }
    if timeline is not None:
        found |= {"step_ns": timeline.step_ns, "bubble": timeline.bubble}
    return found
