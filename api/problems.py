"""From a request to the problem that it states: digests are looked up, documents are checked to belong together."""

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, TypeVar

from api.store.store import Document, DocumentKind, Store
from planner import __version__
from planner.errors import RequestError, StoreError
from planner.problem.canonical import canonical_bytes, canonical_digest, document_bytes
from planner.problem.cluster import Cluster
from planner.problem.contract import Contract
from planner.problem.problem import Problem, ProblemParts, check_options, request_digest
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from planner.problem.request import Request

__all__ = [
    "ResolvedRequest",
    "inline_request",
    "resolve_documents",
    "resolve_request",
    "solver_version",
    "stored",
    "stored_bytes",
    "stored_problem",
]

_Document = TypeVar("_Document", bound=Contract)


class ResolvedRequest(NamedTuple):
    """A checked request: the problem, its digest, and the documents to keep so that it can be searched later."""

    problem: Problem
    request_digest: str
    request_id: str
    documents: tuple[Document, ...]


@cache
def solver_version() -> str:
    """Of the installed solver, without loading it."""
    try:
        return f"ortools {version('ortools')}"
    except PackageNotFoundError:
        return "none"


def resolve_request(request: Request, store: Store) -> ResolvedRequest:
    """Raises ``RequestError`` (unknown_document), ``ProblemError``."""
    profiles, cluster = resolve_documents(request.profiles, request.cluster, store=store)
    problem = Problem(profiles, cluster, request.workload)
    check_options(problem, request.options)
    digest = request_digest(problem, request.options, planner=__version__, solver=solver_version())
    kept_profiles = tuple(_kept("profile", profile) for profile in profiles)
    kept_cluster = _kept("cluster", cluster)
    names = {"profiles": [document.id for document in kept_profiles], "cluster": kept_cluster.id}
    slim = {**request.model_dump(mode="json", exclude={"profiles", "cluster"}), **names}
    kept = Document("request", canonical_digest(slim), canonical_bytes(slim))
    return ResolvedRequest(problem, digest, kept.id, (*kept_profiles, kept_cluster, _kept_problem(problem), kept))


class ResolvedDocuments(NamedTuple):
    """Profiles and cluster of a request, none of them by digest."""

    profiles: tuple[ModelProfile, ...]
    cluster: Cluster


def resolve_documents(
    profiles: tuple[str | ModelProfile, ...], cluster: str | Cluster, *, store: Store
) -> ResolvedDocuments:
    found = tuple(
        _resolved("profile", profile, ModelProfile, store=store, pointer=f"/profiles/{number}")
        for number, profile in enumerate(profiles)
    )
    return ResolvedDocuments(found, _resolved("cluster", cluster, Cluster, store=store, pointer="/cluster"))


def _resolved(
    kind: DocumentKind, given: str | _Document, contract: type[_Document], *, store: Store, pointer: str
) -> _Document:
    if not isinstance(given, str):
        return given
    payload = store.get(kind, given)
    if payload is None:
        raise RequestError(f"no {kind} with this digest was uploaded", code="unknown_document", pointer=pointer)
    return read_document(payload, contract)


def stored(kind: DocumentKind, document_id: str, contract: type[_Document], *, store: Store) -> _Document:
    """A document that must be there. Raises ``StoreError`` (integrity)."""
    return read_document(stored_bytes(kind, document_id, store=store), contract)


def stored_bytes(kind: DocumentKind, document_id: str, *, store: Store) -> bytes:
    """The bytes of a document that must be there. Raises ``StoreError`` (integrity)."""
    payload = store.get(kind, document_id)
    if payload is None:
        raise StoreError(f"the stored {kind} {document_id} is missing", code="integrity")
    return payload


def inline_request(request_id: str, store: Store) -> Request:
    """The stored request with its documents inline, as a solver child takes it."""
    request = stored("request", request_id, Request, store=store)
    profiles, cluster = resolve_documents(request.profiles, request.cluster, store=store)
    return request.model_copy(update={"profiles": profiles, "cluster": cluster})


def _kept_problem(problem: Problem) -> Document:
    """What a plan's ``problem`` names: the digests of profiles and cluster, and the workload."""
    return Document("problem", problem.digest, canonical_bytes(problem.parts))


def stored_problem(digest: str, store: Store) -> Problem:
    """The problem of a plan that a search of this service found. Raises ``RequestError`` (unknown_problem)."""
    payload = store.get("problem", digest)
    if payload is None:
        message = "the problem of this plan is not stored: give profiles, cluster and workload"
        raise RequestError(message, code="unknown_problem", pointer="/profiles")
    names = read_document(payload, ProblemParts)
    profiles = tuple(stored("profile", one, ModelProfile, store=store) for one in names.profiles)
    return Problem(profiles, stored("cluster", names.cluster, Cluster, store=store), names.workload)


def _kept(kind: DocumentKind, document: ModelProfile | Cluster) -> Document:
    payload = document_bytes(document)
    return Document(kind, hashlib.sha256(payload).hexdigest(), payload)
