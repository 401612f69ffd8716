"""One plan of a space before it is written out: which stage on which devices, in which family."""

from typing import NamedTuple

from planner.problem.options import Family
from planner.search.devices import Block
from planner.search.orders import chain_groups
from planner.search.space import Space

__all__ = ["Candidate", "Choice", "blocks_of"]


class Choice(NamedTuple):
    """One stage."""

    device_class: int
    recomputes: bool
    first_layer: int
    end_layer: int


class Candidate(NamedTuple):
    """Stages in order, on the groups that the family wants; all stages of a group on one device class."""

    family: Family
    num_groups: int
    stages: tuple[Choice, ...]

    @property
    def classes(self) -> tuple[int, ...]:
        """The device class of each group: the first stages of a route lie on groups 0, 1, 2 ..."""
        return tuple(stage.device_class for stage in self.stages[: self.num_groups])

    @property
    def groups(self) -> tuple[int, ...]:
        """The group of each stage."""
        return chain_groups(self.family, self.num_groups, len(self.stages))


def blocks_of(space: Space, classes: tuple[int, ...]) -> tuple[Block, ...]:
    """The block of each group: those of a class are used in order."""
    used = [0] * len(space.classes)
    found = []
    for device_class in classes:
        found.append(space.classes[device_class].blocks[used[device_class]])
        used[device_class] += 1
    return tuple(found)
