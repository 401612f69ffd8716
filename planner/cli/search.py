"""``planner search``: a problem in, a plan out, here or at a server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from planner.cli.options import (
    ForceOption,
    JsonOption,
    OptionalClusterOption,
    OptionalProfilesOption,
    OptionalWorkloadOption,
    OutputOption,
)

if TYPE_CHECKING:
    from planner.cli.local_search import Found
    from planner.problem.request import Request

__all__ = ["search"]


def search(
    profiles: OptionalProfilesOption = None,
    cluster: OptionalClusterOption = None,
    workload: OptionalWorkloadOption = None,
    request_file: Annotated[
        Path | None, typer.Option("--request", metavar="FILE", help="A request/1 file instead of all options above.")
    ] = None,
    time_limit: Annotated[str, typer.Option("--time-limit", help="1s..1h, for example 10s.")] = "60s",
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Equal seeds give equal plans.")] = 0,
    mode: Annotated[
        Literal["reproducible", "fast"],
        typer.Option(help="fast: no budget of work: until the time limit, or all is looked at; runs may differ."),
    ] = ("reproducible"),
    schedules: Annotated[
        Literal["named", "synthesised"],
        typer.Option(help="synthesised: orders made for the costs of the best plans too; takes longer."),
    ] = "named",
    target: Annotated[
        Literal["executor", "any"],
        typer.Option(help="any: plans that the executor does not run yet too, with tensor degrees and shared state."),
    ] = "executor",
    constraints: Annotated[
        Path | None, typer.Option("--constraints", metavar="FILE", help="What the plan may use, as in a request.")
    ] = None,
    server: Annotated[str | None, typer.Option("--server", metavar="URL", help="Ask a running service.")] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Find a plan and print it, or write it to the file of -o.

    Ctrl-C ends the search early: the best plan so far is written and the exit code is 130.
    """
    from planner.cli.answers import report_answer
    from planner.cli.exit_codes import DONE, INTERRUPTED
    from planner.cli.output import Destination, check_destination, emit
    from planner.cli.problem_files import optional_problem, read_request, search_request
    from planner.problem.canonical import document_bytes

    destination = Destination(output, force)
    check_destination(destination, inputs=[*(profiles or []), cluster, workload, request_file, constraints])
    problem = optional_problem(profiles, cluster, workload)
    if (problem is None) == (request_file is None):
        raise typer.BadParameter("give --profile, --cluster and --workload, or --request", param_hint="--request")
    if problem is not None:
        request = search_request(
            problem, constraints, time_limit=time_limit, mode=mode, seed=seed, schedules=schedules, target=target
        )
    else:
        assert request_file is not None
        request = read_request(request_file)
    found = _search_here(request) if server is None else _search_there(request, server)
    if found.answer is not None:
        plan = report_answer(found.answer, json_output=json_output, plan_on_stdout=destination.is_stdout)
        emit(document_bytes(plan), destination)
    raise typer.Exit(INTERRUPTED if found.interrupted else DONE)


def _search_here(request: "Request") -> "Found":
    from planner.attempts.attempt import AttemptSettings
    from planner.cli.extras import require_extra
    from planner.cli.local_search import search_locally

    require_extra("solver", "ortools")
    return search_locally(request, AttemptSettings())


def _search_there(request: "Request", url: str) -> "Found":
    from planner.cli.remote_search import search_remotely
    from planner.cli.server import Server

    return search_remotely(request, Server(url))
