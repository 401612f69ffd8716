"""What a named schedule family is: a name, a shape that it serves, and the plan lists that it answers with.

A family knows groups, micro-batches and the order of work, no prices: layers are numbered pieces of an abstract model.
Its streams hold visits only; G and U follow by rule (``planner.schedules.updates``) unless the family writes its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from planner.errors import PlanError
from planner.plan.plan import MicroBatch, Stage
from planner.problem.profile import Reads
from planner.schedules.shape import Streams

__all__ = ["FamilyShape", "FamilySpec", "Placement", "PlanLists"]

Placement = Literal["line", "loop", "v", "wave", "two lines", "two v", "helix", "head"]
_ALWAYS = ("num_groups", "num_micro_batches")


@dataclass(frozen=True)
class FamilyShape:
    """What a family is asked for. None = the family's own choice; a family refuses what it has no use for."""

    num_groups: int
    num_micro_batches: int
    num_stages: int | None = None  # of the one route; looping families, wave
    num_slices: int | None = None  # of every micro-batch, of equal length
    cuts: tuple[int, ...] | None = None  # token cuts of every micro-batch instead of equal slices
    forwards_first: tuple[int, ...] | None = None  # by group: forwards before the first backward
    num_layers: int | None = None  # blocks of HelixPipe

    def __post_init__(self) -> None:
        for field in ("num_groups", "num_micro_batches", "num_stages", "num_slices", "num_layers"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise PlanError(f"found {field}={value}, expected at least 1", code="family", pointer=f"/{field}")

    @property
    def chosen(self) -> frozenset[str]:
        """The fields that are not left to the family."""
        names = (field.name for field in fields(self) if field.name not in _ALWAYS)
        return frozenset(name for name in names if getattr(self, name) is not None)


@dataclass(frozen=True)
class PlanLists:
    """The five lists of an abstract plan; group g is rank g. ``streams`` have no G and U, or all of them.

    ``layer_shares``: relative forward time (and kept bytes) of each layer; empty = all equal.
    """

    stages: tuple[Stage, ...]
    routes: tuple[tuple[int, ...], ...]
    micro_batches: tuple[MicroBatch, ...]
    streams: Streams
    reads: tuple[Reads, ...] = ()
    layer_shares: tuple[int, ...] = ()

    @property
    def num_layers(self) -> int:
        return max(stage.end_layer for stage in self.stages)

    @property
    def num_slices(self) -> Sequence[int]:
        """Of each micro-batch."""
        return [batch.num_slices for batch in self.micro_batches]


@dataclass(frozen=True)
class FamilySpec:
    """A row of ``planner.schedules.families.FAMILIES``.

    ``options``: the fields of ``FamilyShape`` that it reads beside groups and micro-batches. ``refuse``: why it cannot
    serve a shape, or None. ``changes_results``: the weights of a backward may be older than its update.
    """

    name: str
    summary: str
    source: str
    placement: Placement
    build: Callable[[FamilyShape], PlanLists]
    refuse: Callable[[FamilyShape], str | None] = lambda shape: None
    options: frozenset[str] = frozenset()
    changes_results: bool = False

    def refusal(self, shape: FamilyShape) -> str | None:
        """Why this family has no plan lists for ``shape``; None where it has."""
        unread = sorted(shape.chosen - self.options)
        if unread:
            return f"found {', '.join(unread)}, which {self.name} does not read"
        return self.refuse(shape)

    def lists(self, shape: FamilyShape) -> PlanLists:
        """The plan lists. Raises ``PlanError`` (family) with the reason of ``refusal``."""
        reason = self.refusal(shape)
        if reason is not None:
            raise PlanError(f"{self.name}: {reason}", code="family")
        return self.build(shape)
