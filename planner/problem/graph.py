"""A layer graph and the devices that share it, ``graph/1``, and the request for its parts, ``graph-request/1``."""

from typing import Annotated, Literal

from pydantic import Field

from planner.problem.contract import MOST_LAYERS, MOST_RANKS, Bytes, Contract, Index, Many, Name, Nanoseconds
from planner.problem.options import Mode

__all__ = ["GraphDocument", "GraphKind", "GraphNode", "GraphRequest"]


class GraphKind(Contract):
    """``pays_transfers``: false for the host, on which outputs lie anyway."""

    name: Name
    count: Annotated[int, Field(ge=0, le=MOST_RANKS)]
    memory_bytes: Bytes | None = None  # of one device; without it there is no limit
    pays_transfers: bool = True


class GraphNode(Contract):
    """A layer; ``times_ns`` by device kind, null: it cannot run there."""

    name: Name
    times_ns: Annotated[Many[Nanoseconds | None], Field(max_length=16)]
    memory_bytes: Bytes = 0
    transfer_ns: Nanoseconds = 0  # of its output, between a device and the host, once
    together: Name | None = None  # layers with the same word sit on one device
    is_backward: bool = False


class GraphDocument(Contract):
    """``reads``: producer and consumer, by number of the layer."""

    schema_version: Literal["graph/1"] = Field(alias="schema")
    kinds: Annotated[Many[GraphKind], Field(min_length=1, max_length=16)]
    layers: Annotated[Many[GraphNode], Field(min_length=1, max_length=MOST_LAYERS)]
    reads: Annotated[Many[tuple[Index, Index]], Field(max_length=16 * MOST_LAYERS)] = ()


class GraphRequest(Contract):
    """Find parts of a layer graph; ``contiguous``: in order along the forward graph."""

    schema_version: Literal["graph-request/1"] = Field(alias="schema")
    graph: GraphDocument
    parts: Literal["contiguous", "any"] = "contiguous"
    time_limit_ns: Annotated[int, Field(ge=10**9, le=3_600 * 10**9)] = 60 * 10**9
    mode: Mode = "reproducible"
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
