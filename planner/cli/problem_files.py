"""The files of a problem -> a checked problem."""

from collections.abc import Sequence
from pathlib import Path

from planner.cli.exit_codes import InputFileError
from planner.cli.files import make_contract, read_cluster, read_contract, read_profile, read_workload
from planner.errors import ContractError, Fault
from planner.problem.cluster import Cluster
from planner.problem.options import Constraints, Mode, Schedules, Target
from planner.problem.problem import Problem, check_options
from planner.problem.profile import ModelProfile
from planner.problem.request import Request
from planner.units import parse_duration_ns

__all__ = ["optional_problem", "read_problem", "read_request", "search_request"]


def read_problem(profiles: Sequence[Path], cluster: Path, workload: Path) -> Problem:
    """Profiles, cluster and workload, checked to belong together."""
    return Problem(
        profiles=tuple(read_profile(path) for path in profiles),
        cluster=read_cluster(cluster),
        workload=read_workload(workload),
    )


def optional_problem(profiles: Sequence[Path] | None, cluster: Path | None, workload: Path | None) -> Problem | None:
    """None where no file is named; a part of the files is an error."""
    if not profiles and cluster is None and workload is None:
        return None
    if not profiles or cluster is None or workload is None:
        message = "--profile, --cluster and --workload belong together: give all three or none"
        raise InputFileError(message, code="usage")
    return read_problem(profiles, cluster, workload)


def read_request(path: Path) -> Request:
    """A request whose documents stand inline, checked to belong together."""
    request = read_contract(path, Request)
    profiles = tuple(profile for profile in request.profiles if isinstance(profile, ModelProfile))
    if len(profiles) != len(request.profiles) or not isinstance(request.cluster, Cluster):
        message = f"{path} names documents by digest, expected profiles and cluster inline"
        raise InputFileError(message, code="unknown_document")
    check_options(Problem(profiles, request.cluster, request.workload), request.options)
    return request


def search_request(
    problem: Problem,
    constraints: Path | None,
    *,
    time_limit: str,
    mode: Mode,
    seed: int,
    schedules: Schedules = "named",
    target: Target = "executor",
) -> Request:
    """A request with its documents inline; the options are checked against the problem."""
    request = make_contract(
        Request,
        schema="request/1",
        profiles=problem.profiles,
        cluster=problem.cluster,
        workload=problem.workload,
        constraints=Constraints() if constraints is None else read_contract(constraints, Constraints),
        time_limit_ns=_limit_ns(time_limit),
        mode=mode,
        seed=seed,
        schedules=schedules,
        target=target,
    )
    check_options(problem, request.options)
    return request


def _limit_ns(text: str) -> int:
    try:
        return parse_duration_ns(text)
    except ValueError as error:
        raise ContractError((Fault("range", "/time_limit_ns", str(error)),)) from None
