"""Servers of the interface over a published warehouse, without a quota: the mirror and the replay.

with Mirror(Path("data/warehouse.duckdb"), state_dir=Path("data/mirror")) as mirror:
    httpx.get(mirror.base_url + "/v2/events")

A replay is a mirror with a virtual clock. It sends webhooks to the endpoints of the same folder, in
the order of knowledge. Its outbox starts empty, so each replay sends the same bytes again.
"""

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol, Self

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp

from almanac.core.files import replace_file, wait_for_lock
from almanac.core.timestamps import utc_now
from application.web.mirror.as_of import AsOfLayer
from application.web.mirror.history_routes import ROUTES, extend_parameters
from application.web.mirror.mirror_document import mirror_document
from application.web.mirror.publications import Publications
from application.web.mirror.replay import Replay
from catalog import ServerError
from catalog.contract.plans import ENTERPRISE, Plan
from catalog.server.accounts import Grant, KeyBook, make_grant
from catalog.server.app import Background, Layer, ServerOptions, ServerParts, build_app
from catalog.server.control_path import ControlPath
from catalog.server.hosting import HostedApp
from catalog.server.middleware import OPEN_PATHS
from catalog.server.request_guard import is_loopback
from catalog.server.service_dir import ServiceDir
from catalog.server.webhooks.sender import SenderOptions, WebhookSender

CONTROL_PATH: Final = "/replay/clock"
REPLAY_PUSH: Final = SenderOptions(retry_after_s=(1.0,), poll_s=0.1, in_order=True)
"""A receiver that fails is tried again each second, and holds up its own deliveries only."""
_NO_LIMITS: Final[dict[str, Any]] = {
    "rate_per_s": 1_000_000,
    "burst": 1_000_000,
    "monthly_quota": None,
    "export_interval_s": 0.0,
}


@dataclass(frozen=True, slots=True)
class SiteContext:
    """The parts from which pages in front of the interface are made.

    `now` is the clock of the answers; `keys` are the keys that a request needs if `needs_key`.
    `secret` is the secret of the server's folder, for signatures. `base_path` is the prefix of the
    server's addresses behind a proxy, such as `/almanac`; empty without one.
    """

    warehouse: Path
    now: Callable[[], datetime]
    keys: KeyBook
    needs_key: bool
    secret: bytes = field(repr=False)
    is_replay: bool = False
    base_path: str = ""


class Site(Protocol):
    """Pages in front of the interface: `around` answers their paths, and passes on the others."""

    def around(self, app: ASGIApp) -> ASGIApp: ...

    def close(self) -> None: ...


@dataclass(eq=False, repr=False)
class Mirror:
    """A running mirror of a published file: each new publication is followed.

    On loopback a request needs no key: it has the rights of `plan`. On another address it needs a
    key of the key file. No request is limited. Webhooks tell the endpoints of the folder what each
    publication added since their creation; those of `replay`, what becomes known by its clock.

    Raises (start):
        WarehouseError: the published file is missing or can't be used.
        ServerError: the port is taken, or the address needs a key and there is none.
        ServerError: the folder can't be used.
    """

    warehouse: Path
    _: KW_ONLY
    state_dir: Path
    replay: Replay | None = None
    host: str = "127.0.0.1"
    port: int = 0
    plan: Plan = ENTERPRISE
    options: ServerOptions = field(default_factory=ServerOptions)
    site: Callable[[SiteContext], Site] | None = None
    push: SenderOptions | None = None
    wall: Callable[[], datetime] = utc_now
    base_url: str = field(init=False)
    sender: WebhookSender = field(init=False)
    _undo: ExitStack = field(init=False, default_factory=ExitStack)

    def start(self) -> Self:
        with ExitStack() as undo:
            app = self._make_app(ServiceDir(self.state_dir), undo)
            hosted = undo.enter_context(HostedApp(app, host=self.host, port=self.port))
            self.base_url = hosted.base_url
            self._undo = undo.pop_all()
        return self

    def stop(self) -> None:
        self._undo.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def _make_app(self, folder: ServiceDir, undo: ExitStack) -> ASGIApp:
        replay, own = self.replay, folder
        is_replay, needs_key = replay is not None, not is_loopback(self.host)
        source: Publications | Replay
        if replay is None:
            undo.enter_context(folder.serving())
            source = publications = Publications(self.warehouse, self.wall)
            routes = [*ROUTES, Route("/healthz", publications.get_health, name="healthz")]
        else:
            source, routes = replay, [*ROUTES]
            temporary = TemporaryDirectory(prefix="almanac-replay-")
            own = ServiceDir(Path(undo.enter_context(temporary)))
        undo.callback(source.close)
        keys = self._keys(folder)
        sender = self.sender = WebhookSender(
            lambda _: source.store(),
            source,
            folder.endpoint_book(),
            undo.enter_context(own.outbox()),
            options=self.push or (REPLAY_PUSH if is_replay else SenderOptions()),
            states_created=True,
            since=None if replay is None else replay.clock.start,
        )
        around: list[Layer] = []
        background: list[Background] = [sender.run]
        origins = self.options.cors_origins
        if replay is not None:
            obey = partial(replay.obey, sender)
            around.append(partial(ControlPath, prefix=CONTROL_PATH, run=obey, origins=origins))
            background.append(partial(replay.watch_end, sender))
        if self.site is not None:
            secret = cursor_secret(folder.path)
            facts = (self.warehouse, source.now, keys, needs_key, secret, is_replay)
            site = self.site(SiteContext(*facts, self.options.base_path))
            undo.callback(site.close)
            around.append(site.around)
        parts = ServerParts(
            store=lambda _: source.store(),
            keys=keys,
            usage=own.usage_book(),
            now=source.now,
            options=self.options,
            document=partial(mirror_document, needs_key, is_replay),
            routes=routes,
            background=background,
            around=around,
            inside=[
                lambda app: AsOfLayer(app, lambda: source.span, source.now, clock_moves=is_replay)
            ],
            extensions=extend_parameters,
            lags=False,
            open_paths=OPEN_PATHS - {"/metrics"},
            guard=not needs_key,
        )
        return build_app(parts)

    def _keys(self, folder: ServiceDir) -> KeyBook:
        if is_loopback(self.host):
            others = make_grant(self.plan, "", "anyone", **_NO_LIMITS)
            return folder.key_book(others=others, adjusted=_unlimited)
        book = folder.key_book(adjusted=_unlimited)
        if not book.grants():
            raise ServerError(
                f"{self.host} can be reached from other machines, and there is no key yet. "
                "Nothing listens. Create one: "
                f"almanac serve keys create NAME --plan {self.plan.name}, with the same --home or "
                "--dir"
            )
        return book


def _unlimited(grant: Grant) -> Grant:
    return msgspec.structs.replace(grant, **_NO_LIMITS)


def cursor_secret(folder: Path) -> bytes:
    """Return the secret of a folder, which signs the addresses of calendars; made once."""
    file = folder / "cursor.key"
    if not file.exists():
        with file.with_suffix(".lock").open("a") as lock:
            wait_for_lock(lock)
            if not file.exists():
                with replace_file(file) as staged:
                    staged.touch(mode=0o600)
                    staged.write_bytes(secrets.token_bytes(32))
    return file.read_bytes()
