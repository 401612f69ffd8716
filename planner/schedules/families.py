"""The registry of named schedule families, and whole abstract plans from them.

Whoever lists, compares or tries families iterates over ``FAMILIES``; nothing else knows a family by its name. How to
add one: docs/adding-a-schedule.md.
"""

from collections.abc import Mapping
from types import MappingProxyType

from planner.errors import PlanError
from planner.plan.graph import LayerGraph, Node
from planner.plan.instruction import stream_text
from planner.plan.plan import Plan
from planner.schedules.asynchronous import ASYNCHRONOUS_1F1B
from planner.schedules.bitpipe import BITPIPE
from planner.schedules.chimera import CHIMERA
from planner.schedules.dualpipe_v import DUALPIPE_V
from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.gpipe import BREADTH_FIRST, GPIPE
from planner.schedules.helixpipe import HELIXPIPE, HELIXPIPE_TWO_FOLD
from planner.schedules.interleaved import INTERLEAVED
from planner.schedules.one_f_one_b import ONE_F_ONE_B
from planner.schedules.slices import SEQ_1F1B, TERAPIPE
from planner.schedules.updates import with_updates
from planner.schedules.v_half import V_HALF
from planner.schedules.v_min import V_MIN
from planner.schedules.vocabulary import VOCABULARY_ONE_BARRIER, VOCABULARY_TWO_BARRIERS
from planner.schedules.wave import WAVE
from planner.schedules.zero_bubble import ZB_H1, ZB_H2
from planner.schedules.zero_bubble_v import ZB_V

__all__ = ["FAMILIES", "abstract_plan", "family_lists", "family_plan"]

_SPECS = (
    GPIPE,
    ONE_F_ONE_B,
    INTERLEAVED,
    BREADTH_FIRST,
    ZB_H1,
    ZB_H2,
    ZB_V,
    V_HALF,
    V_MIN,
    WAVE,
    CHIMERA,
    BITPIPE,
    DUALPIPE_V,
    HELIXPIPE,
    HELIXPIPE_TWO_FOLD,
    TERAPIPE,
    SEQ_1F1B,
    VOCABULARY_ONE_BARRIER,
    VOCABULARY_TWO_BARRIERS,
    ASYNCHRONOUS_1F1B,
)

FAMILIES: Mapping[str, FamilySpec] = MappingProxyType({spec.name: spec for spec in _SPECS})

_NOTHING = "0" * 64  # no problem was answered, no model is meant


def family_lists(name: str, shape: FamilyShape) -> PlanLists:
    """The plan lists of a family. Raises ``PlanError`` (family) for an unknown name or a shape that it refuses."""
    if name not in FAMILIES:
        raise PlanError(f"found family {name!r}, expected one of {', '.join(FAMILIES)}", code="family")
    return FAMILIES[name].lists(shape)


def family_plan(name: str, shape: FamilyShape) -> Plan:
    """A whole abstract plan: one rank a group, layers without a model, no problem. Raises as ``family_lists``."""
    return abstract_plan(family_lists(name, shape))


def abstract_plan(lists: PlanLists) -> Plan:
    """The plan of some lists, with G and U where they have none."""
    num_groups = len(lists.streams)
    slices = lists.num_slices
    return Plan(
        schema_version="plan/1",
        problem=_NOTHING,
        precision="fp32",
        graph=LayerGraph(model=_NOTHING, num_layers=lists.num_layers, reads=lists.reads),
        nodes=(Node(node_group="groups", device_kind="group", num_ranks=num_groups),),
        groups=tuple((group,) for group in range(num_groups)),
        stages=lists.stages,
        routes=lists.routes,
        micro_batches=lists.micro_batches,
        streams=tuple(stream_text(with_updates(stream), slices) for stream in lists.streams),
    )
