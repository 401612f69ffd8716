"""JSON Schemas of the documents, for editors and other languages: the field types of the contracts.

Draft 2020-12. What a document checks about itself beyond its field types (docs/plan-contract.md section 9, rules of
profiles and clusters) cannot be said in a schema: a document that a schema accepts may still be refused.
"""

from collections.abc import Mapping
from typing import Final

from planner.plan.answer import ChildEvent
from planner.plan.partition import Partition
from planner.plan.plan import Plan
from planner.problem.cluster import Cluster
from planner.problem.contract import Contract
from planner.problem.graph import GraphDocument
from planner.problem.profile import ModelProfile
from planner.problem.request import Request
from planner.problem.workload import Workload

__all__ = ["DOCUMENTS", "json_schema"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: Final[Mapping[str, type[Contract]]] = {
    "profile/1": ModelProfile,
    "cluster/1": Cluster,
    "workload/1": Workload,
    "request/1": Request,
    "plan/1": Plan,
    "child/1": ChildEvent,
    "graph/1": GraphDocument,
    "partition/1": Partition,
}


def json_schema(kind: type[Contract]) -> dict[str, object]:
    """The JSON Schema of a document, for example of one of ``DOCUMENTS``."""
    return {"$schema": DIALECT, **kind.model_json_schema(by_alias=True, mode="validation")}
