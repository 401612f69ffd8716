"""The plans that are kept as text, and how they are made: ``python -m tests.golden.plans`` writes them anew.

A plan that changed is explained in the commit that changes its file.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from planner.plan.mesh import Mesh
from planner.plan.plan import Plan
from planner.schedules.build import build_plan
from tests.helpers.edits import json_of
from tests.helpers.plan_json import EXAMPLE, read_plan
from tests.helpers.plans import Line, line_plan, make_parts

__all__ = ["FOLDER", "GOLDEN", "golden_text"]

FOLDER = Path(__file__).parent


def _unequal_replicas() -> Plan:
    """Two stages and one stage, micro-batches 3:1, tied first and last layer."""
    return build_plan(make_parts([Line(2, 2, 3), Line(1, 1, 1)], num_layers=5, tied=((0, 4),)), "1f1b")


def _data_meshes() -> Plan:
    return build_plan(make_parts([Line(2, 2, 4, mesh=Mesh(data=2))], num_layers=6), "1f1b")


GOLDEN: Mapping[str, Callable[[], Plan]] = {
    "example": lambda: read_plan(EXAMPLE),
    "gpipe": lambda: line_plan("gpipe", 3, 4),
    "1f1b": lambda: line_plan("1f1b", 4, 6),
    "1f1b_slices": lambda: line_plan("1f1b", 2, 2, num_slices=2),
    "interleaved": lambda: line_plan("interleaved", 2, 4, legs=2),
    "unequal_replicas": _unequal_replicas,
    "data_meshes": _data_meshes,
}


def golden_text(plan: Plan) -> str:
    """The digest on the first line, then the plan as a person reads it: one line a stage, batch, stream."""
    return "\n".join([f"digest {plan.digest}", *_lines(json_of(plan))]) + "\n"


def _lines(value: dict[str, object]) -> list[str]:
    lines = []
    for name, member in value.items():
        items = member if isinstance(member, list) else [member]
        lines += [f"{name} {item if isinstance(item, str) else json.dumps(item, sort_keys=True)}" for item in items]
    return lines


if __name__ == "__main__":
    for file_name, make in GOLDEN.items():
        (FOLDER / f"{file_name}.txt").write_text(golden_text(make()), encoding="utf-8")
