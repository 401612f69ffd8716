"""Small synthetic documents with exact arithmetic: profiles, clusters, workloads, problems, requests.

Times and sizes are linear in samples x tokens, so that tests can work them out by hand: a layer's forward of one
sample of ``base_sequence`` tokens takes ``layer_forward_ns[layer]``, two samples twice that, half the tokens half.
"""

import hashlib
from collections.abc import Sequence

from planner.problem.cluster import Cluster, Link, LinkPoint, NodeGroup
from planner.problem.options import SearchOptions
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
    Reads,
    SplitCosts,
    Statistic,
    Statistics,
    TiedWeights,
)
from planner.problem.request import Request
from planner.problem.workload import Optimizer, Precision, Workload

__all__ = [
    "GIB",
    "digest_of",
    "make_cluster",
    "make_link",
    "make_problem",
    "make_profile",
    "make_request",
    "make_statistics",
    "make_workload",
    "with_split_costs",
]

GIB = 2**30


def digest_of(text: str) -> str:
    """A digest that is easy to get: SHA-256 of ``text``."""
    return hashlib.sha256(text.encode()).hexdigest()


def make_statistics(duration_ns: int) -> Statistics:
    """Samples that all took the same time."""
    return Statistics(
        num_samples=20,
        min_ns=duration_ns,
        p10_ns=duration_ns,
        p25_ns=duration_ns,
        median_ns=duration_ns,
        mean_ns=duration_ns,
        p90_ns=duration_ns,
        cpu_median_ns=duration_ns,
        confidence_95_share=0.01,
    )


def _spread(values: int | Sequence[int], num_layers: int) -> tuple[int, ...]:
    found = (values,) * num_layers if isinstance(values, int) else tuple(values)
    assert len(found) == num_layers, f"{len(found)} values for {num_layers} layers"
    return found


def make_profile(
    *,
    kind: str = "cpu-a",
    layer_forward_ns: Sequence[int] = (1_000_000,) * 4,
    layer_backward_ns: Sequence[int] | None = None,  # default: twice the forward
    saved_bytes: int | Sequence[int] = 4_000,  # of one sample of base_sequence tokens
    output_bytes: int | Sequence[int] = 1_000,  # likewise
    transient_bytes: int | Sequence[int] = 0,  # likewise; above what is kept, forward and backward
    num_params: int | Sequence[int] = 1_000,
    micro_batch_sizes: Sequence[int] = (1, 2, 4, 8),
    sequence_lengths: Sequence[int] = (16, 32),
    base_sequence: int = 32,
    constant_ns: int = 0,  # of every operation
    usable_bytes: int = GIB,
    per_instruction_ns: int = 0,
    update_ns_per_million_params: int = 0,
    precision: Precision = "fp32",
    tied: Sequence[tuple[int, ...]] = (),
    reads: Sequence[Reads] = (),
    causal: bool = True,
    split: bool = False,  # measure I and W too, each half of B
    statistic: Statistic = "median_ns",
    provenance: str = "measured",
    model: str = "toy",
) -> ModelProfile:
    """A profile of one device kind; two profiles of the same ``model`` and number of layers make one problem."""
    num_layers = len(layer_forward_ns)
    backward = tuple(layer_backward_ns) if layer_backward_ns else tuple(2 * t for t in layer_forward_ns)
    params = _spread(num_params, num_layers)
    costs = list(
        zip(
            layer_forward_ns,
            backward,
            _spread(saved_bytes, num_layers),
            _spread(output_bytes, num_layers),
            _spread(transient_bytes, num_layers),
            params,
            strict=True,
        )
    )
    shapes = [(size, sequence) for size in micro_batch_sizes for sequence in sequence_lengths]

    def point(layer: int, size: int, sequence: int) -> Point:
        forward_ns, backward_ns, saved, output, transient, _ = costs[layer]

        def scaled(value: int) -> int:
            return value * size * sequence // base_sequence

        def timed(value: int) -> Statistics:
            return make_statistics(constant_ns + scaled(value))

        return Point(
            micro_batch_size=size,
            sequence_length=sequence,
            status="ok",
            provenance=provenance,
            forward=timed(forward_ns),
            backward=timed(backward_ns),
            backward_input=timed(backward_ns // 2) if split else None,
            backward_weight=timed(backward_ns - backward_ns // 2) if split else None,
            saved_bytes=scaled(saved),
            input_bytes=scaled(costs[layer - 1][3] if layer else 8 * base_sequence),
            output_bytes=scaled(output),
            peak_forward_bytes=scaled(saved + transient),
            peak_backward_bytes=scaled(transient),
        )

    fingerprints = [
        digest_of(repr((model, costs[layer], costs[layer - 1][3] if layer else None))) for layer in range(num_layers)
    ]
    return ModelProfile(
        schema_version="profile/1",
        provenance=ProfileProvenance(
            tool="planner 0.1.0",
            created_utc="2026-01-01T00:00:00Z",
            command="tests.helpers.documents",
            torch="2.13.0",
            python="3.11",
            backend="cpu",
            threads=1,
            num_ranks=1,
        ),
        device=Device(kind=kind, total_bytes=usable_bytes, usable_bytes=usable_bytes),
        model=Model(
            fingerprint=digest_of(f"{model} {num_layers}"),
            source="tests.helpers.documents:toy",
            precision=precision,
            cut=None,
            reads=tuple(reads),
            tied=tuple(
                TiedWeights(layers=layers, parameter_names=(f"tied.{number}",)) for number, layers in enumerate(tied)
            ),
        ),
        layers=tuple(
            Layer(
                id=f"layers.{layer}",
                kind="block",
                fingerprint=fingerprints[layer],
                param_bytes=params[layer] * (4 if precision == "fp32" else 2),
                num_params=params[layer],
                num_trained_params=params[layer],
                buffer_bytes=0,
                causal=causal,
                splittable=split,
            )
            for layer in range(num_layers)
        ),
        measurements=tuple(
            Measurement(fingerprint=fingerprint, points=tuple(point(layer, *shape) for shape in shapes))
            for layer, fingerprint in enumerate(fingerprints)
            if fingerprints.index(fingerprint) == layer
        ),
        statistic=statistic,
        overheads=Overheads(
            per_instruction_ns=per_instruction_ns, update_ns_per_million_params=update_ns_per_million_params
        ),
    )


def with_points(profile: ModelProfile, **values: object) -> ModelProfile:
    """The profile with the same values of some fields at every point."""
    measurements = tuple(
        one.model_copy(update={"points": tuple(point.model_copy(update=values) for point in one.points)})
        for one in profile.measurements
    )
    return profile.model_copy(update={"measurements": measurements})


def with_split_costs(profile: ModelProfile, *, forward_ns: int, kept_bytes: int, peak_bytes: int) -> ModelProfile:
    """The profile with the same costs of a split visit at every point."""
    costs = SplitCosts(forward=make_statistics(forward_ns), kept_bytes=kept_bytes, peak_bytes=peak_bytes)
    return with_points(profile, split=costs)


def make_link(source: str, target: str, tier: str, *, latency_ns: int = 1_000, bytes_per_us: int = 1_000) -> Link:
    """A link with a table that follows latency + bytes / bandwidth exactly at its points."""
    sizes = [4**power for power in range(4, 15)]  # 256 B .. 256 MiB
    return Link(
        source=source,
        target=target,
        tier=tier,  # type: ignore[arg-type]
        latency_ns=latency_ns,
        bandwidth_bytes_per_s=bytes_per_us * 1_000_000,
        table=tuple(
            LinkPoint(message_bytes=size, transfer_ns=latency_ns + size * 1_000 // bytes_per_us) for size in sizes
        ),
    )


def make_cluster(
    *node_groups: tuple[str, int, int],  # (device kind, nodes, ranks a node); the name is the kind, or kind-2 ...
    usable_bytes: int | Sequence[int] = GIB,
    latency_ns: int = 1_000,
    bytes_per_us: int = 1_000,
) -> Cluster:
    """A cluster with every link that its ranks need; by default one node of two ``cpu-a``."""
    stated = node_groups or (("cpu-a", 1, 2),)
    usable = _spread(usable_bytes, len(stated))
    groups: list[NodeGroup] = []
    for (kind, num_nodes, ranks), limit in zip(stated, usable, strict=True):
        same = sum(group.device_kind == kind for group in groups)
        name = kind if not same else f"{kind}-{same + 1}"
        groups.append(
            NodeGroup(name=name, device_kind=kind, num_nodes=num_nodes, ranks_per_node=ranks, usable_bytes=limit)
        )
    links: list[Link] = []
    for number, group in enumerate(groups):
        if group.ranks_per_node > 1:
            links.append(
                make_link(group.name, group.name, "inside_node", latency_ns=latency_ns, bytes_per_us=bytes_per_us)
            )
        if group.num_nodes > 1:
            links.append(
                make_link(group.name, group.name, "between_nodes", latency_ns=latency_ns, bytes_per_us=bytes_per_us)
            )
        for other in groups[number + 1 :]:
            links.append(
                make_link(group.name, other.name, "between_nodes", latency_ns=latency_ns, bytes_per_us=bytes_per_us)
            )
    return Cluster(schema_version="cluster/1", node_groups=tuple(groups), links=tuple(links))


def make_workload(
    *,
    global_batch_size: int = 8,
    sequence_length: int = 32,
    precision: Precision = "fp32",
    optimizer: Optimizer = "adamw",
) -> Workload:
    return Workload(
        schema_version="workload/1",
        global_batch_size=global_batch_size,
        sequence_length=sequence_length,
        precision=precision,
        optimizer=optimizer,
    )


def make_problem(
    *,
    profiles: Sequence[ModelProfile] | None = None,
    cluster: Cluster | None = None,
    workload: Workload | None = None,
) -> Problem:
    """By default four equal layers on one node of two ``cpu-a``, a global batch of 8 samples."""
    return Problem(
        profiles=tuple(profiles) if profiles else (make_profile(),),
        cluster=cluster or make_cluster(),
        workload=workload or make_workload(),
    )


def make_request(problem: Problem | None = None, options: SearchOptions | None = None) -> Request:
    """A request with its documents inline."""
    problem, options = problem or make_problem(), options or SearchOptions()
    return Request(
        schema_version="request/1",
        profiles=problem.profiles,
        cluster=problem.cluster,
        workload=problem.workload,
        objective=options.objective,
        constraints=options.constraints,
        target=options.target,
        time_limit_ns=options.time_limit_ns,
        mode=options.mode,
        seed=options.seed,
    )
