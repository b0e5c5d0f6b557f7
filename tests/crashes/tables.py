"""The content of a home in a form that is quick to compare: a digest for each table.

Belongs here: reading all tables and files of a home. Does not: the expected content.
"""

import os
import time
from collections.abc import Set
from pathlib import Path

import duckdb

from tests.reading import database, list_files, reading
from warehouse.history.partitions import CHANGES, EVENTS
from warehouse.history.verify import verify
from warehouse.home import Home
from warehouse.schema.tables import REQUESTS, TABLES, USAGE
from warehouse.schema.views import EVENT_CLAIMS

Digests = dict[str, tuple[int, str | None]]
"""Rows of each table, and a digest of them all."""
UNFINISHED = ".unfinished-"
_OF_THIS_HOME = frozenset({"landed_at", "published_seq"})
_DIGEST = "SELECT count(*), sum(hash(told))::VARCHAR FROM ({rows}) AS told"


def published(
    warehouse: Path, *, without: tuple[str, ...] = (), columns: Set[str] = frozenset()
) -> Digests:
    """Return the digests of a warehouse's tables, without some tables and columns.

    Every value of the rest is read.
    """
    digests: Digests = {}
    with reading(warehouse) as connection:
        for table in (*TABLES, EVENT_CLAIMS):
            if table not in (REQUESTS, USAGE) and table.name not in without:
                kept = [name for name in table.names if name not in _OF_THIS_HOME | columns]
                rows = f'SELECT {", ".join(kept)} FROM "{table.name}"'
                digest = connection.execute(_DIGEST.replace("{rows}", rows))
                digests[table.name] = digest.fetchall()[0]
    return digests


def tables_of(digests: Digests) -> Digests:
    """Return the digests of the tables alone."""
    return {name: digest for name, digest in digests.items() if "/" not in name}


def tables_and_state(path: Path) -> Digests:
    """Return the digests of all tables of a file, of those too that only a merge reads."""
    query = "SELECT schema_name, table_name FROM duckdb_tables()"
    with duckdb.connect(str(path), read_only=True) as connection:
        names = [f'"{schema}"."{name}"' for schema, name in connection.execute(query).fetchall()]
        return {
            name: connection.execute(_DIGEST.replace("{rows}", f"FROM {name}")).fetchall()[0]
            for name in names
        }


def partitions(home: Home) -> Digests:
    """Return the digests of the Parquet files of each kind: every value is read."""
    digests: Digests = {}
    with database().cursor() as connection:
        for kind in (CHANGES, EVENTS):
            files = ", ".join(f"'{path}'" for path in list_files(home, kind))
            rows = f"SELECT * FROM read_parquet([{files}], hive_partitioning = false)"
            digest = connection.execute(_DIGEST.replace("{rows}", rows)) if files else None
            digests[f"parquet/{kind}"] = digest.fetchall()[0] if digest else (0, None)
    return digests


def whole(home: Home) -> Digests:
    """Return the digests of a merged home; assert that verify finds nothing wrong."""
    assert unfinished(home) == []
    found = {check.check: (check.wrong, check.notes) for check in verify(home)}
    said = {name: said for name, said in found.items() if any(said)}
    assert said == {}, said
    assert home.landing.pending() == []
    return {**published(home.warehouse), **partitions(home)}


def unfinished(home: Home) -> list[str]:
    """Return the unfinished files of killed writers."""
    found = [*home.root.rglob(f"{UNFINISHED}*"), *home.root.rglob(".next*")]
    return sorted(str(path.relative_to(home.root)) for path in found)


def an_hour_passes(home: Home) -> None:
    """Make the unfinished files of killed writers old enough to be removed."""
    an_hour_ago = time.time() - 3_601
    for path in home.root.rglob(f"{UNFINISHED}*"):
        os.utime(path, (an_hour_ago, an_hour_ago))
