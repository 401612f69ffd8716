"""What a check answers: legal or the first fault, and the facts that a person asks for."""

from dataclasses import dataclass, field

from planner.errors import Fault

__all__ = ["Facts", "Fit", "Verdict"]


@dataclass(frozen=True)
class Facts:
    """Of the plan alone. ``most_posted``: receives that one rank has posted and not yet read, at most."""

    digest: str
    num_ranks: int
    num_groups: int
    num_stages: int
    num_routes: int
    num_micro_batches: int
    num_samples: int
    num_instructions: int
    num_messages: int
    num_sums: int
    num_updates: int
    most_posted: int
    staleness: tuple[int, ...]  # by stage; all 0 = the results of the unsplit model


@dataclass(frozen=True)
class Fit:
    """Of the plan on its problem; one entry a group where it is a tuple."""

    step_ns: int
    bubble: float
    peak_bytes: tuple[int, ...]
    limit_bytes: tuple[int, ...]
    costs: str  # worst provenance of the prices


@dataclass(frozen=True)
class Verdict:
    """``fault``: the first rule that is broken, None for a legal plan. ``facts``: None where there is no plan."""

    fault: Fault | None
    facts: Facts | None = None
    fit: Fit | None = None
    warnings: tuple[Fault, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return self.fault is None
