"""What a cluster refuses, and which link serves which pair."""

import json
import time

import pytest

from planner.problem.cluster import Cluster
from planner.problem.reading import read_document
from tests.helpers.documents import make_cluster
from tests.helpers.edits import edited, json_of, refusal, without

GOOD = json_of(make_cluster(("a", 2, 2), ("b", 1, 4)))  # links: a inside, a between, b inside, a -> b
GROUP = {"name": "c", "device_kind": "c", "num_nodes": 1, "ranks_per_node": 1, "usable_bytes": 1}


def _read(value: dict[str, object]) -> Cluster:
    return read_document(json.dumps(value).encode(), Cluster)


def _link(source: str, target: str, tier: str = "between_nodes", bandwidth: int = 10**9) -> dict[str, object]:
    return {
        "source": source,
        "target": target,
        "tier": tier,
        "latency_ns": 1_000,
        "bandwidth_bytes_per_s": bandwidth,
        "table": [],
    }


def _without_link(source: str, target: str, tier: str) -> dict[str, object]:
    links = [link for link in GOOD["links"] if (link["source"], link["target"], link["tier"]) != (source, target, tier)]  # type: ignore[attr-defined]
    assert len(links) == len(GOOD["links"]) - 1  # type: ignore[arg-type]
    return {**GOOD, "links": links}


@pytest.mark.parametrize(
    ("pointer", "value", "code"),
    [
        ("/node_groups", [], "empty_cluster"),
        ("/node_groups/0/num_nodes", 0, "range"),
        ("/node_groups/0/num_nodes", 10**9, "limit"),
        ("/node_groups/0/ranks_per_node", 10**9, "limit"),
        ("/node_groups/0/num_nodes", 2**53 - 1, "range"),
        ("/node_groups/0/usable_bytes", 0, "range"),
        ("/node_groups/0/usable_bytes", -1, "range"),
        ("/node_groups/0/usable_bytes", 1.5, "type"),
        ("/node_groups/0/price_per_hour", -1, "range"),
        ("/node_groups/1/name", "a", "duplicate_id"),
        ("/links/0/latency_ns", -1, "range"),
        ("/links/0/latency_ns", 1.5, "type"),
        ("/links/0/bandwidth_bytes_per_s", -1, "range"),
        ("/links/0/bandwidth_bytes_per_s", 0, "unreachable"),
        ("/links/0/source", "nobody", "dangling_edge"),
        ("/links/0/target", "nobody", "dangling_edge"),
        ("/links/0/tier", "nvlink", "choice"),
        ("/links/0/table/1/message_bytes", 256, "order"),  # the first is 256 too
        ("/links/0/table/0/message_bytes", 10**9, "order"),
        ("/links/-", _link("a", "b"), "duplicate_id"),
        ("/links/-", _link("b", "b"), "self_link"),  # b has one node
        ("/links/-", _link("b", "a", "inside_node"), "choice"),
        ("/links/-", _link("a", "b", bandwidth=2**53), "range"),
    ],
)
def test_a_broken_cluster(pointer: str, value: object, code: str) -> None:
    assert refusal(edited(GOOD, pointer, value), Cluster).code == code


def test_ranks_at_the_limit() -> None:
    def cluster(ranks: int) -> dict[str, object]:
        groups = [{**GROUP, "ranks_per_node": ranks}]
        return {"schema": "cluster/1", "node_groups": groups, "links": [_link("c", "c", "inside_node")]}

    assert _read(cluster(16_384)).num_ranks == 16_384
    error = refusal(cluster(16_385), Cluster)
    assert (error.code, error.message) == ("limit", "found 16385 ranks, expected at most 16384")


@pytest.mark.parametrize(
    "name", ["", " a", "a ", "a\x00b", "a\x1b[31m", "a\u202eb", "a\u2028b", "a\nb", "\ue000", "x" * 129]
)
def test_names_that_are_refused(name: str) -> None:
    error = refusal(edited(GOOD, "/node_groups/0/name", name), Cluster)
    assert (error.code, error.pointer) == ("name", "/node_groups/0/name")


@pytest.mark.parametrize("name", ["a b", "H100-SXM/80GB", "Knoten-ä", "节点", "x" * 128])
def test_names_that_are_accepted(name: str) -> None:
    groups = [{**GROUP, "name": name}]
    assert _read({"schema": "cluster/1", "node_groups": groups}).node_groups[0].name == name


def test_a_megabyte_of_name_is_refused_in_few_words() -> None:
    error = refusal(edited(GOOD, "/node_groups/0/name", "x" * 10**6), Cluster)
    assert error.code == "limit"
    assert len(str(error)) + len(error.pointer) < 200


def test_one_name_in_two_unicode_forms_stands_twice() -> None:
    groups = [{**GROUP, "name": "caf\u00e9"}, {**GROUP, "name": "cafe\u0301"}]
    assert refusal({"schema": "cluster/1", "node_groups": groups}, Cluster).code == "duplicate_id"


@pytest.mark.parametrize(
    ("source", "target", "tier", "code"),
    [
        ("a", "a", "inside_node", "missing_link"),
        ("a", "a", "between_nodes", "missing_link"),  # a stated link inside the nodes does not make it unreachable
        ("b", "b", "inside_node", "missing_link"),
        ("a", "b", "between_nodes", "disconnected_cluster"),
    ],
)
def test_a_link_that_ranks_need_is_missing(source: str, target: str, tier: str, code: str) -> None:
    assert refusal(_without_link(source, target, tier), Cluster).code == code


def test_parts_of_a_disconnected_cluster_are_told() -> None:
    """a has 4 ranks, b 4, c 1, d 2; a - b and c - d are joined."""
    groups = [*GOOD["node_groups"], GROUP, {**GROUP, "name": "d", "num_nodes": 2}]  # type: ignore[misc]
    links = [*GOOD["links"], _link("d", "c"), _link("d", "d")]  # type: ignore[misc]
    error = refusal({**GOOD, "node_groups": groups, "links": links}, Cluster)
    assert error.code == "disconnected_cluster"
    assert "[8, 3] ranks" in error.message


def test_a_pair_without_a_link_in_a_connected_cluster() -> None:
    value = edited(edited(GOOD, "/node_groups/-", GROUP), "/links/-", _link("c", "a"))
    error = refusal(value, Cluster)
    assert (error.code, error.message) == ("missing_link", "no usable link from node group 'b' to 'c'")


def test_a_link_of_bandwidth_zero_is_unreachable_in_its_direction() -> None:
    there = edited(GOOD, "/links/3/bandwidth_bytes_per_s", 0)
    assert refusal(there, Cluster).code == "unreachable"
    back = edited(GOOD, "/links/-", _link("b", "a", bandwidth=0))  # a -> b is fine
    error = refusal(back, Cluster)
    assert (error.code, error.message) == ("unreachable", "no usable link from node group 'b' to 'a'")


def test_links_are_directed_and_serve_both_directions_where_one_is_given() -> None:
    cluster = _read(GOOD)
    assert cluster.link("a", "b", "between_nodes") is cluster.link("b", "a", "between_nodes")
    both = _read(edited(GOOD, "/links/-", _link("b", "a", bandwidth=7)))
    back, there = both.link("b", "a", "between_nodes"), both.link("a", "b", "between_nodes")
    assert back is not None
    assert there is not None
    assert (back.bandwidth_bytes_per_s, there.bandwidth_bytes_per_s) == (7, 10**9)
    assert cluster.link("a", "b", "inside_node") is None


def test_one_device_needs_no_link() -> None:
    cluster = _read({"schema": "cluster/1", "node_groups": [GROUP]})
    assert (cluster.num_ranks, cluster.device_kinds) == (1, ("c",))


def test_links_may_be_left_out_only_where_none_is_needed() -> None:
    assert refusal(without(GOOD, "/links"), Cluster).code == "missing_link"


def test_a_complete_cluster_is_checked_in_linear_time() -> None:
    """200 node groups and all 19,900 links: once 8 x 10^8 comparisons."""
    groups = [{**GROUP, "name": f"g{number}"} for number in range(200)]
    links = [_link(f"g{one}", f"g{other}") for one in range(200) for other in range(one)]
    start = time.process_time()
    assert _read({"schema": "cluster/1", "node_groups": groups, "links": links}).num_ranks == 200
    assert time.process_time() - start < 10  # usually 0.4 s
