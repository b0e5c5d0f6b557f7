"""The published file as a store, read-only. A later publication is followed when a store is needed.

A store keeps its file open, so that a request ends with the file that it began with.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final

import duckdb
import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from almanac.core.connections import open_memory
from almanac.core.errors import WarehouseError
from almanac.core.statements import Statements
from almanac.reading.attached_file import attach_published
from catalog.server.accounts import read_file_version
from catalog.server.catalog_store import KnownSpan
from catalog.server.sql_store import SqlStore

log = logging.getLogger(__name__)
_SQL: Final = Statements(__package__)
_MEMORY: Final = "1GB"
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """A published file that is open for reading."""

    published_at: str
    span: KnownSpan
    store: SqlStore
    connection: duckdb.DuckDBPyConnection

    def ask(self, statement: str, **values: Any) -> list[Row]:
        return self.connection.cursor().execute(_SQL[statement], values).fetchall()

    def has_batches_of(self, other: "Publication") -> bool:
        """Whether it shares one of the first batches of another file, or the other file has no
        batch."""
        batches = [batch for (batch,) in other.ask("list_first_batches")]
        return not batches or self.ask("count_batches", batches=batches) != [(0,)]


def open_publication(path: Path, replay_from: datetime | None = None) -> Publication:
    """Open the published file at a path; the feed of a replay is in the table `feed`.

    Raises:
        WarehouseError: the file is missing or can't be served.
    """
    connection = open_memory()
    try:
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        attach_published(connection, path, "published")
        found = connection.execute(_SQL["find_publication"]).fetchall()
        if not found:
            raise ValueError("it has no feed of changes")
        ((published_at, feed_id),) = found
        order = None
        if replay_from is not None:
            order, feed_id = "feed", f"replay {feed_id} from {replay_from.isoformat()}"
        identity = f"{feed_id} {published_at}"
        store = SqlStore(connection, identity=identity, feed_id=feed_id, order=order)
        return Publication(published_at, store.span, store, connection)
    except (duckdb.Error, OSError, ValueError) as error:
        connection.close()
        raise WarehouseError(
            f"{path} can't be served: {str(error).rstrip('!.')}. If there is none yet, `almanac "
            "run` makes it. If it is damaged, or another version of Almanac made it, `almanac "
            "rebuild` makes it again."
        ) from error


class Publications:
    """The publications of a home. A file that can't be served leaves the one before it in service.

    Raises:
        WarehouseError: the file is missing or can't be served.
    """

    def __init__(self, path: Path, wall: Callable[[], datetime]) -> None:
        self._path = path
        self._wall = wall
        self._following = Lock()
        self._seen = read_file_version(path)
        self._served = open_publication(path)
        self._served_since = wall()
        self.trouble: str | None = None
        """Why the newest publication is not served."""

    def store(self) -> SqlStore:
        """Return the store of the newest publication.

        While another thread opens a new store, it returns the previous store.
        """
        if self._following.acquire(blocking=False):
            try:
                if (signature := read_file_version(self._path)) != self._seen:
                    self._seen = signature
                    self._follow()
            finally:
                self._following.release()
        return self._served.store

    @property
    def span(self) -> KnownSpan:
        return self._served.span

    def now(self) -> datetime:
        """Return the wall clock's time, but never before the last pull: the service's clock may be
        ahead."""
        last = self.span.last
        return self._wall() if last is None else max(self._wall(), last)

    def close(self) -> None:
        self._served.connection.close()

    def get_health(self, request: Request) -> Response:
        """Answer `/healthz`: the publication that is served, and why a newer one is not."""
        self.store()
        served, trouble = self._served, self.trouble
        publication = {
            "publishedAt": served.published_at,
            "servedSince": self._served_since,
            "events": served.span.events,
            "firstPull": served.span.first,
            "lastPull": served.span.last,
            # Without the folders of this machine: the path needs no key.
            "trouble": None if trouble is None else trouble.replace(f"{self._path.parent}/", ""),
        }
        return JSONResponse(msgspec.to_builtins({"status": "ok", "publication": publication}))

    def _follow(self) -> None:
        try:
            found = open_publication(self._path)
            if not found.has_batches_of(self._served):
                raise WarehouseError(
                    f"{self._path} was replaced by the warehouse of another home: it has none of "
                    "the batches that the served one has. Restore it (`almanac rebuild`), or "
                    "restart the mirror with another --dir."
                )
        except WarehouseError as error:
            self.trouble = f"the new publication is not served, and the old one is: {error}"
            log.error("%s", self.trouble)
        else:
            # The replaced file is closed when the last request that reads it ends.
            self._served, self._served_since, self.trouble = found, self._wall(), None
