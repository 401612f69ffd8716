"""Bytes that are no document: each kind of looseness has its code, costs little, and is never repeated."""

import json
import time

import pytest

from planner.errors import ContractError, DocumentError
from planner.problem.cluster import Cluster
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from planner.problem.workload import Workload
from tests.helpers.documents import make_cluster, make_profile, make_workload
from tests.helpers.edits import edited, json_of, refusal, without

WORKLOAD = json_of(make_workload())
CLUSTER = json_of(make_cluster())
PROFILE = json_of(make_profile())
GOOD = json.dumps(WORKLOAD).encode()


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        (edited(WORKLOAD, "/sequence_length", "NaN"), "type", "/sequence_length"),
        (edited(WORKLOAD, "/sequence_length", None), "type", "/sequence_length"),
        (edited(WORKLOAD, "/sequence_length", True), "type", "/sequence_length"),
        (edited(WORKLOAD, "/sequence_length", 2.5), "type", "/sequence_length"),
        (edited(WORKLOAD, "/sequence_length", 2.0), "type", "/sequence_length"),
        (edited(WORKLOAD, "/sequence_length", "128"), "type", "/sequence_length"),
        (edited(WORKLOAD, "/sequence_length", -0.0), "type", "/sequence_length"),
        (edited(WORKLOAD, "/sequence_length", 5e-324), "type", "/sequence_length"),
        (edited(WORKLOAD, "/sequence_length", [1]), "type", "/sequence_length"),
        (edited(WORKLOAD, "/sequence_length", 0), "range", "/sequence_length"),
        (edited(WORKLOAD, "/global_batch_size", 2**20 + 1), "range", "/global_batch_size"),
        (edited(WORKLOAD, "/precision", "FP32"), "choice", "/precision"),
        (edited(WORKLOAD, "/precision", None), "choice", "/precision"),
        (edited(WORKLOAD, "/extra", 1), "unknown_field", "/extra"),
        (edited(WORKLOAD, "/schema_version", "workload/1"), "unknown_field", "/schema_version"),
        (without(WORKLOAD, "/precision"), "missing", "/precision"),
        (edited(WORKLOAD, "/schema", "workload/999"), "schema", "/schema"),
        (edited(WORKLOAD, "/schema", "plan/1"), "schema", "/schema"),
        (edited(WORKLOAD, "/schema", 1), "schema", "/schema"),
        (edited(WORKLOAD, "/schema", None), "schema", "/schema"),
        (edited(WORKLOAD, "/schema", ["workload/1"]), "schema", "/schema"),
        (without(WORKLOAD, "/schema"), "schema", "/schema"),
    ],
)
def test_a_field_of_a_wrong_kind(change: dict[str, object], code: str, pointer: str) -> None:
    error = refusal(change, Workload)
    assert (error.code, error.pointer) == (code, pointer)
    assert isinstance(error, ContractError)


@pytest.mark.parametrize("value", [b"[]", b"1", b"null", b'"workload/1"', b"true"])
def test_a_document_is_an_object(value: bytes) -> None:
    error = refusal(value, Workload)
    assert (error.code, error.message) == ("type", error.message)
    assert "expected an object" in error.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(WORKLOAD, "/precision"), "the required field 'precision' is missing"),
        (edited(WORKLOAD, "/global_batch_size", 0), "expected at least 1"),
        (edited(WORKLOAD, "/global_batch_size", 2**20 + 1), "expected at most 1048576"),
        (edited(WORKLOAD, "/precision", "x"), "expected 'fp32', 'bf16' or 'fp16'"),
        (edited(WORKLOAD, "/global_batch_size", "1"), "found a string, expected a whole number"),
        (edited(WORKLOAD, "/precisions", "x"), "unknown field"),
        (edited(WORKLOAD, "/Precision", "x"), "unknown field; field names are lower case with underscores"),
        (edited(WORKLOAD, "/schema", "plan/999"), "found plan/999, supported: workload/1"),
        (edited(WORKLOAD, "/schema", "<script>"), "found another text, supported: workload/1"),
    ],
)
def test_messages_as_a_person_reads_them(change: dict[str, object], message: str) -> None:
    assert refusal(change, Workload).message == message


def test_no_message_names_a_class_of_ours() -> None:
    nested = edited(CLUSTER, "/node_groups/0", 7)
    assert refusal(nested, Cluster).message == "found a whole number, expected an object"
    assert refusal(edited(CLUSTER, "/node_groups", {}), Cluster).message == "found an object, expected an array"


MARK = "zq" * 20


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(edited(WORKLOAD, "/precision", MARK)).encode(),
        json.dumps(edited(WORKLOAD, "/sequence_length", MARK)).encode(),
        json.dumps(edited(WORKLOAD, "/schema", MARK)).encode(),
        f'{{"{MARK}": 1, "{MARK}": 1}}'.encode(),
        f'["{MARK}", NaN]'.encode(),
        f'["{MARK}'.encode(),
        f'["{MARK}\\ud800"]'.encode(),
    ],
)
def test_the_input_is_not_repeated(data: bytes) -> None:
    error = refusal(data, Workload)
    assert MARK not in str(error)
    assert all(MARK not in fault.message and MARK not in fault.pointer for fault in error.faults)


def test_long_and_hostile_keys_are_cut_in_pointers() -> None:
    key = "\x1b[31m\u202e" + "k" * 10_000
    error = refusal(edited(WORKLOAD, f"/{key}", 1), Workload)
    assert error.code == "unknown_field"
    assert len(error.pointer) <= 70
    assert error.pointer.isprintable()


def test_keys_are_escaped_as_json_pointers() -> None:
    value = {**WORKLOAD, "a/b~c": 1}
    assert refusal(value, Workload).pointer == "/a~1b~0c"


def test_all_faults_of_one_object_are_listed() -> None:
    error = refusal({"schema": "workload/1", "sequence_length": 0, "x": 1}, Workload)
    assert {(fault.code, fault.pointer) for fault in error.faults} == {
        ("missing", "/global_batch_size"),
        ("range", "/sequence_length"),
        ("missing", "/precision"),
        ("missing", "/optimizer"),
        ("unknown_field", "/x"),
    }


def _cpu_seconds(data: bytes, kind: type[Workload | ModelProfile | Cluster]) -> tuple[str, float]:
    """Code and least CPU time of two refusals: the machine may be shared."""
    codes, spent = set(), []
    for _ in range(2):
        start = time.process_time()
        try:
            read_document(data, kind)
        except DocumentError as error:
            codes.add(error.code)
        spent.append(time.process_time() - start)
    (code,) = codes
    return code, min(spent)


def test_a_million_keys_are_refused_in_a_second_of_cpu() -> None:
    data = b"{" + b",".join(b'"%d":0' % number for number in range(1_000_000)) + b"}"
    start = time.process_time()
    json.loads(data)  # what only parsing costs here: 0.7 s on a shared core
    parsing = time.process_time() - start
    code, seconds = _cpu_seconds(data, Workload)
    assert code == "too_many_items"
    assert seconds < max(1.0, 2 * parsing)


@pytest.mark.parametrize("layer", ["{}", "0"])
def test_a_million_layers_are_refused_in_a_second_of_cpu(layer: str) -> None:
    data = ('{"schema":"profile/1","layers":[' + ",".join([layer] * 1_000_000) + "]}").encode()
    code, seconds = _cpu_seconds(data, ModelProfile)
    assert code == "limit"
    assert seconds < 2  # usually 0.4 s; building the layers took 138 s


def test_bad_items_of_a_list_are_one_fault_a_list() -> None:
    """10^5 wrong items once were 10^5 faults and seconds of work: the first of a list is named."""
    value = edited(CLUSTER, "/node_groups", [{}] * 4096)
    value["links"] = [0] * 100_000
    error = refusal(value, Cluster)
    assert {fault.pointer.split("/")[2] for fault in error.faults} == {"0"}
    assert len(error.faults) == 6  # name, device_kind, num_nodes, ranks_per_node, usable_bytes; the first link


@pytest.mark.parametrize(
    ("pointer", "value", "kind", "document"),
    [
        ("/layers", [{}] * 4097, ModelProfile, PROFILE),
        ("/measurements", [{}] * 4097, ModelProfile, PROFILE),
        ("/measurements/0/points", [{}] * 10_001, ModelProfile, PROFILE),
        ("/node_groups", [{}] * 4097, Cluster, CLUSTER),
        ("/links/0/table", [{}] * 1001, Cluster, CLUSTER),
    ],
)
def test_lists_beyond_their_limit(
    pointer: str, value: object, kind: type[ModelProfile | Cluster], document: dict[str, object]
) -> None:
    error = refusal(edited(document, pointer, value), kind)
    assert (error.code, error.pointer) == ("limit", pointer)
    assert len(error.faults) == 1
