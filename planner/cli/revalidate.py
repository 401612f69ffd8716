"""``planner revalidate``: keep a plan under new facts, or look for another one."""

from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import (
    ClusterOption,
    ForceOption,
    JsonOption,
    OutputOption,
    PlanArgument,
    ProfilesOption,
    WorkloadOption,
)

if TYPE_CHECKING:
    from planner.explain.documents import Revalidation
    from planner.plan.plan import Plan
    from planner.problem.problem import Problem

__all__ = ["revalidate"]


def revalidate(
    plan_file: PlanArgument,
    profiles: ProfilesOption,
    cluster: ClusterOption,
    workload: WorkloadOption,
    search: Annotated[
        str | None, typer.Option("--search", metavar="TIME", help="Also search, for so long, for example 30s.")
    ] = None,
    smallest_gain: Annotated[
        float,
        typer.Option("--smallest-gain", min=0, max=1, help="Of the step, 0.05 = 5 %: less is no reason to change."),
    ] = 0.05,
    steps_left: Annotated[
        int, typer.Option("--steps-left", min=0, help="Steps over which moving the weights may pay.")
    ] = 10_000,
    output: OutputOption = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Price PLAN with the facts of today and say keep or replan; -o writes the better plan, where there is one.

    Without --search only plans near PLAN are tried.
    """
    from planner.cli.files import read_plan
    from planner.cli.output import Destination, check_destination, emit, emit_json
    from planner.cli.problem_files import read_problem
    from planner.explain.revalidate import Thresholds
    from planner.explain.revalidate import revalidate as revalidate_plan
    from planner.problem.canonical import document_bytes

    destination = Destination(output, force)
    check_destination(destination, inputs=[plan_file, *profiles, cluster, workload])
    plan, problem = read_plan(plan_file), read_problem(profiles, cluster, workload)
    others = () if search is None else _searched(problem, search)
    found = revalidate_plan(plan, problem, found=others, thresholds=Thresholds(smallest_gain, steps_left))
    if found.new_plan is not None and output is not None:
        emit(document_bytes(found.new_plan), destination)
    if json_output:
        emit_json(found.model_dump(mode="json"))
    elif not destination.is_stdout or output is None:
        _print(found)


def _searched(problem: "Problem", time_limit: str) -> "tuple[Plan, ...]":
    from planner.attempts.attempt import AttemptSettings
    from planner.cli.extras import require_extra
    from planner.cli.local_search import search_locally
    from planner.cli.problem_files import search_request

    require_extra("solver", "ortools")
    request = search_request(problem, None, time_limit=time_limit, mode="reproducible", seed=0)
    answer = search_locally(request, AttemptSettings()).answer
    return () if answer is None or answer.plan is None else (answer.plan,)


def _print(found: "Revalidation") -> None:
    from planner.cli.output import show_tables
    from planner.cli.plan_tables import facts_table
    from planner.units import bytes_text, time_text

    facts = [("verdict", f"{found.verdict} ({found.code})"), ("why", found.message), ("plan", found.plan)]
    if found.step_ns is not None:
        facts.append(("step now", time_text(found.step_ns)))
    if found.stated_step_ns is not None:
        facts.append(("step as stated", time_text(found.stated_step_ns)))
    if found.new_plan is not None and found.new_step_ns is not None and found.move is not None:
        facts += [
            ("another plan", found.new_plan.digest),
            ("its step", time_text(found.new_step_ns)),
            ("to move", f"{bytes_text(found.move.moved_bytes)} in {time_text(found.move.moving_ns)}"),
        ]
        if found.move.from_checkpoint_bytes:
            facts.append(("from a checkpoint", bytes_text(found.move.from_checkpoint_bytes)))
    show_tables(facts_table("revalidation", facts))
