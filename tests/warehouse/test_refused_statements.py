"""SQL that would write files, read files, use the network or exhaust the machine is refused.

A corpus of statements runs through `run_sql`, the COPY of an answer, and the bare connection of
`connect`; other statements must work.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pytest

from almanac.core.errors import QueryRefused
from almanac.reading import attached_file
from almanac.reading.attached_file import connect, connected, run_sql
from almanac.reading.query_limits import QueryLimits
from almanac.reading.row_files import FileFormat, write_answer
from tests.almanac.publications import publish_two_events
from tests.hangs import HANGS_AFTER_S
from tests.warehouse.run_apart import DATA_BYTES_MAX

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
SECRET = "canary-7d21"
FORMS: tuple[FileFormat, ...] = ("csv", "json", "parquet")
CHANGING = frozenset({"CREATE", "USE", "DETACH", "BEGIN", "PREPARE", "ATTACH", "DROP"})
"""Statements after which the test opens a new bare connection."""


def corpus(name: str) -> dict[str, list[str]]:
    """Return the statements of a file by section."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in (FOLDER / f"{name}.sql").read_text("utf-8").splitlines():
        if line.startswith("-- "):
            section = line.removeprefix("-- ")
        elif line:
            found.setdefault(section, []).append(line)
    return found


SECTIONS = corpus("refused_statements")
EXHAUSTING = SECTIONS.pop("exhaust")
REFUSALS = [sql for statements in SECTIONS.values() for sql in statements]
((_, ALLOWED),) = corpus("allowed_statements").items()


class Visitors:
    """A listener on loopback that counts connections."""

    def __init__(self) -> None:
        self.count = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return
            self.count += 1
            visitor.close()


class Scene(NamedTuple):
    """A home and files of its user, and the names that statements of the corpus use for them."""

    root: Path
    warehouse: Path
    names: dict[str, str]
    visitors: Visitors

    def filled(self, sql: str) -> str:
        for name, value in self.names.items():
            sql = sql.replace(f"<{name}>", value)
        return sql

    def state(self) -> dict[str, tuple[int, str]]:
        """Return the mode and the hash of every file."""
        return {
            str(path.relative_to(self.root)): (
                path.stat().st_mode,
                hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            )
            for path in sorted(self.root.rglob("*"))
        }


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("root")
    home = root / "home"
    for name in ("landing", "parquet", "user"):
        (home / name).mkdir(parents=True)
    warehouse = publish_two_events(home)
    body, mine = home / "landing" / "body.zst", home / "user" / "mine.txt"
    body.write_bytes(b"landed " + SECRET.encode())
    mine.write_text(f"{SECRET}\n")
    csv, text, parquet = (mine.with_suffix(f".{form}") for form in ("csv", "json", "parquet"))
    csv.write_text(f"secret\n{SECRET}\n")
    text.write_text(f'{{"secret": "{SECRET}"}}\n')
    with duckdb.connect() as connection:
        values = {"secret": SECRET, "file": str(parquet)}
        connection.execute("COPY (SELECT $secret AS secret) TO $file (FORMAT parquet)", values)
    partition = home / "parquet" / "changes.parquet"
    shutil.copyfile(parquet, partition)
    pipe = root / "pipe"
    os.mkfifo(pipe)
    visitors = Visitors()
    yield Scene(
        root,
        warehouse,
        {
            **{"body": str(body), "mine": str(mine), "csv": str(csv), "json": str(text)},
            **{"parquet": str(parquet), "warehouse": str(warehouse), "pipe": str(pipe)},
            **{"partition": str(partition), "new": str(root / "new")},
            **{"folder": str(home), "http": visitors.address},
        },
        visitors,
    )
    visitors.close()


@pytest.fixture
def untouched(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Yield the scene; assert at the end that nothing was written and nobody connected."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALMANAC_API_KEY", SECRET)
    monkeypatch.setenv("HOME", str(tmp_path))
    before = scene.state()
    yield scene
    assert scene.state() == before
    assert list(tmp_path.iterdir()) == []
    assert scene.visitors.count == 0


def test_no_setting_of_a_connection_can_be_changed(scene: Scene) -> None:
    with connected(scene.warehouse) as connection:
        for sql in (
            "SET memory_limit = '9GB'",
            "SET threads = 3",
            "SET lock_configuration = false",
        ):
            with pytest.raises(duckdb.Error, match="locked"):
                connection.execute(sql)


def test_each_statement_of_the_corpus_is_refused(untouched: Scene) -> None:
    frame = secrets_of_the_caller = pa.table({"secret": [SECRET]})
    passed: list[str] = []
    with connected(untouched.warehouse) as connection:
        for sql in REFUSALS:
            try:
                passed.append(f"{sql}: {run_sql(connection, untouched.filled(sql)).rows}"[:300])
            except QueryRefused as error:
                assert SECRET not in str(error), sql
    assert passed == []
    assert frame is secrets_of_the_caller


@pytest.mark.parametrize(
    "statements",
    [REFUSALS[::9], pytest.param(REFUSALS, marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_each_statement_is_refused_inside_the_copy_of_an_answer(
    scene: Scene, tmp_path: Path, statements: list[str]
) -> None:
    target = tmp_path / "answer"
    before = scene.state()
    for number, sql in enumerate(statements):
        with pytest.raises(QueryRefused):
            write_answer(scene.warehouse, scene.filled(sql), target, FORMS[number % len(FORMS)])
    assert scene.state() == before
    assert list(tmp_path.iterdir()) == []


def test_no_statement_reaches_files_or_hosts_on_a_bare_connection(untouched: Scene) -> None:
    """Statements that change only the connection itself may succeed."""
    frame = pa.table({"secret": [SECRET]})
    connection = connect(untouched.warehouse)
    for sql in REFUSALS:
        if "enable_logging" in sql and duckdb.__version__ < "2":
            continue  # It writes nothing, but ends the process when it is closed.
        try:
            answer: object = connection.execute(untouched.filled(sql)).fetchall()
        except (duckdb.Error, RuntimeError, AttributeError) as error:
            answer = error
        assert SECRET not in str(answer), sql
        if sql.split()[0] in CHANGING:
            connection.close()
            connection = connect(untouched.warehouse)
    connection.close()
    assert frame.num_rows == 1


def test_sql_can_not_open_the_attached_file(untouched: Scene) -> None:
    """DuckDB lets SQL read and write attached files, so their names must be removed."""
    with connected(untouched.warehouse) as connection:
        named = connection.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL")
        paths = [str(path) for (path,) in named.fetchall()]
        allowed = connection.execute("SELECT unnest(current_setting('allowed_paths'))").fetchall()
        for path in {*paths, *(str(item).rstrip("/") for (item,) in allowed)}:
            for sql in (
                f"COPY (SELECT 1) TO '{path}' (FORMAT csv, USE_TMP_FILE false)",
                f"COPY (SELECT 1 AS a) TO '{path}' (FORMAT csv, PER_THREAD_OUTPUT)",
                f"ATTACH '{path}' AS other",
            ):
                with pytest.raises(duckdb.Error):
                    connection.execute(sql)
            assert connection.execute(f"FROM read_blob('{path}')").fetchall() == []
        assert connection.execute("SELECT count(*) FROM events").fetchall() == [(2,)]


def test_a_file_without_a_hard_link_is_read_and_a_writing_with_is_refused(
    untouched: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(attached_file.os, "link", refuse)
    with connected(untouched.warehouse) as connection:
        assert run_sql(connection, "FROM events").count == 2
        for sql in SECTIONS["write"]:
            with pytest.raises(QueryRefused):
                run_sql(connection, untouched.filled(sql))


def test_a_query_that_takes_too_long_names_the_setting_for_more_time(scene: Scene) -> None:
    limits = QueryLimits(timeout_s=0.1)
    connection = connect(scene.warehouse, limits=limits)
    with pytest.raises(QueryRefused, match=r"longer than 0.1 s \(QueryLimits.timeout_s\)"):
        run_sql(connection, "SELECT count(*) FROM range(1000000000000)", limits=limits)
    assert run_sql(connection, "SELECT 1", limits=limits).rows == [(1,)]
    connection.close()


@pytest.mark.parametrize(
    "statements",
    [EXHAUSTING[::6], pytest.param(EXHAUSTING, marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_a_query_that_exhausts_resources_is_stopped(
    untouched: Scene, statements: list[str]
) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.warehouse.run_apart", str(untouched.warehouse)],
        cwd=ROOT,
        input="".join(json.dumps(sql) + "\n" for sql in statements),
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    ends = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(ends) == len(statements), run.stderr
    assert {
        sql: end["ended"]
        for sql, end in zip(statements, ends, strict=True)
        if end["ended"] not in ("refused", "stuck") or end["bytes"] > DATA_BYTES_MAX
    } == {}


def test_a_reading_statement_has_an_answer_in_every_form(scene: Scene, tmp_path: Path) -> None:
    counts: list[int] = []
    with connected(scene.warehouse) as connection:
        for sql in ALLOWED:
            answer = run_sql(connection, sql)
            assert answer.count == len(answer.rows), sql
            counts.append(answer.count)
    for number, (sql, count) in enumerate(zip(ALLOWED, counts, strict=True)):
        target = tmp_path / f"answer-{number}"
        assert write_answer(scene.warehouse, sql, target, FORMS[number % len(FORMS)]) == count
        assert target.stat().st_size > 0


def test_explain_has_an_answer(scene: Scene) -> None:
    with connected(scene.warehouse) as connection:
        for sql in (
            *("EXPLAIN FROM events", "EXPLAIN ANALYZE FROM events", "DESCRIBE events"),
            *("SHOW TABLES", "SUMMARIZE events", "FROM events; ", "EXPLAIN -- why\nFROM events"),
            "WITH a AS (SELECT 1) SELECT * FROM a -- a remark",
            "EXPLAIN ANALYZE PIVOT events ON status USING count(*)",
            *("/* é */ EXPLAIN (ANALYZE) SELECT 1", "EXPLAIN (SELECT 1) UNION SELECT 2"),
        ):
            assert run_sql(connection, sql).rows


def test_a_query_can_use_own_files_and_frames_if_allowed(scene: Scene) -> None:
    frame = pa.table({"a": [1, 2, 3]})
    with connected(scene.warehouse, own_files=True) as connection:
        csv = scene.filled("SELECT * FROM '<csv>', (SELECT count(*) AS events FROM events)")
        assert connection.sql(csv).fetchall() == [(SECRET, 2)]
        assert connection.sql("SELECT sum(a) FROM frame").fetchall() == [(6,)]
    assert frame.num_rows == 3


def test_rows_that_do_not_fit_into_memory_are_spilled_and_the_spill_is_removed(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    limits = QueryLimits(memory_bytes=40_000_000, threads=1)
    with connected(scene.warehouse, limits=limits) as connection:
        sql = "SELECT max(a) FROM (SELECT row_number() OVER (ORDER BY md5(range::VARCHAR)) AS a"
        answer = run_sql(connection, f"{sql} FROM range(700000))", limits=limits)
    assert answer.rows == [(700_000,)]
    (own,) = tmp_path.iterdir()
    assert list(own.iterdir()) == []


def test_an_answer_that_leaves_no_room_on_the_disk_is_stopped_and_removed(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("almanac.reading.query_limits._ANSWER_BYTES_MIN", 1_000_000)
    monkeypatch.setattr("almanac.reading.query_limits.LEFT_FREE_BYTES", 1 << 60)
    with pytest.raises(QueryRefused, match="free on the disk"):
        sql = "SELECT range, md5(range::VARCHAR) FROM range(100000000000)"
        write_answer(scene.warehouse, sql, tmp_path / "answer.csv", "csv")
    assert list(tmp_path.iterdir()) == []
