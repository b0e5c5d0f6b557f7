"""Opening and closing DuckDB: in memory, on UTC, each connection with its own database."""

import logging
import threading
from functools import cache
from typing import Final

import duckdb

DUCKDB_MAJOR: Final = int(duckdb.__version__.partition(".")[0])
_FILTERS_OVERFLOW: Final = duckdb.__version__.startswith("1.5.")
_log = logging.getLogger(__name__)


def open_memory() -> duckdb.DuckDBPyConnection:
    """Open a database in memory, on UTC, that writes files with the threads of the query.

    DuckDB 2.0 writes the file of a COPY with its own threads. If such a COPY is interrupted, the
    query and one of these threads can wait for each other permanently: about one in 180 did.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    # DuckDB draws it on stdout, where programs expect the output of the command. In a notebook
    # without ipywidgets it is off, and DuckDB refuses to set it.
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("SET enable_progress_bar = false")
    if DUCKDB_MAJOR >= 2:
        connection.execute("SET async_threads = 0")
    if _FILTERS_OVERFLOW:
        # A join passes the least and greatest key on to an Arrow table as a filter; DuckDB 1.5
        # fails if one is above 2**63, as half of the hashes are.
        connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")
    return connection


@cache
def parse(text: str) -> duckdb.Statement:
    """Return a parsed statement that any connection can run repeatedly.

    For a long statement on few rows, parsing takes a third of the time. Not for texts that differ
    from run to run: each is kept.
    """
    with _parser().cursor() as connection:
        (statement,) = connection.extract_statements(text)
    return statement


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    """Return a shared in-memory process, since making one takes 12 ms."""
    return open_memory()


def describe_error(error: duckdb.Error) -> str:
    """Return the message of an error without DuckDB's stack trace."""
    return str(error).partition("Stack Trace")[0].strip()


def close_within(connection: duckdb.DuckDBPyConnection, grace_s: float) -> None:
    """Close a connection, or leave it open if closing takes longer than `grace_s`.

    DuckDB ends running work before it closes, and waits for work that neither an interrupt nor a
    signal stops. The answer is complete by then, so a connection that stays open only costs memory
    and threads until the process ends. Do not interrupt the connection after this call, since its
    memory may be freed.
    """
    refused: list[duckdb.Error] = []

    def close() -> None:
        try:
            connection.close()
        except duckdb.Error as error:
            refused.append(error)

    # A daemon thread does not delay the end of the process. Signals are handled during the join.
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
