"""Hostile statements of an assistant: nothing is written, read or reached, and each ends.

tests/warehouse/refused_statements.sql has a longer list for the same connection.
"""

import json
import socket
import tempfile
from pathlib import Path

import pytest

from almanac.core.errors import AlmanacError, QueryRefused
from almanac.mcp.toolbox import Toolbox
from almanac.reading.query_limits import QueryLimits
from tests.almanac.mcp.conftest import NOW
from tests.hangs import wait_for

LIMITS = QueryLimits(memory_bytes=200_000_000, threads=1, timeout_s=0.5, grace_s=0.5)
SECRET = "canary-secret-4711"
STATEMENTS = (
    "FROM '{canary}'",
    "FROM 'http://{address}/x.csv'",
    "COPY (SELECT 1) TO '{folder}/x.csv'",
    "WITH x AS (INSERT INTO events (event_id) VALUES ('x') RETURNING *) SELECT * FROM x",
    "SET enable_external_access = true",
    "SELECT getenv('ALMANAC_API_KEY')",
    "SELECT * FROM query /* x */ ('FROM read_' || 'text(''{canary}'')')",
    "SELECT * FROM pandas_scan(140000000000000::UBIGINT)",
    "SELECT path FROM duckdb_databases()",
    "SELECT current_setting('temp_directory')",
    "SELECT setting FROM pg_catalog.pg_settings",
    "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "SELECT '" + "x" * 1_100_000 + "'",
    "SELECT 1 \ud800",
    "\x00",
)
"""`{canary}` is a file with a secret, `{folder}` an empty folder, `{address}` a listening port."""


def test_hostile_statements_do_nothing_and_end(
    own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = own_file.parent
    canary, empty = folder / "canary.csv", folder / "empty"
    canary.write_text(f"secret\n{SECRET}\n")
    empty.mkdir()
    monkeypatch.setenv("ALMANAC_API_KEY", SECRET)
    before = contents(folder)
    private = {SECRET, str(Path.home() / ".duckdb"), "almanac-process-", ".reading-"}
    toolbox = Toolbox(own_file, clock=lambda: NOW, limits=LIMITS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        names = {"{canary}": str(canary), "{folder}": str(empty)}
        names["{address}"] = f"127.0.0.1:{listener.getsockname()[1]}"
        try:
            for text in STATEMENTS:
                statement = text
                for name, value in names.items():
                    statement = statement.replace(name, value)
                try:
                    shown = json.dumps(toolbox.call("query", {"sql": statement}))
                except AlmanacError as error:
                    shown = str(error)
                    assert "Traceback" not in shown, text
                # A statement may repeat its own text in an error, but learns no folder from it.
                hidden = private if str(folder) in statement else {*private, str(folder)}
                assert not [each for each in hidden if each in shown], text[:200]
            wait_for(lambda: is_answered(toolbox))
        finally:
            toolbox.close()
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert contents(folder) == before
    assert not list(Path(tempfile.gettempdir()).glob("almanac-process-*/spill-*/*"))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def is_answered(toolbox: Toolbox) -> bool:
    """Return whether a plain query is answered; a busy machine may exceed the short time limit."""
    try:
        return bool(toolbox.call("query", {"sql": "SELECT count(*) AS n FROM events"})["rows"])
    except QueryRefused:
        return False
