"""Options that several commands share, each defined once."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "ClusterOption",
    "ForceOption",
    "JsonOption",
    "OptionalClusterOption",
    "OptionalProfilesOption",
    "OptionalWorkloadOption",
    "OutputOption",
    "PlanArgument",
    "ProfilesOption",
    "WorkloadOption",
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of tables.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, whole or not at all.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an existing output file.")]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan/1 file, - for stdin.")]

_PROFILES = typer.Option("--profile", metavar="FILE", help="A profile/1 file; once for each device kind.")
_CLUSTER = typer.Option("--cluster", metavar="FILE", help="A cluster/1 file.")
_WORKLOAD = typer.Option("--workload", metavar="FILE", help="A workload/1 file.")
ProfilesOption = Annotated[list[Path], _PROFILES]
ClusterOption = Annotated[Path, _CLUSTER]
WorkloadOption = Annotated[Path, _WORKLOAD]
OptionalProfilesOption = Annotated[list[Path] | None, _PROFILES]
OptionalClusterOption = Annotated[Path | None, _CLUSTER]
OptionalWorkloadOption = Annotated[Path | None, _WORKLOAD]
