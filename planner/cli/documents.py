"""Every document that a person or program may read or write, by the name in its ``schema`` field."""

from collections.abc import Mapping

from planner.plan.schema import DOCUMENTS
from planner.problem.contract import Contract

__all__ = ["all_documents"]


def all_documents() -> Mapping[str, type[Contract]]:
    """The contracts of all levels: those of problem and plan, the record of a run, checkpoints, the service's own."""
    from api.documents import RevalidationRequest, SimulationRequest
    from planner.executor.checkpoints.manifest import Manifest
    from planner.explain.documents import Explanation, Revalidation
    from planner.simulate.run_record import RunRecord

    return {
        **DOCUMENTS,
        "checkpoint/1": Manifest,
        "explanation/1": Explanation,
        "revalidate/1": RevalidationRequest,
        "revalidation/1": Revalidation,
        "run/1": RunRecord,
        "simulate/1": SimulationRequest,
    }
