"""The plan, ``plan/1``: the one contract between search, check, simulate, export, API and executor.

Five lists over a layer graph and nodes; see docs/plan-contract.md. A plan checks itself when it is made
(``planner.plan.structure``, section 9 of the contract); what needs replay, prices or facts is ``planner/check/``.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from planner.plan.graph import LayerGraph, Node
from planner.plan.instruction import VISIT_OPERATIONS, Instruction, Visit, parse_instruction
from planner.plan.mesh import Mesh, Range
from planner.plan.structure import structure_fault
from planner.problem.canonical import document_digest
from planner.problem.contract import (
    MOST_RANKS,
    Bytes,
    Contract,
    Count,
    Digest,
    FiniteFloat,
    Index,
    Many,
    Name,
    Nanoseconds,
)
from planner.problem.profile import Provenance as CostsProvenance
from planner.problem.workload import Precision

__all__ = ["MicroBatch", "Plan", "Prediction", "Provenance", "Stage", "VisitShape"]

RecomputeKind = Literal["selective", "full"]


class Stage(Contract):
    """Consecutive layers ``[first_layer, end_layer)`` held by one group."""

    group: Index
    first_layer: Index
    end_layer: Count
    mesh: Mesh = Mesh()
    recompute: dict[RecomputeKind, Many[Index]] = Field(default_factory=dict)  # unlisted layers keep everything

    @property
    def layers(self) -> range:
        return range(self.first_layer, self.end_layer)

    @property
    def recomputes(self) -> bool:
        return any(self.recompute.values())


class MicroBatch(Contract):
    """A part of the global batch that travels one route as a whole."""

    route: Index
    samples: Count
    cuts: Annotated[Many[Index], Field(min_length=2)]  # 0, ..., tokens of a sample; two entries = one slice

    @property
    def num_slices(self) -> int:
        return len(self.cuts) - 1

    def tokens(self, slice_number: int) -> Range:
        """The tokens of slice k: ``[cuts[k], cuts[k+1])``."""
        return Range(self.cuts[slice_number], self.cuts[slice_number + 1])


class VisitShape(NamedTuple):
    """What the price of a visit depends on beside its stage: ``samples`` of tokens ``[first_token, end_token)``."""

    samples: int
    first_token: int
    end_token: int


class Prediction(Contract):
    """Of cost model and simulator; one entry a group where it is a tuple. The gap is computed, not stored."""

    step_ns: Nanoseconds
    bound_ns: Nanoseconds
    bound_model: Name
    bubble: Annotated[FiniteFloat, Field(ge=0, lt=1)]
    peak_bytes: Many[Bytes]  # of the fullest rank
    memory_limit_bytes: Many[Bytes]
    costs: CostsProvenance  # worst provenance of its parts

    @property
    def gap(self) -> float:
        return (self.step_ns - self.bound_ns) / self.bound_ns if self.bound_ns else 0.0


class Provenance(Contract):
    """How the plan was found: free to differ between equal plans."""

    planner: Name
    family: Name
    method: Name | None = None  # of a synthesised order: how it was made, and the family of the plan it started from
    solver: Name
    seed: Index
    limit: Name  # optimal, deterministic, wall, killed
    search_ns: Nanoseconds
    profiles: Many[Digest]


class Plan(Contract):
    """What every rank does in one step, and nothing about how it was found."""

    schema_version: Literal["plan/1"] = Field(alias="schema")
    problem: Digest
    precision: Precision
    graph: LayerGraph
    nodes: Annotated[Many[Node], Field(max_length=MOST_RANKS)]
    groups: Annotated[Many[Many[Index]], Field(max_length=MOST_RANKS)]
    stages: Annotated[Many[Stage], Field(max_length=2**17)]
    routes: Annotated[Many[Many[Index]], Field(max_length=2**17)]
    micro_batches: Annotated[Many[MicroBatch], Field(max_length=2**17)]
    streams: Annotated[Many[str], Field(max_length=MOST_RANKS)]
    prediction: Prediction | None = None
    provenance: Provenance | None = None

    @model_validator(mode="after")
    def _self_check(self) -> "Plan":
        found = structure_fault(self)
        if found is not None:
            raise found
        return self

    @cached_property
    def digest(self) -> str:
        """Covers all that an executor obeys and the problem that was answered; not prediction and provenance."""
        return document_digest(self, leave_out=frozenset({"prediction", "provenance"}))

    @cached_property
    def parsed_streams(self) -> tuple[tuple[Instruction | None, ...], ...]:
        """The streams, parsed; None where a text is no instruction: only while the plan checks itself."""
        return tuple(tuple(parse_instruction(text) for text in stream.split(" ")) for stream in self.streams)

    @cached_property
    def instructions(self) -> tuple[tuple[Instruction, ...], ...]:
        """The streams, parsed; one tuple a group."""
        return tuple(tuple(i for i in stream if i is not None) for stream in self.parsed_streams)

    @cached_property
    def visit_operations(self) -> Mapping[Visit, str]:
        """Visit -> its operations in the order of the stream, as text: ``FRB``, ``FIW``."""
        operations: dict[Visit, str] = {}
        for stream in self.instructions:
            for operation, stage, number, slice_number in stream:
                if operation in VISIT_OPERATIONS:
                    visit = Visit(stage, number, slice_number)
                    operations[visit] = operations.get(visit, "") + operation
        return operations

    @cached_property
    def route_members(self) -> tuple[frozenset[int], ...]:
        """The stages of each route, to ask whether a stage is on it."""
        return tuple(frozenset(route) for route in self.routes)

    @cached_property
    def rank_nodes(self) -> tuple[int, ...]:
        """The node of each rank."""
        return tuple(number for number, node in enumerate(self.nodes) for _ in range(node.num_ranks))

    @cached_property
    def group_of_rank(self) -> tuple[int, ...]:
        """The group of each rank."""
        found = {rank: group for group, ranks in enumerate(self.groups) for rank in ranks}
        return tuple(found[rank] for rank in range(len(found)))

    @property
    def num_ranks(self) -> int:
        return sum(node.num_ranks for node in self.nodes)

    def group_kind(self, group: int) -> str:
        """The device kind of a group's ranks."""
        return self.nodes[self.rank_nodes[self.groups[group][0]]].device_kind

    def stages_of_group(self, group: int) -> tuple[int, ...]:
        return tuple(number for number, stage in enumerate(self.stages) if stage.group == group)

    def visit_shape(self, micro_batch: int, slice_number: int) -> VisitShape:
        batch = self.micro_batches[micro_batch]
        return VisitShape(batch.samples, *batch.tokens(slice_number))

    def first_sample(self, micro_batch: int) -> int:
        """Micro-batch i holds the next samples of the global batch, in order of i."""
        return sum(batch.samples for batch in self.micro_batches[:micro_batch])
