"""The servers that run our own code: `python -m bench.server.serve NAME`.

Prints one line of JSON with the port once connections are answered, and ends with its input.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from msgspec.structs import replace

from application.web.mirror.mirror import Mirror
from bench.server.peers.bare_peer import Encoder, bare_app
from bench.server.peers.rows import NOW, SEED, Rows, store_of_run
from catalog.contract.plans import ENTERPRISE
from catalog.sandbox.sandbox import Sandbox
from catalog.server.accounts import KeyRing, UsageBook
from catalog.server.app import ServerParts, build_app
from catalog.server.catalog_store import EventQuery, StoredEvent
from catalog.server.hosting import HostedApp
from catalog.server.sql_store import SqlStore
from catalog.server.state_dir import ServiceDir

_UNBOUND_PER_S = 1e6
_UNBOUND_BURST = 1_000_000


def ours(undo: ExitStack) -> dict[str, object]:
    sandbox = undo.enter_context(Sandbox(seed=SEED, now=NOW, export_interval_s=0))
    key = sandbox.new_key("enterprise", rate_per_s=_UNBOUND_PER_S, burst=_UNBOUND_BURST)
    return {"port": sandbox.port, "key": key}


def mirror(undo: ExitStack, warehouse: str) -> dict[str, object]:
    state_dir = Path(undo.enter_context(TemporaryDirectory(prefix="almanac-bench-")))
    server = Mirror(Path(warehouse), state_dir=state_dir, wall=lambda: NOW)
    return {"port": int(undo.enter_context(server).base_url.rpartition(":")[2])}


def bare(undo: ExitStack, encoder: Encoder, rows_file: str) -> dict[str, object]:
    app = bare_app(encoder, Rows.load(Path(rows_file)))
    return {"port": undo.enter_context(HostedApp(app)).port}


def fixed(undo: ExitStack, size: str) -> dict[str, object]:
    """The same bytes to every request, with no HTTP library: the load generator's ceiling."""
    loop = asyncio.new_event_loop()
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode()
    answer = head + b"x" * int(size)

    class Fixed(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._transport = transport

        def data_received(self, data: bytes) -> None:
            self._transport.write(answer)

    server = loop.run_until_complete(loop.create_server(Fixed, "127.0.0.1", 0))
    loop.add_reader(sys.stdin, loop.stop)
    undo.callback(loop.run_forever)
    return {"port": server.sockets[0].getsockname()[1]}


def long_export(undo: ExitStack, rows: str) -> dict[str, object]:
    """The real application over a store that makes its rows one by one."""
    folder = ServiceDir(Path(undo.enter_context(TemporaryDirectory(prefix="almanac-bench-"))))
    key, _ = folder.key_book().create("bench", ENTERPRISE)
    store = LongStore(store_of_run(), int(rows))
    parts = ServerParts(
        # An export uses only what this store has.
        store=lambda _: cast(SqlStore, store),
        keys=KeyRing(book=folder.key_book()),
        usage=UsageBook(),
        now=lambda: NOW,
    )
    return {"port": undo.enter_context(HostedApp(build_app(parts))).port, "key": key}


class LongStore:
    """A store that repeats the events of another under new ids, up to a count."""

    identity = "bench"

    def __init__(self, store: SqlStore, count: int) -> None:
        self._store = store
        self._count = count

    def iter_events(self, query: EventQuery) -> Iterator[StoredEvent]:
        events = cycle(list(self._store.iter_events(query)))
        for number, event in enumerate(islice(events, self._count)):
            yield replace(event, id=f"{number:024x}")


_SERVERS: dict[str, Callable[..., dict[str, object]]] = {
    "ours": ours,
    "mirror": mirror,
    "bare-json": lambda undo, file: bare(undo, "json", file),
    "bare-msgspec": lambda undo, file: bare(undo, "msgspec", file),
    "fixed": fixed,
    "long-export": long_export,
}


def main(name: str, *arguments: str) -> None:
    with ExitStack() as undo:
        details = _SERVERS[name](undo, *arguments)
        print(json.dumps(details), flush=True)
        if name != "fixed":
            sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
