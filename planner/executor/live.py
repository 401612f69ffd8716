"""The weights of this rank and their optimizer: made once, shared by all plans that run on them in turn.

Plans with equal placement may take turns (docs/plan-contract.md section 5): what one leaves in the gradients the next
one finds there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.errors import ExecutorError, HandshakeError
from planner.executor.facts import Facts, Wish
from planner.executor.materialise import Held, hold_layers, share_first_values
from planner.executor.team import Circle, Team
from planner.executor.weights import WeightTable

__all__ = ["Live", "make_live", "require_equal_placement", "trained_parameters"]


@dataclass
class Live:
    """``kept_counted``: what losses of gradients that no update has taken yet were divided by; 0: there are none."""

    held: Held
    optimizer: Optimizer
    table: WeightTable
    kept_counted: int = 0

    @property
    def tensors(self) -> dict[str, Tensor]:
        """This rank's parameters and buffers by global name."""
        return {**self.held.parameters, **self.held.buffers}

    def require_no_gradients(self) -> None:
        """A checkpoint does not hold gradients. Raises ``ExecutorError`` where some wait for an update."""
        if self.kept_counted:
            message = "found gradients that no update has taken yet, expected none: save and load after the update"
            raise ExecutorError(message, code="kept_gradients")


def make_live(wish: Wish, facts: Facts, team: Team, *, circles: dict[tuple[int, ...], Circle]) -> Live:
    """Every rank calls it; a shared weight begins with the values of its first holder."""
    stages = (stage for stage in wish.plan.stages if team.rank in wish.plan.groups[stage.group])
    own = frozenset(layer for stage in stages for layer in stage.layers)
    held = hold_layers(wish.model, facts.cut, held=own, device=team.device, seed=wish.seed)
    share_first_values(facts.table, {**held.parameters, **held.buffers}, team, circles=circles)
    _freeze_untrained(facts, held.parameters)
    parameters = list(trained_parameters(facts.table, held, rank=team.rank).values())
    # a rank that trains nothing gets an empty weight, so that its optimizer and schedulers exist as everywhere
    optimizer = wish.optimizer_factory(parameters or [nn.Parameter(torch.zeros(0, device=team.device))])
    return Live(held, optimizer, facts.table)


def trained_parameters(table: WeightTable, held: Held, *, rank: int) -> dict[str, nn.Parameter]:
    """Of a rank, by global name."""
    return {weight.name: held.parameters[weight.name] for weight in table.trained_by(rank)}


def require_equal_placement(before: WeightTable, after: WeightTable) -> None:
    """Raises ``HandshakeError`` naming a weight that ``after`` holds elsewhere, or trains where ``before`` does not."""
    for name, weight in before.weights.items():
        other = after.weights[name]
        if (weight.holders, weight.trained) != (other.holders, other.trained):
            raise HandshakeError(
                f"found {name!r} on ranks {other.holders}, trained: {other.trained}; expected ranks {weight.holders}, "
                f"trained: {weight.trained}, as in the plan before: plans that take turns have equal placement",
                code="placement",
                pointer=name,
            )


def _freeze_untrained(facts: Facts, parameters: Mapping[str, nn.Parameter]) -> None:
    """A stage that the plan visits without weight gradients is frozen, whatever the model says."""
    for name, parameter in parameters.items():
        if not facts.table.weights[name].trained:
            parameter.requires_grad_(False)
