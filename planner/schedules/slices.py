"""Token slices on a line: TeraPipe (all forwards first) and Seq1F1B (one forward, one backward, in slices).

Method: TeraPipe (Li et al. 2021, arXiv 2102.07988), Seq1F1B (Sun et al. 2024, arXiv 2406.03488). Slices go forward in
order and backward in reverse: the gradient of a slice's keys and values is whole after all later slices. Equal lengths
by ``num_slices``, solved ones by ``cuts`` (``planner.schedules.slice_lengths``).
"""

from planner.schedules.family import FamilyShape, FamilySpec, PlanLists
from planner.schedules.gpipe import gpipe
from planner.schedules.one_f_one_b import one_f_one_b
from planner.schedules.placements import line, one_route
from planner.schedules.shape import Shape

__all__ = ["SEQ_1F1B", "TERAPIPE"]

_DEFAULT_SLICES = 4
_OPTIONS = frozenset({"num_slices", "cuts"})


def _terapipe(shape: FamilyShape) -> PlanLists:
    whole = _with_slices(shape)
    return one_route(whole, line(shape.num_groups), gpipe(_line_shape(whole)))


def _seq_1f1b(shape: FamilyShape) -> PlanLists:
    whole = _with_slices(shape)
    return one_route(whole, line(shape.num_groups), one_f_one_b(_line_shape(whole)))


def _with_slices(shape: FamilyShape) -> FamilyShape:
    cuts = shape.cuts or tuple(range((shape.num_slices or _DEFAULT_SLICES) + 1))
    return FamilyShape(shape.num_groups, shape.num_micro_batches, cuts=cuts)


def _line_shape(shape: FamilyShape) -> Shape:
    assert shape.cuts is not None
    return Shape(shape.num_groups, shape.num_groups, (len(shape.cuts) - 1,) * shape.num_micro_batches)


def _refuse(shape: FamilyShape) -> str | None:
    if shape.cuts is None:
        return None
    if shape.num_slices is not None:
        return "found num_slices and cuts, expected one of them"
    if len(shape.cuts) < 2 or shape.cuts[0] != 0 or list(shape.cuts) != sorted(set(shape.cuts)):
        return f"found cuts {list(shape.cuts[:16])}, expected ascending numbers from 0"
    return None


TERAPIPE = FamilySpec(
    name="terapipe",
    summary="GPipe in token slices: the bubble divided by them; keeps every micro-batch",
    source="Li et al. 2021, arXiv 2102.07988",
    placement="line",
    build=_terapipe,
    refuse=_refuse,
    options=_OPTIONS,
)
SEQ_1F1B = FamilySpec(
    name="seq1f1b",
    summary="1F1B in token slices: the bubble divided by them; keeps (p-d+n-1)/n micro-batches",
    source="Sun et al. 2024, arXiv 2406.03488",
    placement="line",
    build=_seq_1f1b,
    refuse=_refuse,
    options=_OPTIONS,
)
