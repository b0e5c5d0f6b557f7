"""The content of a home in a form that is quick to compare: a digest for each table.

Belongs here: reading all tables and files of a home. Does not: the expected content.
"""

import os
import time
from collections.abc import Set
from pathlib import Path

import duckdb

from warehouse import queries
from warehouse.history.verify import verify
from warehouse.home import Home
from warehouse.schema.tables import REQUESTS, TABLES, USAGE
from warehouse.schema.views import EVENT_CLAIMS

Digests = dict[str, tuple[int, str | None]]
"""Rows of each table, and a digest of them all."""
UNFINISHED = ".unfinished-"
_OF_LANDING_ALONE = frozenset({"landed_at"})
_DIGEST = "SELECT count(*), sum(hash(told))::VARCHAR FROM ({rows}) AS told"
_BUT_FOR_EVENTS = " WHERE event_id NOT IN (SELECT unnest($without_events::VARCHAR[]))"


def published(
    warehouse: Path,
    *,
    without: tuple[str, ...] = (),
    columns: Set[str] = frozenset(),
    without_events: Set[str] = frozenset(),
) -> Digests:
    """Return the digests of a warehouse's tables, without some tables, columns and events.

    Every value of the rest is read.
    """
    digests: Digests = {}
    with queries.connected(warehouse) as connection:
        for table in (*TABLES, EVENT_CLAIMS):
            if table not in (REQUESTS, USAGE) and table.name not in without:
                kept = [name for name in table.names if name not in _OF_LANDING_ALONE | columns]
                rows = f'SELECT {", ".join(kept)} FROM "{table.name}"'
                values = {}
                if without_events and "event_id" in table.names:
                    rows += _BUT_FOR_EVENTS
                    values = {"without_events": sorted(without_events)}
                digest = connection.execute(_DIGEST.replace("{rows}", rows), values)
                digests[table.name] = digest.fetchall()[0]
    return digests


def by_month(home: Home) -> Digests:
    """Return the digest of the lake's events by month, which other engines read."""
    files = str(home.lake.path("events/*/events.parquet"))
    rows = f"SELECT * FROM read_parquet('{files}', hive_partitioning = false)"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return {"lake/events": connection.execute(_DIGEST.replace("{rows}", rows)).fetchall()[0]}


def read_every_file(home: Home) -> int:
    """Read every value of all finished Parquet files; return the number of files."""
    files = [
        path
        for path in home.lake.root.rglob("*.parquet")
        if not any(part.startswith(UNFINISHED) for part in path.parts)
    ]
    with duckdb.connect() as connection:
        for path in files:
            rows = f"SELECT * FROM read_parquet('{path}', hive_partitioning = false)"
            connection.execute(_DIGEST.replace("{rows}", rows)).fetchall()
    return len(files)


def whole(home: Home, *, without: tuple[str, ...] = ()) -> Digests:
    """Return the digests of a merged home; assert that verify finds nothing wrong."""
    assert unfinished(home) == []
    assert {check.check: check.wrong for check in verify(home) if not check.holds} == {}
    assert home.landing.pending() == []
    return {**published(home.warehouse, without=without), **by_month(home)}


def unfinished(home: Home) -> list[str]:
    """Return the unfinished files of killed writers."""
    found = home.root.rglob(f"{UNFINISHED}*")
    return sorted(str(path.relative_to(home.root)) for path in found)


def an_hour_passes(home: Home) -> None:
    """Make the unfinished files of killed writers old enough to be removed."""
    an_hour_ago = time.time() - 3_601
    for path in home.root.rglob(f"{UNFINISHED}*"):
        os.utime(path, (an_hour_ago, an_hour_ago))
