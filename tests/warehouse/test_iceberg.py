"""A push to an Iceberg catalog: equal rows, one snapshot a publication, kills, expiry."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import almanac
from almanac.core.errors import WarehouseError
from almanac.next_events import list_steps
from tests.almanac.steps.step_world import FIRST, LAST, StepWorld
from tests.hangs import HANGS_AFTER_S
from warehouse.iceberg import (
    PUBLICATION,
    PUBLICATIONS,
    STEPS,
    TABLES,
    load_named_catalog,
    push_publication,
)

EQUAL = dict.fromkeys(TABLES, (0, 0))


class StoppedCatalog(SqlCatalog):
    """A catalog whose commits to one table fail, as those of a process that is killed."""

    stops_at = ""

    def commit_table(self, table: Any, *arguments: Any) -> Any:
        if table.name()[-1] == self.stops_at:
            raise ConnectionError("killed")
        return super().commit_table(table, *arguments)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[StoppedCatalog]:
    folder = tmp_path / "lake"
    folder.mkdir()
    options = {"uri": f"sqlite:///{folder}/catalog.sqlite", "warehouse": f"file://{folder}"}
    opened = StoppedCatalog("team", **options)
    yield opened
    opened.close()


@cache
def publication(days: int | None) -> bytes:
    """Return a published file with some days of a history, or all of them."""
    with TemporaryDirectory() as folder:
        at = LAST if days is None else FIRST + timedelta(days=days)
        return StepWorld(Path(folder) / "warehouse.duckdb", 3, at=at).file.read_bytes()


def publish(file: Path, days: int | None = None) -> None:
    """Publish a history, or replace a file by a later publication of it."""
    file.with_suffix(".new").write_bytes(publication(days))
    file.with_suffix(".new").rename(file)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    publish(tmp_path / "warehouse.duckdb", 45)
    return tmp_path / "warehouse.duckdb"


def count_differences(file: Path, catalog: SqlCatalog) -> dict[str, tuple[int, int]]:
    """Return for each table the rows that only the file has, and only the catalog.

    The tables are read by the snapshots that `publications` names.
    """
    named = catalog.load_table(f"almanac.{PUBLICATIONS}").scan().to_arrow().to_pylist()
    assert [row["table_name"] for row in named] == list(TABLES)
    found = {}
    with almanac.open(file, follow=False) as database, duckdb.connect() as connection:
        assert {row["publication"] for row in named} == {database.publication.id}
        assert {row["published_at"] for row in named} == {database.publication.published_at}
        connection.execute("SET TimeZone = 'UTC'")
        for row in named:
            name = row["table_name"]
            is_steps = name == STEPS
            here = list_steps(database.reader) if is_steps else database.sql(f"FROM {name}").arrow()
            table = catalog.load_table(f"almanac.{name}")
            there = table.scan(snapshot_id=row["snapshot_id"]).to_arrow()
            connection.register("here", here)
            connection.register("there", there.select(here.column_names))
            missing, added = (
                len(connection.execute(f"FROM {a} EXCEPT ALL FROM {b}").fetchall())
                for a, b in (("here", "there"), ("there", "here"))
            )
            found[name] = (missing, added)
    return found


def data_files(catalog: SqlCatalog) -> set[Path]:
    return set(Path(catalog.properties["warehouse"].removeprefix("file://")).rglob("*.parquet"))


def test_tables_equal_the_published_file(published: Path, catalog: StoppedCatalog) -> None:
    report = push_publication(published, catalog)
    assert report.written == (*TABLES, PUBLICATIONS)
    assert count_differences(published, catalog) == EQUAL
    files = data_files(catalog)
    again = push_publication(published, catalog)
    assert again.written == () and again.snapshots == report.snapshots
    assert data_files(catalog) == files
    publish(published)
    assert push_publication(published, catalog).publication != report.publication
    assert count_differences(published, catalog) == EQUAL
    for name in TABLES:
        (newest,) = [catalog.load_table(f"almanac.{name}").current_snapshot()]
        assert newest.summary[PUBLICATION] != report.publication


def test_a_killed_push_mixes_no_publications(published: Path, catalog: StoppedCatalog) -> None:
    first = push_publication(published, catalog)
    before = published.with_name("before.duckdb")
    before.write_bytes(published.read_bytes())
    publish(published)
    catalog.stops_at = "coins"
    with pytest.raises(ConnectionError, match="killed"):
        push_publication(published, catalog)
    # What `publications` names is still the publication before, in all tables.
    assert count_differences(before, catalog) == EQUAL
    catalog.stops_at = ""
    report = push_publication(published, catalog)
    assert report.publication != first.publication
    assert report.written == ("coins", "coin_snapshots", "cancellations", STEPS, PUBLICATIONS)
    assert count_differences(published, catalog) == EQUAL


@pytest.mark.parametrize("first", [True, False])
def test_a_push_during_another_doubles_no_row(
    published: Path, catalog: StoppedCatalog, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    if not first:
        push_publication(published, catalog)
        publish(published)
    commit = SqlCatalog.commit_table

    def commit_late(self: SqlCatalog, *arguments: Any) -> Any:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        push_publication(published, self)
        return commit(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_late)
    assert push_publication(published, catalog).written == ()
    assert count_differences(published, catalog) == EQUAL
    with almanac.open(published) as database:
        expected = len(database.sql("FROM events"))
    assert catalog.load_table("almanac.events").scan().count() == expected


def test_a_table_of_an_earlier_version_repeats_no_commit(
    published: Path, catalog: StoppedCatalog
) -> None:
    push_publication(published, catalog)
    events = catalog.load_table("almanac.events")
    events.transaction().set_properties({"commit.retry.num-retries": "4"}).commit_transaction()
    publish(published)
    push_publication(published, catalog)
    assert events.refresh().properties["commit.retry.num-retries"] == "0"
    assert count_differences(published, catalog) == EQUAL


def test_a_new_column_is_added(published: Path, catalog: StoppedCatalog) -> None:
    push_publication(published, catalog)
    publish(published)
    with duckdb.connect(published) as connection:
        connection.execute("ALTER TABLE coins ADD COLUMN venue VARCHAR DEFAULT 'a venue'")
    push_publication(published, catalog)
    assert count_differences(published, catalog) == EQUAL
    venues = catalog.load_table("almanac.coins").scan().to_arrow().column("venue")
    assert set(venues.to_pylist()) == {"a venue"}


def test_a_pinned_publication_stays_readable(published: Path, catalog: StoppedCatalog) -> None:
    first = push_publication(published, catalog).snapshots["events"]
    rows = catalog.load_table("almanac.events").scan(snapshot_id=first).to_arrow()
    files = data_files(catalog)
    publish(published)
    push_publication(published, catalog)
    table = catalog.load_table("almanac.events")
    assert table.scan(snapshot_id=first).to_arrow().equals(rows)
    assert files < data_files(catalog)
    table.manage_snapshots().create_tag(first, "kept").commit()
    kept = {task.file.file_path for task in table.scan(snapshot_id=first).plan_files()}
    # The next publication: all that was replaced has expired.
    publish(published, 60)
    push_publication(published, catalog, kept=timedelta(days=-1))
    assert count_differences(published, catalog) == EQUAL
    table = catalog.load_table("almanac.events")
    assert table.scan(snapshot_id=first).to_arrow().equals(rows), "a tag keeps it"
    assert {Path(file.removeprefix("file://")) for file in kept} == files & data_files(catalog)
    # Besides, one file of each table is left: `cancellations` has no rows here.
    assert len(data_files(catalog)) == len((*TABLES, PUBLICATIONS)) - 1 + 1


def test_a_table_of_another_program_is_kept(published: Path, catalog: StoppedCatalog) -> None:
    rows = pa.table({"mine": [1, 2]})
    catalog.create_namespace("almanac")
    catalog.create_table("almanac.coins", rows.schema).append(rows)
    with pytest.raises(WarehouseError, match=r"a table almanac\.coins of another program"):
        push_publication(published, catalog)
    assert catalog.load_table("almanac.coins").scan().to_arrow().equals(rows)
    assert "coins" in push_publication(published, catalog, "other").written


def test_without_pyiceberg_the_error_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(WarehouseError, match=r"pip install 'crypto-almanac\[lake\]'"):
        load_named_catalog("team")


PUSH_TO_EACH = """
import runpy, sys

_, home, *names = sys.argv
for name in names:
    sys.argv[:] = ["warehouse.iceberg", home, name]
    try:
        runpy.run_module("warehouse.iceberg", run_name="__main__")
    except SystemExit as ended:
        if name == names[-1]:
            raise
        print(ended, file=sys.stderr)
"""
"""A program that pushes to one catalog after the other: to import PyIceberg takes a second."""
UNUSABLE = {
    "at": ("postgresql+psycopg://Use%@12/Can@ary@127.0.0.1:1/db", "percent-encode user and"),
    "slash": ("postgresql+psycopg://Use:Can/ary@127.0.0.1:1/db", "percent-encode user and"),
    "closed": ("postgresql+psycopg://Use:Canary@127.0.0.1:1/db", "nothing listens at its address"),
    "slashed": ("https://Use:Can/ary@127.0.0.1:1/x", "percent-encode user and password"),
    "rest": ("http://Use:Canary@127.0.0.1:1/x", "nothing listens at its address"),
    "odd": ("postgresql:Use:Canary", "it failed"),
}


def test_an_unusable_catalog_is_one_line_without_a_part_of_its_address(tmp_path: Path) -> None:
    settings = {
        f"PYICEBERG_CATALOG__{name.upper()}__URI": address
        for name, (address, _) in UNUSABLE.items()
    }
    done = subprocess.run(
        [sys.executable, "-c", PUSH_TO_EACH, str(tmp_path), *UNUSABLE],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert (done.returncode, done.stdout) == (1, "")
    for line, (_, said) in zip(done.stderr.splitlines(), UNUSABLE.values(), strict=True):
        assert said in line
        assert re.search("Use|Can|ary|12", line) is None
