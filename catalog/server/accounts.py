"""Accounts: API keys and what they may do, monthly usage, and the JSON files of both.

A key is random and shown once; the file holds its SHA-256. An account has a plan and at most that
plan's number of usable keys; team seats change nothing (interface 5; decisions on keys). Requests
are counted in memory for each key and month, by the catalog's clock, and written to a file, so that
a restart does not start a new month.
"""

import fcntl
import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from catalog.contract.plans import ENTERPRISE, PLANS, Plan, month_start, next_month
from catalog.contract.records import Period, Usage

T = TypeVar("T")


class ServiceDirError(Exception):
    """A server's folder or one of its files can't be used or changed so; it is as it was."""


class Edit(Generic[T]):
    """Holds the value while the file is locked; assign `value` to change it."""

    def __init__(self, value: T) -> None:
        self.value = value


class JsonFile(Generic[T]):
    """A file that holds a value of a msgspec type; an absent file is the type's default."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._name = str(path)
        self._kind = kind

    def version(self) -> tuple[int, int, int] | None:
        """Return a value that changes with every change of the file; None when there is no file."""
        try:
            # Half the time of `Path.stat`, and every request waits for it.
            stat = os.stat(self._name)  # noqa: PTH116
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def read(self) -> T:
        """Return the value. Raises ServiceDirError when the file is not of the expected form."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=self._kind)
        except FileNotFoundError:
            return self._kind()
        except msgspec.MsgspecError as error:
            raise ServiceDirError(
                f"{self.path} can't be read as {self._kind.__name__}: {error}. It was not "
                "changed; repair it or move it away."
            ) from error

    @contextmanager
    def editing(self) -> Iterator[Edit[T]]:
        """Lock, read, let the caller change the value, and write it if there was no error."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            edit = Edit(self.read())
            yield edit
            self._write(edit.value)

    def _write(self, value: T) -> None:
        temporary = self.path.with_suffix(".tmp")
        data = msgspec.json.format(msgspec.json.encode(value), indent=2)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the file holds it: never the key itself. Only Enterprise keys have own limits."""

    id: str
    sha256: str
    created_at: datetime
    expires_at: datetime | None = None
    """The end of a rotation's overlap, or the moment of revocation."""
    metered_as: str | None = None
    """The key that this one replaces, whose bucket and quota it continues to use."""
    rate_per_s: float | None = None
    burst: int | None = None
    monthly_quota: int | None = None

    def usable(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the key file."""

    name: str
    plan: str
    keys: tuple[StoredKey, ...] = ()

    def __post_init__(self) -> None:
        if self.plan not in PLANS:
            raise ValueError(f"there is no plan {self.plan!r}; the plans are {', '.join(PLANS)}")


class Accounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    format: int = 1
    accounts: tuple[Account, ...] = ()


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The rights and limits of a presented key."""

    meter_id: str
    """The key whose bucket and quota it uses: its own id, or the id of the key it replaces."""
    account: str
    plan: Plan
    rate_per_s: float
    burst: int
    monthly_quota: int | None
    sha256: str
    expires_at: datetime | None = None
    export_interval_s: float | None = None
    """The least time between two exports; None is the server's, 0 means no limit."""


def make_grant(account: Account, key: StoredKey) -> Grant:
    plan = PLANS[account.plan]
    own = key if plan is ENTERPRISE else None
    return Grant(
        meter_id=key.metered_as or key.id,
        account=account.name,
        plan=plan,
        rate_per_s=(own and own.rate_per_s) or plan.rate_per_s,
        burst=(own and own.burst) or plan.burst,
        monthly_quota=plan.monthly_quota if own is None else own.monthly_quota,
        sha256=key.sha256,
        expires_at=key.expires_at,
    )


def key_digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


log = logging.getLogger(__name__)

_KEY_PREFIX = "alm2_"


def random_key() -> str:
    return _KEY_PREFIX + secrets.token_urlsafe(30)


class KeyRing:
    """Finds a presented key among fixed keys and the keys of a file, read again when it changes.

    `others` is the grant of all other requests, None to refuse them. `adjusted` changes each grant
    of the file.
    """

    def __init__(
        self,
        *,
        book: "KeyBook | None" = None,
        fixed: Iterable[Grant] = (),
        others: Grant | None = None,
        adjusted: Callable[[Grant], Grant] = lambda grant: grant,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._book = book
        self._others = others
        self._adjusted = adjusted
        self._wall = wall
        self._fixed = {grant.sha256: grant for grant in fixed}
        self._filed: dict[str, Grant] = {}
        self._filed_version: object = None

    def grant_of(self, keys: Collection[str]) -> Grant | None:
        """Return the grant of a request that presents these keys; two keys are none."""
        found = self.find(next(iter(keys))) if len(keys) == 1 else None
        return found or self._others

    def find(self, key: str) -> Grant | None:
        """Return what the key may do; None when unknown, revoked or expired."""
        digest = key_digest(key)
        grant = self._fixed.get(digest) or self._from_file(digest)
        if grant is None or not hmac.compare_digest(grant.sha256, digest):
            return None
        if grant.expires_at is not None and self._wall() >= grant.expires_at:
            return None
        return grant

    def usable_grants(self) -> list[Grant]:
        """Return the grant of each key that is not revoked or expired."""
        self._from_file("")
        now = self._wall()
        found = (*self._fixed.values(), *self._filed.values())
        return [grant for grant in found if grant.expires_at is None or now < grant.expires_at]

    def _from_file(self, digest: str) -> Grant | None:
        if self._book is None:
            return None
        version = self._book.file.version()
        if version != self._filed_version:
            self._filed_version = version
            try:
                accounts = self._book.read().accounts
            except ServiceDirError:
                # A running server continues with the keys it knew, and reads the next change.
                log.exception("the key file can't be read; the previous keys stay valid")
                return self._filed.get(digest)
            grants = [
                self._adjusted(make_grant(account, key))
                for account in accounts
                for key in account.keys
            ]
            self._filed = {grant.sha256: grant for grant in grants}
        return self._filed.get(digest)


class KeyBook:
    """Creates, lists, revokes and rotates keys in the file."""

    def __init__(
        self,
        path: Path,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.file = JsonFile(path, Accounts)
        self._wall = wall
        self._plans: tuple[object, Mapping[str, Plan]] = (None, {})

    def read(self) -> Accounts:
        return self.file.read()

    def plans(self) -> Mapping[str, Plan]:
        """Return the plan of each account; read the file if it changed.

        Raises:
            ServiceDirError: the file is not a key book.
        """
        version = self.file.version()
        if version != self._plans[0]:
            accounts = self.read().accounts
            self._plans = (version, {each.name: PLANS[each.plan] for each in accounts})
        return self._plans[1]

    def create(
        self,
        account_name: str,
        plan: Plan,
        *,
        rate_per_s: float | None = None,
        burst: int | None = None,
        monthly_quota: int | None = None,
    ) -> tuple[str, StoredKey]:
        """Add a key to an account, which is made if new. Returns the key, shown only here.

        Raises:
            ServiceDirError: the account has another plan, or as many keys as its plan allows.
        """
        if not account_name.strip():
            raise ServiceDirError("an account needs a name; nothing was created")
        limits = {"rate_per_s": rate_per_s, "burst": burst, "monthly_quota": monthly_quota}
        if plan is not ENTERPRISE and any(limit is not None for limit in limits.values()):
            raise ServiceDirError(
                f"rate, burst and quota of {plan.name} are fixed; only Enterprise sets them"
            )
        _check_limits(rate_per_s, burst, monthly_quota)
        key, fresh = self._fresh()
        stored = msgspec.structs.replace(fresh, **limits)
        with self.file.editing() as edit:
            known = {account.name: account for account in edit.value.accounts}
            account = known.get(account_name) or Account(name=account_name, plan=plan.name)
            if account.plan != plan.name:
                raise ServiceDirError(
                    f"account {account_name} is on the plan {account.plan}, not {plan.name}; "
                    "use that plan, or another account"
                )
            self._check_room(account, plan)
            known[account_name] = msgspec.structs.replace(account, keys=(*account.keys, stored))
            edit.value = Accounts(accounts=tuple(known.values()))
        return key, stored

    def revoke(self, key_id: str) -> None:
        """Make a key unusable from now on.

        Raises:
            ServiceDirError: there is no such key, or it is no longer in use.
        """
        self._replace(key_id, lambda key: (self._ended(key, self._wall()),))

    def rotate(self, key_id: str, *, overlap: timedelta) -> tuple[str, StoredKey]:
        """Return a new key for an old one, which stays valid for `overlap`.

        The two count as one key of the plan, and share one bucket and one quota.

        Raises:
            ServiceDirError: there is no such key, it is not in use, or it was rotated already.
        """
        fresh, stored = self._fresh()
        ends_at = self._wall() + overlap

        def succeeded(key: StoredKey) -> tuple[StoredKey, ...]:
            if key.expires_at is not None and key.usable(self._wall()):
                raise ServiceDirError(f"key {key.id} was already replaced; rotate its successor")
            successor = msgspec.structs.replace(
                key,
                id=stored.id,
                sha256=stored.sha256,
                created_at=stored.created_at,
                metered_as=key.metered_as or key.id,
            )
            return self._ended(key, ends_at), successor

        self._replace(key_id, succeeded)
        return fresh, stored

    def _fresh(self) -> tuple[str, StoredKey]:
        key = random_key()
        digest = key_digest(key)
        return key, StoredKey(id="key_" + digest[:12], sha256=digest, created_at=self._wall())

    def _ended(self, key: StoredKey, at: datetime) -> StoredKey:
        if not key.usable(self._wall()):
            raise ServiceDirError(f"key {key.id} expired at {key.expires_at}")
        return msgspec.structs.replace(key, expires_at=at)

    def _replace(self, key_id: str, change: Callable[[StoredKey], tuple[StoredKey, ...]]) -> None:
        with self.file.editing() as edit:
            ids = {key.id for account in edit.value.accounts for key in account.keys}
            if key_id not in ids:
                raise ServiceDirError(
                    f"no such key: {key_id} in {self.file.path.parent}; `almanac accounts keys "
                    "list` lists the keys of a folder. A mirror has a folder of its own (--dir), "
                    "by default state/mirror of the home"
                )
            edit.value = Accounts(
                accounts=tuple(
                    msgspec.structs.replace(
                        account,
                        keys=tuple(
                            kept
                            for key in account.keys
                            for kept in (change(key) if key.id == key_id else (key,))
                        ),
                    )
                    for account in edit.value.accounts
                )
            )

    def _check_room(self, account: Account, plan: Plan) -> None:
        # A key that expires has a successor in the account, and only the successor counts.
        counted = sum(key.expires_at is None for key in account.keys)
        if plan.keys_max is not None and counted >= plan.keys_max:
            raise ServiceDirError(
                f"account {account.name} has {counted} keys, and the plan {plan.name} allows "
                f"{plan.keys_max}; revoke one first"
            )


def _check_limits(rate_per_s: float | None, burst: int | None, quota: int | None) -> None:
    if rate_per_s is not None and not 0.001 <= rate_per_s <= 1e6:
        raise ServiceDirError(f"rate must be from 0.001 to 1,000,000 a second, got {rate_per_s}")
    if burst is not None and not 1 <= burst <= 1_000_000:
        raise ServiceDirError(f"burst must be from 1 to 1,000,000, got {burst}")
    if quota is not None and not 0 <= quota <= 10**12:
        raise ServiceDirError(f"quota must be from 0 to 1,000,000,000,000 a month, got {quota}")


_MONTHS_MAX = 24


class UsageCounts(msgspec.Struct, frozen=True):
    """Requests by meter id and month (`YYYY-MM`)."""

    used: dict[str, dict[str, int]] = {}


def quota_period(now: datetime) -> Period:
    """Return the month of a time: its first day and the next month's, 00:00 UTC."""
    start = month_start(now)
    return Period(start=start, end=next_month(start))


class UsageBook:
    """Charges requests against the monthly quota."""

    def __init__(self, file: JsonFile[UsageCounts] | None = None) -> None:
        self._file = file
        self._used = {} if file is None else file.read().used
        self._dirty = False

    def used(self, grant: Grant, now: datetime) -> int:
        return self._used.get(grant.meter_id, {}).get(_month(now.year, now.month), 0)

    def exhausted(self, grant: Grant, now: datetime) -> bool:
        return grant.monthly_quota is not None and self.used(grant, now) >= grant.monthly_quota

    def charge(self, grant: Grant, now: datetime, count: int = 1) -> None:
        months = self._used.setdefault(grant.meter_id, {})
        month = _month(now.year, now.month)
        months[month] = months.get(month, 0) + count
        if len(months) > _MONTHS_MAX:
            # Never the month that is being charged: a sandbox may count in a past month.
            del months[min(known for known in months if known != month)]
        self._dirty = True

    def read_out(self, grant: Grant, now: datetime) -> Usage:
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

    def unwritten(self) -> UsageCounts | None:
        """Return a copy of the counts if they changed since the last call."""
        if self._file is None or not self._dirty:
            return None
        self._dirty = False
        return UsageCounts(used={key: dict(months) for key, months in self._used.items()})

    def write(self, counts: UsageCounts) -> None:
        """Write the counts; for a thread, since it waits for the disk."""
        if self._file is None:
            return
        try:
            with self._file.editing() as edit:
                edit.value = counts
        except (OSError, ServiceDirError):
            # The server continues to count in memory, and tries to write at the next flush.
            log.exception("the usage counts can't be written; they are kept in memory")
            self._dirty = True

    def flush(self) -> None:
        """Write what is not written yet."""
        counts = self.unwritten()
        if counts is not None:
            self.write(counts)


@lru_cache(maxsize=64)
def _month(year: int, month: int) -> str:
    return f"{year:04d}-{month:02d}"
