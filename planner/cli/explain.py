"""``planner explain``: what binds a plan, what other conditions would give, the plans near it."""

from typing import TYPE_CHECKING

import typer

from planner.cli.options import ClusterOption, JsonOption, PlanArgument, ProfilesOption, WorkloadOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from planner.explain.documents import Explanation, Share

__all__ = ["explain"]


def explain(
    plan_file: PlanArgument,
    profiles: ProfilesOption,
    cluster: ClusterOption,
    workload: WorkloadOption,
    json_output: JsonOption = False,
) -> None:
    """Say why the step of a plan takes as long as it does, and what would change that."""
    from planner.cli.files import read_plan
    from planner.cli.output import emit_json, show_tables
    from planner.cli.problem_files import read_problem
    from planner.explain.explain import explain as explain_plan

    found = explain_plan(read_plan(plan_file), read_problem(profiles, cluster, workload))
    if json_output:
        emit_json(found.model_dump(mode="json"))
        return
    show_tables(*_tables(found))
    for line in found.not_priced:
        typer.echo(f"not priced: {line}")


def _tables(found: "Explanation") -> "list[RenderableType]":
    from planner.cli.plan_tables import facts_table, new_table
    from planner.units import bytes_text, time_text

    facts = [("plan", found.plan), ("step", f"{time_text(found.step_ns)}, bubble {found.bubble:.1%}")]
    path = new_table("critical path", ["", "#time", "#share"])
    for share in found.critical_path:
        path.add_row(_part(share), time_text(share.time_ns), f"{share.share:.1%}")
    bindings = new_table("what binds", ["", "#at most", ""])
    for one in found.bindings:
        bindings.add_row(one.code, "-" if one.cost_ns is None else time_text(one.cost_ns), one.message)
    what_if = new_table("what if", ["", "#step", "#gain"])
    for condition in found.what_if:
        what_if.add_row(condition.change, time_text(condition.step_ns), f"{condition.gain:.1%}")
    near = new_table("plans near this one", ["", "#step", "#gain", "memory"])
    for other in found.alternatives:
        fits = f"{bytes_text(other.short_bytes)} short" if other.short_bytes else "fits"
        near.add_row(other.change, time_text(other.step_ns), f"{other.gain:.1%}", fits)
    return [facts_table("explanation", facts), "", path, "", bindings, "", what_if, "", near]


def _part(share: "Share") -> str:
    if share.kind == "message":
        return f"messages, group {share.group} to {share.to_group}"
    if share.kind == "sum":
        return "sums of gradients"
    return f"{share.kind} of stage {share.stage} (group {share.group})"
