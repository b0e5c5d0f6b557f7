"""Snapshots expire, files without a snapshot are removed, and `verify` compares the tables."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from almanac.lake import open_lake
from tests.warehouse.iceberg.conftest import HISTORY, IcebergHome
from tests.warehouse.iceberg.tables_equal import count_differences, equal
from tests.warehouse.publish.small_lake import Op, Plan
from warehouse.iceberg import table_commits
from warehouse.iceberg.publication_commit import commit_publication
from warehouse.iceberg.table_commits import SNAPSHOT_DAYS, choose_expired
from warehouse.iceberg.upkeep import find_differences, remove_orphans

NOW = datetime(2026, 11, 26, tzinfo=UTC)


def _at(days_ago: float) -> int:
    return int((NOW - timedelta(days=days_ago)).timestamp() * 1000)


def test_a_snapshot_expires_some_days_after_the_next_one() -> None:
    snapshots = [(1, _at(30)), (2, _at(20)), (3, _at(6)), (4, _at(2)), (5, _at(1)), (6, _at(0))]
    # The second was read as the newest until six days ago.
    assert choose_expired(snapshots, NOW, most=200) == [1]
    assert choose_expired(snapshots, NOW, most=5) == [1]
    assert choose_expired(snapshots, NOW, most=4) == [1, 2]
    assert choose_expired(snapshots[:3], NOW, most=1) == []


def _files(iceberg: IcebergHome) -> set[Path]:
    return {path for path in (iceberg.root / "iceberg").rglob("*") if path.is_file()}


def _age(paths: Iterator[Path] | set[Path], days: float) -> None:
    for path in paths:
        at = path.stat().st_mtime - days * 86_400
        os.utime(path, (at, at))


def test_files_are_removed_from_a_home_whose_path_is_no_address(tmp_path: Path) -> None:
    iceberg = IcebergHome(tmp_path / "a home für tests")
    iceberg.publish(HISTORY)
    assert not iceberg.commit().why_failed
    unused = iceberg.root / "iceberg" / "events" / "data" / "unused.parquet"
    unused.write_bytes(b"")
    _age({unused}, 30)
    assert [orphan.path for orphan in remove_orphans(iceberg.place, datetime.now(UTC))] == [
        str(unused)
    ]
    assert not unused.exists()
    assert not list(find_differences(iceberg.home, iceberg.place, deep=True))


def test_files_of_expired_snapshots_are_removed_and_others_stay(
    committed: IcebergHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_commits, "SNAPSHOT_DAYS", 1)
    monkeypatch.setattr(table_commits, "SNAPSHOTS_MIN", 1)
    monkeypatch.setattr(table_commits, "_EXPIRED_TOGETHER", 1)
    lake = open_lake(committed.root)
    first = lake.publication()
    plans = list(HISTORY)
    for number in range(2):
        plans = [*plans, Plan((Op(number % 3, "reschedule", number),), coins=number % 3)]
        committed.publish(plans)
        committed.commit()
    before = _files(committed)
    now = datetime.now(UTC)
    assert remove_orphans(committed.place, now) == []
    _age(before, 3)
    assert remove_orphans(committed.place, now) == []  # Every snapshot is still there.
    pinned = lake.publication()
    rows = lake.read("events", publication=pinned).to_pylist()
    plans = [*plans, Plan((Op(1, "cancel", 2),), coins=1)]
    committed.publish(plans)
    later = datetime.now(UTC) + timedelta(days=SNAPSHOT_DAYS)
    commit_publication(committed.home, committed.place, now=lambda: later)
    assert first.id not in {publication.id for publication in lake.publications()}
    listed = remove_orphans(committed.place, later, dry_run=True)
    assert {Path(orphan.path) for orphan in listed} < before
    assert remove_orphans(committed.place, later) == listed
    assert listed
    assert remove_orphans(committed.place, later) == []
    assert lake.read("events", publication=pinned).to_pylist() == rows
    assert count_differences(committed.root) == equal()


def test_a_file_of_a_commit_in_progress_is_not_removed(committed: IcebergHome) -> None:
    stray = committed.root / "iceberg" / "events" / "data" / "stray.parquet"
    stray.write_bytes(b"")
    now = datetime.now(UTC)
    assert remove_orphans(committed.place, now) == []
    _age({stray}, 2)
    assert [orphan.path for orphan in remove_orphans(committed.place, now)] == [str(stray)]


def test_nothing_is_removed_without_a_catalog(iceberg: IcebergHome) -> None:
    assert remove_orphans(iceberg.place, NOW) == []
    assert not (iceberg.root / "iceberg").exists()


def test_verify_finds_tables_that_lag_or_are_missing(committed: IcebergHome) -> None:
    home, place = committed.home, committed.place
    for deep in (False, True):
        assert [*find_differences(home, place, deep=deep)] == []
    committed.publish([*HISTORY, Plan((Op(4, seed=3),))])
    (wrong,) = find_differences(home, place, deep=False)
    assert "`almanac merge` commits it" in wrong
    committed.commit()
    assert [*find_differences(home, place, deep=True)] == []
    (committed.root / "iceberg" / "catalog.sqlite").unlink()
    (wrong,) = find_differences(home, place, deep=True)
    assert "there is no Iceberg catalog" in wrong
    assert not (committed.root / "iceberg" / "catalog.sqlite").exists()


def test_a_rebuild_repairs_data_and_metadata(committed: IcebergHome) -> None:
    coins = committed.root / "iceberg" / "coins"
    for path in (coins / "data").iterdir():
        path.write_bytes(b"damaged")
    for path in (committed.root / "iceberg" / "events" / "metadata").glob("*.metadata.json"):
        path.write_bytes(b"damaged")
    assert [*find_differences(committed.home, committed.place, deep=True)]
    report = commit_publication(committed.home, committed.place, rebuild=True)
    assert report is not None
    assert report.why_failed == ""
    assert [*find_differences(committed.home, committed.place, deep=True)] == []
    assert count_differences(committed.root) == equal()


def test_the_tables_of_a_moved_home_are_made_again(
    committed: IcebergHome, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("moved") / "home"
    committed.root.rename(root)
    moved = IcebergHome(root)
    assert moved.commit().why_failed == ""
    assert [*find_differences(moved.home, moved.place, deep=True)] == []
    assert count_differences(root) == equal()
