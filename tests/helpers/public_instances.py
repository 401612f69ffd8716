"""The public instances of tests/data/public_instances as the problems of the graph search."""

import json
from pathlib import Path
from typing import Literal, NamedTuple

from planner.problem.graph import GraphDocument
from planner.problem.reading import read_document
from planner.search.graphs.documents import problem_of
from planner.search.graphs.pipeline import PipelineChoice, PipelineLayer, PipelineProblem, PipelineRead
from planner.search.graphs.problem import GraphProblem
from planner.search.graphs.replicas import ReplicaLayer, ReplicaProblem

FOLDER = Path(__file__).parent.parent / "data" / "public_instances"


class Case(NamedTuple):
    """A row of cases.json; None: not stated."""

    name: str
    contiguous_ns: int
    contiguous_is_proven: bool
    authors_cpu_s: str
    any_best_known_ns: int | None
    any_is_proven: bool
    any_bound_ns: int | None
    one_device_ns: int

    @property
    def authors_limit_s(self) -> float:
        """What to stay below: 0.1 s where the authors' clock showed nothing."""
        return 0.1 if self.authors_cpu_s.startswith("<") else float(self.authors_cpu_s)


CASES = {case["name"]: Case(**case) for case in json.loads((FOLDER / "cases.json").read_bytes())}


def max_load(name: str) -> GraphProblem:
    """``dnn/NAME``."""
    return problem_of(read_document((FOLDER / f"{name.replace('/', '-')}.json").read_bytes(), GraphDocument))


def replicas(model: str, cuts: Literal["priced", "free"]) -> ReplicaProblem:
    """``pipedream/MODEL-4-cuts-...``: four machines, 10^9 bytes/s."""
    found = json.loads((FOLDER / f"pipedream-{model}.json").read_bytes())
    layers = tuple(ReplicaLayer(*layer) for layer in found["layers"])
    return ReplicaProblem(layers, tuple((a, b) for a, b in found["reads"]), 4, 10**9, cuts)


def pipeline() -> PipelineProblem:
    """``piper/bert32a100-main``: 512 devices of 8 GiB, 1,920 micro-batches, 25 GiB/s."""
    found = json.loads((FOLDER / "piper-bert32a100.json").read_bytes())
    layers = tuple(PipelineLayer(layer["name"], tuple(map(_choice, layer["choices"]))) for layer in found["layers"])
    reads = tuple(PipelineRead(*read) for read in found["reads"])
    return PipelineProblem(layers, reads, 512, 8 * 2**30, 1920, 25 * 2**30)


def _choice(row: list[object]) -> PipelineChoice:
    *facts, synchronised = row
    assert isinstance(synchronised, dict)
    return PipelineChoice(*facts, {int(other): size for other, size in synchronised.items()})  # type: ignore[arg-type]
