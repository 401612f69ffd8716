"""V-Min: the least memory on a V at full rate, about a third of 1F1B's, with a bubble of at most 2(p-1).

Method: Qi et al. 2024 (arXiv 2405.15362): every step of the template takes one tick. The turns (1, 1, 1) put two
instructions into one slot where 3 divides p; there they are (3, 1, 3). Memory ceil(p/3) + 1 or less, in micro-batches.
"""

from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.placements import one_route, v
from planner.schedules.v_templates import Steps, Turns, expanded, uniform_template

__all__ = ["V_MIN"]


def _v_min(shape: FamilyShape) -> PlanLists:
    p = shape.num_groups
    turns = Turns(1, 1, 1) if p % 3 else Turns(3, 1, 3)
    template = uniform_template(p, Steps(1, 1, 1, 1), turns)
    assert template is not None, p
    return one_route(shape, v(p), expanded(template, shape.num_micro_batches))


V_MIN = FamilySpec(
    name="v-min",
    summary="split backward on a V at a third of 1F1B's memory; bubble at most 2(p-1)",
    source="Qi et al. 2024, arXiv 2405.15362",
    placement="v",
    build=_v_min,
)
