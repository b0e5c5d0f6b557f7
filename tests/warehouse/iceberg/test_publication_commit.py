"""Each publication is committed to the Iceberg tables, which equal the published file."""

import random
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime

import duckdb
import pytest

from almanac.errors import InvalidArgument, UnknownName, WarehouseError
from almanac.lake import open_lake
from tests.warehouse.iceberg.conftest import HISTORY, IcebergHome
from tests.warehouse.iceberg.tables_equal import count_differences, equal
from tests.warehouse.publish.small_lake import Kind, Op, Plan
from warehouse.iceberg import parts
from warehouse.iceberg.lake_tables import COINS, EVENT_CHANGES, LAKE_TABLES
from warehouse.iceberg.publication_commit import describe_error, read_iceberg_note
from warehouse.iceberg.table_commits import open_table
from warehouse.iceberg.table_snapshots import read_snapshot
from warehouse.iceberg_place import IcebergPlace
from warehouse.schema.columns import AS_OF, text

KINDS: tuple[Kind, ...] = ("change", "reschedule", "cancel", "see", "look", "miss")


class Killed(BaseException):
    """Stands for the end of the process."""


def make_plan(source: random.Random) -> Plan:
    ops = tuple(
        Op(source.randrange(6), source.choice(KINDS), source.randrange(12), 6 + hour)
        for hour in range(source.randrange(4))
    )
    return Plan(ops, coins=source.randrange(4), skip=source.random() < 0.1)


def data_files(iceberg: IcebergHome, table: str) -> set[str]:
    snapshot = read_snapshot(open_lake(iceberg.root).table(table))
    return {file.file_path for file in snapshot.files}


@pytest.mark.parametrize("rounds", [5, pytest.param(60, marks=pytest.mark.long)])
def test_tables_equal_the_warehouse_after_days_are_added_changed_and_removed(
    iceberg: IcebergHome, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(parts, "RECENT_ROWS", 4)
    monkeypatch.setattr(parts, "BASE_ROWS", 3)
    source = random.Random(rounds)
    steps = [f"iceberg:{table.name}" for table in LAKE_TABLES]
    plans = [make_plan(source) for _ in range(3)]
    for number in range(rounds):
        plans = [*plans, make_plan(source)]
        if number % 3 == 1:  # A refold.
            plans[source.randrange(len(plans))] = make_plan(source)
        if number % 10 == 4:
            plans = plans[: len(plans) // 2]
        iceberg.publish(plans)
        if number % 2:
            kill_at = source.choice(steps)

            def step(name: str, kill_at: str = kill_at) -> None:
                if name == kill_at:
                    raise Killed

            with suppress(Killed):  # Nothing is committed if nothing was published.
                iceberg.commit(step)
        assert not iceberg.commit().why_failed
        assert count_differences(iceberg.root) == equal()


def test_a_first_day_with_many_versions_is_committed(
    iceberg: IcebergHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "RECENT_ROWS", 1)
    for plans in (HISTORY[:1], HISTORY):
        iceberg.publish(plans)
        assert not iceberg.commit().why_failed
        assert count_differences(iceberg.root) == equal()


def test_only_files_of_parts_that_differ_are_replaced(committed: IcebergHome) -> None:
    before = {name: data_files(committed, name) for name in ("event_changes", "events", "coins")}
    committed.publish([*HISTORY, Plan((Op(2, "reschedule", 6, hour=9),))])
    report = committed.commit()
    assert before["event_changes"] < data_files(committed, "event_changes")
    assert len(data_files(committed, "event_changes") - before["event_changes"]) == 1
    assert data_files(committed, "coins") == before["coins"]
    assert "coins" not in report.changed
    assert before["events"] & data_files(committed, "events")


def test_a_refolded_day_is_replaced_in_one_snapshot(committed: IcebergHome) -> None:
    table = open_lake(committed.root).table("event_changes")
    before = len(table.snapshots())
    committed.publish([HISTORY[0], Plan((Op(0, "reschedule", 5),), coins=2)])
    committed.commit()
    table.refresh()
    assert len(table.snapshots()) == before + 1
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["added-data-files"] == "1"
    assert snapshot.summary["deleted-data-files"] == "1"
    assert count_differences(committed.root) == equal()


def test_the_change_log_is_linked_and_partitioned_by_day(committed: IcebergHome) -> None:
    table = open_lake(committed.root).table("event_changes")
    assert [field.name for field in table.spec().fields] == ["known_from_day"]
    day = committed.lake.chain[0]
    names = [path.removeprefix("file://") for path in data_files(committed, "event_changes")]
    linked = [name for name in names if f"/{day.day.isoformat()}--{day.sha256[:16]}--" in name]
    assert len(linked) == 1
    assert committed.lake.storage.path(day.name).samefile(linked[0])
    scan = open_lake(committed.root).scan(
        EVENT_CHANGES.name, row_filter=f"known_from < '{day.day}T23:59:59+00:00'"
    )
    assert [task.file.file_path for task in scan.plan_files()] == [f"file://{linked[0]}"]


def test_versions_as_of_a_time_are_those_of_events_as_of(committed: IcebergHome) -> None:
    lake = open_lake(committed.root)
    names = ", ".join(column.name for column in AS_OF)
    for hour in (6, 7, 30, 31):
        as_of = datetime(2026, 3, 1 + hour // 24, hour % 24, tzinfo=UTC)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"ATTACH '{committed.lake.warehouse}' AS published (READ_ONLY)")
            connection.execute("USE published")
            there = lake.read("event_versions", as_of=as_of)
            connection.register("stored", there)
            listed = names.replace("changed_at", "known_from AS changed_at")
            ours = f"SELECT {listed} FROM stored"
            theirs = (
                f"SELECT {names} FROM (SELECT * REPLACE (extra::VARCHAR AS extra) FROM "
                f"events_as_of('{as_of.isoformat()}'))"
            )
            for pair in (f"{ours} EXCEPT ALL {theirs}", f"{theirs} EXCEPT ALL {ours}"):
                assert connection.execute(pair).fetchall() == []


def test_a_second_commit_does_nothing(committed: IcebergHome) -> None:
    before = read_iceberg_note(committed.home)
    assert before is not None
    assert committed.commit().note == before
    (committed.home.state / "iceberg.json").unlink()
    report = committed.commit()
    assert report.note.snapshots == before.snapshots
    assert report.changed == []


def test_a_pinned_publication_stays_readable_after_later_ones(committed: IcebergHome) -> None:
    lake = open_lake(committed.root)
    pinned = lake.publication()
    before = lake.read("events", publication=pinned).to_pylist()
    committed.publish([*HISTORY, Plan((Op(0, "cancel", 2), Op(4, seed=3)))])
    committed.commit()
    assert lake.publication().id != pinned.id
    assert lake.read("events", publication=pinned).to_pylist() == before
    assert lake.publication(pinned.id) == pinned
    with pytest.raises(UnknownName, match="may have expired"):
        lake.publication("unknown")


def test_a_failed_commit_leaves_the_publication_and_is_made_up_for(
    committed: IcebergHome,
) -> None:
    catalog = committed.root / "iceberg" / "catalog.sqlite"
    moved = catalog.rename(catalog.with_name("moved"))
    catalog.mkdir()
    committed.publish([*HISTORY, Plan((Op(4, seed=3),))])
    report = committed.commit()
    assert report.why_failed
    note = read_iceberg_note(committed.home)
    assert note is not None
    assert note.why_failed == report.why_failed
    assert note.failed_at is not None
    assert note.publication  # The one before.
    catalog.rmdir()
    moved.rename(catalog)
    assert not committed.commit().why_failed
    assert count_differences(committed.root) == equal()


def test_the_publications_table_names_the_snapshot_of_each_table(committed: IcebergHome) -> None:
    lake = open_lake(committed.root)
    publication = lake.publication()
    rows = lake.table("publications").scan().to_arrow().to_pylist()
    assert {row["table_name"]: row["snapshot_id"] for row in rows} == publication.snapshots
    assert {row["publication"] for row in rows} == {publication.id}
    assert {row["published_at"] for row in rows} == {publication.published_at}
    for table in LAKE_TABLES:
        snapshot = lake.table(table.name).snapshot_by_id(publication.snapshots[table.name])
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["almanac.publication"] == publication.id


def test_a_read_as_of_a_time_without_a_zone_is_refused(committed: IcebergHome) -> None:
    lake = open_lake(committed.root)
    with pytest.raises(InvalidArgument, match="has no zone"):
        lake.read("event_versions", as_of=datetime(2026, 3, 1))  # noqa: DTZ001
    with pytest.raises(InvalidArgument, match="has no known_from"):
        lake.read("coins", as_of=datetime(2026, 3, 1, tzinfo=UTC))
    with pytest.raises(UnknownName, match="no table"):
        lake.read("unknown")


def test_a_home_without_a_catalog_is_not_opened(iceberg: IcebergHome) -> None:
    with pytest.raises(WarehouseError, match="there is no Iceberg catalog"):
        open_lake(iceberg.root)
    assert not (iceberg.root / "iceberg").exists()


def test_the_note_of_a_failure_has_no_password() -> None:
    place = IcebergPlace("postgresql://writer:canary%40word@db/almanac", "s3://bucket/iceberg")
    assert "canary" not in repr(place)
    for secret in ("canary@word was refused", f"no route to {place.catalog}"):
        assert "canary" not in describe_error(OSError(secret), place)


def test_a_column_that_a_newer_almanac_declares_is_added(committed: IcebergHome) -> None:
    declared = replace(COINS, columns=(*COINS.columns, text("venue", "Where it trades.")))
    reader = open_lake(committed.root)
    before = reader.read("coins").to_pylist()
    with closing(reader.catalog):
        open_table(reader.catalog, declared, committed.place.location)
        table = open_lake(committed.root).table("coins")
        assert table.schema().find_field("venue").doc == "Where it trades."
        mapped = table.name_mapping()
        assert mapped is not None
        assert "venue" in {name for field in mapped for name in field.names}
    after = open_lake(committed.root).read("coins").to_pylist()
    assert after == before  # A snapshot has the columns of its own time.
    assert count_differences(committed.root) == equal()


def test_a_catalog_without_tables_has_no_publication(iceberg: IcebergHome) -> None:
    file = iceberg.root / "iceberg" / "catalog.sqlite"
    file.parent.mkdir()
    file.touch()
    with pytest.raises(WarehouseError, match="can't be read: no such table"):
        open_lake(iceberg.root).publication()


@pytest.mark.parametrize("as_of", [None, datetime(2030, 1, 1, tzinfo=UTC)])
def test_a_filter_that_would_hide_a_later_version_is_refused(
    committed: IcebergHome, as_of: datetime | None
) -> None:
    lake = open_lake(committed.root)
    for row_filter in ("status != 'cancelled'", "version > 1", "event_id = 'a' or version = 1"):
        with pytest.raises(InvalidArgument, match="expected event_id alone"):
            lake.read("event_versions", row_filter=row_filter, as_of=as_of)
    with pytest.raises(InvalidArgument, match="can't be read"):
        lake.read("event_versions", row_filter="no_such_column = 1", as_of=as_of)
    every = lake.read("event_versions", as_of=as_of).to_pylist()
    chosen = every[0]["event_id"]
    found = lake.read("event_versions", row_filter=f"event_id = '{chosen}'", as_of=as_of)
    assert found.to_pylist() == [row for row in every if row["event_id"] == chosen]
    assert lake.scan("event_versions", row_filter="version > 1").to_arrow().num_rows


def test_an_address_that_would_be_cut_inside_its_password_is_refused_without_it() -> None:
    for password in ("p@zz/w", "p#zz"):
        with pytest.raises(InvalidArgument, match="written as %40") as caught:
            open_lake(f"postgresql://odd:{password}@localhost/almanac")
        assert "zz" not in str(caught.value)
