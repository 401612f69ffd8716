"""Failure of one rank made known to all, with the name of the instruction.

The first failing rank writes an abort record into the shared store; a thread on every rank reads it, writes where its
own rank stands, and ends the process where the main thread stays inside a blocking call. A rank that dies without a
word is found by its silence: its last note says what it was doing.
"""

import faulthandler
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from planner.errors import PeerLostError
from planner.executor.team import Team

__all__ = ["EXIT_PEER_LOST", "Failure", "Guard"]

EXIT_PEER_LOST = 75  # EX_TEMPFAIL of sysexits.h: another try may succeed
_TICK_SECONDS = 0.5
_GRACE_SECONDS = 3.0  # for the main thread to come out by itself
_RECORD_SECONDS = 1.0  # for another rank to say why it closed its connections
_SILENCE_SECONDS = 5.0  # until one rank alone is silent
_LOOK_AGAIN_SECONDS = 0.05
_IDLE = "nothing"

_log = logging.getLogger(__name__)


class Failure(NamedTuple):
    """The abort record. ``call`` counts calls of step and evaluate; a failure that is not final ends one call only."""

    rank: int
    call: int
    instruction: str
    error: str
    final: bool

    @property
    def text(self) -> str:
        return f"rank {self.rank} failed in {self.instruction} of call {self.call}: {self.error}"


class Guard:
    """``place`` is the place in the list that the main thread works on."""

    def __init__(self, team: Team, name: str) -> None:
        self.place = 0
        self._team = team
        self._store = team.store(name) if team.group is not None and team.num_ranks > 1 else None
        self._texts: Sequence[str] = ()
        self._call = -1
        self._inside = False
        self._deadline = float("inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="planner-guard", daemon=True)
        if self._store is not None:
            self._thread.start()

    def begin(self, texts: Sequence[str], *, limit_seconds: float) -> None:
        """A call starts; ``texts`` name the places of its list."""
        self._texts, self.place = texts, 0
        self._call += 1
        self._deadline = time.monotonic() + limit_seconds
        self._inside = True

    def end(self) -> None:
        self._inside = False

    @contextmanager
    def between_calls(self) -> Iterator[None]:
        """The main thread waits for the others' notes: another rank's failure ends this wait too."""
        self.place, self._deadline = len(self._texts), float("inf")  # in no instruction
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def close(self) -> None:
        self._inside = False
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def instruction(self) -> str:
        """What the main thread does."""
        return self._texts[self.place] if self._inside and self.place < len(self._texts) else _IDLE

    def report(self, error: BaseException, *, final: bool) -> None:
        """This rank failed; the first report of a call counts."""
        self._write(Failure(self._team.rank, self._call, self.instruction, f"{type(error).__name__}: {error}", final))

    def lost(self, suspect: int | None, owed: str | None) -> PeerLostError:
        """A connection broke. ``suspect``: the rank at its other end; ``owed``: its instruction that we waited for."""
        failure = self._record_within(_RECORD_SECONDS)
        if failure is None and suspect is None:
            suspect = self._silent_rank()
            failure = self._record_within(_LOOK_AGAIN_SECONDS)
        if failure is None:
            rank = suspect
            if rank is None:
                return self._lost_error(f"an unknown rank was lost while this one was in {self.instruction}")
            where = owed or self._standing(rank) or "an unknown instruction"
            failure = Failure(rank, self._call, where, "lost without a word", True)
            failure = self._write(failure) or failure
        return self._lost_error(failure.text)

    def _lost_error(self, text: str) -> PeerLostError:
        return PeerLostError(f"{text} (rank {self._team.rank} was in {self.instruction})", code="peer_lost")

    def _write(self, failure: Failure) -> Failure | None:
        """The record that counts; None where the store is gone."""
        if self._store is None:
            return failure
        try:
            kept = self._store.compare_set(_abort_key(failure.call), "", json.dumps(failure))
            return Failure(*json.loads(kept))
        except RuntimeError as error:
            _log.warning("cannot report %s: %s", failure.text, error)
            return None

    def _record(self) -> Failure | None:
        """Of this call; the others may be one call ahead or behind."""
        assert self._store is not None
        for call, only_final in ((self._call, False), (self._call + 1, True), (self._call - 1, True)):
            if call >= 0 and self._store.check([_abort_key(call)]):
                failure = Failure(*json.loads(self._store.get(_abort_key(call))))
                if failure.final or not only_final:
                    return failure
        return None

    def _record_within(self, seconds: float) -> Failure | None:
        deadline = time.monotonic() + seconds
        while self._store is not None and time.monotonic() < deadline:
            try:
                failure = self._record()
            except RuntimeError as error:
                _log.warning("the store is gone: %s", error)
                return None
            if failure is not None and failure.rank != self._team.rank:
                return failure
            time.sleep(_LOOK_AGAIN_SECONDS)
        return None

    def _beats(self) -> dict[int, list[str]]:
        """rank -> number of its last note and what it said."""
        found: dict[int, list[str]] = {}
        assert self._store is not None
        for rank in range(self._team.num_ranks):
            if self._store.check([_beat_key(rank)]):
                found[rank] = self._store.get(_beat_key(rank)).decode().split(" ", 1)
        return found

    def _silent_rank(self) -> int | None:
        """The rank that notes nothing more, or never did; on a busy machine living ones are late. None: see records."""
        others = [rank for rank in range(self._team.num_ranks) if rank != self._team.rank]
        begun, waited = time.monotonic(), 0.0
        try:
            before = self._beats()
            while waited < _SILENCE_SECONDS:
                time.sleep(_TICK_SECONDS)
                waited = time.monotonic() - begun
                if self._record() is not None:
                    return None
                after = self._beats()
                silent = [rank for rank in others if before.get(rank) == after.get(rank)]
                if len(silent) <= 1 and waited >= 3 * _TICK_SECONDS:
                    break
        except RuntimeError as error:
            _log.warning("the store is gone: %s", error)
            return None
        return silent[0] if silent else None

    def _standing(self, rank: int) -> str | None:
        try:
            said = self._beats().get(rank)
        except RuntimeError as error:
            _log.warning("the store is gone: %s", error)
            return None
        return said[1] if said is not None else None

    def _watch(self) -> None:
        """The thread: note, look, and end the process if the main thread does not come out."""
        assert self._store is not None
        number, since = 0, float("inf")
        while not self._stop.wait(_TICK_SECONDS):
            number += 1
            reason = None
            try:
                self._store.set(_beat_key(self._team.rank), f"{number} {self.instruction}")
                if self._inside:
                    if time.monotonic() > self._deadline:
                        self.report(TimeoutError("the step's deadline passed"), final=True)
                    failure = self._record()
                    reason = failure.text if failure is not None else None
            except RuntimeError as error:
                if not self._inside:
                    return
                reason = f"the shared store is gone: {error}"
            since = min(since, time.monotonic()) if reason and self._inside else float("inf")
            if reason and time.monotonic() - since > _GRACE_SECONDS:
                self._end_process(reason)

    def _end_process(self, reason: str) -> None:
        _log.critical("%s", self._lost_error(reason))
        faulthandler.dump_traceback(file=sys.stderr)
        sys.stderr.flush()
        os._exit(EXIT_PEER_LOST)


def _abort_key(call: int) -> str:
    return f"abort/{call}"


def _beat_key(rank: int) -> str:
    return f"beat/{rank}"
