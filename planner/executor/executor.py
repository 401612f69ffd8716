"""Apply a plan to a torch model: ``Executor(...).step(batch)`` runs one training step on this rank's part.

The executor decides nothing: the lowered lists of the plan say what each rank does, and all ranks agree on plan,
model, shapes and sums before anything runs. The caller owns processes, loop, data and optimizer.
"""

import copy
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from planner.errors import CheckpointError, ExecutorError, PeerLostError, PlannerError
from planner.executor.checkpoints.keeper import make_keeper
from planner.executor.checkpoints.load import HALF_LOADED
from planner.executor.checkpoints.rank_state import Progress
from planner.executor.current import emulation_asked
from planner.executor.ending import Ending
from planner.executor.evaluation import without_dropout
from planner.executor.facts import Wish
from planner.executor.guard import Guard
from planner.executor.intake import Intake
from planner.executor.live import Live, require_equal_placement
from planner.executor.measure import Measurement
from planner.executor.messages import ConnectionLostError
from planner.executor.preparation import agree, prepare
from planner.executor.program import Program
from planner.executor.results import StepResult
from planner.executor.saving import save_tensors
from planner.executor.support import refuse_stale, refuse_unsupported
from planner.executor.team import Team, make_team
from planner.executor.teardown import at_end
from planner.executor.update import Outcome, checked_norm
from planner.plan.plan import Plan
from planner.schedules.deadlock import instruction_text
from planner.units import NS_PER_SECOND

__all__ = ["Executor"]

_LEAST_LIMIT_SECONDS = 60.0
_FIRST_LIMIT_SECONDS = 600.0  # nothing measured yet
_LIMIT_FACTOR = 10
_KEPT_STEPS = 50
_FILES_LIMIT_SECONDS = 3600.0  # to save or load a checkpoint

_numbers: Counter[str] = Counter()  # executors of this process by group: all its ranks make them in the same order


class Executor:
    """One rank's part of a plan.

    ``model``: real (its weights are kept) or on meta (made by ``seed`` and global name). ``loss(output, labels)`` is a
    sum over the samples it is given, ``count(labels)`` what the step's loss is divided by, asked for the whole global
    batch before anything runs. ``cut``: what the profiler was given. ``emulate``: run a plan for other devices.
    ``most_stale``: the caller accepts that a backward is that many updates late (asynchronous plans).
    ``max_gradient_norm``: gradients whose norm over the whole model is larger are scaled down to it.
    """

    def __init__(  # noqa: PLR0913  # the embedding interface: docs/executor.md
        self,
        plan: Plan,
        model: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        count: Callable[[Tensor], int],
        optimizer_factory: Callable[[Iterable[nn.Parameter]], Optimizer],
        process_group: dist.ProcessGroup | None = None,
        cut: Sequence[str] | None = None,
        seed: int = 0,
        emulate: bool = False,
        most_stale: int = 0,
        max_gradient_norm: float | None = None,
    ) -> None:
        emulate, most_norm = emulate or emulation_asked(), checked_norm(max_gradient_norm)
        self._wish = Wish(plan, model, loss, optimizer_factory, cut, seed, emulate, most_stale, most_norm)
        if process_group is None and not dist.is_initialized():
            refuse_unsupported(plan)  # alone: nobody else has to hear it
            refuse_stale(plan, most_stale)
        self._team = make_team(plan, process_group, model=model)
        self._start(plan, count, None)

    def _start(self, plan: Plan, count: Callable[[Tensor], int], live: Live | None) -> None:
        """Agree with all ranks on ``plan`` and get ready for it."""
        self.plan, wish = plan, replace(self._wish, plan=plan)
        number = _next_number(self._team)
        facts = agree(wish, self._team, name=f"handshake/{number}")
        if live is not None:
            require_equal_placement(live.table, facts.table)
        self._ready = prepare(wish, facts, self._team, name=f"circles/{number}", live=live)
        self._intake = Intake(count, self._ready, rank=self._team.rank)
        self._guard = Guard(self._team, f"guard/{number}")
        self._end = at_end(self, Ending(self._guard, self._ready.tools.recorder).run)
        self._durations: deque[float] = deque(maxlen=_KEPT_STEPS)
        self._measurement: Measurement | None = None
        self._broken: str | None = None
        self._stopped = False
        if live is None:  # plans in turn are one run
            self._keeper = make_keeper(plan, self._team, self._ready)
            self._keeper.begin_as_asked(self.load)

    @property
    def progress(self) -> Progress:
        """Steps done and samples seen, also before a restart: where the data goes on."""
        return self._keeper.progress

    @property
    def optimizer(self) -> Optimizer:
        """This rank's optimizer, for schedulers of the learning rate."""
        return self._ready.optimizer

    @property
    def rank(self) -> int:
        return self._team.rank

    def parameters(self) -> dict[str, nn.Parameter]:
        """This rank's weights by global name."""
        return {name: tensor for name, tensor in self._ready.tensors.items() if isinstance(tensor, nn.Parameter)}

    def following(self, plan: Plan) -> "Executor":
        """An executor for another plan on the same live weights and optimizer; both may step in turn.

        Where ``plan`` places weights as this one's plan does, it goes on with the gradients that steps without an
        update have left. Raises ``HandshakeError`` (placement) where it does not.
        """
        self._require_whole()
        self._collect()
        found = copy.copy(self)
        found._start(plan, self._intake.count, self._ready.live)
        return found

    def step(self, batch: tuple[Tensor, Tensor], counted: int | None = None) -> StepResult:
        """One update from the global ``batch`` (inputs, labels), the same on every rank.

        A plan without updates leaves its gradients to the next step; ``counted`` is then what the loss of all steps up
        to the update is divided by.
        Raises ``ExecutorError`` where this rank fails, ``PeerLostError`` where another one did; both end the executor.
        """
        if self._stopped:
            raise ExecutorError("told to stop: the step before was the last", code="terminated")
        recorder, sums, live = self._ready.tools.recorder, self._ready.tools.sums, self._ready.live
        self._collect()
        with self._call(
            self._ready.step, partial(self._intake.take_step, batch, counted, num_seen=self.progress.samples)
        ):
            sums.go_on() if live.kept_counted else sums.begin()
            recorder.begin()
            started = time.monotonic()
            self._run(self._ready.step)
            self._durations.append(time.monotonic() - started)
            live.kept_counted = self._ready.tools.batch.num_counted if self._ready.keeps_gradients else 0
            self._measurement = recorder.end()
        outcome = self._outcome()
        self._stopped = outcome.stop
        if live.kept_counted:
            self._keeper.progress = self.progress.within(len(batch[0]))
        else:
            self._keeper.progress = self.progress.after(len(batch[0]))
            self._keeper.save_when_due(self.save, is_last=outcome.stop)
        return StepResult(*outcome, self._measurement)

    def evaluate(self, batch: tuple[Tensor, Tensor]) -> float:
        """The loss of ``batch`` without dropout and without a backward."""
        self._collect()
        take = partial(self._intake.take, batch)
        with without_dropout(self._ready.modules), self._call(self._ready.evaluation, take):
            self._ready.tools.recorder.begin()
            self._run(self._ready.evaluation)
        return self._outcome().loss

    def save_weights(self, path: str | Path) -> None:
        """One safetensors file that loads into the unsplit model strictly; every rank calls it."""
        self._require_whole()
        self._collect()
        save_tensors(Path(path), self._ready.saved, self._ready.tensors, team=self._team)

    def save(self, directory: str | Path, *, keep: int | None = None) -> Path:
        """A checkpoint in ``directory``, complete or not there at all; of all in it the newest ``keep`` stay.

        Every rank calls it between two steps. Raises ``CheckpointError`` on all ranks; the run may go on.
        """
        self._ready.live.require_no_gradients()
        with self._files(f"SAVE into {directory}"):
            return self._keeper.save(Path(directory), keep=keep)

    def load(self, directory: str | Path) -> Path:
        """Go on from the checkpoint ``directory``, or the newest complete one in it, whatever plan it was saved under.

        Every rank calls it between two steps. Raises ``CheckpointError`` on all ranks, nothing is changed then.
        """
        self._ready.live.require_no_gradients()
        with self._files(f"LOAD from {directory}"):
            return self._keeper.load(Path(directory))

    def close(self) -> None:
        """Nothing runs afterwards; the process group stays the caller's."""
        try:
            self._collect()
        finally:
            self._end()
            self._broken = "it was closed"

    def _outcome(self) -> Outcome:
        outcome = self._ready.tools.update.outcome
        assert outcome is not None, "every list agrees on a loss"
        return outcome

    def _run(self, program: Program) -> None:
        guard = self._guard
        for place, action in enumerate(program.actions):
            guard.place = place
            action()

    @contextmanager
    def _call(self, program: Program, take: Callable[[], None]) -> Iterator[None]:
        """Take the batch in, and make every failure known to the other ranks."""
        self._require_whole()
        self._guard.begin(program.texts, limit_seconds=self._limit_seconds())
        try:
            take()
        except PlannerError as error:
            self._guard.report(error, final=False)
            self._guard.end()
            raise
        with self._watched():
            yield

    @contextmanager
    def _files(self, text: str) -> Iterator[None]:
        """Save or load, known to the other ranks as ``text``."""
        self._require_whole()
        self._collect()
        self._guard.begin((text,), limit_seconds=_FILES_LIMIT_SECONDS)
        with self._watched():
            yield

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Every failure is made known to the other ranks, unless all of them have it already."""
        try:
            yield
        except CheckpointError as error:
            if error.code == HALF_LOADED:
                self._broken = "a checkpoint was loaded in part"
            raise
        except ConnectionLostError as error:
            self._broken = "a rank was lost"
            suspect, owed = self._other_end(error)
            raise self._guard.lost(suspect, owed) from error
        except BaseException as error:
            self._broken = "a step failed"
            self._guard.report(error, final=True)
            if isinstance(error, PlannerError) or not isinstance(error, Exception):
                raise
            message = f"{type(error).__name__} in {self._guard.instruction} on rank {self._team.rank}: {error}"
            raise ExecutorError(message, code="instruction_failed") from error
        finally:
            self._guard.end()
            if self._broken is not None:
                self._ready.tools.office.forget()

    def _other_end(self, error: ConnectionLostError) -> "_OtherEnd":
        """Of a broken transfer: the other rank, and the instruction whose data this rank waited for."""
        message = error.message
        if message is None:
            return _OtherEnd(error.suspect, None)
        if message.sender == self._team.rank:
            return _OtherEnd(message.receiver, None)
        writer = self._ready.writers[message.tag]
        return _OtherEnd(message.sender, instruction_text(self.plan, writer))

    def _limit_seconds(self) -> float:
        if self._durations:
            return max(_LEAST_LIMIT_SECONDS, _LIMIT_FACTOR * median(self._durations))
        predicted = self.plan.prediction.step_ns / NS_PER_SECOND if self.plan.prediction is not None else 0.0
        return max(_FIRST_LIMIT_SECONDS, _LIMIT_FACTOR * predicted)

    def _require_whole(self) -> None:
        if self._broken is not None:
            raise ExecutorError(f"this executor cannot go on: {self._broken}", code="broken")

    def _collect(self) -> None:
        """The notes of the step before are here: no transfer of two calls is under way at once."""
        if self._measurement is None or self._broken is not None:
            return
        try:
            with self._guard.between_calls():
                self._measurement.wait()
        except PeerLostError as error:
            self._broken = "a rank was lost"
            raise self._guard.lost(None, None) from error


def _next_number(team: Team) -> int:
    group = team.group.group_name if team.group is not None else ""
    _numbers[group] += 1
    return _numbers[group]


class _OtherEnd(NamedTuple):
    rank: int | None
    owed: str | None
