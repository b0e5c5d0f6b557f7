"""The mirror: a server of the interface over a published warehouse, without a quota.

with Mirror(Path("data/warehouse.duckdb"), state_dir=Path("data/mirror")) as mirror:
    httpx.get(mirror.base_url + "/v2/events")
"""

import asyncio
import ipaddress
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from starlette.types import ASGIApp

from catalog.contract.plans import ENTERPRISE, Plan
from catalog.server.accounts import Grant, KeyRing, UsageBook
from catalog.server.app import ServerOptions, ServerParts, build_app
from catalog.server.exchange import Handler
from catalog.server.hosting import HostedApp, HostingError, free_port
from catalog.server.request_guard import RequestGuard, RequestRules
from catalog.server.routes import CursorSigner
from catalog.server.state_dir import ServiceDir
from pipeline.mirror import version_feed
from pipeline.mirror.as_of import as_of_answers
from pipeline.mirror.knowledge_routes import KnowledgeRoutes
from pipeline.mirror.mirror_store import EVENTS_IN_MEMORY, MirrorStore, ServedClock
from pipeline.mirror.version_feed import VersionFeed

_FOLLOWED_EVERY_S: Final = 0.5
_UNLIMITED: Final = 1_000_000


def wall_now() -> datetime:
    return datetime.now(UTC)


class Mirror:
    """A running mirror of one published file.

    On loopback a request needs no key: it has the rights of `plan`. On another address it needs a
    key of the key file. No request is limited.

    Raises (start):
        WarehouseError: there is no file, or it can't be served.
        HostingError: the port is taken, or another address has no key.
        ServiceDirError: the folder can't be used.
    """

    def __init__(
        self,
        warehouse: Path,
        *,
        state_dir: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        plan: Plan = ENTERPRISE,
        options: ServerOptions | None = None,
        events_in_memory: int = EVENTS_IN_MEMORY,
        wall: Callable[[], datetime] = wall_now,
    ) -> None:
        self._warehouse = warehouse
        self._state_dir = state_dir
        self._host = host
        self._port = port
        self._plan = plan
        self._options = options or ServerOptions()
        self._events_in_memory = events_in_memory
        self._wall = wall
        self._undo = ExitStack()
        self._hosted: HostedApp | None = None

    @property
    def base_url(self) -> str:
        if self._hosted is None:
            raise RuntimeError("the mirror is not started; use it as a context manager")
        return self._hosted.base_url

    def start(self) -> "Mirror":
        if self._port:
            free_port(self._host, self._port)
        with ExitStack() as undo:
            folder = ServiceDir(self._state_dir)
            undo.enter_context(folder.serving())
            feed = VersionFeed(folder.path / version_feed.FILE_NAME)
            undo.callback(feed.close)
            self.store = MirrorStore(
                self._warehouse, feed, self._wall, events_in_memory=self._events_in_memory
            )
            app = self._app(folder)
            self._hosted = HostedApp(app, host=self._host, port=self._port).start()
            undo.callback(self._hosted.stop)
            self._undo = undo.pop_all()
        return self

    def stop(self) -> None:
        self._undo.close()

    def __enter__(self) -> "Mirror":
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def _app(self, folder: ServiceDir) -> ASGIApp:
        clock = ServedClock(self.store, self._wall)

        def inside(handler: Handler) -> Handler:
            return as_of_answers(handler, lambda: self.store.bounds, clock.now)

        cursors = CursorSigner(_cursor_secret(folder.path))
        knowledge = KnowledgeRoutes(self.store, cursors=cursors, until=lambda: None)
        parts = ServerParts(
            store=self.store,
            keys=self._keys(folder),
            usage=UsageBook(folder.usage_file()),
            cursors=cursors,
            instant_of=lambda _: clock.now(),
            options=self._options,
            background=(self._follow,),
            inside=inside,
            lags=False,
            extensions=knowledge.handlers(),
        )
        app = build_app(parts)
        return RequestGuard(app, RequestRules()) if _is_loopback(self._host) else app

    def _keys(self, folder: ServiceDir) -> KeyRing:
        book, others = folder.key_book(), None
        if _is_loopback(self._host):
            others = _unlimited(
                Grant(
                    meter_id="anyone",
                    account="anyone",
                    plan=self._plan,
                    rate_per_s=_UNLIMITED,
                    burst=_UNLIMITED,
                    monthly_quota=None,
                    sha256="",
                )
            )
        elif not any(account.keys for account in book.read().accounts):
            raise HostingError(
                f"{self._host} can be reached from other machines, and there is no key yet. "
                "Nothing listens. Create one: "
                f"almanac keys create NAME --plan {self._plan.name} --dir "
                f"{folder.path}"
            )
        return KeyRing(book=book, others=others, adjusted=_unlimited)

    async def _follow(self) -> None:
        """Serve each new publication: its view is made on a thread, and then replaces the old."""
        while True:
            await asyncio.sleep(_FOLLOWED_EVERY_S)
            views = await asyncio.to_thread(self.store.newer)
            if views is not None:
                self.store.serve(views)


def _unlimited(grant: Grant) -> Grant:
    return msgspec.structs.replace(
        grant,
        rate_per_s=_UNLIMITED,
        burst=_UNLIMITED,
        monthly_quota=None,
        export_interval_s=0.0,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _cursor_secret(folder: Path) -> bytes:
    """Return the secret of the cursors; made once, so that a cursor outlives a restart."""
    file = folder / "cursor.key"
    try:
        with open(file, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as made:
            made.write(secrets.token_bytes(32))
    except FileExistsError:
        pass  # made at an earlier start
    return file.read_bytes()
