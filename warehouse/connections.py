"""DuckDB, opened and closed in one way: in memory, on UTC, each connection a database of its own.

Belongs here: opening a connection, bounding what it may take, closing it. Does not: attaching the
published file (attaching), what SQL of others may use and touch (query_limits).
"""

import logging
import threading
from functools import cache
from pathlib import Path
from typing import Final

import duckdb

MEMORY_LIMIT: Final = "1600MB"
"""What DuckDB may hold, in bytes, while it makes lake or warehouse; the rest is spilled to the
disk. With what Python and Dagster hold beside it, a machine of 4 GB has room for it."""
DUCKDB_MAJOR: Final = int(duckdb.__version__.partition(".")[0])
_log = logging.getLogger(__name__)


def open_memory() -> duckdb.DuckDBPyConnection:
    """Open a database in memory, on UTC, that writes files with the threads of the query.

    DuckDB 2.0 writes the file of a COPY with threads of its own. Where such a COPY is interrupted,
    the query can wait for one of them, and it for the query, for ever: one in about 180 did.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    # DuckDB draws it on stdout, where a program expects the answer of a command.
    connection.execute("SET enable_progress_bar = false")
    if DUCKDB_MAJOR >= 2:
        connection.execute("SET async_threads = 0")
    return connection


@cache
def _kept_open() -> duckdb.DuckDBPyConnection:
    connection = open_memory()
    # A file is read as it is now, also where only a byte of it was changed.
    connection.execute("SET enable_external_file_cache = false")
    return connection


def open_for_footers() -> duckdb.DuckDBPyConnection:
    """Open another connection to the one database of this process that only reads footers.

    To make a database takes 12 ms, to read what a Parquet file says of itself less than one.
    """
    return _kept_open().cursor()


def open_spilling(spill: Path) -> duckdb.DuckDBPyConnection:
    """Open as `open_memory`, with `MEMORY_LIMIT`, and a folder for what that does not hold."""
    connection = open_memory()
    connection.execute("SET memory_limit = $limit", {"limit": MEMORY_LIMIT})
    connection.execute("SET temp_directory = $folder", {"folder": str(spill)})
    return connection


def close_within(connection: duckdb.DuckDBPyConnection, grace_s: float) -> None:
    """Close a connection, or leave it behind when that takes longer than `grace_s`.

    DuckDB ends what is still running before it closes, and waits for it where neither an interrupt
    nor a signal reaches it. What was answered is whole by then, so nothing is lost but memory and
    threads, until the process ends. Nobody may interrupt the connection any more: that would be a
    use after free.

    Raises:
        duckdb.Error: DuckDB refused to close it.
    """
    refused: list[duckdb.Error] = []

    def close() -> None:
        try:
            connection.close()
        except duckdb.Error as error:
            refused.append(error)

    # A daemon, which the end of the process does not wait for. The join lets signals in.
    closing = threading.Thread(target=close, name="query-close", daemon=True)
    closing.start()
    closing.join(grace_s)
    if closing.is_alive():
        _log.warning(
            "DuckDB did not close a connection within %g s. It is left behind, with its memory and "
            "threads, until this process ends. Nothing that was read or written is affected.",
            grace_s,
        )
    if refused:
        raise refused[0]
