"""Parts of a layer graph by way of a child: answers, refusals, stops, memory, and a child that is lost."""

import json
import threading
from dataclasses import replace

import pytest

from planner.attempts.partition import PARTITION_CHILD, PartitionWatch, run_partition
from planner.errors import SolverError
from planner.plan.partition import Partition
from planner.problem.graph import GraphRequest
from planner.problem.reading import read_document
from tests.helpers.public_instances import CASES, FOLDER


def request(name: str, **options: object) -> GraphRequest:
    graph = json.loads((FOLDER / f"dnn-{name}.json").read_bytes())
    return read_document(json.dumps({"schema": "graph-request/1", "graph": graph, **options}).encode(), GraphRequest)


def line(times: list[int], memory_bytes: int, **options: object) -> GraphRequest:
    """One byte a layer on two devices."""
    layers = [{"name": f"{n}", "times_ns": [time], "memory_bytes": 1} for n, time in enumerate(times)]
    kinds = [{"name": "device", "count": 2, "memory_bytes": memory_bytes}]
    reads = [[n, n + 1] for n in range(len(times) - 1)]
    graph = {"schema": "graph/1", "kinds": kinds, "layers": layers, "reads": reads}
    return read_document(json.dumps({"schema": "graph-request/1", "graph": graph, **options}).encode(), GraphRequest)


def test_contiguous_parts_arrive_with_their_proof() -> None:
    seen: list[Partition] = []
    found = run_partition(request("bert24_training"), watch=PartitionWatch(on_partition=seen.append))
    assert found.value_ns is not None
    assert abs(found.value_ns - CASES["dnn/bert24_training"].contiguous_ns) <= 2
    assert (found.bound_ns, found.limit, found.gap) == (found.value_ns, "optimal", 0)
    assert len(seen) >= 2
    assert [one.bound_ns for one in seen] == sorted(one.bound_ns for one in seen)


def test_any_parts_are_solved_in_the_child() -> None:
    found = run_partition(line([3, 4, 3], 9, parts="any"), watch=PartitionWatch())
    assert (found.value_ns, found.limit) == (6, "optimal")
    assert sorted(part.layers for part in found.parts) == [(0, 2), (1,)]


def test_nothing_fits_is_an_answer_with_a_reason() -> None:
    found = run_partition(line([1, 1, 1, 1, 1], 2), watch=PartitionWatch())
    assert found.parts == ()
    (reason,) = found.reasons
    assert (reason.code, found.limit) == ("memory", "optimal")
    assert "all layers need 5 bytes, 2 devices have 4" in reason.message


def test_a_stop_returns_the_best_so_far() -> None:
    stop = threading.Event()

    def first(partition: Partition) -> None:
        stop.set()

    found = run_partition(request("gnmt_inference", parts="any"), watch=PartitionWatch(first, stop))
    assert found.parts
    assert found.limit in ("wall", "killed")
    assert found.value_ns is not None
    assert found.bound_ns <= found.value_ns


def test_a_bad_graph_is_refused_by_name() -> None:
    bad = line([1, 1], 9)
    bad = bad.model_copy(update={"graph": bad.graph.model_copy(update={"reads": ((0, 1), (1, 0))})})
    with pytest.raises(SolverError, match="in a circle") as refused:
        run_partition(bad, watch=PartitionWatch())
    assert refused.value.code == "invalid"


def test_too_little_memory_is_said() -> None:
    tight = replace(PARTITION_CHILD, memory_limit_bytes=60 * 2**20)
    with pytest.raises(SolverError) as lost:
        run_partition(line([3, 4, 3], 9, parts="any"), tight, watch=PartitionWatch())
    assert lost.value.code in ("out_of_memory", "solver_crash")
