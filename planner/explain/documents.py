"""What is said about a plan: ``explanation/1`` and ``revalidation/1``, for the command line and the service alike."""

from typing import Annotated, Literal

from pydantic import Field

from planner.plan.plan import Plan
from planner.problem.contract import Bytes, Contract, Digest, FiniteFloat, Index, Many, Nanoseconds

__all__ = ["Alternative", "Binding", "Explanation", "Move", "Revalidation", "Share", "WhatIf"]

_Text = Annotated[str, Field(max_length=1024)]


class Share(Contract):
    """A part of the critical path; all shares together are the step."""

    kind: Literal["compute", "message", "sum", "update"]
    group: Index | None = None  # that computes or sends
    to_group: Index | None = None  # that receives
    stage: Index | None = None
    time_ns: Nanoseconds
    share: FiniteFloat  # of the step


class Binding(Contract):
    """One thing that keeps the step from being shorter, the dearest first; ``cost_ns`` is what it costs at the most."""

    code: Literal["stage", "uneven_stages", "heavy_layer", "link", "few_micro_batches", "memory", "sum", "update"]
    message: _Text
    cost_ns: Nanoseconds | None = None  # None: it costs no time, it limits what else could be done
    group: Index | None = None
    stage: Index | None = None
    layer: Index | None = None
    need_bytes: Bytes | None = None
    have_bytes: Bytes | None = None


class WhatIf(Contract):
    """The step under another condition, the plan being the same.

    For memory: the best plan near it that needs more than today's, and its gain over the best that fits today.
    """

    change: _Text
    step_ns: Nanoseconds
    gain: FiniteFloat  # (step - step_ns) / step; for memory only what today's memory forbids


class Alternative(Contract):
    """A plan near this one; ``short_bytes``: by how much its fullest group exceeds its limit, 0 where it fits."""

    change: _Text
    step_ns: Nanoseconds
    gain: FiniteFloat
    short_bytes: Bytes


class Explanation(Contract):
    """Why the step of a plan is as long as it is."""

    schema_version: Literal["explanation/1"] = Field(alias="schema")
    plan: Digest
    problem: Digest
    step_ns: Nanoseconds
    bubble: FiniteFloat
    critical_path: Many[Share]
    bindings: Many[Binding]
    what_if: Many[WhatIf]
    alternatives: Many[Alternative]
    not_priced: Many[_Text]  # changes that the profiles cannot price, with the reason


class Move(Contract):
    """What it takes to go from one plan to another: weights and optimizer state that ranks do not have yet."""

    moved_bytes: Bytes
    from_checkpoint_bytes: Bytes  # that no rank of the old plan holds any more
    moving_ns: Nanoseconds  # over the links of the cluster, ranks at the same time; without restarting the job


class Revalidation(Contract):
    """Keep a plan, or look for another one."""

    schema_version: Literal["revalidation/1"] = Field(alias="schema")
    plan: Digest
    problem: Digest  # the new one
    verdict: Literal["keep", "replan"]
    code: Literal["fits_best", "small_gain", "late_gain", "gain", "memory", "missing_nodes", "not_priced", "slower"]
    message: _Text
    step_ns: Nanoseconds | None  # of this plan under the new facts; None: it cannot run or be priced
    stated_step_ns: Nanoseconds | None  # as the plan predicted itself
    new_plan: Plan | None
    new_step_ns: Nanoseconds | None
    gain: FiniteFloat | None
    move: Move | None
    even_after_steps: Index | None  # steps after which the move has paid
    smallest_gain: FiniteFloat
    steps_left: Index
