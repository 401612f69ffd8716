"""What a layer graph refuses, and what its error says."""

import pytest

from planner.errors import ContractError, InfeasibleError, ProblemError
from planner.problem.graph import GraphDocument
from planner.problem.reading import read_document
from planner.search.graphs.documents import problem_of
from planner.search.graphs.problem import DeviceKind, GraphLayer, GraphProblem

ONE = DeviceKind("device", 2, 10)
A, B, C = (GraphLayer(name, (1,), 1) for name in "abc")


def test_a_circle_is_named() -> None:
    with pytest.raises(ProblemError) as refused:
        GraphProblem((A, B, C), ((0, 1), (1, 2), (2, 1)), (ONE,))
    assert refused.value.code == "graph_cycle"
    assert refused.value.pointer == "/layers/1"
    assert "2 layers read each other in a circle: 'b' -> 'c' -> 'b'" in refused.value.message


@pytest.mark.parametrize("read", [(0, 3), (-1, 0)])
def test_an_unknown_layer_is_named(read: tuple[int, int]) -> None:
    with pytest.raises(ProblemError) as refused:
        GraphProblem((A, B, C), ((0, 1), read), (ONE,))
    assert refused.value.code == "unknown_layer"
    assert refused.value.pointer == "/reads/1"
    assert "expected 0..2" in refused.value.message


@pytest.mark.parametrize(
    ("layers", "code"),
    [
        ((A, B, A), "layer_repeated"),
        ((A, GraphLayer("b", (1, 2), 1)), "kinds"),
        ((A, GraphLayer("b", (-1,), 1)), "negative"),
        ((A, GraphLayer("b", (1,), -1)), "negative"),
        ((A, GraphLayer("b", (1,), 1, -1)), "negative"),
        ((A, GraphLayer("b", (2**53,), 1)), "range"),
        ((), "kinds"),
    ],
)
def test_a_bad_layer_is_refused(layers: tuple[GraphLayer, ...], code: str) -> None:
    with pytest.raises(ProblemError) as refused:
        GraphProblem(layers, (), (ONE,))
    assert refused.value.code == code


def test_no_device_is_refused() -> None:
    with pytest.raises(ProblemError, match="0 devices"):
        GraphProblem((A,), (), (DeviceKind("device", 0),))


def test_a_layer_that_fits_nowhere_is_named_with_the_missing_bytes() -> None:
    with pytest.raises(InfeasibleError) as refused:
        GraphProblem((A, GraphLayer("big", (1,), 13)), (), (ONE,))
    (reason,) = refused.value.reasons
    assert (reason.code, reason.pointer) == ("memory", "/layers/1")
    assert reason.message == "layer 'big': 13 bytes, the largest device 'device' has 10, 3 bytes short"


def test_layers_that_sit_together_must_fit_together() -> None:
    layers = (GraphLayer("a", (1,), 6, together="x"), B, GraphLayer("c", (1,), 6, together="x"))
    with pytest.raises(InfeasibleError, match="layer 'a' and 1 that sit with it: 12 bytes"):
        GraphProblem(layers, (), (ONE,))


def test_a_layer_that_no_kind_runs_is_named() -> None:
    with pytest.raises(InfeasibleError) as refused:
        GraphProblem((A, GraphLayer("b", (None,), 1)), (), (ONE,))
    assert refused.value.reasons[0].code == "no_kind"


def test_a_document_becomes_the_problem() -> None:
    text = (
        b'{"schema": "graph/1", "kinds": [{"name": "device", "count": 2, "memory_bytes": 10},'
        b' {"name": "host", "count": 1, "pays_transfers": false}],'
        b' "layers": [{"name": "a", "times_ns": [3, null], "transfer_ns": 2},'
        b' {"name": "b", "times_ns": [4, 40], "memory_bytes": 5, "together": "x", "is_backward": true}],'
        b' "reads": [[0, 1]]}'
    )
    problem = problem_of(read_document(text, GraphDocument))
    assert problem.layers == (GraphLayer("a", (3, None), 0, 2), GraphLayer("b", (4, 40), 5, 0, "x", True))
    assert problem.kinds == (DeviceKind("device", 2, 10), DeviceKind("host", 1, None, False))
    assert problem.reads == ((0, 1),)


@pytest.mark.parametrize(
    ("change", "code"),
    [((b'"reads"', b'"edges"'), "unknown_field"), ((b"graph/1", b"graph/2"), "schema"), ((b"[3]", b"[3.5]"), "type")],
)
def test_another_document_is_refused(change: tuple[bytes, bytes], code: str) -> None:
    text = (
        b'{"schema": "graph/1", "kinds": [{"name": "d", "count": 2}],'
        b' "layers": [{"name": "a", "times_ns": [3]}], "reads": []}'
    )
    assert len(read_document(text, GraphDocument).layers) == 1
    with pytest.raises(ContractError) as refused:
        read_document(text.replace(*change), GraphDocument)
    assert refused.value.code == code
