"""The JSON Schemas say what the contracts say of field types: they accept good documents and refuse bad ones."""

import jsonschema
import pytest

from planner.plan.answer import ChildEvent, Progress
from planner.plan.schema import DOCUMENTS, json_schema
from planner.problem.contract import Contract
from tests.helpers.documents import make_cluster, make_profile, make_workload
from tests.helpers.edits import edited, json_of, refusal, without
from tests.helpers.plan_json import EXAMPLE

Json = dict[str, object]
PROGRESS = ChildEvent(schema_version="child/1", progress=Progress(phase="partition"))
EXAMPLES: dict[str, Json] = {
    "profile/1": json_of(make_profile(tied=[(0, 3)])),
    "cluster/1": json_of(make_cluster(("a", 2, 2), ("b", 1, 2))),
    "workload/1": json_of(make_workload()),
    "plan/1": EXAMPLE,
    "child/1": json_of(PROGRESS),
    "graph/1": {"schema": "graph/1", "kinds": [{"name": "a", "count": 2}], "layers": [{"name": "x", "times_ns": [3]}]},
    "partition/1": {"schema": "partition/1", "bound_ns": 3, "limit": "wall"},
}
EXAMPLES["request/1"] = {
    "schema": "request/1",
    "profiles": [EXAMPLES["profile/1"], "ab" * 32],
    "cluster": EXAMPLES["cluster/1"],
    "workload": EXAMPLES["workload/1"],
}


def _accepts(name: str, value: Json) -> bool:
    return jsonschema.Draft202012Validator(json_schema(DOCUMENTS[name])).is_valid(value)


def test_every_document_has_a_schema() -> None:
    assert sorted(EXAMPLES) == sorted(DOCUMENTS)


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema(DOCUMENTS[name]))


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_examples_are_valid(name: str) -> None:
    jsonschema.Draft202012Validator(json_schema(DOCUMENTS[name])).validate(EXAMPLES[name])


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_fields_carry_their_names_on_the_wire(name: str) -> None:
    properties = json_schema(DOCUMENTS[name])["properties"]
    assert isinstance(properties, dict)
    assert properties["schema"]["const"] == name
    assert "schema_version" not in properties


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("workload/1", edited(EXAMPLES["workload/1"], "/schema", "workload/2")),
        ("workload/1", edited(EXAMPLES["workload/1"], "/precision", "fp8")),
        ("workload/1", edited(EXAMPLES["workload/1"], "/global_batch_size", 0)),
        ("workload/1", edited(EXAMPLES["workload/1"], "/extra", 1)),
        ("workload/1", without(EXAMPLES["workload/1"], "/optimizer")),
        ("cluster/1", edited(EXAMPLES["cluster/1"], "/node_groups/0/usable_bytes", "80GB")),
        ("cluster/1", edited(EXAMPLES["cluster/1"], "/links/0/latency_ns", -1)),
        ("profile/1", edited(EXAMPLES["profile/1"], "/layers/0/fingerprint", "x")),
        ("profile/1", edited(EXAMPLES["profile/1"], "/measurements/0/points", [])),
        ("request/1", edited(EXAMPLES["request/1"], "/cluster", "ab")),
        ("request/1", edited(EXAMPLES["request/1"], "/time_limit_ns", 1)),
        ("plan/1", edited(EXAMPLE, "/stages/0/mesh/tensor", 0)),
        ("plan/1", edited(EXAMPLE, "/streams", "0F0")),
        ("plan/1", edited(EXAMPLE, "/stages/0/recompute", {"half": [1]})),
        ("plan/1", edited(EXAMPLE, "/micro_batches/0/cuts", [0])),
    ],
)
def test_schema_and_reader_refuse_the_same(name: str, broken: Json) -> None:
    assert not _accepts(name, broken)
    kind: type[Contract] = DOCUMENTS[name]
    assert refusal(broken, kind).code


def test_what_a_schema_cannot_say_the_reader_does() -> None:
    circle = edited(EXAMPLE, "/routes/0", [1, 0])
    assert _accepts("plan/1", circle)
    assert refusal(circle, DOCUMENTS["plan/1"]).code == "layer_cover"
