"""Another program writes to the published file, and its `.wal` outlives a publication."""

import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from almanac.reading.attached_file import set_aside_foreign_wal
from tests.warehouse.publish.small_lake import Op, Plan, SmallLake
from warehouse.queries import connected, run_sql

OLD = [Plan((Op(0, seed=1), Op(1, seed=2)), coins=2)]
NEW = [*OLD, Plan((Op(0, "reschedule", 5), Op(2, seed=3)))]
COUNT = "SELECT count(*) FROM event_versions"
WRITE_LATER = """
import os, sys, duckdb
connection = duckdb.connect(sys.argv[1])
connection.execute("SET wal_autocheckpoint = '1TB'")
print(connection.sql("SELECT count(*) FROM event_versions").fetchall()[0][0], flush=True)
for line in sys.stdin:
    try:
        connection.execute(line)
    except duckdb.Error as error:
        print(type(error).__name__, flush=True)
    else:
        print("done", flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> SmallLake:
    small = SmallLake(tmp_path_factory.mktemp("published"))
    small.set_plans(OLD)
    small.publish()
    return small


@pytest.fixture
def lake(published: SmallLake, tmp_path: Path) -> SmallLake:
    return published.copied(tmp_path)


class Writer:
    """A client that opened the file for writing, which is the default of desktop tools."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, sql: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(sql, file=self._process.stdin, flush=True)
        return self._process.stdout.readline().strip()


@contextmanager
def writer(warehouse: Path) -> Iterator[Writer]:
    warehouse.chmod(0o644)
    command = [sys.executable, "-c", WRITE_LATER, str(warehouse)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "2\n"
        yield Writer(process)


def logs_beside(lake: SmallLake) -> list[str]:
    return sorted(path.name for path in lake.home.glob("warehouse.duckdb.wal*"))


def versions(warehouse: Path) -> list[int]:
    """Return the number that each of our ways to read the file returns."""
    with connected(warehouse) as connection, connected(warehouse, own_files=True) as other:
        found = (run_sql(connection, COUNT).rows, other.execute(COUNT).fetchall())
    return [int(rows[0][0]) for rows in found]


def test_the_published_file_is_read_only(lake: SmallLake) -> None:
    for full in (True, False):
        lake.set_plans(NEW if full else OLD)
        lake.publish(full=full)
        assert stat.S_IMODE(lake.warehouse.stat().st_mode) & 0o222 == 0


@pytest.mark.parametrize("full", [True, False])
def test_a_client_that_writes_after_a_publication_blocks_no_reader_and_no_publication(
    lake: SmallLake, full: bool
) -> None:
    with writer(lake.warehouse) as other:
        lake.set_plans(NEW)
        lake.publish(full=full)
        assert other.run("CREATE TABLE mine AS SELECT 1") == "done"
        assert logs_beside(lake) == ["warehouse.duckdb.wal"]
        with pytest.raises(duckdb.Error):
            duckdb.connect(str(lake.warehouse), read_only=True)
        assert versions(lake.warehouse) == [4, 4]
        (aside,) = logs_beside(lake)
        assert aside.startswith("warehouse.duckdb.wal.foreign-2")
        duckdb.connect(str(lake.warehouse), read_only=True).close()
        assert other.run("CREATE TABLE more AS SELECT 1") == "done"
        other.run("CHECKPOINT")
        assert versions(lake.warehouse) == [4, 4]
        lake.set_plans(OLD)
        lake.publish()
        assert versions(lake.warehouse) == [2, 2]
    assert versions(lake.warehouse) == [2, 2]
    assert "mine" not in str(_tables(lake.warehouse))
    assert all("foreign" in name for name in logs_beside(lake))


def _tables(warehouse: Path) -> list[tuple[object, ...]]:
    with connected(warehouse) as connection:
        return run_sql(connection, "SELECT table_name FROM duckdb_tables()").rows


def test_a_foreign_wal_that_a_publication_finds_is_kept_beside(lake: SmallLake) -> None:
    lake.warehouse.with_name("warehouse.duckdb.wal").write_bytes(b"of another program")
    lake.set_plans(NEW)
    lake.publish()
    (aside,) = logs_beside(lake)
    assert (lake.home / aside).read_bytes() == b"of another program"
    assert versions(lake.warehouse) == [4, 4]


def test_a_foreign_wal_is_logged_in_one_line_and_replaces_no_other(
    lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    wal = lake.warehouse.with_name("warehouse.duckdb.wal")
    for content in (b"first", b"second", b"third"):
        wal.write_bytes(content)
        os.utime(wal, (1_800_000_000, 1_800_000_000))
        with caplog.at_level(logging.WARNING), connected(lake.warehouse):
            pass
    assert {(lake.home / name).read_bytes() for name in logs_beside(lake)} == {
        b"first",
        b"second",
        b"third",
    }
    assert len(caplog.messages) == 3
    assert all("was renamed to" in line and "\n" not in line for line in caplog.messages)


def test_readers_ignore_a_foreign_wal_that_cannot_be_renamed(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    lake.warehouse.with_name("warehouse.duckdb.wal").write_bytes(b"of another program")
    monkeypatch.setattr(Path, "rename", refuse)
    assert set_aside_foreign_wal(lake.warehouse) is None
    assert versions(lake.warehouse) == [2, 2]
    assert logs_beside(lake) == ["warehouse.duckdb.wal"]


def test_a_publication_removes_links_of_killed_readers(lake: SmallLake) -> None:
    old, young = (lake.home / f".reading-{name}" for name in ("old", "young"))
    for left in (old, young):
        left.mkdir()
        (left / "warehouse.duckdb").hardlink_to(lake.warehouse)
    os.utime(old, (1_000_000_000, 1_000_000_000))
    lake.set_plans(NEW)
    lake.publish()
    assert not old.exists()
    assert young.exists()
