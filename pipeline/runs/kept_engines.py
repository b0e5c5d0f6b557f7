"""Dagster's SQLite stores, kept ready while one process runs many steps.

For each event Dagster makes an engine of SQLAlchemy, which compiles each statement anew, and closes
the last connection, which makes SQLite write its log back into the database. That is most of the
time of a short step. Belongs here: engines and one idle connection for each store, for a while.
Does not: what is stored.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import dagster as dg
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage import sql
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.sql import create_engine
from sqlalchemy.engine import Engine, make_url

_KEPT: Final = 4
"""The store of runs, the index of events, and the events of the last runs."""
_USERS: Final[tuple[Any, ...]] = (sqlite_event_log, sqlite_run_storage)


@contextmanager
def kept_engines() -> Iterator[None]:
    """Keep the engines that Dagster makes for SQLite until the end; others are as without this.

    A killed process leaves a log of SQLite beside a store, which the next reader takes over.
    """
    kept = _Kept(create_engine)
    before = [user.create_engine for user in _USERS]
    try:
        for user in _USERS:
            user.create_engine = kept
        yield
    finally:
        for user, own in zip(_USERS, before, strict=True):
            user.create_engine = own
        kept.close()


def read_scripts_once() -> None:
    """Make Dagster read the scripts of its stores once, and free what each opening took.

    It compares the revision of a store with the newest script at each opening, and a code server
    opens the stores for each tick; reading some sixty scripts is two thirds of that time. It names
    their folder as a resource of a package, for which Alembic registers a callback for the exit of
    the process at each opening: some kilobytes that are never freed. A path is used as it is.
    """
    if vars(sql)["ScriptDirectory"] is _Scripts:
        return
    scripts = Path(dg.__file__).parent / "_core" / "storage" / "alembic"
    # A `%` begins a reference in the configuration of Alembic.
    sql.ALEMBIC_SCRIPTS_LOCATION = str(scripts).replace("%", "%%")
    sql.get_alembic_config.cache_clear()
    sql.ScriptDirectory = _Scripts  # type: ignore[assignment,attr-defined]


class _Scripts:
    """Stands for Alembic's `ScriptDirectory`, of which Dagster only asks the newest revision."""

    @staticmethod
    @cache
    def from_config(config: Config) -> ScriptDirectory:
        return ScriptDirectory.from_config(config)


class _Kept:
    """Stands for `create_engine`: the same store gets the same engine."""

    def __init__(self, create_engine: Callable[..., Engine]) -> None:
        self._create_engine = create_engine
        self._engines: OrderedDict[str, Engine] = OrderedDict()
        self._connections: dict[str, sqlite3.Connection] = {}

    def __call__(self, url: str, **options: Any) -> Engine:
        engine = self._engines.get(url)
        if engine is None:
            engine = self._engines[url] = self._create_engine(url, **options)
            if len(self._engines) > _KEPT:
                self._drop(next(iter(self._engines)))
        else:
            self._engines.move_to_end(url)
            # Only now: the first use of a new store sets its form of log.
            self._connect(url)
        return engine

    def close(self) -> None:
        for url in list(self._engines):
            self._drop(url)

    def _connect(self, url: str) -> None:
        file = make_url(url).database
        if url in self._connections or file is None or file == ":memory:":
            return
        connection = sqlite3.connect(file, check_same_thread=False)
        self._connections[url] = connection
        # It holds the log open from its first look; without a transaction it locks nothing.
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def _drop(self, url: str) -> None:
        self._engines.pop(url).dispose()
        if (connection := self._connections.pop(url, None)) is not None:
            connection.close()
