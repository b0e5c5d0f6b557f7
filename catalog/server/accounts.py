"""AccountFile: API keys and what they may do, monthly usage, and the JSON files of both.

A key is random and shown once; the file holds its SHA-256. An account has a plan and at most that
plan's number of usable keys; team seats change nothing (interface 5). Requests
are counted in memory for each key and month, by the catalog's clock, and written to a file, so that
a restart does not start a new month.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import InitVar, dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from almanac.core.files import replace_file, wait_for_lock
from almanac.core.timestamps import utc_now
from catalog import ServerError
from catalog.contract.plans import ENTERPRISE, PLANS, Plan, month_start, next_month
from catalog.contract.records import Period, Usage

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass
class FileEdit(Generic[T]):
    """Holds the value while the file is locked; assign `value` to change it."""

    value: T


def read_file_version(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with every change of a file; None when there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


class JsonFile(Generic[T]):
    """A file that holds a value of a msgspec type; an absent file is the type's default."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._kind = kind

    def read(self) -> T:
        """Return the value. Raises ServerError when the file is not of the expected form."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=self._kind)
        except FileNotFoundError:
            return self._kind()
        except msgspec.MsgspecError as error:
            raise ServerError(
                f"{self.path} can't be read as {self._kind.__name__}: {error}. It was not "
                "changed; repair it or move it away."
            ) from error

    @contextmanager
    def edit(self) -> Iterator[FileEdit[T]]:
        """Lock, read, let the caller change the value, and write it if there was no error."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("a") as lock:
            wait_for_lock(lock)
            edit = FileEdit(self.read())
            yield edit
            self._write(edit.value)

    def _write(self, value: T) -> None:
        with replace_file(self.path) as staged:
            staged.touch(mode=0o600)
            staged.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2))


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the file holds it: never the key itself. Only Enterprise keys have own limits."""

    id: str
    sha256: str
    created_at: datetime
    expires_at: datetime | None = None
    """When it was revoked."""
    rate_per_s: float | None = None
    burst: int | None = None
    monthly_quota: int | None = None

    def is_usable(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at


class Account(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    plan: str
    keys: tuple[StoredKey, ...] = ()

    def __post_init__(self) -> None:
        if self.plan not in PLANS:
            raise ValueError(f"there is no plan {self.plan!r}; the plans are {', '.join(PLANS)}")


class AccountFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int = 1
    accounts: tuple[Account, ...] = ()


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The rights and limits of the key in a request."""

    meter_id: str
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
        meter_id=key.id,
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


LIMITS: Final = {"rate_per_s": (0.001, 10**6), "burst": (1, 10**6), "monthly_quota": (0, 10**12)}
"""The least and the most of each limit that an Enterprise key may set."""


class KeyBook:
    """Creates, lists and revokes keys in the file."""

    def __init__(self, path: Path, *, wall: Callable[[], datetime] = utc_now) -> None:
        self.file = JsonFile(path, AccountFile)
        self._wall = wall

    def read(self) -> AccountFile:
        return self.file.read()

    def plans(self) -> Mapping[str, Plan]:
        """Return the plan of each account. Raises ServerError: the file is not a key book."""
        return {account.name: PLANS[account.plan] for account in self.read().accounts}

    def create(
        self, account_name: str, plan: Plan, **limits: float | None
    ) -> tuple[str, StoredKey]:
        """Add a key to an account, which is made if new. Returns the key, shown only here.

        `limits` are of `LIMITS`; None is the plan's.

        Raises:
            ServerError: the account has another plan, or as many keys as its plan allows.
        """
        if not account_name.strip():
            raise ServerError("an account needs a name; nothing was created")
        own = {name: limit for name, limit in limits.items() if limit is not None}
        if own and plan is not ENTERPRISE:
            raise ServerError(
                f"rate, burst and quota of {plan.name} are fixed; only Enterprise sets them"
            )
        for name, limit in own.items():
            least, most = LIMITS[name]
            if not least <= limit <= most:
                raise ServerError(f"{name} must be from {least:g} to {most:,}, got {limit}")
        key, fresh = self._make_key()
        stored = replace(fresh, **own)
        with self.file.edit() as edit:
            known = {account.name: account for account in edit.value.accounts}
            account = known.get(account_name) or Account(name=account_name, plan=plan.name)
            if account.plan != plan.name:
                raise ServerError(
                    f"account {account_name} is on the plan {account.plan}, not {plan.name}; "
                    "use that plan, or another account"
                )
            counted = sum(key.expires_at is None for key in account.keys)
            if plan.keys_max is not None and counted >= plan.keys_max:
                allowed = f"the plan {plan.name} allows {plan.keys_max}; revoke one first"
                raise ServerError(f"account {account_name} has {counted} keys, and {allowed}")
            known[account_name] = replace(account, keys=(*account.keys, stored))
            edit.value = AccountFile(accounts=tuple(known.values()))
        return key, stored

    def revoke(self, key_id: str) -> None:
        """Make a key unusable from now on. Raises ServerError if it is not in use."""
        with self.file.edit() as edit:
            known, now = edit.value.accounts, self._wall()
            usable = {key.id for account in known for key in account.keys if key.is_usable(now)}
            if key_id not in usable:
                raise ServerError(
                    f"no key in use: {key_id} in {self.file.path.parent}; `keys list` lists the "
                    "keys there. `almanac serve` and `almanac sandbox` have keys of their own"
                )
            changed = (
                replace(
                    account,
                    keys=tuple(
                        replace(key, expires_at=now) if key.id == key_id else key
                        for key in account.keys
                    ),
                )
                for account in known
            )
            edit.value = AccountFile(accounts=tuple(changed))

    def _make_key(self) -> tuple[str, StoredKey]:
        key = "alm2_" + secrets.token_urlsafe(30)
        digest = key_digest(key)
        return key, StoredKey(id="key_" + digest[:12], sha256=digest, created_at=self._wall())


@dataclass(eq=False, repr=False, kw_only=True)
class KeyRing:
    """Finds a presented key among fixed keys and the keys of a file, read again when it changes.

    `others` is the grant of all other requests, None to refuse them.
    """

    book: KeyBook | None = None
    fixed: InitVar[Iterable[Grant]] = ()
    others: Grant | None = None
    adjusted: Callable[[Grant], Grant] = lambda grant: grant
    wall: Callable[[], datetime] = utc_now

    def __post_init__(self, fixed: Iterable[Grant]) -> None:
        self._fixed = {grant.sha256: grant for grant in fixed}
        self._known: Mapping[str, Grant] = self._fixed
        self._read_version: object = None

    def resolve_grant(self, keys: Collection[str]) -> Grant | None:
        """Return the grant of a request with these keys; two different keys count as no key."""
        found = self.find(*keys) if len(keys) == 1 else None
        return found or self.others

    def find(self, key: str) -> Grant | None:
        """Return what the key may do; None when unknown, revoked or expired."""
        # By a digest, so the time of the look-up tells nothing of other keys.
        grant = self._grants().get(key_digest(key))
        return grant if grant is not None and self._is_usable(grant) else None

    def usable_grants(self) -> list[Grant]:
        """Return the grant of each key that is not revoked or expired."""
        return [grant for grant in self._grants().values() if self._is_usable(grant)]

    def _is_usable(self, grant: Grant) -> bool:
        return grant.expires_at is None or self.wall() < grant.expires_at

    def _grants(self) -> Mapping[str, Grant]:
        if (
            self.book is None
            or (version := read_file_version(self.book.file.path)) == self._read_version
        ):
            return self._known
        self._read_version = version
        try:
            accounts = self.book.read().accounts
        except ServerError:
            # A running server continues with the keys it knew, and reads the next change.
            log.exception("the key file can't be read; the previous keys stay valid")
            return self._known
        made = [make_grant(account, key) for account in accounts for key in account.keys]
        self._known = {grant.sha256: self.adjusted(grant) for grant in made} | self._fixed
        return self._known


class UsageCounts(msgspec.Struct, frozen=True):
    """Requests by meter id and month (`YYYY-MM`)."""

    used: dict[str, dict[str, int]] = {}


def quota_period(now: datetime) -> Period:
    """Return the month of a time: its first day and the next month's, 00:00 UTC."""
    start = month_start(now)
    return Period(start=start, end=next_month(start))


class UsageBook:
    """Charges requests against the monthly quota. Thread-safe."""

    def __init__(self, file: JsonFile[UsageCounts] | None = None) -> None:
        self._file = file
        self._lock = Lock()
        self._used = {} if file is None else file.read().used
        self._is_written = True

    def used(self, grant: Grant, now: datetime) -> int:
        return self._used.get(grant.meter_id, {}).get(f"{now:%Y-%m}", 0)

    def is_exhausted(self, grant: Grant, now: datetime) -> bool:
        return grant.monthly_quota is not None and self.used(grant, now) >= grant.monthly_quota

    def charge(self, grant: Grant, now: datetime, count: int = 1) -> None:
        with self._lock:
            months = self._used.setdefault(grant.meter_id, {})
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
            counts = UsageCounts({key: dict(months) for key, months in self._used.items()})
        try:
            with self._file.edit() as edit:
                edit.value = counts
        except (OSError, ServerError):
            log.exception("the usage counts can't be written; they are kept in memory")
            self._is_written = False
