"""The servers that run our own code: `python -m bench.server.serve NAME [FILE]`.

Prints one line of JSON with the port once connections are answered, and ends with its input.
"""

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from application.web.mirror.mirror import Mirror
from bench.server.rows import NOW, SEED, Found, PlainRows, Rows
from catalog.sandbox.sandbox import Sandbox
from catalog.server.hosting import HostedApp


def serve_sandbox(undo: ExitStack) -> dict[str, object]:
    """Serve the whole sandbox, with a key whose limits are never reached."""
    sandbox = undo.enter_context(Sandbox(seed=SEED, now=NOW, export_interval_s=0))
    key = sandbox.new_key("enterprise", rate_per_s=1e6, burst=1_000_000)
    return {"port": sandbox.port, "key": key}


def serve_mirror(undo: ExitStack, warehouse: str) -> dict[str, object]:
    """Serve the mirror over a warehouse, which asks for no key on loopback."""
    state_dir = Path(undo.enter_context(TemporaryDirectory(prefix="almanac-bench-")))
    server = Mirror(Path(warehouse), state_dir=state_dir, wall=lambda: NOW)
    return {"port": int(undo.enter_context(server).base_url.rpartition(":")[2])}


def serve_bare(undo: ExitStack, rows_file: str) -> dict[str, object]:
    """Serve the bare handler on the HTTP server that also runs ours."""
    app = make_bare_app(PlainRows(Rows.load(Path(rows_file))))
    return {"port": undo.enter_context(HostedApp(app)).port}


def make_bare_app(plain: PlainRows) -> Starlette:
    """Return handlers over rows in memory: no key, limits, ETag, cursor, metrics or checks."""

    def answer_page(found: Found, limit: int) -> Response:
        after = None if found.after is None else ",".join(found.after)
        meta = {"total": found.total, "limit": limit, "cursor": after}
        return JSONResponse({"data": found.rows, "meta": meta})

    async def list_events(request: Request) -> Response:
        query = request.query_params
        limit = int(query["limit"])
        day, _, event_id = query.get("cursor", "").partition(",")
        found = plain.find_page(
            query["from"],
            query["to"],
            coins=query["coins"].split(",") if "coins" in query else (),
            categories=query["categories"].split(",") if "categories" in query else (),
            after=(day, event_id) if "cursor" in query else None,
            limit=limit,
        )
        return answer_page(found, limit)

    async def get_event(request: Request) -> Response:
        event = plain.get_event(request.path_params["id"])
        return Response(status_code=404) if event is None else JSONResponse(event)

    async def list_coins(request: Request) -> Response:
        limit = int(request.query_params["limit"])
        return answer_page(plain.search_coins(request.query_params["q"], limit=limit), limit)

    return Starlette(
        routes=[
            Route("/v2/coins", list_coins),
            Route("/v2/events", list_events),
            Route("/v2/events/{id}", get_event),
        ]
    )


_SERVERS: dict[str, Callable[..., dict[str, object]]] = {
    "sandbox": serve_sandbox,
    "mirror": serve_mirror,
    "bare": serve_bare,
}


def main(name: str, *arguments: str) -> None:
    with ExitStack() as undo:
        details = _SERVERS[name](undo, *arguments)
        print(json.dumps(details), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
