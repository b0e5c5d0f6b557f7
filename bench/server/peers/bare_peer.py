"""A bare Starlette handler on our HTTP server: the same rows in memory and nothing around them.

No key, limits, ETag, cursor, metrics or checks of the parameters.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bench.server.peers.our_peer import wire_shown
from bench.server.peers.peer import Shown, get
from bench.server.peers.plain_rows import Found, PlainRows
from bench.server.peers.rows import Rows
from bench.server.process import Running, own_server
from bench.server.workloads import CoinSearch, EventsPage, SingleEvent, WorkRequest

Encoder = Literal["json", "msgspec"]
_SETTINGS = {
    "json": "Starlette handler, `JSONResponse` of the row dicts",
    "msgspec": "Starlette handler, msgspec's encoder on prebuilt records",
}


class BarePeer:
    def __init__(self, encoder: Encoder, rows_file: Path, core: int) -> None:
        self.name = f"bare {encoder}"
        self.settings = _SETTINGS[encoder] + "; same HTTP server as ours, one process"
        self._arguments = (f"bare-{encoder}", str(rows_file))
        self._core = core

    def start(self) -> AbstractContextManager[Running]:
        return own_server(self._core, *self._arguments)

    def learn(self, running: Running, pages: Sequence[EventsPage]) -> None:
        pass

    def request(self, request: WorkRequest) -> bytes:
        match request:
            case EventsPage():
                query: dict[str, str | int] = {
                    "from": request.lower,
                    "to": request.upper,
                    "limit": request.limit,
                }
                if request.coins:
                    query["coins"] = ",".join(request.coins)
                if request.categories:
                    query["categories"] = ",".join(request.categories)
                if request.after is not None:
                    query["after"] = ",".join(request.after)
                return get("/v2/events?" + urlencode(query))
            case SingleEvent(event_id):
                return get(f"/v2/events/{event_id}")
            case CoinSearch(q, limit):
                return get("/v2/coins?" + urlencode({"q": q, "limit": limit}))

    def shown(self, request: WorkRequest, body: bytes) -> Shown:
        return wire_shown(request, body)


def bare_app(encoder: Encoder, rows: Rows) -> Starlette:
    """Return the application of a variant."""
    events, coins = rows.event_dicts(), rows.coin_dicts()
    shown_events, shown_coins = (events, coins) if encoder == "json" else (rows.events, rows.coins)
    plain: PlainRows[Any] = PlainRows(
        events,
        coins,
        category_ids=rows.category_ids,
        shown_events=shown_events,
        shown_coins=shown_coins,
    )
    if encoder == "json":
        return _app(plain, JSONResponse)
    encode = msgspec.json.Encoder().encode
    return _app(plain, lambda body: Response(encode(body), media_type="application/json"))


def _app(plain: PlainRows[Any], answer: Callable[[Any], Response]) -> Starlette:
    def page(found: Found[Any], limit: int) -> Response:
        after = None if found.after is None else ",".join(found.after)
        meta = {"total": found.total, "limit": limit, "cursor": after}
        return answer({"data": found.rows, "meta": meta})

    async def list_events(request: Request) -> Response:
        query = request.query_params
        limit = int(query["limit"])
        after = query.get("after")
        day, _, event_id = (after or "").partition(",")
        found = plain.page(
            query["from"],
            query["to"],
            coins=query["coins"].split(",") if "coins" in query else (),
            categories=query["categories"].split(",") if "categories" in query else (),
            after=None if after is None else (day, event_id),
            limit=limit,
        )
        return page(found, limit)

    async def get_event(request: Request) -> Response:
        event = plain.event(request.path_params["id"])
        return Response(status_code=404) if event is None else answer(event)

    async def list_coins(request: Request) -> Response:
        limit = int(request.query_params["limit"])
        return page(plain.search(request.query_params["q"].casefold(), limit=limit), limit)

    return Starlette(
        routes=[
            Route("/v2/coins", list_coins),
            Route("/v2/events", list_events),
            Route("/v2/events/{id}", get_event),
        ]
    )
