"""One executor's checkpoints: where its run stands, and which checkpoints are its own."""

import logging
from collections.abc import Callable
from pathlib import Path

from planner.errors import CheckpointError
from planner.executor.checkpoints.folder import NO_CHECKPOINT, require_own
from planner.executor.checkpoints.load import fill, find_checkpoint
from planner.executor.checkpoints.rank_state import Progress, RankState
from planner.executor.checkpoints.save import save_checkpoint
from planner.executor.current import CheckpointWish, asked_checkpoints
from planner.executor.preparation import Ready
from planner.executor.team import Team
from planner.plan.plan import Plan
from planner.problem.contract import Digest

__all__ = ["Keeper", "make_keeper"]

_log = logging.getLogger(__name__)


class Keeper:
    """``progress``: what the run has done, over all its restarts."""

    def __init__(self, state: RankState, wish: CheckpointWish | None) -> None:
        self.progress = Progress()
        self._state, self._wish = state, wish
        self._known: frozenset[Digest] = frozenset()  # written by this run, or the one that it continues

    def save(self, root: Path, *, keep: int | None) -> Path:
        """Every rank calls it between two steps. Raises ``CheckpointError`` on all ranks."""
        saved = save_checkpoint(root, self._state, self.progress, known=self._known, keep=keep)
        self._known |= {saved.digest}
        return saved.path

    def begin_as_asked(self, load: Callable[[Path], Path]) -> None:
        """What ``planner run --resume`` wants; a folder without a checkpoint is a run's beginning.

        Without it the folder must have none: refused before the first step, not at the first save.
        """
        if self._wish is None:
            return
        if not self._wish.resume:
            require_own(self._wish.folder, self._known)
            return
        try:
            self._say(logging.INFO, f"going on from {load(self._wish.folder)}, {self.progress.steps} steps done")
        except CheckpointError as error:
            if error.code != NO_CHECKPOINT:
                raise
            self._say(logging.WARNING, f"{error.message}: starting at step 0")

    def save_when_due(self, save: Callable[..., Path], *, is_last: bool) -> None:
        """What ``planner run --save-every`` wants after a step; ``is_last``: the run was told to stop."""
        wish = self._wish
        if wish is None or wish.save_every is None:
            return
        if is_last or self.progress.steps % wish.save_every == 0:
            self._say(logging.INFO, f"saved {save(wish.folder, keep=wish.keep)}")

    def load(self, root: Path) -> Path:
        """Every rank calls it between two steps. Raises ``CheckpointError`` on all ranks."""
        found = find_checkpoint(root, self._state)
        self.progress = fill(found, self._state)
        self._known = frozenset({found.manifest.digest})
        return found.path

    def _say(self, level: int, text: str) -> None:
        if self._state.team.rank == 0:
            _log.log(level, "%s", text)


def make_keeper(plan: Plan, team: Team, ready: Ready) -> Keeper:
    """Of the executor that is prepared so, with what ``planner run`` said."""
    weights = {saved.weight.name: saved.weight for saved in ready.saved}
    state = RankState(plan, team, tuple(weights.values()), ready.tensors, ready.optimizer)
    return Keeper(state, asked_checkpoints())
