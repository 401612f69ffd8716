"""How to search: objective, limits and what the plan may use. No fact of the problem, no result."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.problem.contract import Contract, Count, Index, Many, Name, fault

__all__ = [
    "Constraints",
    "Family",
    "LayerPin",
    "Mode",
    "Objective",
    "RecomputeMode",
    "Schedules",
    "SearchOptions",
    "Target",
]

Family = Literal[
    "gpipe",
    "1f1b",
    "interleaved",
    "breadth-first",
    "wave",
    "zb-h1",  # from here on the backward is split: only where the profiles have its parts
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
]
Mode = Literal["reproducible", "fast"]
Objective = Literal["step_time"]
Schedules = Literal["named", "synthesised"]
RecomputeMode = Literal["none", "full"]
Target = Literal["executor", "any"]  # what the executor runs, or every legal plan


class LayerPin(Contract):
    """A layer that must run on a device kind."""

    layer: Index
    device_kind: Name


class Constraints(Contract):
    """What the plan may use; an empty tuple allows everything that the search knows."""

    families: Many[Family] = ()
    data_degrees: Many[Count] = ()
    tensor_degrees: Many[Count] = ()
    micro_batch_sizes: Many[Count] = ()  # samples of one micro-batch on one rank
    num_stages: Count | None = None  # of a route, exactly
    most_stages: Count | None = None
    most_legs: Annotated[int, Field(ge=1, le=64)] = 4  # stages of one group
    recompute: Many[RecomputeMode] = ()
    pins: Annotated[Many[LayerPin], Field(max_length=4096)] = ()
    unused_kinds: Many[Name] = ()

    @model_validator(mode="after")
    def _no_conflict(self) -> "Constraints":
        kinds: dict[int, str] = {}
        for pin in self.pins:
            if kinds.setdefault(pin.layer, pin.device_kind) != pin.device_kind:
                raise fault("conflict", f"layer {pin.layer} is pinned to {kinds[pin.layer]!r} and {pin.device_kind!r}")
            if pin.device_kind in self.unused_kinds:
                raise fault("conflict", f"layer {pin.layer} is pinned to {pin.device_kind!r}, which must stay unused")
        if self.num_stages and self.most_stages and self.num_stages > self.most_stages:
            raise fault("conflict", f"num_stages {self.num_stages} is above most_stages {self.most_stages}")
        return self


class SearchOptions(Contract):
    """What a search obeys beside the problem."""

    objective: Objective = "step_time"
    constraints: Constraints = Constraints()
    schedules: Schedules = "named"  # synthesised: of the best plans, orders made for their very costs are tried too
    target: Target = "executor"
    time_limit_ns: Annotated[int, Field(ge=10**9, le=3_600 * 10**9)] = 60 * 10**9
    mode: Mode = "reproducible"
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
