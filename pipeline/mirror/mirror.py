"""The mirror: a server of the interface over a published warehouse, without a quota.

with Mirror(Path("data/warehouse.duckdb"), state_dir=Path("data/mirror")) as mirror:
    httpx.get(mirror.base_url + "/v2/events")
"""

import asyncio
import logging
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Any, Final, Protocol, Self, TypedDict, Unpack

import msgspec
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Scope

from catalog.contract.plans import ENTERPRISE, Plan
from catalog.server.accounts import Grant, KeyRing, UsageBook
from catalog.server.app import Background, ServerOptions, ServerParts, build_app
from catalog.server.exchange import Exchange, Handler
from catalog.server.hosting import HostedApp, HostingError, free_port
from catalog.server.request_guard import RequestGuard, is_loopback
from catalog.server.routes import CursorSigner
from catalog.server.state_dir import ServiceDir
from catalog.server.store import CatalogStore
from catalog.server.webhooks.sender import Pusher, SenderOptions
from pipeline.mirror import version_feed
from pipeline.mirror.as_of import as_of_answers
from pipeline.mirror.knowledge_routes import KnowledgeRoutes, KnowledgeStore
from pipeline.mirror.mirror_document import DocumentRoutes
from pipeline.mirror.mirror_store import EVENTS_IN_MEMORY, MirrorStore, PushClock, ServedClock
from pipeline.mirror.published_catalog import KnownSpan
from pipeline.mirror.version_feed import VersionFeed
from warehouse.clock import utc_now

log = logging.getLogger(__name__)
_FOLLOWED_EVERY_S: Final = 0.5
_NO_LIMITS: Final[dict[str, Any]] = {
    "rate_per_s": 1_000_000,
    "burst": 1_000_000,
    "monthly_quota": None,
    "export_interval_s": 0.0,
}


RemovedVersions = Callable[[], Mapping[str, Sequence[datetime]]]


@dataclass(frozen=True, slots=True)
class SitePlace:
    """The parts from which pages in front of the interface are made.

    `now` is the clock of the answers; `keys` are the keys that a request needs if `needs_key`.
    `secret` is the secret of the server's folder, for signatures. `removed` returns the times of
    versions that were published and then removed by a refold, by event.
    """

    warehouse: Path
    now: Callable[[], datetime]
    keys: KeyRing
    needs_key: bool
    secret: bytes = field(repr=False)
    removed: RemovedVersions
    is_replay: bool = False


class Site(Protocol):
    """Pages in front of the interface: `around` answers their paths, and passes on the others."""

    @property
    def background(self) -> Sequence[Background]:
        """Tasks that run as long as the server."""
        ...

    def around(self, app: ASGIApp) -> ASGIApp: ...

    def close(self) -> None: ...


SiteMaker = Callable[[SitePlace], Site]


class HistoryStore(CatalogStore, KnowledgeStore, Protocol):
    """A catalog through time, with its versions."""

    @property
    def bounds(self) -> KnownSpan: ...

    def never_known(self) -> frozenset[str]:
        """Return the columns whose value no version knows. It may query."""
        ...


class Served(TypedDict, total=False):
    """How a server is reached: by default on loopback, by anyone with the rights of `plan`."""

    host: str
    port: int
    plan: Plan
    options: ServerOptions
    site: SiteMaker


class HistoryServer(ABC):
    """A server of the interface over the history of a warehouse, without limits.

    On loopback a request needs no key: it has the rights of `plan`. On another address it needs a
    key of the key file. No request is limited.

    Raises (start):
        WarehouseError: the published file or the change feed is missing or can't be used.
        HostingError: the port is taken, or the address needs a key and there is none.
        ServiceDirError: the folder can't be used.
    """

    def __init__(self, warehouse: Path, *, state_dir: Path, **served: Unpack[Served]) -> None:
        self._warehouse = warehouse
        self._make_site = served.get("site")
        self._state_dir = state_dir
        self._host = served.get("host", "127.0.0.1")
        self._port = served.get("port", 0)
        self._plan = served.get("plan", ENTERPRISE)
        self._options = served.get("options", ServerOptions())
        self._undo = ExitStack()
        self._hosted: HostedApp | None = None

    @property
    def base_url(self) -> str:
        if self._hosted is None:
            raise RuntimeError("the server is not started; use it as a context manager")
        return self._hosted.base_url

    def start(self) -> Self:
        if self._port:
            free_port(self._host, self._port)
        with ExitStack() as undo:
            app = self._app(ServiceDir(self._state_dir), undo)
            self._hosted = HostedApp(app, host=self._host, port=self._port).start()
            undo.callback(self._hosted.stop)
            self._undo = undo.pop_all()
        return self

    def stop(self) -> None:
        self._undo.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.stop()

    @abstractmethod
    def _app(self, folder: ServiceDir, undo: ExitStack) -> ASGIApp:
        """Return the application; `undo` gets what ends with the server."""

    def _serve(
        self,
        store: HistoryStore,
        folder: ServiceDir,
        undo: ExitStack,
        *,
        now: Callable[[], datetime],
        changes_until: Callable[[], datetime | None],
        cursors: CursorSigner,
        usage: UsageBook,
        background: Sequence[Background],
        extensions: Mapping[str, Handler] = MappingProxyType({}),
        clock_moves: bool = False,
        removed: RemovedVersions = dict,
    ) -> ASGIApp:
        """Return the application over a store: the interface, and the mirror's own routes."""

        def inside(handler: Handler) -> Handler:
            return as_of_answers(handler, lambda: store.bounds, now, clock_moves=clock_moves)

        needs_key = not is_loopback(self._host)
        knowledge = KnowledgeRoutes(store, cursors=cursors, until=changes_until)
        document = DocumentRoutes(store.never_known, needs_key=needs_key, clock_moves=clock_moves)
        keys = self._keys(folder)
        secret = cursor_secret(folder.path)
        place = SitePlace(
            self._warehouse, now, keys, needs_key, secret, removed, is_replay=clock_moves
        )
        site = None if self._make_site is None else self._make_site(place)
        if site is not None:
            undo.callback(site.close)
        parts = ServerParts(
            store=store,
            keys=keys,
            usage=usage,
            cursors=cursors,
            instant_of=lambda _: now(),
            options=self._options,
            background=(*background, *(site.background if site else ())),
            around=site.around if site else lambda app: app,
            inside=inside,
            lags=False,
            extensions={**knowledge.handlers(), **document.handlers(), **extensions},
        )
        return build_app(parts)

    def _guard(self, app: ASGIApp) -> ASGIApp:
        """Refuse requests of other sites on loopback, where no key is needed."""
        if not is_loopback(self._host):
            return app
        return RequestGuard(app, self._options.cors_origins)

    def _keys(self, folder: ServiceDir) -> KeyRing:
        book, others = folder.key_book(), None
        if is_loopback(self._host):
            others = Grant(
                meter_id="anyone", account="anyone", plan=self._plan, sha256="", **_NO_LIMITS
            )
        elif not any(account.keys for account in book.read().accounts):
            raise HostingError(
                f"{self._host} can be reached from other machines, and there is no key yet. "
                "Nothing listens. Create one: "
                f"almanac accounts keys create NAME --plan {self._plan.name} --dir "
                f"{folder.path}"
            )
        return KeyRing(book=book, others=others, adjusted=_unlimited)


class Mirror(HistoryServer):
    """A running mirror of a published file: each new publication is followed.

    Webhooks tell the endpoints of the folder what each publication added since their creation.

    Raises (start): as HistoryServer.
    """

    def __init__(
        self,
        warehouse: Path,
        *,
        state_dir: Path,
        events_in_memory: int = EVENTS_IN_MEMORY,
        wall: Callable[[], datetime] = utc_now,
        push: SenderOptions | None = None,
        **served: Unpack[Served],
    ) -> None:
        super().__init__(warehouse, state_dir=state_dir, **served)
        self._events_in_memory = events_in_memory
        self._wall = wall
        self._push = push

    def _app(self, folder: ServiceDir, undo: ExitStack) -> ASGIApp:
        undo.enter_context(folder.serving())
        feed = VersionFeed(folder.path / version_feed.FILE_NAME)
        undo.callback(feed.close)
        outbox = undo.enter_context(folder.outbox())
        store = self.store = MirrorStore(
            self._warehouse,
            feed,
            self._wall,
            pushed_until=outbox.watermark(),
            events_in_memory=self._events_in_memory,
        )
        self._pusher = Pusher(
            *(store, PushClock(store), folder.receivers(), outbox), options=self._push
        )
        app = self._serve(
            store,
            folder,
            undo,
            now=ServedClock(store, self._wall).now,
            changes_until=lambda: None,
            cursors=CursorSigner(cursor_secret(folder.path)),
            usage=UsageBook(folder.usage_file()),
            background=(self._follow, self._pusher.run),
            extensions={"/healthz": self._get_health},
            removed=feed.removed_versions,
        )
        return self._guard(app)

    async def _follow(self) -> None:
        """Serve each new publication: its view is made on a thread, and then replaces the old."""
        while True:
            views = None
            try:
                views = await asyncio.to_thread(self.store.follow)
            except Exception as error:
                # The served publication stays in service, and the next round tries again.
                if self.store.fail(error):
                    log.exception("following the publications failed")
            if views is not None:
                self.store.serve(views)
                self._pusher.wake()
            del views  # or the replaced file would stay open until the next publication
            await asyncio.sleep(_FOLLOWED_EVERY_S)

    async def _get_health(self, scope: Scope, exchange: Exchange) -> JSONResponse:
        exchange.route = "healthz"
        health = {"status": "ok", "publication": self.store.describe()}
        return JSONResponse(msgspec.to_builtins(health))


def _unlimited(grant: Grant) -> Grant:
    return msgspec.structs.replace(grant, **_NO_LIMITS)


def cursor_secret(folder: Path) -> bytes:
    """Return the secret of the cursors; made once, so that a cursor outlives a restart."""
    file = folder / "cursor.key"
    if not file.exists():
        # Linked when it is complete: a kill leaves no part of it, and two starts keep one.
        with NamedTemporaryFile(dir=folder, prefix=".cursor-") as made:
            made.write(secrets.token_bytes(32))
            made.flush()
            os.fsync(made.fileno())
            with suppress(FileExistsError):
                os.link(made.name, file)
    return file.read_bytes()
