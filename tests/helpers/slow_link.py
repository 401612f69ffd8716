"""A problem on which every named order of a line is beaten: tests/search/test_reorder.py works it out by hand."""

from planner.problem.options import Constraints
from planner.problem.problem import Problem
from tests.helpers.documents import make_cluster, make_problem, make_profile, make_workload

__all__ = ["MADE_NS", "NAMED_NS", "ONE_LINE", "slow_link"]

_MS = 1_000_000
NAMED_NS = 14 * _MS + 44
MADE_NS = 12 * _MS + 44
ONE_LINE = Constraints(
    data_degrees=(1,), num_stages=2, families=("1f1b", "gpipe"), recompute=("none",), micro_batch_sizes=(1,)
)


def slow_link(usable_bytes: int = 57_000) -> Problem:
    """Two layers of 1 ms forward and backward, a message of 1 ms and 11 ns, 4 micro-batches, memory for three."""
    profile = make_profile(
        layer_forward_ns=[_MS] * 2, layer_backward_ns=[_MS] * 2, saved_bytes=10_000, output_bytes=1_000
    )
    cluster = make_cluster(usable_bytes=usable_bytes, latency_ns=_MS - 1_000)
    return make_problem(profiles=[profile], cluster=cluster, workload=make_workload(global_batch_size=4))
