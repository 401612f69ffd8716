"""``/v1/profiles`` and ``/v1/clusters``: documents that clients upload, named by their digest, never changed."""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from api.advice import cluster_warnings, profile_warnings
from api.bodies import MOST_PLAN_BYTES, MOST_PROFILE_BYTES, read_body
from api.documents import DocumentPage, DocumentView, UploadView
from api.errors import not_found
from api.paging import page_position, page_token
from api.routes.common import DocumentId, PageSize, PageToken, Route, add_route, immutable, json_response
from api.service import Service
from api.store.store import Document, DocumentKind
from planner.errors import RequestError
from planner.plan.answer import Reason
from planner.problem.canonical import document_bytes
from planner.problem.cluster import Cluster
from planner.problem.contract import Contract
from planner.problem.profile import ModelProfile

__all__ = ["add_upload_routes", "document_page"]


class _Collection(NamedTuple):
    """One kind of uploaded document."""

    kind: DocumentKind
    path: str
    contract: type[ModelProfile] | type[Cluster]
    most_bytes: int
    warnings: Callable[[Contract], tuple[Reason, ...]]


def _profile(document: Contract) -> tuple[Reason, ...]:
    assert isinstance(document, ModelProfile)
    return profile_warnings(document)


def _cluster(document: Contract) -> tuple[Reason, ...]:
    assert isinstance(document, Cluster)
    return cluster_warnings(document)


_COLLECTIONS = (
    _Collection("profile", "/v1/profiles", ModelProfile, MOST_PROFILE_BYTES, _profile),
    _Collection("cluster", "/v1/clusters", Cluster, MOST_PLAN_BYTES, _cluster),
)
_UPLOAD_ERRORS = (408, 413, 415, 422, 507)


def add_upload_routes(app: FastAPI, service: Service) -> None:
    for collection in _COLLECTIONS:
        _add_collection(app, service, collection)


def _add_collection(app: FastAPI, service: Service, collection: _Collection) -> None:
    name, path, contract = collection.kind, collection.path, collection.contract

    async def upload(request: Request) -> Response:
        document = await read_body(request, contract, most_bytes=collection.most_bytes)
        return await run_in_threadpool(_keep, service, collection, document)

    async def upload_as(request: Request, document_id: DocumentId) -> Response:
        document = await read_body(request, contract, most_bytes=collection.most_bytes)
        return await run_in_threadpool(_keep, service, collection, document, document_id)

    async def listing(page_size: PageSize = 50, page_token: PageToken = "") -> Response:
        page = await run_in_threadpool(document_page, service, name, path, token=page_token, size=page_size)
        return json_response(page)

    async def read(request: Request, document_id: DocumentId) -> Response:
        payload = await run_in_threadpool(service.store.get, name, document_id)  # up to 64 MiB to hash
        if payload is None:
            raise not_found(name)
        return immutable(payload, tag=document_id, if_none_match=request.headers.get("if-none-match"))

    uploads = {200: UploadView, 201: UploadView}
    one = f"{path}/{{document_id}}"
    add_route(app, Route("POST", path, f"Upload a {name}", uploads, _UPLOAD_ERRORS, contract), upload)
    add_route(app, Route("GET", path, f"List {name}s", {200: DocumentPage}, (422,)), listing)
    stated = Route("PUT", one, f"Upload a {name} under its digest", uploads, (409, *_UPLOAD_ERRORS), contract)
    add_route(app, stated, upload_as)
    add_route(app, Route("GET", one, f"Read a {name}", {200: contract, 304: None}, (404, 422)), read)


def _keep(service: Service, collection: _Collection, document: Contract, stated: str | None = None) -> Response:
    payload = document_bytes(document)
    digest = hashlib.sha256(payload).hexdigest()
    if stated is not None and stated != digest:
        message = f"these bytes are the {collection.kind} {digest}: an id names one document for ever"
        raise RequestError(message, code="immutable")
    is_new = service.store.put(Document(collection.kind, digest, payload))
    url = f"{collection.path}/{digest}"
    view = UploadView(id=digest, url=url, warnings=collection.warnings(document))
    return json_response(view, status=201 if is_new else 200, headers={"Location": url, "ETag": f'"{digest}"'})


def document_page(service: Service, kind: DocumentKind, path: str, *, token: str, size: int) -> DocumentPage:
    """One page of the documents of a kind."""
    after = page_position(token, collection=kind, key=service.page_key)
    found = service.store.list_documents(kind, after=after, size=size)
    return DocumentPage(
        items=tuple(
            DocumentView(id=one.id, url=f"{path}/{one.id}", created_ns=one.created_ns, size_bytes=one.size_bytes)
            for one in found.entries
        ),
        next_page_token=page_token(found.next_after, collection=kind, key=service.page_key),
        damaged=found.damaged,
    )
