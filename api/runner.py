"""The runner: claims waiting searches and runs each in a solver child, a bounded number at the same time.

One thread a child, and one thread that keeps the leases, writes progress down and looks for searches of dead services.
A claim that is lost (cancelled, or taken by another service after a silence) stops its child and publishes nothing.
"""

import threading
import time
from collections.abc import Callable

import structlog

from api.advice import request_warnings
from api.documents import StoredAnswer
from api.problems import inline_request, resolve_documents
from api.settings import Settings
from api.store.store import Claim, Document, Finished, SearchFailure, Store
from planner.attempts.attempt import Watch, run_search
from planner.errors import PlannerError, SolverError, StoreError
from planner.plan.answer import Answer, Progress
from planner.problem.canonical import document_bytes, document_digest
from planner.problem.request import Request

__all__ = ["Runner"]

logger = structlog.get_logger(__name__)

_TICK_S = 0.25  # between two looks of the lease keeper: progress is written at most 4 times a second
_IDLE_S = 1.0  # between two looks for work that another service queued
_LOST_S = 5.0  # between two looks for searches of dead services
_END_S = 9.0  # for children to end when the service does
_REUSABLE = ("optimal", "deterministic", "wall")  # an answer of a killed child is good once, not for ever


class _Running:
    """One attempt as the lease keeper sees it."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.progress: Progress | None = None
        self.reported: Progress | None = None
        self.watch = Watch(on_progress=self._keep)

    def _keep(self, progress: Progress) -> None:
        self.progress = progress


class Runner:
    """Runs searches of ``store``; ``changed`` is called with the id of each search that ends."""

    def __init__(self, store: Store, settings: Settings, *, changed: Callable[[str], None]) -> None:
        self._store, self._settings, self._changed = store, settings, changed
        self._running: dict[str, _Running] = {}
        self._work = threading.Condition()
        self._draining = threading.Event()
        names = [f"runner-{number}" for number in range(settings.num_runners)]
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]
        self._keeper = threading.Thread(target=self._keep_leases, name="lease-keeper", daemon=True)
        self._kept_ns = time.monotonic_ns()

    def start(self) -> None:
        self._store.requeue_lost(most_attempts=self._settings.most_attempts)
        for thread in (*self._threads, self._keeper):
            thread.start()

    @property
    def healthy(self) -> bool:
        """Every thread lives and the lease keeper looked around lately."""
        silent_ns = time.monotonic_ns() - self._kept_ns
        alive = all(thread.is_alive() for thread in (*self._threads, self._keeper))
        return alive and silent_ns < self._settings.lease_ns and not self._draining.is_set()

    def wake(self) -> None:
        """There is a new search."""
        with self._work:
            self._work.notify()

    def stop_search(self, search_id: str) -> None:
        """End the child of a search that was cancelled."""
        running = self._running.get(search_id)
        if running is not None:
            running.watch.stop.set()

    def begin_drain(self) -> None:
        """Claim nothing more, ask the children to end. Takes locks: never in a signal handler."""
        self._draining.set()
        for running in list(self._running.values()):
            running.watch.stop.set()

    def drain(self) -> None:
        """Stop; running searches go back to the queue."""
        self.begin_drain()
        with self._work:
            self._work.notify_all()
        until = time.monotonic() + _END_S
        for thread in (*self._threads, self._keeper):
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        """Body of a runner thread."""
        while not self._draining.is_set():
            claim = self._claim()
            if claim is None:
                with self._work:
                    self._work.wait(_IDLE_S)
            else:
                self._attempt(claim)

    def _claim(self) -> Claim | None:
        try:
            return self._store.claim()
        except StoreError as error:
            logger.warning("no claim", code=error.code, reason=error.message)
        except Exception:  # whatever the store holds, this thread goes on
            logger.exception("claiming broke")
        return None

    def _attempt(self, claim: Claim) -> None:
        running = self._running[claim.search_id] = _Running(claim)
        log = logger.bind(search_id=claim.search_id, attempt=claim.attempt)
        log.info("attempt started")
        if self._draining.is_set():
            running.watch.stop.set()
        try:
            outcome = self._outcome_or_defect(running)
            self._insist(running, outcome)
            log.info("attempt ended", outcome=type(outcome).__name__)
        except StoreError as error:
            log.error("outcome not written: the lease will end and the search run again", code=error.code)
        except Exception:  # the thread serves the next search
            log.exception("outcome not written")
        finally:
            del self._running[claim.search_id]
            self._changed(claim.search_id)

    def _outcome_or_defect(self, running: _Running) -> Finished | SearchFailure:
        try:
            return self._outcome(running)
        except Exception:  # one broken search must not end the thread that serves the others
            logger.exception("attempt broke", search_id=running.claim.search_id)
            return SearchFailure("internal", "the service failed on this search; its log says why")

    def _outcome(self, running: _Running) -> Finished | SearchFailure:
        try:
            request = inline_request(running.claim.request_id, self._store)
            answer = run_search(request, self._settings.attempts, watch=running.watch)
        except SolverError as error:
            return SearchFailure(error.code, error.message)
        except PlannerError as error:
            logger.error("stored request unusable", search_id=running.claim.search_id, code=error.code)
            return SearchFailure("internal", f"the stored request cannot be used: {error.code}")
        return _finished(request, answer, self._store)

    def _insist(self, running: _Running, outcome: Finished | SearchFailure) -> None:
        """Write the outcome down; a locked store or a full disk is waited for while the lease lasts."""
        until = time.monotonic_ns() + self._settings.lease_ns
        while True:
            try:
                return self._conclude(running, outcome)
            except StoreError as error:
                logger.warning("outcome not written yet", search_id=running.claim.search_id, code=error.code)
                if error.code == "integrity" or time.monotonic_ns() > until or self._draining.is_set():
                    raise
                time.sleep(_IDLE_S)

    def _conclude(self, running: _Running, outcome: Finished | SearchFailure) -> None:
        claim = running.claim
        if self._draining.is_set() and running.watch.stop.is_set():  # cut short by us: run again after the restart
            self._store.release(claim)
        elif isinstance(outcome, SearchFailure):
            self._store.fail(claim, outcome)
        elif not self._store.publish(claim, outcome):
            logger.info("claim lost, result dropped", search_id=claim.search_id)

    def _keep_leases(self) -> None:
        """Body of the lease keeper."""
        beat_every_s = self._settings.lease_ns / 3e9
        next_beat_s = next_look_s = time.monotonic()
        while not self._draining.wait(_TICK_S):
            now_s = time.monotonic()
            try:
                self._report()
                if now_s >= next_beat_s:
                    self._beat()
                    next_beat_s = now_s + beat_every_s
                if now_s >= next_look_s:
                    self._store.requeue_lost(most_attempts=self._settings.most_attempts)
                    next_look_s = now_s + _LOST_S
                self._kept_ns = time.monotonic_ns()
            except StoreError as error:
                logger.warning("leases not kept", code=error.code, reason=error.message)
            except Exception:  # without this thread every running search would be lost
                logger.exception("keeping leases broke")

    def _report(self) -> None:
        for running in list(self._running.values()):
            progress = running.progress
            if progress is not None and progress != running.reported:
                self._store.report(running.claim, progress)
                running.reported = progress

    def _beat(self) -> None:
        for running in list(self._running.values()):
            if not self._store.beat(running.claim):
                running.watch.stop.set()


def _finished(request: Request, answer: Answer, store: Store) -> Finished:
    """The answer as documents; warnings about the request's documents come first."""
    profiles, cluster = resolve_documents(request.profiles, request.cluster, store=store)
    kept = StoredAnswer(
        schema_version="answer/1",
        status=answer.status,
        limit=answer.limit,
        plan=answer.plan.digest if answer.plan else None,
        reasons=answer.reasons,
        relaxations=answer.relaxations,
        warnings=(*request_warnings(profiles, cluster), *answer.warnings),
    )
    plan = Document("plan", answer.plan.digest, document_bytes(answer.plan)) if answer.plan else None
    document = Document("answer", document_digest(kept), document_bytes(kept))
    return Finished(document, plan, reusable=answer.limit in _REUSABLE)
