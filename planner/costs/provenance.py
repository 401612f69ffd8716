"""Which price is the least trustworthy: the worst of its parts is a plan's ``prediction.costs``.

Order of trust (cost model, fallback table): measured, interpolated, shrunk, roofline-measured, roofline-catalogue,
scaled from another device kind.
"""

from collections.abc import Iterable

__all__ = ["worst_provenance"]

_ORDER = ("measured", "interpolated", "shrunk", "roofline-measured", "roofline-catalogue", "scaled")


def worst_provenance(tags: Iterable[str]) -> str:
    """The least trustworthy tag; of several scaled ones the first in the alphabet. No tag: ``measured``."""
    return max(sorted(set(tags), reverse=True), key=_rank, default="measured")


def _rank(tag: str) -> int:
    return _ORDER.index(tag.partition(":")[0])
