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

from almanac.core.errors import WarehouseError
from almanac.reading.attached_file import connected, run_sql
from tests.history.stories.handmade import HandmadeHome, event
from tests.warehouse.test_readers import change
from warehouse.history.merge import rebuild

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


@pytest.fixture
def story(tmp_path: Path) -> HandmadeHome:
    """A home whose published file has two versions."""
    story = HandmadeHome(tmp_path)
    story.listed("01 06:00", event("a"), event("b"))
    story.merge()
    return story


@pytest.fixture
def warehouse(story: HandmadeHome) -> Path:
    return story.home.warehouse


def publish(story: HandmadeHome) -> None:
    """Publish one more version."""
    change(story)
    story.merge()


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
def writer(warehouse: Path, *, count: int = 2) -> Iterator[Writer]:
    warehouse.chmod(0o644)
    command = [sys.executable, "-c", WRITE_LATER, str(warehouse)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{count}\n"
        yield Writer(process)


def logs_beside(warehouse: Path) -> list[str]:
    return sorted(path.name for path in warehouse.parent.glob("warehouse.duckdb.wal*"))


def versions(warehouse: Path) -> list[int]:
    """Return the number that each of our ways to read the file returns."""
    with connected(warehouse) as connection, connected(warehouse, own_files=True) as other:
        found = (run_sql(connection, COUNT).rows, other.execute(COUNT).fetchall())
    return [int(rows[0][0]) for rows in found]


def test_the_published_file_is_read_only_and_of_duckdb_1_4(
    story: HandmadeHome, warehouse: Path
) -> None:
    publish(story)
    assert stat.S_IMODE(warehouse.stat().st_mode) & 0o222 == 0
    with connected(warehouse) as connection:
        sql = "SELECT tags FROM duckdb_databases() WHERE path IS NOT NULL"
        assert run_sql(connection, sql).rows == [({"storage_version": "v1.4.0+"},)]


def test_a_client_that_has_the_file_open_for_writing_stops_a_merge_and_no_rebuild(
    story: HandmadeHome, warehouse: Path
) -> None:
    with writer(warehouse), pytest.raises(WarehouseError, match=r"lock.* another program writes"):
        publish(story)
    assert story.merge().is_published
    with writer(warehouse, count=3):
        change(story)
        assert rebuild(story.home).is_published
    assert versions(warehouse) == [4, 4]


def test_a_client_that_writes_after_a_publication_blocks_no_reader_and_no_publication(
    story: HandmadeHome, warehouse: Path
) -> None:
    with writer(warehouse) as other:
        change(story)
        rebuild(story.home)
        assert other.run("CREATE TABLE mine AS SELECT 1") == "done"
        assert logs_beside(warehouse) == ["warehouse.duckdb.wal"]
        with pytest.raises(duckdb.Error):
            duckdb.connect(str(warehouse), read_only=True)
        assert versions(warehouse) == [3, 3]
        (aside,) = logs_beside(warehouse)
        assert aside.startswith("warehouse.duckdb.wal.foreign-2")
        duckdb.connect(str(warehouse), read_only=True).close()
        assert other.run("CREATE TABLE more AS SELECT 1") == "done"
        other.run("CHECKPOINT")
        assert versions(warehouse) == [3, 3]
        publish(story)
    assert versions(warehouse) == [4, 4]
    with connected(warehouse) as connection:
        assert "mine" not in str(run_sql(connection, "FROM duckdb_tables()").rows)
    assert all("foreign" in name for name in logs_beside(warehouse))


def test_a_foreign_wal_is_logged_in_one_line_and_replaces_no_other(
    warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wal = warehouse.with_name("warehouse.duckdb.wal")
    contents = {b"first", b"second", b"third"}
    for content in contents:
        wal.write_bytes(content)
        os.utime(wal, (1_800_000_000, 1_800_000_000))
        with caplog.at_level(logging.WARNING), connected(warehouse):
            pass
    assert {warehouse.with_name(name).read_bytes() for name in logs_beside(warehouse)} == contents
    assert len(caplog.messages) == 3
    assert all("was renamed to" in line and "\n" not in line for line in caplog.messages)


def test_a_publication_removes_links_of_killed_readers(
    story: HandmadeHome, warehouse: Path
) -> None:
    old, young = (warehouse.parent / f".reading-{name}" for name in ("old", "young"))
    for left in (old, young):
        left.mkdir()
        (left / "warehouse.duckdb").hardlink_to(warehouse)
    os.utime(old, (1_000_000_000, 1_000_000_000))
    publish(story)
    assert not old.exists()
    assert young.exists()
