"""``/v1/searches``: states of searches, and cancelling one."""

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from api.documents import SearchPage, SearchView
from api.errors import not_found
from api.paging import page_position, page_token
from api.routes.common import PageSize, PageToken, Route, SearchId, add_route, json_response
from api.routes.plans import preferred_wait_s, wait_until_done
from api.service import Service
from api.store.store import Search
from api.views import search_view
from planner.errors import StoreError

__all__ = ["add_search_routes"]

_COLLECTION = "search"


def add_search_routes(app: FastAPI, service: Service) -> None:
    async def cancel(search_id: SearchId) -> Response:
        found = await run_in_threadpool(service.store.cancel, search_id)
        service.runner.stop_search(search_id)
        service.notices.tell(search_id)
        return await _response(service, found)

    async def read(request: Request, search_id: SearchId) -> Response:
        found = service.store.search(search_id)
        wait_s = preferred_wait_s(request)
        if found is not None and wait_s:
            found = await wait_until_done(service, found, within_s=wait_s)
        return await _response(service, found)

    async def listing(page_size: PageSize = 50, page_token: PageToken = "") -> Response:
        return json_response(await run_in_threadpool(_page, service, token=page_token, size=page_size))

    stop = Route("POST", "/v1/searches/{search_id}:cancel", "Cancel a search", {200: SearchView}, (404, 422, 507))
    add_route(app, stop, cancel)
    one = Route("GET", "/v1/searches/{search_id}", "State of a search", {200: SearchView}, (404, 422))
    add_route(app, one, read)
    add_route(app, Route("GET", "/v1/searches", "List searches", {200: SearchPage}, (422,)), listing)


async def _response(service: Service, search: Search | None) -> Response:
    if search is None:
        raise not_found("search")
    view = await run_in_threadpool(search_view, search, service.store)
    return json_response(view, headers={} if search.done else {"Retry-After": "1"})


def _page(service: Service, *, token: str, size: int) -> SearchPage:
    """One page; a search that cannot be read is named, it does not hide the others."""
    after = page_position(token, collection=_COLLECTION, key=service.page_key)
    found = service.store.list_searches(after=after, size=size)
    views, damaged = [], list(found.damaged)
    for search in found.searches:
        try:
            views.append(search_view(search, service.store))
        except StoreError as error:
            if error.code != "integrity":
                raise
            damaged.append(search.id)
    return SearchPage(
        items=tuple(views),
        next_page_token=page_token(found.next_after, collection=_COLLECTION, key=service.page_key),
        damaged=tuple(damaged),
    )
