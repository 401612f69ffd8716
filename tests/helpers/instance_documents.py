"""The synthetic clusters as documents: profile/1 for each device kind, cluster/1, workload/1.

A stage costs in a plan what the formula says, as far as documents can say it: F = sum of forward, B = twice that;
state by ``adam`` in bf16, 18 bytes a parameter in place of 16, so the parameters are scaled by 16/18 (rounded up);
messages are the border, and a rank of any tensor degree sends it whole.
"""

from collections.abc import Mapping
from typing import Any

from planner.problem.cluster import Cluster, Link, NodeGroup
from planner.problem.problem import Problem
from planner.problem.profile import (
    Device,
    Layer,
    Measurement,
    Model,
    ModelProfile,
    Overheads,
    Point,
    ProfileProvenance,
)
from planner.problem.workload import Workload
from tests.helpers.documents import digest_of, make_statistics
from tests.helpers.search_instances import SearchInstance

__all__ = ["instance_problem"]

_STATE_BYTES = 18  # of a parameter in bf16 with adam: 2 weight, 4 gradient, 12 optimizer


def instance_problem(instance: SearchInstance) -> Problem:
    """The whole problem of a file."""
    tokens = instance.facts["model"]["sequence_tokens"]
    workload = Workload(
        schema_version="workload/1",
        global_batch_size=instance.facts["workload"]["global_batch"],
        sequence_length=tokens,
        precision="bf16",
        optimizer="adam",
    )
    profiles = tuple(_profile(instance, kind, tokens) for kind in instance.facts["device_kinds"])
    return Problem(profiles, _cluster(instance), workload)


def _cluster(instance: SearchInstance) -> Cluster:
    links, kinds = instance.facts["links"], instance.facts["device_kinds"]
    between = links["between_nodes"]
    names = [kind["kind"] for kind in kinds]
    single = {kind["kind"] for kind in kinds if kind["devices"] == kind["node_size"]}
    return Cluster(
        schema_version="cluster/1",
        node_groups=tuple(
            NodeGroup(
                name=kind["kind"],
                device_kind=kind["kind"],
                num_nodes=kind["devices"] // kind["node_size"],
                ranks_per_node=kind["node_size"],
                usable_bytes=kind["usable_bytes"],
            )
            for kind in kinds
        ),
        links=(
            *(Link(source=name, target=name, tier="inside_node", **links["inside_node"][name]) for name in names),
            *(
                Link(source=one, target=other, tier="between_nodes", **between)
                for place, one in enumerate(names)
                for other in names[place:]
                if one != other or one not in single
            ),
        ),
    )


def _profile(instance: SearchInstance, kind: Mapping[str, Any], tokens: int) -> ModelProfile:
    rows = instance.facts["layers"]
    return ModelProfile(
        schema_version="profile/1",
        provenance=ProfileProvenance(
            tool="tests",
            created_utc="2025-01-01T00:00:00Z",
            command="tests.helpers.instance_documents",
            torch=None,
            python="3.11",
            backend="none",
            threads=1,
            num_ranks=1,
        ),
        device=Device(kind=kind["kind"], total_bytes=kind["memory_bytes"], usable_bytes=kind["usable_bytes"]),
        model=Model(fingerprint=digest_of(instance.name), source=instance.name, precision="bf16", cut=None),
        layers=tuple(_layer(row, f"{row['name']}.{number}") for row in rows for number in range(row["count"])),
        measurements=tuple(_measurement(instance, row, kind["kind"], tokens) for row in rows),
        statistic="median_ns",
        overheads=Overheads(per_instruction_ns=0, update_ns_per_million_params=0),
    )


def _params(row: Mapping[str, Any]) -> int:
    return int(-(-row["parameters"] * 16 // _STATE_BYTES))


def _layer(row: Mapping[str, Any], name: str) -> Layer:
    return Layer(
        id=name,
        kind="other",
        fingerprint=digest_of(row["name"]),
        param_bytes=2 * _params(row),
        num_params=_params(row),
        num_trained_params=_params(row),
        buffer_bytes=0,
        causal=True,
        splittable=False,
    )


def _measurement(instance: SearchInstance, row: Mapping[str, Any], kind: str, tokens: int) -> Measurement:
    degrees = [int(degree) for degree in row["forward_ns"][kind]]
    sizes = instance.facts["workload"]["micro_batch_sizes"]
    return Measurement(
        fingerprint=digest_of(row["name"]),
        points=tuple(
            _point(row, row["forward_ns"][kind][str(tensor)], (size, tokens, tensor), instance.facts["border_bytes"])
            for size in sizes
            for tensor in degrees
        ),
    )


def _point(row: Mapping[str, Any], forward_ns: int, shape: tuple[int, int, int], border_bytes: int) -> Point:
    size, tokens, tensor = shape
    saved = -(-row["saved_bytes"] * size // tensor)
    return Point(
        micro_batch_size=size,
        sequence_length=tokens,
        tensor=tensor,
        status="ok",
        provenance="measured",
        forward=make_statistics(forward_ns * size),
        backward=make_statistics(2 * forward_ns * size),
        saved_bytes=max(0, saved - border_bytes * size),  # documents count the layer's input beside it
        input_bytes=border_bytes * size,
        output_bytes=border_bytes * size,
        peak_forward_bytes=saved,
        peak_backward_bytes=0,
    )
