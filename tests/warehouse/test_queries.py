"""Queries run one reading statement, with rows or a file as the answer, and refuse all others."""

import csv
import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from almanac.core.connections import DUCKDB_MAJOR
from almanac.core.errors import QueryRefused, WarehouseError
from almanac.reading import attached_file, row_files
from almanac.reading.attached_file import connect, connected, run_sql
from almanac.reading.query_limits import QueryLimits
from almanac.reading.row_files import FileFormat, write_answer
from tests.almanac.publications import publish_two_events
from tests.warehouse.unclosable import Unclosable, opening
from warehouse.duckdb_limits import open_spilling

FORMS: tuple[FileFormat, ...] = ("csv", "json", "parquet")
SQL = "SELECT event_id, version, coins FROM event_versions WHERE version > 0 ORDER BY ALL"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_two_events(tmp_path_factory.mktemp("it's a home"))


@pytest.fixture(scope="module")
def connection(warehouse: Path) -> Any:
    opened = connect(warehouse)
    yield opened
    opened.close()


def test_rows_come_with_names_and_types(connection: duckdb.DuckDBPyConnection) -> None:
    answer = run_sql(connection, SQL)
    assert answer.columns == ("event_id", "version", "coins")
    assert answer.types == ("VARCHAR", "INTEGER", "VARCHAR[]")
    assert answer.rows == [("evt_0", 1, ["coin-0", "coin-5"]), ("evt_1", 1, ["coin-1"])]


def test_every_connection_is_on_utc(connection: duckdb.DuckDBPyConnection) -> None:
    assert run_sql(connection, "SELECT current_setting('TimeZone')").rows == [("UTC",)]


def test_a_list_of_the_tables_is_the_same_in_a_file(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    for sql in ("SHOW TABLES", "-- all\nSHOW ALL TABLES", "DESCRIBE"):
        listed = run_sql(connection, sql)
        target = tmp_path / "tables.csv"
        assert write_answer(warehouse, sql, target, "csv") == len(listed.rows)
        names = {name for (name,) in duckdb.sql(f"SELECT name FROM '{target}'").fetchall()}
        assert names == {row[listed.columns.index("name")] for row in listed.rows}


def test_an_error_of_a_file_does_not_show_the_statement_that_writes_it(
    warehouse: Path, tmp_path: Path
) -> None:
    for form in FORMS:
        with pytest.raises(QueryRefused, match="Could not convert string 'a'") as caught:
            write_answer(warehouse, "SELECT 'a'::INT AS wrong", tmp_path / "answer", form)
        assert "LINE" not in str(caught.value)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT 1; SELECT 2", "expected one statement, got 2"),
        ("", "expected one statement, got none"),
        ("SELECT nonsense FROM events", "nonsense"),
        ("SELEC 1", "syntax error"),
        ("DELETE FROM events", "does more than read"),
        ("SET threads = 1", "does more than read"),
        ("/* é */ EXPLAIN ANALYZE -- é\n COPY events TO 'never-written'", "does more than read"),
        ("COPY (PIVOT events ON status USING count(*)) TO 'n'", "does more than read"),
    ],
)
def test_a_statement_that_cannot_be_run_gives_the_reason(
    connection: duckdb.DuckDBPyConnection, sql: str, why: str
) -> None:
    with pytest.raises(QueryRefused, match=why):
        run_sql(connection, sql)


def test_an_answer_has_the_same_rows_in_each_form(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    json_file, csv_file, parquet = (tmp_path / f"a.{form}" for form in ("json", "csv", "parquet"))
    assert write_answer(warehouse, SQL, json_file, "json") == 2
    assert json.loads(json_file.read_text()) == [
        {"event_id": "evt_0", "version": 1, "coins": ["coin-0", "coin-5"]},
        {"event_id": "evt_1", "version": 1, "coins": ["coin-1"]},
    ]
    assert write_answer(warehouse, SQL, csv_file, "csv") == 2
    with csv_file.open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["event_id", "version", "coins"],
            ["evt_0", "1", "[coin-0, coin-5]"],
            ["evt_1", "1", "[coin-1]"],
        ]
    assert write_answer(warehouse, "FROM events", parquet, "parquet") == 2
    types = duckdb.read_parquet(str(parquet)).types
    assert tuple(map(str, types)) == run_sql(connection, "FROM events").types


def test_json_has_times_in_iso_8601_inside_other_values(warehouse: Path, tmp_path: Path) -> None:
    instant = "TIMESTAMPTZ '2026-03-02 12:30:00.5+02'"
    forms = {
        "alone": instant,
        "in a list": f"[{instant}, NULL]",
        "in lists": f"[[{instant}], []]",
        "in a struct": f"{{'a b': {instant}, 'n': 1, 's': {{'l': [{instant}]}}}}",
        "in a map": f"MAP {{'k': {instant}}}",
        "in an array": f"[{instant}, {instant}]::TIMESTAMPTZ[2]",
        "no struct": "NULL::STRUCT(a TIMESTAMPTZ)",
        "no map": "NULL::MAP(VARCHAR, TIMESTAMPTZ)",
        "without a zone": "TIMESTAMP '2026-03-02 12:30:00'",
        "text": "'2026-03-02 12:30:00+00'",
    }
    sql = "SELECT " + ", ".join(f'{value} AS "{name}"' for name, value in forms.items())
    write_answer(warehouse, sql, tmp_path / "answer.json", "json")
    shown = "2026-03-02T10:30:00.5Z"
    (row,) = json.loads((tmp_path / "answer.json").read_text())
    assert row == {
        "alone": shown,
        "in a list": [shown, None],
        "in lists": [[shown], []],
        "in a struct": {"a b": shown, "n": 1, "s": {"l": [shown]}},
        "in a map": {"k": shown},
        "in an array": [shown, shown],
        "no struct": None,
        "no map": None,
        "without a zone": "2026-03-02T12:30:00",
        "text": "2026-03-02 12:30:00+00",
    }


def test_json_has_null_for_nan_and_infinities(warehouse: Path, tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    sql = """SELECT 'NaN'::DOUBLE AS a, '-inf'::FLOAT AS b, ['inf'::DOUBLE, 1.5] AS c,
        {'NaN': 'nan'::DOUBLE, 'said': '"NaN, -Infinity\\'} AS d"""
    assert write_answer(warehouse, sql, target, "json") == 1
    said = {"NaN": None, "said": '"NaN, -Infinity\\'}
    assert json.loads(target.read_text()) == [{"a": None, "b": None, "c": [None, 1.5], "d": said}]


def test_a_link_is_kept_and_its_target_is_replaced(warehouse: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("before")
    link.symlink_to("real.csv")
    assert write_answer(warehouse, "SELECT 1 AS a", link, "csv") == 1
    assert link.is_symlink()
    assert real.read_text() == "a\n1\n"


def test_a_pipe_gets_the_bytes_and_stays_a_pipe(warehouse: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert write_answer(warehouse, "SELECT 1 AS a", pipe, "csv") == 1
        assert os.read(reading, 100) == b"a\n1\n"
    finally:
        os.close(reading)
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_an_answer_that_fails_writes_nothing_to_a_stream(warehouse: Path) -> None:
    stream = io.BytesIO()
    with pytest.raises(QueryRefused):
        write_answer(warehouse, "SELECT error('half way') FROM events", stream, "csv")
    assert stream.getvalue() == b""
    assert write_answer(warehouse, "SELECT 1 AS a", stream, "json") == 1
    assert json.loads(stream.getvalue()) == [{"a": 1}]


def test_a_failed_answer_leaves_the_file(warehouse: Path, tmp_path: Path) -> None:
    target = tmp_path / "answer"
    target.write_text("before")
    for form in FORMS:
        with pytest.raises(QueryRefused):
            write_answer(warehouse, "SELECT error('half way') FROM events", target, form)
        assert target.read_text() == "before"
        assert [path.name for path in tmp_path.iterdir()] == ["answer"]


def test_the_error_without_a_warehouse_says_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(WarehouseError, match="almanac run"):
        connect(tmp_path / "warehouse.duckdb")


def test_a_damaged_warehouse_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "warehouse.duckdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(WarehouseError, match="can't be opened") as caught:
        connect(tmp_path / "warehouse.duckdb")
    assert f'"{tmp_path}/warehouse.duckdb"' in str(caught.value)


ENDLESS = "SELECT range, md5(range::VARCHAR) FROM range(100000000000)"


@pytest.fixture
def unclosable(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Unclosable]]:
    opened: list[Unclosable] = []
    replacement = opening(Unclosable, opened)
    for module in (attached_file, row_files):
        monkeypatch.setattr(module, "open_published", replacement)
    yield opened
    for connection in opened:
        connection.released.set()


def test_a_connection_that_does_not_close_is_left_behind_after_its_grace(
    warehouse: Path, unclosable: list[Unclosable], caplog: pytest.LogCaptureFixture
) -> None:
    limits = QueryLimits(grace_s=0.2)
    with caplog.at_level(logging.WARNING), connected(warehouse, limits=limits) as connection:
        assert run_sql(connection, "SELECT 1", limits=limits).rows == [(1,)]
    assert not unclosable[0].is_closed
    assert "did not close a connection within 0.2 s" in caplog.text


def test_a_stopped_answer_gives_the_reason_even_if_its_connection_does_not_close(
    warehouse: Path, unclosable: list[Unclosable], tmp_path: Path
) -> None:
    limits = QueryLimits(timeout_s=0.2, grace_s=0.3)
    with pytest.raises(QueryRefused, match=r"took longer than 0\.2 s"):
        write_answer(warehouse, ENDLESS, tmp_path / "answer.csv", "csv", limits=limits)
    assert list(tmp_path.iterdir()) == []
    (connection,) = unclosable
    assert not connection.is_closed
    assert connection.interrupts > 0
    assert not connection.interrupted_closing


@pytest.mark.skipif(DUCKDB_MAJOR < 2, reason="older ones write with the threads of the query alone")
def test_no_thread_writes_a_file_that_its_query_could_wait_for_forever(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    assert run_sql(connection, "SELECT current_setting('async_threads')").rows == [(0,)]
    with open_spilling(tmp_path) as making:
        assert making.sql("SELECT current_setting('async_threads')").fetchall() == [(0,)]
