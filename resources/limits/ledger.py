"""The ledger of a key: a SQLite file with one row, shared by all processes of a machine.

    ALMANAC_STATE/limits/<hash of address and key>.sqlite

The row has the tokens of the rate and the count of the month; another table has the counts of other
months. Each change is one transaction, so a killed process loses at most its own request. A missing
or damaged file counts as unknown: no token and no quota. Tokens and waits are valid for one boot of
the machine; after a restart there is no token. No wall clock changes them.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import SecretStr

from almanac.core.statements import Statements
from catalog.contract.plans import month_start, next_month
from resources.errors import CatalogError

Work = Literal["daily", "polls", "backfill"]
UNKNOWN: Final = -2
UNLIMITED: Final = -1
SECOND_NS: Final = 1_000_000_000
SAME_MONTH_S: Final = 86_400
_UNEVEN_NS: Final = SECOND_NS
"""The largest difference between the clocks of two processor cores."""
_SQL: Final = Statements("resources.limits")
_Row = tuple[Any, ...]
_BUSY_S: Final = 30.0
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_DAMAGED: Final = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)
"""The SQLite errors of a damaged file. The last one is raised if the table is missing."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Tokens for each second, and how many may be kept."""

    rate_per_s: float
    burst: int

    @property
    def interval_ns(self) -> int:
        """The time for one token, rounded up so that the rate is never exceeded."""
        return int(SECOND_NS // self.rate_per_s) + 1


@dataclass(frozen=True, slots=True)
class ReportedLimits:
    """The monthly usage as reported by the service. `allowed` None means no quota; `resets_at` is
    UTC."""

    allowed: int | None
    used: int
    resets_at: datetime


@dataclass(frozen=True, slots=True)
class QuotaHeaders:
    """The monthly quota in the headers of a response; None means not stated.

    `reset_at` is by the service's clock, `resets_in_s` counts from the response.
    """

    allowed: int | None = None
    remaining: int | None = None
    reset_at: datetime | None = None
    resets_in_s: float | None = None


@dataclass(slots=True)
class Allowance:
    """The row of a key.

    `tokens` is the number of tokens at `at_ns`, the time of the last request. No request is sent
    before `held_until_ns`, and no export before `export_at_ns`. `used` is the service's count of
    the month and what was sent since, `own` is what this machine sent. `resets_at` is in seconds
    since 1970 by the service's clock. `rate_per_s` and `burst` are what the service states, 0 if
    nothing.
    """

    tokens: float = 0.0
    at_ns: int = 0
    held_until_ns: int = 0
    export_at_ns: int = 0
    allowed: int = UNKNOWN
    used: int = 0
    own: int = 0
    resets_at: int = 0
    rate_per_s: float = 0.0
    burst: int = 0
    months: dict[int, tuple[int, int]] = field(default_factory=dict)
    """`used` and `own` of other months, by reset."""

    def turn(self, resets_at: int) -> None:
        """Begin the month of a reset, or go on with it if it was counted before."""
        self.months[self.resets_at] = self.used, self.own
        self.used, self.own = self.counted(resets_at) or (0, 0)
        self.resets_at = resets_at

    def counted(self, resets_at: int) -> tuple[int, int] | None:
        """Return `used` and `own` of the month with a reset, None if it was not counted."""
        known = (self.months[at] for at in self.months if abs(at - resets_at) <= SAME_MONTH_S)
        return next(known, None)

    def earlier_reset(self, wall_s: float) -> int:
        """Return the reset of a counted month that goes on again, after a clock ran ahead, or 0."""
        most = self.resets_at - SAME_MONTH_S
        return min((at for at in self.months if wall_s + SAME_MONTH_S < at < most), default=0)

    def is_unknown(self, wall_s: float) -> bool:
        """Whether the usage of the current month is unknown."""
        is_over = wall_s >= self.resets_at or bool(self.earlier_reset(wall_s))
        return self.allowed == UNKNOWN or is_over

    def left(self, machine_quota: int | None = None) -> int | None:
        """Return the requests left this month to this machine, None if nothing limits it."""
        bounds = [self.allowed - self.used] if self.allowed >= 0 else []
        if machine_quota is not None:
            bounds.append(machine_quota - self.own)
        return max(0, min(bounds)) if bounds else None

    def tokens_at(self, now_ns: int, pace: Pace) -> float:
        gained = max(0, now_ns - self.at_ns) / pace.interval_ns
        return min(float(pace.burst), self.tokens + gained)


def next_reset(now: datetime) -> datetime:
    """Return the first of the next month, 00:00 UTC: the reset if the service reports none."""
    return next_month(month_start(now))


def boot_id() -> str:
    """Return the id of this boot of the machine, empty if there is none."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def monotonic_ns() -> int:
    """Return the nanoseconds since boot, including time asleep if the machine counts it."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def ledger_name(base_url: str, key: SecretStr) -> str:
    """Return the file name: the same for one key at one service, without a secret."""
    text = f"{base_url}\0{key.get_secret_value()}".encode()
    return blake2b(text, digest_size=12, person=b"almanac ledger").hexdigest() + ".sqlite"


class Ledger:
    """The file of one key. It is opened for each change, so threads and forks share nothing."""

    def __init__(
        self,
        path: Path,
        *,
        now_ns: Callable[[], int] = monotonic_ns,
        boot: Callable[[], str] = boot_id,
    ) -> None:
        self.path = path
        self.now_ns = now_ns
        self._boot = boot()

    @contextmanager
    def locked(self) -> Iterator[Allowance]:
        """Yield the row to read and change; no other process reads or changes it meanwhile.

        Raises:
            CatalogError: the file can't be read or written.
        """
        try:
            connection, row = self._open()
            with closing(connection):
                state = self._allowance(row)
                months = connection.execute(_SQL["read_months"])
                kept = {resets_at: (used, own) for resets_at, used, own in months}
                state.months = dict(kept)
                yield state
                *values, counted = astuple(state)
                if counted != kept:
                    rows = [(resets_at, *counts) for resets_at, counts in counted.items()]
                    connection.execute(_SQL["forget_months"])
                    connection.executemany(_SQL["write_month"], rows)
                if (changed := (self._boot, *values)) != row:
                    connection.execute(_SQL["write_allowance"], changed)
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise self._unusable("written", error) from error

    def peek(self) -> Allowance:
        """Return the row as it is; nothing is created or written.

        Raises:
            CatalogError: the file can't be read.
        """
        if not self.path.exists():
            return Allowance()
        try:
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as connection:
                return self._allowance(_read(connection))
        except sqlite3.Error as error:
            if _code(error) == sqlite3.SQLITE_READONLY:
                # The rest of a killed process, which only a writer can undo.
                with self.locked() as state:
                    return state
            if _code(error) in _DAMAGED:
                return Allowance()
            raise self._unusable("read", error) from error

    def _unusable(self, done: str, error: Exception) -> CatalogError:
        return CatalogError(
            f"the limits of the key can't be {done} in {self.path.parent}: {error}",
            next_step="Set ALMANAC_STATE to a folder on a local disk that this user can write to",
        )

    def _open(self) -> tuple[sqlite3.Connection, _Row]:
        """Begin a transaction and read the row; a damaged file is replaced by an empty one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
            try:
                # A kill loses nothing. After a power failure the boot is another one.
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_SQL["create_allowance"])
                connection.execute(_SQL["create_months"])
                return connection, _read(connection)
            except sqlite3.Error as error:
                connection.close()
                if _code(error) not in _DAMAGED:
                    raise
                self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)
                self.path.unlink(missing_ok=True)
        raise sqlite3.DatabaseError("the file is damaged again after it was replaced")

    def _allowance(self, row: _Row) -> Allowance:
        now_ns = self.now_ns()
        if not row:
            return Allowance(at_ns=now_ns)
        boot, *values = row
        state = Allowance(*values)
        # Without a boot id, or after a snapshot was restored, only the time shows another boot.
        if boot != self._boot or now_ns + _UNEVEN_NS < state.at_ns:
            state.tokens, state.at_ns = 0.0, now_ns
            state.held_until_ns = state.export_at_ns = 0
        return state


def _read(connection: sqlite3.Connection) -> _Row:
    return connection.execute(_SQL["read_allowance"]).fetchone() or ()


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
