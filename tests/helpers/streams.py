"""The same plan with other streams."""

import json
from collections.abc import Sequence

from planner.plan.plan import Plan
from planner.problem.reading import read_document

__all__ = ["plan_with_streams"]


def plan_with_streams(plan: Plan, streams: Sequence[str]) -> Plan:
    document = plan.model_dump(mode="json") | {"streams": list(streams)}
    return read_document(json.dumps(document).encode(), Plan)
