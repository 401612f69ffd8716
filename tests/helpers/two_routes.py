"""Plans of families whose two routes lie on the same groups, which ``build_plan`` does not make."""

from planner.plan.instruction import stream_text
from planner.plan.plan import Plan
from planner.schedules.build import PlanParts
from planner.schedules.families import family_lists
from planner.schedules.family import FamilyShape
from planner.schedules.updates import with_updates

__all__ = ["two_route_plan"]


def two_route_plan(parts: PlanParts, family: str) -> Plan:
    """The streams of a family whose two routes lie on the same groups, for the stages of ``parts``."""
    lists = family_lists(family, FamilyShape(len(parts.groups), len(parts.micro_batches)))
    assert [stage.group for stage in lists.stages] == [stage.group for stage in parts.stages]
    assert [batch.route for batch in lists.micro_batches] == [batch.route for batch in parts.micro_batches]
    assert lists.routes == parts.routes
    fields = {name: getattr(parts, name) for name in PlanParts.__dataclass_fields__ if name in Plan.model_fields}
    streams = tuple(stream_text(with_updates(stream), lists.num_slices) for stream in lists.streams)
    return Plan(schema_version="plan/1", **fields, streams=streams)
