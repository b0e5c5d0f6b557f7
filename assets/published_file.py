"""Reading the published warehouse for what is shown and checked.

Belongs here: opening it as a reader, and a glance at its tables. Identifiers are those of the
declared tables alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import duckdb

from assets.preview import ROWS, markdown
from warehouse.attaching import attach_published
from warehouse.tables import Table

_GLANCE: Final[Mapping[str, tuple[str, ...]]] = {
    "events": ("title", "displayed_date", "coins", "status", "version"),
    "event_versions": ("event_id", "version", "known_from", "known_basis", "change_kinds"),
    "coins": ("slug", "symbol", "name", "rank", "upcoming_count"),
    "coin_snapshots": ("observed_date", "slug", "rank", "upcoming_count"),
    "cancellations": ("event_id", "cancelled_at", "first_seen_at"),
    "batches": ("batch_id", "feed", "status", "arrived", "versions"),
    "coverage": ("feed", "lower", "upper", "observed_at", "rows"),
}
"""What is shown of the wider tables. Never `date`: an estimated one is a deadline."""
_NEWEST_BY: Final[Mapping[str, str]] = {
    "events": "changed_at",
    "event_versions": "known_from",
    "cancellations": "first_seen_at",
    "batches": "observed_at",
    "coverage": "observed_at",
}


@cache
def statement(name: str) -> str:
    """Return the text of `sql/<name>.sql`."""
    return resources.files("assets").joinpath("sql", f"{name}.sql").read_text("utf-8")


@contextmanager
def reading(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a connection to the file as it is now; a later publication does not change it."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # Not duckdb.connect(path): that may hand back the file of an earlier publication.
        attach_published(connection, path, "published")
        connection.execute("USE published")
        yield connection


def glance(connection: duckdb.DuckDBPyConnection, table: Table) -> str:
    """Return a few rows of a table as Markdown, the newest where it has an order of news."""
    columns = _GLANCE.get(table.name, table.names)
    relation = connection.table(table.name)
    if table.name in _NEWEST_BY:
        relation = relation.order(f"{_NEWEST_BY[table.name]} DESC")
    rows = relation.limit(ROWS).project(", ".join(columns)).fetchall()
    return markdown(columns, rows) if rows else "none"


def single(connection: duckdb.DuckDBPyConnection, name: str) -> tuple[Any, ...]:
    """Return the one row of a statement."""
    (row,) = connection.execute(statement(name)).fetchall()
    return tuple(row)
