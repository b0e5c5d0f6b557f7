"""The writer lease: one row of the database says which writer may commit, and until when.

Every writer that takes the lease raises its epoch. Sessions of the writer carry the epoch, and
triggers refuse the commits of all others. Only the database's clock counts. A thread renews the
lease; a writer that can't renew it stops before its next commit.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from warehouse.errors import LockHeld, SharedDatabaseError, StaleWriter
from warehouse.files.locks import WAIT_S, me
from warehouse.shared.database import CONNECT_S, SharedDatabase, list_unfenced, statement

if TYPE_CHECKING:
    from psycopg import Connection

LEASE_S: Final = 60.0
_RENEWALS: Final = 3
"""How often a lease is renewed in the time that it lasts."""
_VERSION_MIN: Final = 14
"""The oldest PostgreSQL in which a trigger can be replaced."""
_POLL_S: Final = 0.25
_SILENT_S: Final = 1.0
"""A shorter wait is not logged."""
log = logging.getLogger(__name__)


def elapsed_s() -> float:
    """Return a monotonic time that also passes while the machine is suspended, where it can."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The row of the lease. `is_held` is by the database's clock."""

    epoch: int
    holder: str
    taken_at: datetime
    until: datetime
    is_held: bool
    is_released: bool

    def __str__(self) -> str:
        """Return one line."""
        if not self.epoch:
            return "no writer has taken the lease yet"
        times = f"taken {self.taken_at:%Y-%m-%d %H:%M:%S} UTC"
        if self.is_held:
            return f"{self.holder} has the lease: epoch {self.epoch}, {times}"
        end = "returned" if self.is_released else f"ended {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return f"the lease is free: epoch {self.epoch}, last of {self.holder}, {end}"


def read_lease(database: SharedDatabase, *, timeout_s: int = CONNECT_S) -> LeaseState | None:
    """Return the lease; None if no writer has used the database yet.

    Raises:
        SharedDatabaseError: the database can't be used.
    """
    with database.connect(timeout_s=timeout_s) as connection, database.translating_errors():
        if connection.execute(statement("find_lease")).fetchone() == (None,):
            return None
        (row,) = connection.execute(statement("read_lease")).fetchall()
        return LeaseState(*row)


def find_problems(database: SharedDatabase) -> list[str]:
    """Return what would keep this user from writing under the lease.

    Raises:
        SharedDatabaseError: the database can't be used.
    """
    with database.connect("-c almanac.epoch=0") as connection, database.translating_errors():
        (row,) = connection.execute(statement("check_privileges")).fetchall()
        has_options, may_lease, may_commit, version = row
        unfenced = list_unfenced(connection) if may_commit else []
    own = (
        (not has_options, "sessions lose their options: connect to PostgreSQL without a pooler"),
        (
            not may_lease,
            "this user may not read and update almanac.writer_lease, or create the schema almanac",
        ),
        (not may_commit, "this user does not own the table iceberg_tables, or may not create it"),
        (
            version < _VERSION_MIN,
            f"PostgreSQL {version} is too old: version {_VERSION_MIN} or newer is needed",
        ),
    )
    fences = (f"the table {table} has no fence; the next merge adds it" for table in unfenced)
    return [*(text for is_so, text in own if is_so), *fences]


class Lease:
    """A lease that this process holds. `check` is for the thread that commits."""

    def __init__(
        self,
        database: SharedDatabase,
        epoch: int,
        *,
        lease_s: float,
        valid_until: float,
        clock: Callable[[], float],
    ) -> None:
        """`valid_until` is by `clock`: when the lease ends unless it is renewed."""
        self.epoch = epoch
        self.waited = False
        self._database = database
        self._lease_s = lease_s
        self._clock = clock
        self._valid_until = valid_until
        self._connection: Connection | None = None
        self._turn = threading.Lock()
        """Held by the thread that uses the connection."""
        self._loss = ""
        """Why the lease is lost; empty while it is not."""
        self._failure = ""
        """Why the last renewal failed; empty if it did not."""

    def __repr__(self) -> str:
        return f"Lease(epoch={self.epoch})"

    @property
    def session_options(self) -> str:
        """The options of a session that commits: the epoch, and an end of abandoned transactions.

        A stopped process keeps its transaction open, and the share lock of the fence with it.
        """
        idle_ms = max(1, round(self._lease_s * 1000))
        return f"-c almanac.epoch={self.epoch} -c idle_in_transaction_session_timeout={idle_ms}"

    def connect(self) -> "Connection":
        """Open a connection that commits under this lease. Raises SharedDatabaseError."""
        return self._database.connect(self.session_options)

    def catalog_uri(self) -> str:
        """Return the address for the Iceberg catalog under this lease, **with the password**."""
        return self._database.catalog_uri(self.session_options)

    def check(self) -> None:
        """Check that this process has the lease; renew it if it ended.

        Raises:
            StaleWriter: another writer took over, or the database has not answered for as long as
                the lease lasts.
        """
        if not self._loss and self._clock() >= self._valid_until:
            self.renew()
            if not self._loss and self._clock() >= self._valid_until:
                self._loss = (
                    f"the writer lease (epoch {self.epoch}) ended, and could not be renewed for "
                    f"{self._lease_s:g} s: {self._failure}"
                )
        if self._loss:
            raise StaleWriter(
                f"{self._loss}. Nothing is committed from here on; earlier commits stay. Run the "
                "command again: it continues from there."
            )

    def renew(self) -> None:
        """Renew the lease, with a new connection if the old one fails."""
        with self._turn:
            for is_last_try in (False, True):
                sent = self._clock()
                try:
                    if self._renew_once():
                        self._valid_until = sent + self._lease_s
                        if self._failure:
                            log.warning("The writer lease is renewed again.")
                    self._failure = ""
                    return
                except SharedDatabaseError as error:
                    self._disconnect()
                    if is_last_try:
                        if not self._failure:
                            log.warning("The writer lease could not be renewed: %s", error)
                        self._failure = str(error)

    def _renew_once(self) -> bool:
        connection = self._connection
        if connection is None:
            wait_ms = max(1, round(self._lease_s * 1000 / _RENEWALS))
            connection = self._connection = self._database.connect(
                f"-c lock_timeout={wait_ms} -c statement_timeout={wait_ms}"
            )
        values = {"epoch": self.epoch, "lease_s": self._lease_s}
        with self._database.translating_errors():
            if connection.execute(statement("renew_lease"), values).fetchone() is not None:
                return True
            (row,) = connection.execute(statement("read_lease")).fetchall()
        self._loss = f"this writer had the lease with epoch {self.epoch}; now {LeaseState(*row)}"
        return False

    def renew_until(self, released: threading.Event) -> None:
        """Renew the lease three times in its duration, until it is released or lost."""
        while not self._loss and not released.wait(self._lease_s / _RENEWALS):
            self.renew()

    def release(self) -> None:
        """Return the lease; if the database does not answer, it ends by its time."""
        with self._turn:
            try:
                if self._connection is None:
                    self._connection = self._database.connect()
                with self._database.translating_errors():
                    self._connection.execute(statement("release_lease"), {"epoch": self.epoch})
            except SharedDatabaseError as error:
                log.warning(
                    "The writer lease could not be returned; another machine waits up to %g s for "
                    "its end. %s",
                    self._lease_s,
                    error,
                )
            finally:
                self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()


@contextmanager
def hold_lease(
    database: SharedDatabase,
    place: str,
    *,
    lease_s: float = LEASE_S,
    wait_s: float = WAIT_S,
    wait_setting: str = "",
    clock: Callable[[], float] = elapsed_s,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Lease]:
    """Hold the writer lease; a thread renews it.

    `place` names a lock that the caller holds, and that at most one living process in the world
    can hold: a lease of the same place belongs to a dead process and is taken without a wait.

    Raises:
        LockHeld: another writer still has the lease after `wait_s` seconds; nothing was done.
        SharedDatabaseError: the database can't be used; nothing was done.
    """
    began = clock()
    with database.connect(f"-c lock_timeout={round(_POLL_S * 4000)}") as connection:
        database.prepare(connection)
        lease = _take(database, connection, place, lease_s, clock)
        is_reported = waited = False
        while lease is None:
            waited, so_far = True, clock() - began
            with database.translating_errors():
                (row,) = connection.execute(statement("read_lease")).fetchall()
            if so_far >= wait_s:
                hint = f"; {wait_setting} sets how long to wait" if wait_setting else ""
                raise LockHeld(
                    f"another machine writes: {LeaseState(*row)}. It still had it after "
                    f"{wait_s:g} s. Nothing was done. Run the command again when it has "
                    f"ended{hint}."
                )
            if not is_reported and so_far >= _SILENT_S:
                log.warning("Waiting for another machine: %s.", LeaseState(*row))
                is_reported = True
            sleep(_POLL_S)
            lease = _take(database, connection, place, lease_s, clock)
    lease.waited = waited
    released = threading.Event()
    thread = threading.Thread(
        target=lease.renew_until, args=(released,), name="writer-lease", daemon=True
    )
    thread.start()
    try:
        yield lease
    finally:
        released.set()
        thread.join(lease_s)
        lease.release()


def _take(
    database: SharedDatabase,
    connection: "Connection",
    place: str,
    lease_s: float,
    clock: Callable[[], float],
) -> Lease | None:
    """Take the lease if it is free; a commit of its last holder is awaited for a moment."""
    from psycopg.errors import LockNotAvailable

    sent = clock()
    values = {"holder": _describe_me(), "place": place, "lease_s": lease_s}
    with database.translating_errors():
        try:
            row = connection.execute(statement("take_lease"), values).fetchone()
        except LockNotAvailable:
            row = None
    if row is None:
        return None
    return Lease(database, row[0], lease_s=lease_s, valid_until=sent + lease_s, clock=clock)


def _describe_me() -> str:
    holder = me()
    return f"`{holder.program}` (pid {holder.pid} on {holder.host})"
