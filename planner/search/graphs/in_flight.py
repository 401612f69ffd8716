"""The best pipeline of a layer graph: exact programme over down-sets, data ranks behind and devices, at a fixed T.

``D_T(I, s)`` = least devices for stages that hold everything outside the down-set I, with s data ranks in all, each
stage within T and memory. A stage of degree d before s ranks keeps ``ceil((s + d) / d)`` micro-batches, so with a front
point that holds y of them it may stand before up to ``(y - 1) d``. T is bisected over whole ns: every plan found lowers
the upper end to what it takes, every empty table raises the bound.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from planner.errors import Fault, InfeasibleError
from planner.plan.answer import Limit
from planner.search.graphs.contiguous import never
from planner.search.graphs.down_sets import Integers, down_sets
from planner.search.graphs.fronts import Point, all_fronts, chosen
from planner.search.graphs.pipeline import PipelineProblem, PipelineStage, stage_bytes, stage_ns
from planner.units import NS_PER_SECOND

__all__ = ["PipelineAnswer", "pipeline_answers"]

_NOT = 2**30  # devices: more than there are
_NO_LIMIT = 2**53
_FIRST_LIMIT = 1.5  # of the bound
_SLIP_NS = 1e-6  # of sums of fractions of ns
_MOST_DOWN_SETS = 2_000


class PipelineAnswer(NamedTuple):
    """The best stages so far, in order, the time of the slowest and what no plan can beat."""

    stages: tuple[PipelineStage, ...]
    value_ns: int | None
    bound_ns: int
    limit: Limit | None


def pipeline_answers(problem: PipelineProblem, *, stop: Callable[[], bool] = never) -> Iterator[PipelineAnswer]:
    """Answers, each at least as good as the one before. Raises ``InfeasibleError`` where nothing fits."""
    search = _Search(problem)
    low_ns, stages, value_ns = search.least_ns(), tuple[PipelineStage, ...](), None
    limits = iter((math.floor(_FIRST_LIMIT * low_ns), _NO_LIMIT))  # until there is a plan
    while value_ns is None or low_ns < value_ns:
        if stop():
            yield PipelineAnswer(stages, value_ns, low_ns, "wall")
            return
        limit_ns = next(limits) if value_ns is None else (low_ns + value_ns - 1) // 2
        found = search.stages_within(limit_ns)
        if found is not None:
            stages, value_ns = found, search.value_ns(found)
        elif limit_ns == _NO_LIMIT:
            raise InfeasibleError((search.why_nothing_fits(),))
        else:
            low_ns = limit_ns + 1
        yield PipelineAnswer(stages, value_ns, low_ns, None)
    yield PipelineAnswer(stages, value_ns, low_ns, "optimal")


class _Choice(NamedTuple):
    """A front, a data degree, and before how many data ranks it may stand."""

    front: int
    data: int
    most_behind: int


class _Search:
    """Down-sets and fronts, made once."""

    def __init__(self, problem: PipelineProblem) -> None:
        self._problem = problem
        place = {layer: number for number, layer in enumerate(problem.order)}
        before = [(place[read.producer], place[read.consumer]) for read in problem.reads]
        work_ns = [_least_device_ns(problem, layer) for layer in problem.order]
        sets = down_sets(before, work_ns, most=_MOST_DOWN_SETS)
        if sets is None:
            message = f"more than {_MOST_DOWN_SETS} down-sets, expected fewer"
            raise InfeasibleError((Fault("too_many_down_sets", "/reads", message),))
        self._sets = sets
        self._fronts = all_fronts(problem, sets)
        fronts = self._fronts.fronts
        self._front_work_ns = np.array([sets.work_ns[one.end] - sets.work_ns[one.first] for one in fronts])
        self._tensors = np.array([one.tensor for one in fronts])
        self._weights = np.array([one.weight_bytes for one in fronts])

    def least_ns(self) -> int:
        """Work of all layers at their cheapest, over all devices."""
        return int(self._sets.work_ns[-1]) // self._problem.num_devices

    def value_ns(self, stages: tuple[PipelineStage, ...]) -> int:
        """Of the slowest stage, counted anew from the definition; rounded up."""
        return math.ceil(max(stage_ns(self._problem, stage) for stage in stages) - _SLIP_NS)

    def stages_within(self, limit_ns: int) -> tuple[PipelineStage, ...] | None:
        """Stages that take at most ``limit_ns`` each, on the fewest devices; None: there are none."""
        size = self._problem.num_devices + 1
        need = np.full((self._sets.num_sets, size), _NOT, np.int64)
        taken = np.zeros((self._sets.num_sets, size), np.int64)
        need[-1, 0] = 0
        choices = self._choices(limit_ns)
        for number, choice in enumerate(choices):
            front = self._fronts.fronts[choice.front]
            length = min(choice.most_behind + 1, size - choice.data)
            found = need[front.end, :length] + choice.data * front.tensor
            row = slice(choice.data, choice.data + length)
            better = found < need[front.first, row]
            need[front.first, row][better] = found[better]
            taken[front.first, row][better] = number
        behind = int(need[0].argmin())
        if need[0, behind] > self._problem.num_devices:
            return None
        return self._walk(choices, taken, behind, limit_ns)

    def _choices(self, limit_ns: int) -> list[_Choice]:
        """All that can be part of a plan within the limit, later down-sets first."""
        fronts, memory_bytes = self._fronts, self._problem.memory_bytes
        spare_ns = self._problem.num_devices * limit_ns - self._sets.work_ns[-1]
        held = (memory_bytes - fronts.fixed_bytes) // np.maximum(fronts.kept_bytes, 1)
        held[fronts.kept_bytes == 0] = self._problem.num_devices + 1
        found = []
        for data in self._problem.data_degrees:
            fits = self._point_ns(data) <= limit_ns + _SLIP_NS
            in_flight = np.maximum.reduceat(np.where(fits, held, 0), fronts.starts)
            used_ns = data * self._tensors * limit_ns
            for front in np.flatnonzero((in_flight > 0) & (used_ns <= self._front_work_ns + spare_ns)):
                found.append(_Choice(int(front), data, int((in_flight[front] - 1) * data)))
        return sorted(found, key=lambda choice: (-choice.front, choice.data))

    def _point_ns(self, data: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Time of every front point on ``data`` data ranks."""
        ns_per_byte = NS_PER_SECOND / self._problem.bandwidth_bytes_per_s
        summed = 4 * (data - 1) * self._weights / (data * self._problem.num_micro_batches) * ns_per_byte
        lengths = np.diff(np.append(self._fronts.starts, len(self._fronts.time_ns)))
        return np.asarray(self._fronts.time_ns / data + np.repeat(summed, lengths))

    def _walk(self, choices: list[_Choice], taken: Integers, behind: int, limit_ns: int) -> tuple[PipelineStage, ...]:
        place, stages = 0, []
        while place < self._sets.num_sets - 1:
            choice = choices[taken[place, behind]]
            behind -= choice.data
            stages.append(self._stage(choice, behind, limit_ns))
            place = self._fronts.fronts[choice.front].end
        return tuple(stages)

    def _stage(self, choice: _Choice, behind: int, limit_ns: int) -> PipelineStage:
        """With the quickest choices that fit before ``behind`` data ranks."""
        fronts, problem = self._fronts, self._problem
        front = fronts.fronts[choice.front]
        in_flight = -(-(behind + choice.data) // choice.data)
        first = fronts.starts[choice.front]
        end = fronts.starts[choice.front + 1] if choice.front + 1 < len(fronts.fronts) else len(fronts.time_ns)
        fits = fronts.kept_bytes[first:end] * in_flight + fronts.fixed_bytes[first:end] <= problem.memory_bytes
        at = first + int(np.flatnonzero(fits)[0])  # quickest first
        point = Point(float(fronts.time_ns[at]), int(fronts.kept_bytes[at]), int(fronts.fixed_bytes[at]))
        layers = tuple(problem.order[vertex] for vertex in self._sets.between(front.first, front.end))
        stage = PipelineStage(layers, chosen(problem, layers, front.tensor, point), front.tensor, choice.data)
        assert stage_bytes(stage, later_data=behind) <= problem.memory_bytes, "memory is part of the programme"
        assert stage_ns(problem, stage) <= limit_ns + 2 * _SLIP_NS, "the limit too"
        return stage

    def why_nothing_fits(self) -> Fault:
        """A layer that fits nowhere, or what the least of all layers is."""
        problem = self._problem
        for number, layer in enumerate(problem.layers):
            least = min(choice.kept_bytes + choice.fixed_bytes for choice in layer.choices)
            if least > problem.memory_bytes:
                short = f"{least - problem.memory_bytes} bytes short"
                message = f"layer {layer.name!r} needs {least} bytes, a device has {problem.memory_bytes}, {short}"
                return Fault("memory", f"/layers/{number}", message)
        message = f"no stages on {problem.num_devices} devices of {problem.memory_bytes} bytes hold all layers"
        return Fault("memory", "/layers", message)


def _least_device_ns(problem: PipelineProblem, layer: int) -> int:
    """Time x devices of the cheapest choice."""
    return min(choice.time_ns * choice.tensor for choice in problem.layers[layer].choices)
