"""Keys and what they may do, monthly usage, and the JSON files of both.

A key is random and shown once; the file holds its SHA-256. An account has one plan and at most that
plan's number of usable keys; team seats change nothing (interface 5). Requests
are counted in memory for each key and month, by the catalog's clock, and written to a file, so that
a restart does not start a new month.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from almanac.core.files import replace_file, wait_for_lock
from almanac.core.timestamps import utc_now
from catalog import ServerError
from catalog.contract.plans import ENTERPRISE, PLANS, Plan, month_start, next_month
from catalog.contract.records import Period, Usage

T = TypeVar("T")
log = logging.getLogger(__name__)


def read_file_version(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with every change of a file; None when there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


class JsonFile(Generic[T]):
    """A file that holds a value of a type that msgspec knows; an absent file is the type's default.

    Raises (all methods):
        ServerError: the file is not of the expected form. It was not changed.
    """

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._kind = kind

    def read(self) -> T:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=self._kind)
        except FileNotFoundError:
            return self._kind()
        except msgspec.MsgspecError as error:
            raise ServerError(
                f"{self.path} can't be read: {error}. It was not changed; repair it or move it away"
            ) from error

    def change(self, make: Callable[[T], T]) -> None:
        """Lock, read, and write what the caller makes of the value, unless it raises an error."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as lock:
            wait_for_lock(lock)
            value = make(self.read())
            with replace_file(self.path) as staged:
                staged.touch(mode=0o600)
                staged.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The rights and limits of a key, as the file holds them: never the key itself."""

    id: str
    account: str
    plan_name: str = msgspec.field(name="plan")
    sha256: str
    rate_per_s: float
    burst: int
    monthly_quota: int | None
    export_interval_s: float | None = None
    """The least time between two exports; None is the server's, 0 means no limit."""
    created_at: datetime | None = None
    revoked_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.plan_name not in PLANS:
            known = ", ".join(PLANS)
            raise ValueError(f"there is no plan {self.plan_name!r}; the plans are {known}")

    @property
    def plan(self) -> Plan:
        return PLANS[self.plan_name]


def make_grant(plan: Plan, key: str, account: str, **fields: Any) -> Grant:
    """Return the grant of a key, with the limits of its plan; `fields` replace them."""
    digest = key_digest(key)
    limits = {"rate_per_s": plan.rate_per_s, "burst": plan.burst}
    found = {"id": "key_" + digest[:12], **limits, "monthly_quota": plan.monthly_quota, **fields}
    return Grant(account=account, plan_name=plan.name, sha256=digest, **found)


def key_digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class KeyBook:
    """Adds, lists, revokes and finds the keys of a file, which is read again when it changes.

    `fixed` are keys that no file has. `others` is the grant of all other requests, None to refuse
    them. `adjusted` returns what a key of the file may do on this server.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        fixed: Iterable[Grant] = (),
        others: Grant | None = None,
        adjusted: Callable[[Grant], Grant] = lambda grant: grant,
        wall: Callable[[], datetime] = utc_now,
    ) -> None:
        self._file = None if path is None else JsonFile(path, tuple[Grant, ...])
        self._fixed = {grant.sha256: grant for grant in fixed}
        self._others = others
        self._adjusted = adjusted
        self._wall = wall
        self._known: Mapping[str, Grant] = self._fixed
        self._read_version: object = None

    @property
    def file(self) -> JsonFile[tuple[Grant, ...]]:
        assert self._file is not None, "these keys have no file"
        return self._file

    def grants(self) -> tuple[Grant, ...]:
        """Return the keys of the file. Raises ServerError: it is not a key book."""
        return self.file.read()

    def find_plan(self, account: str) -> Plan | None:
        """Return the plan of an account, None if it has no key. Raises ServerError as above."""
        return next((grant.plan for grant in self.grants() if grant.account == account), None)

    def create(self, account: str, plan: Plan, **limits: float | None) -> tuple[str, Grant]:
        """Add a key to an account, which is made if new. Returns the key, shown only here.

        `limits` are rate_per_s, burst and monthly_quota; None is the plan's.

        Raises:
            ServerError: the account has another plan, or as many keys as its plan allows.
        """
        if not account.strip():
            raise ServerError("an account needs a name; nothing was created")
        own = {name: limit for name, limit in limits.items() if limit is not None}
        if own and plan is not ENTERPRISE:
            raise ServerError(
                f"rate, burst and quota of {plan.name} are fixed; only Enterprise sets them"
            )
        key = "alm2_" + secrets.token_urlsafe(30)
        fresh = make_grant(plan, key, account, created_at=self._wall(), **own)

        def add(known: tuple[Grant, ...]) -> tuple[Grant, ...]:
            same = [grant for grant in known if grant.account == account]
            if same and same[0].plan is not plan:
                raise ServerError(
                    f"account {account} is on the plan {same[0].plan_name}, not {plan.name}; "
                    "use that plan, or another account"
                )
            counted = sum(grant.revoked_at is None for grant in same)
            if plan.keys_max is not None and counted >= plan.keys_max:
                allowed = f"the plan {plan.name} allows {plan.keys_max}; revoke one first"
                raise ServerError(f"account {account} has {counted} keys, and {allowed}")
            return (*known, fresh)

        self.file.change(add)
        return key, fresh

    def revoke(self, key_id: str) -> None:
        """Make a key unusable from now on. Raises ServerError if it is not in use."""

        def end(known: tuple[Grant, ...]) -> tuple[Grant, ...]:
            if not any(grant.id == key_id and grant.revoked_at is None for grant in known):
                raise ServerError(
                    f"no key in use: {key_id} in {self.file.path.parent}; `keys list` lists the "
                    "keys there. `almanac serve` and `almanac sandbox` have keys of their own"
                )
            revoked_at = self._wall()
            return tuple(
                replace(grant, revoked_at=revoked_at) if grant.id == key_id else grant
                for grant in known
            )

        self.file.change(end)

    def resolve_grant(self, keys: Collection[str]) -> Grant | None:
        """Return the grant of a request with these keys; two different keys count as no key."""
        found = self.find(*keys) if len(keys) == 1 else None
        return found or self._others

    def find(self, key: str) -> Grant | None:
        """Return what the key may do; None when unknown or revoked."""
        # By a digest, so the time of the look-up tells nothing of other keys.
        return self._usable().get(key_digest(key))

    def usable_grants(self) -> list[Grant]:
        """Return the grant of each key that is not revoked."""
        return [*self._usable().values()]

    def _usable(self) -> Mapping[str, Grant]:
        if (
            self._file is None
            or (version := read_file_version(self._file.path)) == self._read_version
        ):
            return self._known
        self._read_version = version
        try:
            grants = self._file.read()
        except ServerError:
            # A running server continues with the keys it knew, and reads the next change.
            log.exception("the key file can't be read; the previous keys stay valid")
            return self._known
        usable = (self._adjusted(grant) for grant in grants if grant.revoked_at is None)
        self._known = {grant.sha256: grant for grant in usable} | self._fixed
        return self._known


UsageCounts = dict[str, dict[str, int]]
"""Requests by the id of a grant and month (`YYYY-MM`)."""


def quota_period(now: datetime) -> Period:
    """Return the month of a time: its first day and the next month's, 00:00 UTC."""
    start = month_start(now)
    return Period(start=start, end=next_month(start))


class UsageBook:
    """Charges requests against the monthly quota. Thread-safe."""

    def __init__(self, file: JsonFile[UsageCounts] | None = None) -> None:
        self._file = file
        self._lock = Lock()
        self._used = {} if file is None else file.read()
        self._is_written = True

    def used(self, grant: Grant, now: datetime) -> int:
        return self._used.get(grant.id, {}).get(f"{now:%Y-%m}", 0)

    def is_exhausted(self, grant: Grant, now: datetime) -> bool:
        return grant.monthly_quota is not None and self.used(grant, now) >= grant.monthly_quota

    def charge(self, grant: Grant, now: datetime, count: int = 1) -> None:
        with self._lock:
            months = self._used.setdefault(grant.id, {})
            months[f"{now:%Y-%m}"] = months.get(f"{now:%Y-%m}", 0) + count
            self._is_written = False

    def make_record(self, grant: Grant, now: datetime) -> Usage:
        """Return the record of GET /v2/usage."""
        period, used, limit = quota_period(now), self.used(grant, now), grant.monthly_quota
        return Usage(
            plan=grant.plan.name,
            period=period,
            used=used,
            limit=limit,
            remaining=None if limit is None else max(0, limit - used),
            reset_at=period.end,
            rate=grant.rate_per_s,
            burst=grant.burst,
        )

    def flush(self) -> None:
        """Write the pending counts, and wait until they are on disk."""
        if self._file is None or self._is_written:
            return
        with self._lock:
            self._is_written = True
            counts = {key: dict(months) for key, months in self._used.items()}
        try:
            self._file.change(lambda _: counts)
        except (OSError, ServerError):
            log.exception("the usage counts can't be written; they are kept in memory")
            self._is_written = False
