"""A case of every schedule family for the executor's tests; lists as in ``executor_cases.CASES``."""

from typing import Any

from tests.helpers.executor_cases import CASES, EXTRA_CASES, NUM_LAYERS

__all__ = ["SHARED_CASES", "SPLIT_CASES"]


def _line_case(family: str, num_ranks: int) -> dict[str, Any]:
    """Stage s on rank s."""
    width = NUM_LAYERS // num_ranks
    stages = [(rank, rank * width, (rank + 1) * width, 1) for rank in range(num_ranks)]
    return _split_case(family, num_ranks, stages)


def _v_case(family: str, num_ranks: int) -> dict[str, Any]:
    """Down the ranks and up again."""
    width = NUM_LAYERS // (2 * num_ranks)
    groups = [*range(num_ranks), *reversed(range(num_ranks))]
    stages = [(group, place * width, (place + 1) * width, 1) for place, group in enumerate(groups)]
    return _split_case(family, num_ranks, stages)


def _split_case(family: str, num_ranks: int, stages: list[tuple[int, int, int, int]]) -> dict[str, Any]:
    return {
        "family": family,
        "groups": [[rank] for rank in range(num_ranks)],
        "stages": stages,
        "routes": [list(range(len(stages)))],
        "batches": [(0, 4 // num_ranks)] * 2 * num_ranks,
    }


# visits with an I and a W
SPLIT_CASES: dict[str, dict[str, Any]] = {
    f"{num_ranks} ranks {family}": make(family, num_ranks)
    for num_ranks in (2, 4)
    for family, make in {
        "zb-h1": _line_case,
        "zb-h2": _line_case,
        "zb-v": _v_case,
        "v-half": _v_case,
        "v-min": _v_case,
        "dualpipe-v": _v_case,
    }.items()
} | {
    "zb-v, recompute without R": _v_case("zb-v", 2) | {"recompute": [0, 1, 3, 4, 7]},
    "zb-v, recompute with R": _v_case("zb-v", 2) | {"recompute": [0, 1, 3, 4, 7], "restore": True},
    "zb-h1, data 2 into 1, uneven micro-batches": EXTRA_CASES["data 2 into 1, uneven micro-batches"]
    | {"family": "zb-h1"},
    "zb-h1, unequal routes 3:1": CASES["3 ranks as unequal routes 3:1"] | {"family": "zb-h1"},
}


def _two_route_case(family: str, num_ranks: int, *, legs: int) -> dict[str, Any]:
    """Two mirrored routes of ``legs`` down and up over all ranks: every layer has two copies."""
    ranks = list(range(num_ranks))
    down = (ranks + ranks[::-1])[: legs * num_ranks]
    width = NUM_LAYERS // len(down)
    places = [*enumerate(down), *((place, num_ranks - 1 - group) for place, group in enumerate(down))]
    stages = [(group, place * width, (place + 1) * width, 1) for place, group in places]
    halves = [list(range(len(down))), list(range(len(down), 2 * len(down)))]
    batches = [(number % 2, 4 // num_ranks) for number in range(2 * num_ranks)]
    return _split_case(family, num_ranks, stages) | {"routes": halves, "batches": batches}


# families whose groups hold stages of two routes, whole and split in place; waves
SHARED_CASES: dict[str, dict[str, Any]] = {
    "2 ranks chimera": _two_route_case("chimera", 2, legs=1),
    "4 ranks chimera": _two_route_case("chimera", 4, legs=1),
    "4 ranks chimera, split": _two_route_case("chimera", 4, legs=1) | {"split": True},
    "2 ranks bitpipe": _two_route_case("bitpipe", 2, legs=2),
    "4 ranks bitpipe": _two_route_case("bitpipe", 4, legs=2),
    "2 ranks bitpipe, split": _two_route_case("bitpipe", 2, legs=2) | {"split": True},
    "2 ranks wave of 8 stages": _split_case("wave", 2, [(g, n, n + 1, 1) for n, g in enumerate([0, 1, 1, 0] * 2)]),
    "4 ranks wave of 8 stages": _v_case("wave", 4),
}
