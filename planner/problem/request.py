"""A plan request, ``request/1``: documents inline or by digest, and the options of the search."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from planner.problem.cluster import Cluster
from planner.problem.contract import Contract, Digest, Many
from planner.problem.options import Constraints, Mode, Objective, Schedules, SearchOptions, Target
from planner.problem.profile import ModelProfile
from planner.problem.workload import Workload

__all__ = ["Request"]


def _tag(value: object) -> str:
    return "<digest>" if isinstance(value, str) else "<document>"


_ProfileOrDigest = Annotated[
    Annotated[Digest, Tag("<digest>")] | Annotated[ModelProfile, Tag("<document>")], Discriminator(_tag)
]
_ClusterOrDigest = Annotated[
    Annotated[Digest, Tag("<digest>")] | Annotated[Cluster, Tag("<document>")], Discriminator(_tag)
]
_OPTIONS = SearchOptions()


class Request(Contract):
    """Find a plan. ``profiles``: one for each device kind that the plan may use."""

    schema_version: Literal["request/1"] = Field(alias="schema")
    profiles: Annotated[Many[_ProfileOrDigest], Field(min_length=1, max_length=64)]
    cluster: _ClusterOrDigest
    workload: Workload
    objective: Objective = _OPTIONS.objective
    constraints: Constraints = _OPTIONS.constraints
    schedules: Schedules = _OPTIONS.schedules
    target: Target = _OPTIONS.target
    time_limit_ns: Annotated[int, Field(ge=10**9, le=3_600 * 10**9)] = _OPTIONS.time_limit_ns
    mode: Mode = _OPTIONS.mode
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = _OPTIONS.seed
    validate_only: bool = False  # check the request, start no search

    @property
    def options(self) -> SearchOptions:
        return SearchOptions(
            objective=self.objective,
            constraints=self.constraints,
            schedules=self.schedules,
            target=self.target,
            time_limit_ns=self.time_limit_ns,
            mode=self.mode,
            seed=self.seed,
        )
