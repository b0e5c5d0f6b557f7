"""What a published file says of itself: when it was made, from which days, and of which batches.

Belongs here: reading that from the file alone. Does not: comparing it with the lake (pipeline),
publishing (publish).
"""

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Final

import duckdb

from almanac.reading.attached_file import attach_published
from almanac.reading.connections import open_memory
from warehouse.publish.contents import read_contents
from warehouse.schema import ddl
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements

_SQL: Final = Statements(__package__, GROUPS)
PUBLISHED_AT: Final = "published_at"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A published file. `days` has the hash of the change log's file of each day.

    `at` is when it was published, by the machine that did it; a copy says the same. It is None if
    an older Almanac made the file. `contents` has the hash of the content of each table.
    """

    at: datetime | None
    days: dict[date, str]
    contents: dict[str, str] = field(default_factory=dict)


def read_published(warehouse: Path) -> PublishedFile | None:
    """Return what a published file says of itself; None if there is no file.

    Raises:
        duckdb.Error: it can't be read.
    """
    if not warehouse.exists():
        return None
    with _opened(warehouse) as connection:
        facts = dict(connection.execute(_SQL["list_facts"]).fetchall())
        days = dict(connection.execute(_SQL["list_published_chain"]).fetchall())
    at = facts.get(PUBLISHED_AT)
    published_at = None if at is None else datetime.fromisoformat(at)
    return PublishedFile(published_at, days, read_contents(facts))


def published_batches(warehouse: Path, days: Collection[date]) -> frozenset[str]:
    """Return the ids of the published batches that were observed on some days.

    Raises:
        duckdb.Error: the file can't be read.
    """
    with _opened(warehouse) as connection:
        rows = connection.execute(_SQL["list_batches_of_days"], {"days": list(days)}).fetchall()
    return frozenset(batch_id for (batch_id,) in rows)


@contextmanager
def _opened(warehouse: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(open_memory()) as connection:
        attach_published(connection, warehouse, "published")
        connection.execute(ddl.use("published"))
        yield connection
