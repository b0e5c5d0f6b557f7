"""Queries run one reading statement, with rows or a file as the answer, and refuse all others."""

import csv
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from almanac.reading import attached_file, row_files
from almanac.reading.connections import DUCKDB_MAJOR
from almanac.reading.query_limits import QueryLimits
from almanac.reading.row_files import FileForm, write_answer
from tests.almanac.publications import publish_two_events
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.unclosable import Refusing, Unclosable, opening
from warehouse.errors import WarehouseError
from warehouse.queries import QueryRefused, connect, connected, run_sql
from warehouse.sql import open_spilling

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize(
    "sql",
    [
        "SHOW TABLES",
        "DESCRIBE events",
        "SUMMARIZE events",
        "EXPLAIN SELECT 1",
        "FROM events; ",
        "VALUES (1)",
        "WITH a AS (SELECT 1) SELECT * FROM a -- a remark",
        "PIVOT events ON status USING count(*)",
        "EXPLAIN ANALYZE PIVOT events ON status USING count(*)",
        "/* é */ EXPLAIN (ANALYZE) SELECT 1",
        "EXPLAIN (SELECT 1) UNION SELECT 2",
        "EXPLAIN -- why\nFROM events",
    ],
)
def test_a_reading_statement_is_run(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert run_sql(connection, sql).rows


@pytest.mark.parametrize("form", ["csv", "tsv", "json"])
@pytest.mark.parametrize("sql", ["SHOW TABLES", "-- all\nSHOW ALL TABLES", "DESCRIBE"])
def test_a_list_of_the_tables_is_the_same_in_a_file(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, tmp_path: Path, sql: str, form: FileForm
) -> None:
    listed = run_sql(connection, sql)
    target = tmp_path / f"tables.{form}"
    assert write_answer(warehouse, sql, target, form) == len(listed.rows)
    read = "read_json" if form == "json" else "read_csv"
    names = {name for (name,) in duckdb.sql(f"SELECT name FROM {read}('{target}')").fetchall()}
    assert names == {row[listed.columns.index("name")] for row in listed.rows}


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_an_error_of_a_file_does_not_show_the_statement_that_writes_it(
    warehouse: Path, tmp_path: Path, form: FileForm
) -> None:
    with pytest.raises(QueryRefused, match="Could not convert string 'a'") as caught:
        write_answer(warehouse, "SELECT 'a'::INT AS wrong", tmp_path / "answer", form=form)
    assert "LINE" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO categories VALUES ('a', 'b', NULL, NULL)",
        "DELETE FROM events",
        "CREATE TABLE mine (a INTEGER)",
        "CREATE TABLE memory.mine (a INTEGER)",
        "COPY events TO '/tmp/never-written'",
        "DROP VIEW upcoming_events",
        "ATTACH ':memory:' AS more",
        "SET threads = 1",
        "CHECKPOINT",
        "EXPLAIN ANALYZE COPY events TO 'never-written'",
        "EXPLAIN (ANALYZE) COPY events TO 'never-written'",
        "/* é */ EXPLAIN ANALYZE -- é\n COPY events TO 'never-written'",
        "COPY (PIVOT events ON status USING count(*)) TO 'never-written'",
        "EXPLAIN ANALYZE COPY (PIVOT events ON status USING count(*)) TO 'never-written'",
        "EXPLAIN ANALYZE CREATE TABLE memory.mine AS SELECT 1",
    ],
)
def test_a_statement_that_does_more_than_read_is_refused(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryRefused, match="does more than read"):
        run_sql(connection, sql)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT 1; SELECT 2", "expected one statement, got 2"),
        ("", "expected one statement, got none"),
        ("SELECT nonsense FROM events", "nonsense"),
        ("SELEC 1", "syntax error"),
    ],
)
def test_a_statement_that_cannot_be_run_gives_the_reason(
    connection: duckdb.DuckDBPyConnection, sql: str, why: str
) -> None:
    with pytest.raises(QueryRefused, match=why):
        run_sql(connection, sql)


def test_json_is_an_array_of_objects(warehouse: Path, tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    assert write_answer(warehouse, SQL, target, "json") == 2
    assert json.loads(target.read_text()) == [
        {"event_id": "evt_0", "version": 1, "coins": ["coin-0", "coin-5"]},
        {"event_id": "evt_1", "version": 1, "coins": ["coin-1"]},
    ]


def test_json_has_instants_in_iso_8601_also_inside_other_values(
    warehouse: Path, tmp_path: Path
) -> None:
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


def test_json_has_null_for_nan_and_infinities_and_keeps_texts(
    warehouse: Path, tmp_path: Path
) -> None:
    target = tmp_path / "answer.json"
    sql = (
        "SELECT 'NaN'::DOUBLE AS a, '-inf'::FLOAT AS b, ['inf'::DOUBLE, 1.5] AS c, "
        """{'NaN': 'nan'::DOUBLE, 'said': '"NaN, -Infinity\\'} AS d"""
    )
    assert write_answer(warehouse, sql, target, "json") == 1

    def bare(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    assert json.loads(target.read_text(), parse_constant=bare) == [
        {"a": None, "b": None, "c": [None, 1.5], "d": {"NaN": None, "said": '"NaN, -Infinity\\'}}
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]


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


def test_an_answer_that_fails_writes_nothing_to_a_stream(
    warehouse: Path,
) -> None:
    stream = io.BytesIO()
    with pytest.raises(QueryRefused):
        write_answer(warehouse, "SELECT error('half way') FROM events", stream, "csv")
    assert stream.getvalue() == b""
    assert write_answer(warehouse, "SELECT 1 AS a", stream, "json") == 1
    assert json.loads(stream.getvalue()) == [{"a": 1}]


def test_csv_has_a_header(warehouse: Path, tmp_path: Path) -> None:
    target = tmp_path / "answer.csv"
    assert write_answer(warehouse, SQL, target, "csv") == 2
    with target.open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["event_id", "version", "coins"],
            ["evt_0", "1", "[coin-0, coin-5]"],
            ["evt_1", "1", "[coin-1]"],
        ]


def test_parquet_keeps_the_types(
    warehouse: Path, connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    target = tmp_path / "answer.parquet"
    assert write_answer(warehouse, "FROM events", target, "parquet") == 2
    with connected(warehouse, own_files=True) as other:
        again = other.sql(f"FROM read_parquet('{target}')")
        assert [str(type_) for type_ in again.types] == list(
            run_sql(connection, "FROM events").types
        )


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_an_answer_that_fails_leaves_the_file_that_was_there(
    warehouse: Path, tmp_path: Path, form: FileForm
) -> None:
    target = tmp_path / "answer"
    target.write_text("before")
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


def test_a_lent_connection_is_closed(warehouse: Path) -> None:
    with connected(warehouse) as connection:
        run_sql(connection, SQL)
    with pytest.raises(duckdb.Error):
        connection.execute("SELECT 1")


ENDLESS = "SELECT range, md5(range::VARCHAR) FROM range(100000000000)"
INTERRUPTED = """
import random, sys
from contextlib import suppress
from pathlib import Path
from almanac.reading import query_limits
from warehouse import queries
sql, warehouse, answer = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
query_limits._ANSWER_BYTES_MIN, query_limits.LEFT_FREE_BYTES = 1_000_000, 1 << 60
for _ in range(500):
    limits = query_limits.QueryLimits(timeout_s=random.uniform(0.05, 0.5))
    with suppress(queries.QueryRefused):
        form = random.choice(("csv", "csv", "json", "parquet"))
        row_files.write_answer(warehouse, sql, answer, form, limits=limits)
"""


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


def test_an_answer_is_complete_even_if_its_connection_does_not_close(
    warehouse: Path, unclosable: list[Unclosable], tmp_path: Path
) -> None:
    target = tmp_path / "answer.csv"
    limits = QueryLimits(grace_s=0.2)
    assert write_answer(warehouse, "SELECT 1 AS a", target, "csv", limits=limits) == 1
    assert not unclosable[0].is_closed
    assert target.read_text() == "a\n1\n"
    assert list(tmp_path.iterdir()) == [target]


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


def test_an_error_of_closing_is_passed_on(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replacement = opening(Refusing, [])
    for module in (attached_file, row_files):
        monkeypatch.setattr(module, "open_published", replacement)
    with pytest.raises(duckdb.IOException, match="the disk is gone"), connected(warehouse):
        pass


@pytest.mark.skipif(DUCKDB_MAJOR < 2, reason="older ones write with the threads of the query alone")
def test_no_thread_writes_a_file_that_its_query_could_wait_for_forever(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    assert run_sql(connection, "SELECT current_setting('async_threads')").rows == [(0,)]
    with open_spilling(tmp_path) as making:
        assert making.sql("SELECT current_setting('async_threads')").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("size", "left_out"), [(16_000_000, True), (16_000_001, False), (None, False)]
)
def test_filters_from_joins_are_left_out_for_a_small_warehouse_alone(
    size: int | None, left_out: bool, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse.duckdb"
    if size is not None:
        warehouse.touch()
        os.truncate(warehouse, size)
    with open_spilling(tmp_path / "spill", warehouse=warehouse) as making:
        ((disabled,),) = making.sql("SELECT current_setting('disabled_optimizers')").fetchall()
    assert (disabled == "join_filter_pushdown") is left_out
    assert left_out or disabled == ""


@pytest.mark.long
def test_answers_interrupted_at_any_moment_end(warehouse: Path, tmp_path: Path) -> None:
    """If DuckDB writes with its own threads, about one in 180 waits forever."""
    command = [sys.executable, "-c", INTERRUPTED, ENDLESS, str(warehouse), str(tmp_path / "answer")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=HANGS_AFTER_S)
    assert (done.returncode, done.stderr) == (0, b"")
    assert list(tmp_path.iterdir()) == []
