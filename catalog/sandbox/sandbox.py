"""The sandbox: world, clock, faults, push and server, started together.

with Sandbox(now=datetime(2026, 3, 1, tzinfo=UTC)) as sandbox:
    httpx.get(sandbox.base_url + "/v2/events", headers={"x-api-key": sandbox.keys["elite"]})
"""

import asyncio
import hashlib
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from starlette.types import ASGIApp

from catalog.contract.constants import SIGNATURE_FORMS, SignatureForm
from catalog.contract.plans import ELITE, PLANS
from catalog.sandbox.control import RequestsSeen, SandboxLayer, SeenRequest, instant_of_request
from catalog.sandbox.faults import FaultBoard, FaultLayer, delayed
from catalog.sandbox.sandbox_clock import EARLIEST, SandboxClock
from catalog.sandbox.world.world import World
from catalog.sandbox.world_process import WorldProcess
from catalog.sandbox.world_store import SandboxStore
from catalog.server.accounts import (
    Account,
    Grant,
    KeyRing,
    StoredKey,
    UsageBook,
    key_digest,
    make_grant,
)
from catalog.server.app import ServerOptions, ServerParts, build_app
from catalog.server.hosting import HostedApp, free_port
from catalog.server.routes import CursorSigner
from catalog.server.state_dir import ServiceDir
from catalog.server.webhooks.delivery import AttemptOutcome, Poster
from catalog.server.webhooks.endpoints import Endpoint
from catalog.server.webhooks.outbox import Outbox
from catalog.server.webhooks.sender import Pusher, SenderOptions

ACCOUNT: Final = "sandbox"
"""The account on Elite that owns the endpoints registered here."""
_SHUFFLED_WITHIN: Final = timedelta(hours=1)


def register(
    folder: ServiceDir,
    url: str,
    *,
    secret: str | None = None,
    signature: SignatureForm = SIGNATURE_FORMS[0],
    account: str = ACCOUNT,
) -> tuple[Endpoint, str]:
    """Return the enabled endpoint of an account at a URL, and its secret; made if there is none.

    The account is made on Elite. A `secret` of the caller's replaces another one immediately.

    Raises:
        ServiceDirError: the account is on a plan without push, or the secret can't be one.
        TargetRefused: webhooks are not sent to this URL.
        ServiceDirError: a file of the folder can't be read.
    """
    accounts, book = folder.key_book(), folder.endpoint_book()
    if account not in accounts.plans():
        accounts.create(account, ELITE)
    for known in book.endpoints():
        if (known.account, known.url) == (account, url):
            newest = known.secrets[0].value
            if secret not in (None, newest):
                newest = book.rotate(known.id, overlap_hours=0, secret=secret)
            book.sign_as(known.id, signature)
            book.enable(known.id)
            return book.get(known.id), newest
    return book.add(url, account=account, allow_private=True, signature=signature, secret=secret)


class FaultyPush:
    """Posts deliveries, and says when new ones are due, with the faults that are on."""

    def __init__(self, faults: FaultBoard, tls: ssl.SSLContext | None = None) -> None:
        self._faults = faults
        self._poster = Poster(tls=tls)
        self._random = Random(0).random

    def due(self) -> datetime:
        """Return when a new delivery is due: now, or when shuffled at a random time before."""
        now = datetime.now(UTC)
        if self._faults.draw("", among=("push_shuffled",)):
            return now - _SHUFFLED_WITHIN * self._random()
        return now

    async def post(
        self, url: str, *, allow_private: bool, body: bytes, headers: Mapping[str, str]
    ) -> AttemptOutcome:
        drawn = self._faults.draw(url, among=("push_twice", "push_unanswered"))
        names = [fault.name for fault in drawn]
        # At the same time, which is the harder case for a receiver.
        first, *_ = await asyncio.gather(
            *(
                self._poster.post(url, allow_private=allow_private, body=body, headers=headers)
                for _ in range(2 if "push_twice" in names else 1)
            )
        )
        if "push_unanswered" in names:
            return AttemptOutcome(None, "the answer was lost: fault push_unanswered")
        return first


FIXED_KEYS: Final[Mapping[str, str]] = MappingProxyType({plan: f"sandbox-{plan}" for plan in PLANS})
"""The sandbox's fixed key of each plan: the one exception to random keys."""
DEFAULT_SEED: Final = 1
PartT = TypeVar("PartT")


class Sandbox:
    """A running, conforming server over a synthetic catalog. Each seed is one world.

    `now` None runs with the wall clock; a time stands still until advanced. `state_dir` keeps
    keys, endpoints, deliveries and usage over restarts; None is a folder that is removed at the
    end. `push` is how webhooks are sent and retried. `export_interval_s` is the least time between
    two exports of any key; None is a minute for keys that were made, and no limit for the fixed
    keys. `world_process` is of the same seed and pace, and helps to generate a world of its own.
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
        world_process: WorldProcess | None = None,
        push: SenderOptions | None = None,
        push_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.seed = seed
        self.pace = pace
        self.clock = clock or SandboxClock(now)
        self.faults = FaultBoard(faults)
        self.keys: Mapping[str, str] = FIXED_KEYS
        self._seen = RequestsSeen()
        self._host = host
        self._port = port
        self._state_dir = state_dir
        self._options = options or ServerOptions()
        if export_interval_s is not None:
            self._options = replace(self._options, export_interval_s=export_interval_s)
        self._fixed_interval_s = export_interval_s or 0.0
        self._world_process = world_process
        self._hosted: HostedApp | None = None
        self._dir: ServiceDir | None = None
        self._push = push
        self._push_tls = push_tls
        self._pusher: Pusher | None = None
        self._outbox: Outbox | None = None
        self._store: SandboxStore | None = None
        self._undo = ExitStack()

    @property
    def base_url(self) -> str:
        return self._running.base_url

    @property
    def port(self) -> int:
        return self._running.port

    @property
    def requests(self) -> list[SeenRequest]:
        """The requests that the server received, oldest first."""
        return self._seen.all()

    def forget_requests(self) -> None:
        self._seen.clear()

    def truth(self) -> World:
        """Return the world of this seed and pace, which gives what is true at any time."""
        return _shared_world(self.seed, self.pace)

    def set_clock(self, instant: datetime) -> None:
        """Stand at a time."""
        self.clock.set(instant)
        self._clock_moved()

    def advance(self, by: timedelta) -> datetime:
        """Move the clock forward and return the new time."""
        moved = self.clock.advance(by)
        self._clock_moved()
        return moved

    def advance_by_deliveries(self, count: int) -> datetime:
        """Move the clock forward to where `count` more deliveries are due to an endpoint, or a few
        more that are due at that time; return the new time."""
        now = until = self.clock.now()
        due: list[datetime] = []
        while len(due) < count:
            until, before = until + timedelta(days=30), until
            due += [change.at for change in self._served.changes(before, until)]
        return self.advance(due[count - 1] - now if count else timedelta())

    def subscribe(
        self,
        url: str,
        *,
        secret: str | None = None,
        signature: SignatureForm = SIGNATURE_FORMS[0],
        account: str = ACCOUNT,
    ) -> str:
        """Register an endpoint of an account on Elite, and return its signing secret.

        When it returns, the endpoint is sent what changes from then on.

        Raises:
            ServiceDirError: the account has no push, the secret is invalid, or a file of the
                folder can't be read.
            TargetRefused: webhooks are not sent to this URL.
            TimeoutError: the sender does not answer.
        """
        endpoint, secret = register(
            self.service_dir, url, secret=secret, signature=signature, account=account
        )
        self._wait(lambda box: endpoint.id in box.subscriptions(), within_s=30)
        return secret

    def wait_until_pushed(self, within_s: float) -> None:
        """Wait until all that changed until now is delivered, or is a dead letter.

        Raises:
            TimeoutError: something still waits.
        """

        def nothing_waits(box: Outbox) -> bool:
            mark, now = box.watermark(), self.clock.now()
            return (
                mark is not None
                and not self._served.changes(mark, now)
                and not box.waiting_endpoints()
            )

        self._wait(nothing_waits, within_s=within_s)

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

    def new_key(
        self,
        plan: str,
        *,
        account: str | None = None,
        rate_per_s: float | None = None,
        burst: int | None = None,
        monthly_quota: int | None = None,
    ) -> str:
        """Return a fresh key with a bucket and a quota of its own; Enterprise sets its limits."""
        book = self.service_dir.key_book()
        name = account or f"test-{len(book.read().accounts) + 1}"
        key, _ = book.create(
            name, PLANS[plan], rate_per_s=rate_per_s, burst=burst, monthly_quota=monthly_quota
        )
        return key

    @property
    def service_dir(self) -> ServiceDir:
        """The folder of keys, endpoints and deliveries; made at the start."""
        return _started(self._dir)

    def start(self) -> "Sandbox":
        """Listen. Raises HostingError when the port is taken."""
        if self._port:
            # Before the world is generated, which takes seconds.
            free_port(self._host, self._port)
        folder = self._state_dir
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="almanac-sandbox-"))
        with ExitStack() as undo:
            if self._state_dir is None:
                undo.callback(shutil.rmtree, folder)
            self._dir = ServiceDir(folder)
            undo.enter_context(self._dir.serving())
            self._dir.belongs_to(f"sandbox seed={self.seed} pace={self.pace:g}")
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

    @property
    def _running(self) -> HostedApp:
        return _started(self._hosted)

    @property
    def _served(self) -> SandboxStore:
        return _started(self._store)

    def _app(self, folder: ServiceDir, outbox: Outbox) -> ASGIApp:
        store = self._store = SandboxStore(self._world())
        store.at(self.clock.now())
        faulty = FaultyPush(self.faults, self._push_tls)
        self._pusher = Pusher(
            *(store, self.clock, folder.receivers(), outbox),
            options=self._push,
            poster=faulty,
            due=faulty.due,
        )
        parts = ServerParts(
            store=store,
            keys=KeyRing(book=folder.key_book(), fixed=_fixed_grants(self._fixed_interval_s)),
            usage=UsageBook(folder.usage_file()),
            # Made from the seed, so that a cursor stays valid after a restart of the same sandbox.
            cursors=CursorSigner(hashlib.sha256(f"almanac-sandbox-{self.seed}".encode()).digest()),
            instant_of=lambda scope: instant_of_request(scope, self.clock),
            options=self._options,
            background=(self._pusher.run,),
            around=lambda app: FaultLayer(app, time_limit_s=self._options.time_limit_s),
            inside=delayed,
        )
        return SandboxLayer(
            build_app(parts),
            clock=self.clock,
            faults=self.faults,
            seen=self._seen,
            on_clock_moved=self._clock_moved,
        )

    def _world(self) -> World:
        if self._world_process is None:
            return _shared_world(self.seed, self.pace)
        return World(self.seed, pace=self.pace, generated_months=self._world_process.take)

    def _clock_moved(self) -> None:
        """Wake the webhook sender, so that the changes of the new time are sent immediately."""
        if self._pusher is not None:
            self._pusher.wake()


def _started(part: PartT | None) -> PartT:
    if part is None:
        raise RuntimeError("the sandbox is not started; use it as a context manager")
    return part


def _fixed_grants(export_interval_s: float) -> list[Grant]:
    grants: list[Grant] = []
    for plan, key in FIXED_KEYS.items():
        digest = key_digest(key)
        stored = StoredKey(id=key, sha256=digest, created_at=EARLIEST)
        grant = make_grant(Account(name="sandbox", plan=plan), stored)
        grants.append(msgspec.structs.replace(grant, export_interval_s=export_interval_s))
    return grants


@lru_cache(maxsize=2)
def _shared_world(seed: int, pace: float) -> World:
    """Return one world for a process: nothing changes it, and generating it takes seconds."""
    return World(seed, pace=pace)
