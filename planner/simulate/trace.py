"""A timeline as a trace file for Perfetto and chrome://tracing: one row a group, one block an instruction.

Format: Trace Event Format (JSON object format); complete events "X", times in microseconds, exact to the nanosecond.
"""

import json

from planner.plan.plan import Plan
from planner.schedules.deadlock import instruction_text
from planner.simulate.timeline import Event, Timeline
from planner.units import NS_PER_US

__all__ = ["chrome_trace"]

_NAMES = {
    "F": "forward",
    "R": "recompute",
    "B": "backward",
    "I": "input gradient",
    "W": "weight gradient",
    "G": "gradients ready",
    "U": "update",
}
_COLOURS = {  # reserved names of the format
    "F": "thread_state_running",
    "R": "thread_state_iowait",
    "B": "thread_state_runnable",
    "I": "rail_response",
    "W": "rail_animation",
    "G": "grey",
    "U": "rail_load",
}


def chrome_trace(plan: Plan, timeline: Timeline) -> bytes:
    """The trace of one step; equal timelines give equal bytes."""
    rows = [row for group, ranks in enumerate(plan.groups) for row in _row_names(plan, group, ranks)]
    blocks = [_block(plan, group, event) for group, events in enumerate(timeline.events) for event in events]
    other = {"plan": plan.digest, "step_ns": str(timeline.step_ns), "bubble": f"{timeline.bubble:.6f}"}
    document = {"traceEvents": rows + blocks, "displayTimeUnit": "ns", "otherData": other}
    return json.dumps(document, separators=(",", ":")).encode()


def _row_names(plan: Plan, group: int, ranks: tuple[int, ...]) -> list[dict[str, object]]:
    listed = ", ".join(str(rank) for rank in ranks[:8]) + (", ..." if len(ranks) > 8 else "")
    name = f"group {group}: {plan.group_kind(group)}, ranks {listed}"
    return [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": group, "args": {"name": name}},
        {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": group, "args": {"sort_index": group}},
    ]


def _block(plan: Plan, group: int, event: Event) -> dict[str, object]:
    instruction = event.instruction
    stage = plan.stages[instruction.stage]
    return {
        "ph": "X",
        "name": instruction_text(plan, instruction),
        "cat": _NAMES[instruction.operation],
        "cname": _COLOURS[instruction.operation],
        "pid": 0,
        "tid": group,
        "ts": event.start_ns / NS_PER_US,
        "dur": (event.end_ns - event.start_ns) / NS_PER_US,
        "args": {
            "operation": _NAMES[instruction.operation],
            "stage": instruction.stage,
            "layers": f"[{stage.first_layer}, {stage.end_layer})",
            "start_ns": event.start_ns,
            "end_ns": event.end_ns,
        },
    }
