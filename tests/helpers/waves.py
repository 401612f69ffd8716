"""Long legal plans of waves, written without any schedule family: forwards and split backwards a fixed lead apart."""

from planner.plan.graph import LayerGraph, Node
from planner.plan.plan import MicroBatch, Plan, Stage

__all__ = ["wave_plan"]


def wave_plan(num_groups: int, num_stages: int, num_micro_batches: int) -> Plan:
    """Stages run down the groups and up again; each group takes them leg by leg, ``num_groups`` micro-batches a time.

    No G and U: 3 instructions a visit.
    """
    both = [*range(num_groups), *reversed(range(num_groups))]
    groups = [both[stage % len(both)] for stage in range(num_stages)]
    return Plan(
        schema_version="plan/1",
        problem="6f" + "0" * 62,
        precision="fp32",
        graph=LayerGraph(model="9c" + "0" * 62, num_layers=num_stages),
        nodes=(Node(node_group="nodes", device_kind="cpu", num_ranks=num_groups),),
        groups=tuple((group,) for group in range(num_groups)),
        stages=tuple(Stage(group=group, first_layer=n, end_layer=n + 1) for n, group in enumerate(groups)),
        routes=(tuple(range(num_stages)),),
        micro_batches=(MicroBatch(route=0, samples=1, cuts=(0, 64)),) * num_micro_batches,
        streams=tuple(
            _stream([stage for stage, owner in enumerate(groups) if owner == group], num_groups, num_micro_batches)
            for group in range(num_groups)
        ),
    )


def _stream(stages: list[int], num_groups: int, num_micro_batches: int) -> str:
    rounds = [
        range(first, min(num_micro_batches, first + num_groups)) for first in range(0, num_micro_batches, num_groups)
    ]
    forwards = [f"{stage}F{b}" for batches in rounds for stage in stages for b in batches]
    backwards = [f"{stage}I{b} {stage}W{b}" for batches in rounds for stage in reversed(stages) for b in batches]
    lead = min(len(forwards), num_groups * (len(stages) + 2))
    words = forwards[:lead]
    for forward, backward in zip(forwards[lead:], backwards, strict=False):
        words += [forward, backward]
    return " ".join(words + backwards[len(forwards) - lead :])
