"""What a partition of a layer graph says, ``partition/1``, and the events of the child that looks for one."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.plan.answer import Failure, Limit, Reason
from planner.problem.contract import Bytes, Contract, Index, Many, Nanoseconds, fault

__all__ = ["Partition", "PartitionEvent", "PartitionPart"]


class PartitionPart(Contract):
    """What one device holds: layers by number, ascending; ``kind``: the number of its device kind."""

    kind: Index
    layers: Annotated[Many[Index], Field(min_length=1)]
    load_ns: Nanoseconds
    memory_bytes: Bytes


class Partition(Contract):
    """Parts that hold every layer once (of contiguous ones, in order), the largest load, and what no plan can beat.

    ``limit``: what ended the search; without one it goes on. Nothing fits: no parts, and reasons.
    """

    schema_version: Literal["partition/1"] = Field(alias="schema")
    parts: Many[PartitionPart] = ()
    value_ns: Nanoseconds | None = None
    bound_ns: Index = 0
    limit: Limit | None = None
    reasons: Many[Reason] = ()

    @model_validator(mode="after")
    def _whole(self) -> "Partition":
        if self.value_ns != max((part.load_ns for part in self.parts), default=None):
            raise fault("value", f"value_ns is {self.value_ns}, expected the largest load")
        if self.value_ns is not None and (self.reasons or self.bound_ns > self.value_ns):
            raise fault("bound", f"value {self.value_ns} with bound {self.bound_ns} and {len(self.reasons)} reasons")
        return self

    @property
    def gap(self) -> float:
        """Of the parts, as a share of the bound; infinite without parts."""
        return float("inf") if self.value_ns is None else (self.value_ns - self.bound_ns) / max(1, self.bound_ns)


class PartitionEvent(Contract):
    """One line of the child; a partition with a limit, one with reasons, or a failure is the last."""

    schema_version: Literal["partition-child/1"] = Field(alias="schema")
    partition: Partition | None = None
    failure: Failure | None = None

    @property
    def is_last(self) -> bool:
        return self.partition is None or self.partition.limit is not None
