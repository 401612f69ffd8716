"""Measure how long messages take between the ranks of this machine, and describe the machine as a cluster.

Point-to-point messages of torch.distributed (gloo on CPUs, NCCL with GPUs), half a ping-pong, sizes in powers of four,
warm-up first, median of many, times made monotone in size. The table is the truth; latency and bandwidth serve outside
of it only. Every pair of ranks is measured in turn: the ranks of one machine share one class of link.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from planner.errors import DeviceError
from planner.problem.cluster import Cluster, Link, LinkPoint, NodeGroup
from planner.units import NS_PER_SECOND
from profiles.children import children
from profiles.link_protocol import Exchanges, LinkJob
from profiles.machine import device_lock

__all__ = ["ProbeOptions", "cluster_of", "probe"]

_LIMIT_S = 600.0


@dataclass(frozen=True)
class ProbeOptions:
    """What to measure and how to call it."""

    num_ranks: int = 2  # of this machine
    name: str = "local"  # of the node group
    device: Literal["cpu", "cuda"] = "cpu"
    device_kind: str | None = None  # None: the device's own name
    usable_bytes: int | None = None  # of one rank; None: what the device says
    message_sizes: tuple[int, ...] = tuple(4**power for power in range(5, 13))  # 1 KiB .. 16 MiB
    warm_up: int = 5
    repeats: int = 60
    threads: int = 1
    lock_folder: Path | None = None


def probe(options: ProbeOptions | None = None) -> Cluster:
    """The cluster document of this machine. Raises ``DeviceError`` where it is busy or ranks cannot talk."""
    options = options or ProbeOptions()
    with device_lock(options.lock_folder), tempfile.TemporaryDirectory() as folder:
        found = _measure(options, Path(folder, "rendezvous"))
    return cluster_of(options, found)


def cluster_of(options: ProbeOptions, found: Sequence[Exchanges]) -> Cluster:
    """The document from what the ranks measured. Raises ``DeviceError`` where a size is missing."""
    group = NodeGroup(
        name=options.name,
        device_kind=options.device_kind or found[0].device_kind,
        num_nodes=1,
        ranks_per_node=options.num_ranks,
        usable_bytes=min(one.usable_bytes for one in found),
    )
    links = () if options.num_ranks == 1 else (_link(options, found),)
    return Cluster(schema_version="cluster/1", node_groups=(group,), links=links)


def _measure(options: ProbeOptions, rendezvous: Path) -> list[Exchanges]:
    no_arguments: list[list[str]] = [[] for _ in range(options.num_ranks)]
    with children("profiles.link_worker", no_arguments, threads=options.threads, deadline_s=_LIMIT_S) as ranks:
        for rank, child in enumerate(ranks):
            child.send(
                LinkJob(
                    rank=rank,
                    num_ranks=options.num_ranks,
                    threads=options.threads,
                    device=options.device,
                    usable_bytes=options.usable_bytes,
                    rendezvous=rendezvous.as_uri(),
                    message_sizes=options.message_sizes,
                    warm_up=options.warm_up,
                    repeats=options.repeats,
                )
            )
        return [child.receive(Exchanges) for child in ranks]


def _link(options: ProbeOptions, found: Sequence[Exchanges]) -> Link:
    """One link for all pairs of the node: for each size the median over the measured pairs."""
    samples = [[time for one in found for time in one.of_size(size)] for size in options.message_sizes]
    if not all(samples):
        raise DeviceError("no pair of ranks exchanged messages of every size", code="probe_failed")
    table = _rising(options.message_sizes, [float(np.median(times)) for times in samples])
    smallest, largest = table[0], table[-1]
    seconds = max(largest.transfer_ns - smallest.transfer_ns, 1) / NS_PER_SECOND
    return Link(
        source=options.name,
        target=options.name,
        tier="inside_node",
        latency_ns=smallest.transfer_ns,
        bandwidth_bytes_per_s=max(1, round((largest.message_bytes - smallest.message_bytes) / seconds)),
        table=tuple(table),
    )


def _rising(sizes: Sequence[int], times_ns: Sequence[float]) -> list[LinkPoint]:
    """A larger message never takes less time than a smaller one."""
    rising = np.maximum.accumulate(times_ns)
    return [
        LinkPoint(message_bytes=size, transfer_ns=max(1, round(float(time))))
        for size, time in zip(sizes, rising, strict=True)
    ]
