"""Plans as JSON for the tests of the contract: the contract's example, and any scheme in one global order.

``plan_json`` writes streams by projecting one order of all instructions onto the groups: micro-batch by micro-batch
forward along the route, then backward against it. That order respects everything an instruction can wait for, so the
streams never wait in a circle.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Instruction
from planner.plan.plan import Plan
from planner.problem.reading import read_document

__all__ = ["EXAMPLE", "EXAMPLE_DIGEST", "chain_json", "plan_json", "read_plan", "runs_to_the_end"]

Json = dict[str, object]

# docs/plan-contract.md section 7
EXAMPLE: Json = {
    "schema": "plan/1",
    "problem": "6f" + "0" * 62,
    "precision": "bf16",
    "graph": {"model": "9c" + "0" * 62, "num_layers": 6, "tied": [[0, 5]]},
    "nodes": [
        {"node_group": "big", "device_kind": "A100-SXM-80GB", "num_ranks": 4},
        {"node_group": "small", "device_kind": "L4", "num_ranks": 1},
    ],
    "groups": [[0, 1], [2, 3], [4]],
    "stages": [
        {"group": 0, "first_layer": 0, "end_layer": 3, "mesh": {"tensor": 2, "border": "sharded"}},
        {"group": 1, "first_layer": 3, "end_layer": 6, "mesh": {"data": 2, "shards": 2, "sharded": "optimizer"}},
        {"group": 2, "first_layer": 0, "end_layer": 6, "recompute": {"full": [1, 2, 3, 4]}},
    ],
    "routes": [[0, 1], [2]],
    "micro_batches": [
        {"route": 0, "samples": 4, "cuts": [0, 2048]},
        {"route": 0, "samples": 4, "cuts": [0, 2048]},
        {"route": 0, "samples": 4, "cuts": [0, 2048]},
        {"route": 1, "samples": 1, "cuts": [0, 1024, 2048]},
    ],
    "streams": [
        "0F0 0F1 0B0 0F2 0B1 0B2 0G0 0U0",
        "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2 1G0 1U0",
        "2F3.0 2F3.1 2R3.1 2B3.1 2R3.0 2B3.0 2G0 2U0",
    ],
    "prediction": {
        "step_ns": 32900000,
        "bound_ns": 32900000,
        "bound_model": "any_schedule",
        "bubble": 0.1337,
        "peak_bytes": [4000000000, 5000000000, 7200000000],
        "memory_limit_bytes": [79000000000, 79000000000, 22000000000],
        "costs": "measured",
    },
    "provenance": {
        "planner": "0.1.0",
        "family": "list",
        "solver": "none",
        "seed": 0,
        "limit": "optimal",
        "search_ns": 1200000,
        "profiles": ["1a" + "0" * 62],
    },
}
EXAMPLE_DIGEST = "0d0b1ea09802aab07b3c12cf13e92b532dd412045121fe5c044987a876c97abb"


def read_plan(value: Json) -> Plan:
    return read_document(json.dumps(value).encode(), Plan)


def plan_json(
    *,
    groups: Sequence[Sequence[int]],
    stages: Sequence[Json],
    routes: Sequence[Sequence[int]],
    micro_batches: Sequence[Json],
    backwards: Mapping[int, str] | None = None,
    graph: Json | None = None,
) -> Json:
    """``backwards``: stage -> what follows F in its visits (B where not said); G U where a stage has B or W."""
    backward = dict.fromkeys(range(len(stages)), "B") | dict(backwards or {})
    order = list(_order(routes, micro_batches, backward))
    trained = [stage for stage in backward if set(backward[stage]) & {"B", "W"}]
    order += [f"{stage}{operation}0" for operation in "GU" for stage in trained]  # an U waits for the G of all
    streams: list[list[str]] = [[] for _ in groups]
    for text in order:
        stage = stages[int(re.match("[0-9]+", text)[0])]  # type: ignore[index]
        streams[int(str(stage["group"]))].append(text)
    num_layers = max(int(str(stage["end_layer"])) for stage in stages)
    return {
        "schema": "plan/1",
        "problem": "6f" + "0" * 62,
        "precision": "fp32",
        "graph": {"model": "9c" + "0" * 62, "num_layers": num_layers, **(graph or {})},
        "nodes": [{"node_group": "all", "device_kind": "cpu", "num_ranks": sum(map(len, groups))}],
        "groups": [list(group) for group in groups],
        "stages": list(stages),
        "routes": [list(route) for route in routes],
        "micro_batches": list(micro_batches),
        "streams": [" ".join(stream) for stream in streams],
    }


def _order(
    routes: Sequence[Sequence[int]], micro_batches: Sequence[Json], backward: Mapping[int, str]
) -> Iterator[str]:
    slices = [_slices(batch) for batch in micro_batches]
    for number, batch in enumerate(micro_batches):
        for tail in slices[number]:
            yield from (f"{stage}F{number}{tail}" for stage in routes[int(str(batch["route"]))])
    for number, batch in enumerate(micro_batches):
        for tail in reversed(slices[number]):
            for stage in reversed(routes[int(str(batch["route"]))]):
                yield from (f"{stage}{operation}{number}{tail}" for operation in backward[stage])


def _slices(batch: Json) -> list[str]:
    """How the slices of a micro-batch are written."""
    cuts = batch["cuts"]
    assert isinstance(cuts, list)
    return [f".{k}" for k in range(len(cuts) - 1)] if len(cuts) > 2 else [""]


def chain_json(num_stages: int, num_micro_batches: int, *, backward: str = "B") -> Json:
    """One route, one layer a stage, one rank a group."""
    return plan_json(
        groups=[[rank] for rank in range(num_stages)],
        stages=[{"group": n, "first_layer": n, "end_layer": n + 1} for n in range(num_stages)],
        routes=[range(num_stages)],
        micro_batches=[{"route": 0, "samples": 1, "cuts": [0, 8]}] * num_micro_batches,
        backwards=dict.fromkeys(range(num_stages), backward),
    )


def runs_to_the_end(plan: Plan) -> bool:
    """Whether the streams end when each instruction waits for what ``Dependencies`` says: no message model."""
    dependencies = Dependencies(plan)
    place = [0] * len(plan.groups)
    done: set[Instruction] = set()
    moved = True
    while moved:
        moved = False
        for group, stream in enumerate(plan.instructions):
            while place[group] < len(stream) and all(
                wait.instruction in done for wait in dependencies.waits(stream[place[group]])
            ):
                done.add(stream[place[group]])
                place[group] += 1
                moved = True
    return all(at == len(stream) for at, stream in zip(place, plan.instructions, strict=True))
