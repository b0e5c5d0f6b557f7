"""The sandbox: history, clock, faults, push and server, started together.

with Sandbox(now=datetime(2026, 3, 1, tzinfo=UTC)) as sandbox:
    httpx.get(sandbox.base_url + "/v2/events", headers={"x-api-key": sandbox.keys["elite"]})
"""

import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final, TypeVar

from starlette.types import ASGIApp

from catalog.contract.constants import SIGNATURE_FORMS, SignatureForm
from catalog.contract.plans import ELITE, PLANS
from catalog.sandbox.clock import EARLIEST, SandboxClock
from catalog.sandbox.control import CONTROL_PATH, ControlOrders, LoggedRequest, SandboxLayer
from catalog.sandbox.faults import DelayLayer, FaultBoard, FaultLayer, FaultyPush
from catalog.sandbox.history import SandboxHistory
from catalog.server.accounts import Grant, make_grant
from catalog.server.app import ServerOptions, ServerParts, build_app
from catalog.server.catalog_store import ChangeQuery
from catalog.server.control_path import ControlPath
from catalog.server.hosting import HostedApp, free_port
from catalog.server.service_dir import ServiceDir
from catalog.server.webhooks.outbox import Outbox
from catalog.server.webhooks.sender import SenderOptions, WebhookSender, list_reported_kinds

ACCOUNT: Final = "sandbox"
"""The account on Elite that owns the endpoints registered here."""
_MONTH: Final = timedelta(days=30)
_EVERY: Final = 2**31


FIXED_KEYS: Final[Mapping[str, str]] = MappingProxyType({plan: f"sandbox-{plan}" for plan in PLANS})
"""The sandbox's fixed key of each plan: the one exception to random keys."""
DEFAULT_SEED: Final = 1
_REQUESTS_MAX: Final = 200_000
PartT = TypeVar("PartT")


class Sandbox:
    """A running, conforming server over a synthetic catalog. Each seed is one world.

    If `now` is None, the sandbox runs with the wall clock; a set time stands still until it is
    advanced. `state_dir` keeps keys, endpoints, deliveries and usage over restarts; None is a
    folder that is removed at the end. `push` is how webhooks are sent and retried.
    `export_interval_s` is the least time between two exports of any key; None is a minute for keys
    that were made, and no limit for the fixed keys.
    """

    def __init__(
        self,
        *,
        seed: int = DEFAULT_SEED,
        pace: float = 1.0,
        now: datetime | None = None,
        faults: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        state_dir: Path | None = None,
        options: ServerOptions | None = None,
        clock: SandboxClock | None = None,
        export_interval_s: float | None = None,
        push: SenderOptions | None = None,
        push_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.seed = seed
        self.pace = pace
        self.clock = clock or SandboxClock(now)
        self.faults = FaultBoard(faults)
        self.keys: Mapping[str, str] = FIXED_KEYS
        self._seen = deque[LoggedRequest](maxlen=_REQUESTS_MAX)
        self._host = host
        self._port = port
        self._state_dir = state_dir
        self._options = options or ServerOptions()
        if export_interval_s is not None:
            self._options = replace(self._options, export_interval_s=export_interval_s)
        self._fixed_interval_s = export_interval_s or 0.0
        self._hosted: HostedApp | None = None
        self._dir: ServiceDir | None = None
        self._push = push or SenderOptions()
        self._push_tls = push_tls
        self._sender: WebhookSender | None = None
        self._outbox: Outbox | None = None
        self._history: SandboxHistory | None = None
        self._undo = ExitStack()

    @property
    def base_url(self) -> str:
        return _started(self._hosted).base_url

    @property
    def port(self) -> int:
        return _started(self._hosted).port

    @property
    def requests(self) -> list[LoggedRequest]:
        """The requests that the server received, oldest first."""
        return list(self._seen)

    def forget_requests(self) -> None:
        self._seen.clear()

    def set_clock(self, instant: datetime) -> None:
        self.clock.set(instant)
        self._clock_moved()

    def advance(self, by: timedelta) -> datetime:
        """Move the clock forward and return the new time."""
        moved = self.clock.advance(by)
        self._clock_moved()
        return moved

    def advance_by_deliveries(self, count: int) -> datetime:
        """Move the clock forward until `count` more deliveries are due to an endpoint; return the
        new time. Others that are due at the same time are included."""
        now = until = self.clock.now()
        history = _started(self._history)
        due: list[datetime] = []
        while len(due) < count:
            seq, until = history.at(until).head(until), until + _MONTH
            query = ChangeQuery(until=until, after=seq)
            changes = history.at(until).changes(query, limit=_EVERY)
            due += [
                change.known_from for change in changes.rows for _ in list_reported_kinds(change)
            ]
        return self.advance(due[count - 1] - now if count else timedelta())

    def subscribe(
        self,
        url: str,
        *,
        signature: SignatureForm = SIGNATURE_FORMS[0],
        account: str = ACCOUNT,
    ) -> str:
        """Add an endpoint of an account, made on Elite if it is absent; return its signing secret.

        The endpoint is sent what changes from then on. Raises as `EndpointBook.add`, and
        TimeoutError when the sender does not answer.
        """
        keys, book = self.service_dir.key_book(), self.service_dir.endpoint_book()
        if keys.find_plan(account) is None:
            keys.create(account, ELITE)
        endpoint = book.add(url, account=account, allow_private=True, signature=signature)
        self._wait(lambda box: endpoint.id in box.positions(), within_s=30)
        return endpoint.secret

    def wait_until_pushed(self, within_s: float) -> None:
        """Wait until each change so far is delivered or is a dead letter.

        Raises:
            TimeoutError: something still waits.
        """
        sender, now = _started(self._sender), self.clock.now()
        self._wait(lambda _: (sender.delivered_until or EARLIEST) >= now, within_s=within_s)

    def _wait(self, holds: Callable[[Outbox], bool], *, within_s: float) -> None:
        outbox = _started(self._outbox)
        deadline = time.monotonic() + within_s
        self._clock_moved()
        while not holds(outbox):
            if time.monotonic() > deadline:
                waiting = len(outbox.pending())
                raise TimeoutError(
                    f"not within {within_s:g} s; at least {waiting} deliveries still wait"
                )
            time.sleep(0.05)

    def new_key(self, plan: str, *, account: str | None = None, **limits: float) -> str:
        """Return a fresh key with a bucket and a quota of its own; Enterprise sets its limits.

        `limits` are `rate_per_s`, `burst` and `monthly_quota`.
        """
        book = self.service_dir.key_book()
        name = account or f"test-{len(book.grants()) + 1}"
        return book.create(name, PLANS[plan], **limits)[0]

    @property
    def service_dir(self) -> ServiceDir:
        """The folder of keys, endpoints and deliveries; made at the start."""
        return _started(self._dir)

    def start(self) -> "Sandbox":
        """Listen. Raises ServerError when the port is taken."""
        # Before the world is generated, which takes seconds.
        free_port(self._host, self._port)
        with ExitStack() as undo:
            folder = self._state_dir
            if folder is None:
                made = TemporaryDirectory(prefix="almanac-sandbox-")
                folder = Path(undo.enter_context(made))
            self._dir = ServiceDir(folder)
            undo.enter_context(self._dir.serving())
            self._dir.claim_for(f"sandbox seed={self.seed} pace={self.pace:g}")
            self._outbox = undo.enter_context(self._dir.outbox())
            app = self._app(self._dir, self._outbox)
            hosted = HostedApp(app, host=self._host, port=self._port)
            self._hosted = hosted.start()
            undo.callback(self._hosted.stop)
            self._undo = undo.pop_all()
        return self

    def stop(self) -> None:
        """Stop listening; deliveries still pending are kept in `state_dir` for the next start."""
        self._undo.close()
        self._hosted = self._outbox = None

    def __enter__(self) -> "Sandbox":
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def _app(self, folder: ServiceDir, outbox: Outbox) -> ASGIApp:
        self._history = _shared_history(self.seed, self.pace)
        self._history.at(self.clock.now())
        faulty = FaultyPush(self.faults, self._push_tls)
        self._sender = WebhookSender(
            self._history.at,
            self.clock,
            folder.endpoint_book(),
            outbox,
            options=self._push,
            poster=faulty,
            due=faulty.due,
        )
        origins = self._options.cors_origins
        orders = ControlOrders(self.clock, self.faults, self._seen, self._clock_moved)
        return build_app(
            ServerParts(
                store=self._history.at,
                keys=folder.key_book(fixed=_fixed_grants(self._fixed_interval_s)),
                usage=folder.usage_book(),
                now=self.clock.now,
                monotonic_ns=self.clock.monotonic_ns,
                options=self._options,
                background=(self._sender.run,),
                around=(
                    partial(ControlPath, prefix=CONTROL_PATH, run=orders.run, origins=origins),
                    partial(SandboxLayer, faults=self.faults, seen=self._seen),
                    partial(FaultLayer, time_limit_s=self._options.time_limit_s),
                ),
                inside=(DelayLayer,),
            )
        )

    def _clock_moved(self) -> None:
        if self._sender is not None:
            self._sender.wake()


def _started(part: PartT | None) -> PartT:
    if part is None:
        raise RuntimeError("the sandbox is not started; use it as a context manager")
    return part


def _fixed_grants(export_interval_s: float) -> Iterator[Grant]:
    for plan, key in FIXED_KEYS.items():
        yield make_grant(PLANS[plan], key, ACCOUNT, export_interval_s=export_interval_s)


# One for a process: making it takes seconds.
_shared_history = lru_cache(maxsize=2)(SandboxHistory)
