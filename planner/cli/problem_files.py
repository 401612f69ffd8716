"""The files of a problem -> a checked problem."""

from collections.abc import Sequence
from pathlib import Path

from planner.cli.exit_codes import InputFileError
from planner.cli.files import read_cluster, read_profile, read_workload
from planner.problem.problem import Problem

__all__ = ["optional_problem", "read_problem"]


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
