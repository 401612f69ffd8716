"""Messages and sums from link tables; numbers are the worked examples of the cost model."""

import pytest

from planner.costs.links import Links, Place, message_ns
from planner.costs.sums import sum_ns
from planner.errors import PriceError
from planner.problem.cluster import Cluster, Link, LinkPoint, NodeGroup
from tests.helpers.documents import make_cluster


def link(*points: tuple[int, int], latency_ns: int = 100_000, bandwidth: int = 4 * 10**9) -> Link:
    table = tuple(LinkPoint(message_bytes=size, transfer_ns=time) for size, time in points)
    return Link(
        source="a",
        target="b",
        tier="between_nodes",
        latency_ns=latency_ns,
        bandwidth_bytes_per_s=bandwidth,
        table=table,
    )


TABLE = ((1_048_576, 400_000), (4_194_304, 1_150_000))


def test_between_two_entries_the_curve_is_a_power_of_the_size() -> None:
    assert message_ns(link(*TABLE), 2_097_152) == 678_233  # a straight line would say 650,000


@pytest.mark.parametrize(("size", "expected"), TABLE)
def test_entries_give_themselves(size: int, expected: int) -> None:
    assert message_ns(link(*TABLE), size) == expected


def test_below_the_table_the_line_counts_but_never_above_the_first_entry() -> None:
    assert message_ns(link(*TABLE), 400) == 100_100  # 100 us + 400 B at 4 GB/s
    assert message_ns(link(*TABLE, latency_ns=900_000), 400) == 400_000


def test_above_the_table_bandwidth_counts_from_the_last_entry() -> None:
    assert message_ns(link(*TABLE), 4_194_304 + 4_000_000) == 2_150_000


def test_times_never_fall_with_the_size() -> None:
    bent = link((1_000, 500), (2_000, 300), (4_000, 900))
    times = [message_ns(bent, size) for size in range(1_000, 5_000, 100)]
    assert times == sorted(times)


def test_without_a_table_latency_and_bandwidth_count() -> None:
    assert message_ns(link(), 4_000) == 101_000


def test_no_bytes_take_no_time() -> None:
    assert message_ns(link(*TABLE), 0) == 0


def two_tiers(*, intra: int, nic: int, nodes: int = 4, ranks: int = 8) -> Cluster:
    """Links without latency: bytes over bandwidth."""
    group = NodeGroup(name="a", device_kind="h", num_nodes=nodes, ranks_per_node=ranks, usable_bytes=1)
    links = [
        Link(source="a", target="a", tier="inside_node", latency_ns=0, bandwidth_bytes_per_s=intra),
        Link(source="a", target="a", tier="between_nodes", latency_ns=0, bandwidth_bytes_per_s=nic),
    ]
    return Cluster(schema_version="cluster/1", node_groups=(group,), links=tuple(links[: 2 if nodes > 1 else 1]))


def test_hierarchical_sum_of_the_worked_example() -> None:
    # S = 2^30, 8 ranks on each of 4 nodes, 366 and 50 GB/s: 2.567 + 4.027 + 2.567 = 9.161 ms
    places = [Place("a", node) for node in range(4) for _ in range(8)]
    links = Links(two_tiers(intra=366 * 10**9, nic=50 * 10**9))
    assert sum_ns(links, places, 2**30) / 1e6 == pytest.approx(9.161, abs=0.001)


@pytest.mark.parametrize(("intra", "expected_ms"), [(366, 5.134), (473, 3.973)])
def test_sum_inside_one_node(intra: int, expected_ms: float) -> None:
    links = Links(two_tiers(intra=intra * 10**9, nic=1, nodes=1))
    assert sum_ns(links, [Place("a", 0)] * 8, 2**30) / 1e6 == pytest.approx(expected_ms, abs=0.001)


def test_unequal_nodes_use_the_plain_ring() -> None:
    # 3 ranks on two nodes: 4 rounds of S/3 over the slow link
    links = Links(two_tiers(intra=10**9, nic=10**8, nodes=2, ranks=2))
    assert sum_ns(links, [Place("a", 0), Place("a", 0), Place("a", 1)], 3_000) == 4 * 10_000


def test_one_rank_or_no_bytes_take_no_time() -> None:
    links = Links(make_cluster())
    assert sum_ns(links, [Place("cpu-a", 0)], 1_000) == 0
    assert sum_ns(links, [Place("cpu-a", 0)] * 2, 0) == 0


def test_missing_link_is_refused_by_name() -> None:
    cluster = make_cluster(("cpu-a", 1, 2))
    with pytest.raises(PriceError, match="no usable between_nodes link from 'cpu-a' to 'cpu-a'"):
        Links(cluster).between(Place("cpu-a", 0), Place("cpu-a", 1))
