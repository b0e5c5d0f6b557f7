"""The history of a synthetic world in the tables of a published warehouse, in memory.

The versions of the events announced until a time are made once. Those that become known until then
are inserted in the order in which they became known, which is the order of the feed; later ones
wait in a table. Ranks are written for the days that a request can show.

Nine years take 8 s of a processor to make. So the whole years are kept as Python keeps compiled
modules: beside them, if that folder can be written, until the code of the world changes. A history
of earlier months continues with such a file, too.
"""

import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from threading import Lock
from typing import Any, Final

import duckdb
import msgspec

from almanac.core.connections import open_memory
from almanac.core.statements import Statements
from catalog import ServerError
from catalog.sandbox.world import version_lines
from catalog.sandbox.world.categories import CATEGORIES
from catalog.sandbox.world.dates import DAY_S, find_month, month_start_s, to_seconds
from catalog.sandbox.world.roster import Roster
from catalog.server.sql_store import SqlStore

_SQL: Final = Statements("catalog.sandbox")
_MAKE: Final = (
    *("attach", "make_event_versions", "make_index", "make_waiting_versions", "make_coins"),
    *("make_coin_snapshots", "make_internal", "make_coin_absences", "make_event_coins"),
    *("make_categories", "make_cancellations", "make_batches"),
)
_MONTHS_ALONE: Final = 12
"""A process makes so many months sooner than a second one starts."""


def open_tables() -> duckdb.DuckDBPyConnection:
    connection = open_memory()
    # A query of a page takes milliseconds, and many run at a time.
    connection.execute("SET threads = 1")
    for name in _MAKE:
        connection.execute(_SQL[name])
    return connection


def insert(
    connection: duckdb.DuckDBPyConnection,
    statement: str,
    rows: Iterable[dict[str, Any]],
    **values: Any,
) -> None:
    """Insert rows, whose times are seconds. As JSON, since pyarrow imports pandas for each list."""
    with NamedTemporaryFile(suffix=".json") as file:
        file.write(msgspec.json.Encoder().encode_lines(rows))
        file.flush()
        connection.execute(_SQL[statement], {"file": file.name, **values})


def release_versions(connection: duckdb.DuckDBPyConnection, until: float) -> None:
    """Insert the waiting versions that become known before a time."""
    for name in ("insert_versions", "keep_waiting_versions"):
        connection.execute(_SQL[name], {"until": until})


class SandboxHistory:
    """The world of a seed and pace, written until the months that were requested."""

    def __init__(self, seed: int, pace: float) -> None:
        self._roster = Roster(seed)
        self._pace = pace
        self._next_month = 0
        self._days: set[int] = set()
        self._lock = Lock()
        self._connection = open_tables()
        coins = [
            {"slug": c.slug, "symbol": c.symbol, "name": c.name, "icon_url": c.icon_url}
            for c in self._roster.coins
        ]
        insert(self._connection, "insert_coins", coins)
        insert(self._connection, "insert_categories", map(msgspec.to_builtins, CATEGORIES))
        identity = f"sandbox seed={seed} pace={pace:g}"
        self._store = SqlStore(self._connection, identity=identity, feed_id=identity)

    def at(self, now: datetime) -> SqlStore:
        """Return the store, which knows all until a time and a day before it."""
        seconds = to_seconds(now)
        month, day = find_month(seconds), seconds // DAY_S
        with self._lock:
            whole_years = (month + 1) // 12 * 12
            if self._next_month < whole_years:
                self._add_years(whole_years)
            if self._next_month <= month:
                self._add_months(month + 1)
            for each in {day - 1, day} - self._days:
                ranks = [
                    {"coin": coin.slug, "rank": rank, "tracked": coin.tracked_on(each)}
                    for coin, rank in self._roster.ranking(each)
                ]
                insert(self._connection, "insert_ranks", ranks, day=each)
                self._connection.execute(_SQL["insert_absences"], {"day": each})
                self._days.add(each)
        return self._store

    def _add_years(self, end: int) -> None:
        """Add the months until one from the file that is kept of them, or make and keep it."""
        kept = _find_kept(self._roster.seed, self._pace, end)
        self._connection.begin()
        try:
            for name in ("insert_kept_versions", "replace_waiting_versions"):
                self._connection.execute(_SQL[name], {"file": str(kept)})
            self._connection.commit()
            self._next_month = end
            return
        except duckdb.Error:  # There is none, or it is damaged.
            self._connection.rollback()
        self._add_months(end)
        with suppress(OSError, duckdb.Error):
            kept.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=kept.parent) as folder:
                file = Path(folder, kept.name)
                self._connection.execute("SET threads = 2")
                self._connection.execute(_SQL["keep_versions"], {"file": str(file)})
                self._connection.execute("SET threads = 1")
                file.replace(kept)
            for other in kept.parent.glob("*.parquet"):
                if other.name.partition("-")[0] != kept.name.partition("-")[0]:
                    other.unlink()  # Other code made it.

    def _add_months(self, end: int) -> None:
        """Make the events announced until a month, and insert what becomes known before it."""
        months = range(self._next_month, end)
        with NamedTemporaryFile(suffix=".json") as file, NamedTemporaryFile() as other:
            if len(months) <= _MONTHS_ALONE:
                version_lines.write_version_lines(file, months, self._roster, self._pace)
            else:
                words = (self._roster.seed, self._pace, *months[1::2])
                beside = subprocess.Popen(
                    [sys.executable, "-P", "-m", version_lines.__name__, *map(str, words)],
                    stdout=other,
                    start_new_session=True,  # Ctrl-C is for the parent alone.
                )
                try:
                    version_lines.write_version_lines(file, months[::2], self._roster, self._pace)
                    if code := beside.wait():
                        raise ServerError(
                            f"The process that makes half of the sandbox's catalog ended with code "
                            f"{code}. Nothing is lost; start the sandbox again."
                        )
                finally:
                    beside.kill()
            file.flush()
            self._connection.execute("SET threads = 2")
            files = {"file": [file.name, other.name]}
            self._connection.execute(_SQL["add_waiting_versions"], files)
            release_versions(self._connection, month_start_s(end))
            self._connection.execute("SET threads = 1")
        self._next_month = end


def _find_kept(seed: int, pace: float, end: int) -> Path:
    code = sha256()
    for file in (Path(__file__), *sorted(Path(__file__).parent.glob("world/*.py"))):
        code.update(file.read_bytes())
    name = f"{code.hexdigest()[:16]}-{seed}-{pace:g}-{end}.parquet"
    return Path(cache_from_source(__file__)).with_name(name)
