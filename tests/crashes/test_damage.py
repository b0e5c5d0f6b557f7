"""Damage to a lake, by disk or by hand, is detected, then reported or refolded, and never used."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from warehouse.history.change_log import ChangeLog, DayFile

from tests.crashes.after_kills import assert_repaired
from tests.crashes.conftest import Prepared
from tests.crashes.tables import published, whole
from warehouse.errors import LakeDamaged
from warehouse.history.merge import MergeReport, merge, replay
from warehouse.history.verify import verify
from warehouse.home import Home

LONG = pytest.mark.long
Harm = Callable[[Path], None]


def days_of(home: Home) -> list[DayFile]:
    return ChangeLog.of(home).days()


def newest_checkpoint(home: Home) -> Path:
    name = days_of(home)[-1].head.checkpoint
    assert name is not None
    return home.lake.path(f"checkpoints/{name}")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def other_bytes(path: Path) -> None:
    path.write_bytes(b"these are other bytes" * 40)


def nothing_left(path: Path) -> None:
    path.write_bytes(b"")


class TestCheckpoint:
    @pytest.fixture(params=[pytest.param("append", marks=LONG), "rewind"])
    def home(self, request: pytest.FixtureRequest, prepared: Prepared, tmp_path: Path) -> Home:
        return prepared.copy(request.param, tmp_path / "home")

    @pytest.mark.parametrize(("part", "harm"), [
        ("seen.parquet", cut), pytest.param("content.parquet", cut, marks=LONG),
        pytest.param("state.json", nothing_left, marks=LONG),
        pytest.param("coins.parquet", other_bytes, marks=LONG),
    ])  # fmt: skip
    def test_a_damaged_file_is_rebuilt(
        self, part: str, harm: Harm, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("append", tmp_path / "home")
        harm(newest_checkpoint(home) / part)
        report = self.merged(home, prepared)
        assert newest_checkpoint(home).name[:10] in [day.isoformat() for day in report.days]
        assert "checkpoint" in " ".join(report.rebuilt)

    def test_missing_files_are_rebuilt(self, home: Home, prepared: Prepared) -> None:
        shutil.rmtree(home.lake.path("checkpoints"))
        report = self.merged(home, prepared)
        assert len(report.days) == 3

    def test_a_file_of_another_history_is_not_used(
        self, prepared: Prepared, tmp_path: Path
    ) -> None:
        home, other = (prepared.copy(name, tmp_path / name) for name in ("append", "rewind"))
        target, source = newest_checkpoint(home), newest_checkpoint(other)
        assert source.name != target.name
        shutil.rmtree(target)
        shutil.copytree(source, target)
        report = self.merged(home, prepared)
        assert ", expected " in " ".join(report.rebuilt)

    def test_a_file_that_an_older_version_wrote_without_a_column_is_rebuilt(
        self, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("append", tmp_path / "home")
        for path in home.lake.path("checkpoints").glob("*/seen.parquet"):
            other = path.with_suffix(".other")
            duckdb.sql(
                f"COPY (SELECT * EXCLUDE (row_md5) FROM '{path}') TO '{other}' (FORMAT parquet)"
            )
            other.replace(path)
        self.merged(home, prepared)

    def test_a_missing_file_is_rebuilt_even_if_nothing_was_landed(
        self, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("done", tmp_path / "home")
        shutil.rmtree(newest_checkpoint(home))
        merge(home)
        assert whole(home) == prepared.after

    def merged(self, home: Home, prepared: Prepared) -> MergeReport:
        report = merge(home)
        assert whole(home) == prepared.after
        return report


class TestDayFile:
    @pytest.mark.parametrize(("place", "harm"), [
        (0, cut), pytest.param(-1, other_bytes, marks=LONG),
        pytest.param(-1, nothing_left, marks=LONG),
    ])  # fmt: skip
    def test_a_damaged_file_is_reported_and_replay_repairs_it(
        self, place: int, harm: Harm, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("append", tmp_path / "home")
        damaged = days_of(home)[place]
        harm(damaged.path)
        message = f"{damaged.day}.*`almanac replay`"
        with pytest.raises(LakeDamaged, match=message):
            merge(home)
        assert any(re.search(message, wrong) for check in verify(home) for wrong in check.wrong)
        assert published(home.warehouse) == prepared.before["append"]
        replay(home)
        assert_repaired(home, prepared)

    @LONG
    def test_an_older_file_in_its_place_is_detected_and_refolded_from_there(
        self, prepared: Prepared, tmp_path: Path
    ) -> None:
        home, older = (prepared.copy(name, tmp_path / name) for name in ("done", "rewind"))
        for place in (1, 2):
            shutil.copyfile(days_of(older)[place].path, days_of(home)[place].path)
            wrong = [check.check for check in verify(home) if not check.holds]
            assert wrong
            report = merge(home)
            assert report.days[-1] == days_of(home)[-1].day
            assert whole(home) == prepared.after

    def test_a_day_with_changed_rows_is_refolded_and_not_only_later_days(
        self, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("done", tmp_path / "home")
        changed = days_of(home)[1]
        with_another_title(changed.path)
        assert [check.check for check in verify(home) if not check.holds]
        report = merge(home)
        assert report.days[0] == changed.day
        assert_repaired(home, prepared)

    def test_verify_detects_a_change_that_keeps_size_and_times(
        self, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("done", tmp_path / "home")
        path = days_of(home)[1].path
        # In the page of a column: the footer, which is checked, stays.
        held, stat = bytearray(path.read_bytes()), path.stat()
        held[40] ^= 1
        path.write_bytes(held)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert "form a chain" in " ".join(check.check for check in verify(home) if not check.holds)

    @pytest.mark.parametrize("place", [pytest.param(0, marks=LONG), 1])
    def test_a_missing_day_in_the_middle_is_refolded(
        self, place: int, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("done", tmp_path / "home")
        shutil.rmtree(days_of(home)[place].path.parent)
        assert_repaired(home, prepared)

    def test_verify_reports_a_missing_newest_day_and_replay_rebuilds_it(
        self, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("done", tmp_path / "home")
        shutil.rmtree(days_of(home)[-1].path.parent)
        wrong = {check.check: check.wrong for check in verify(home) if not check.holds}
        assert "neither merged nor waiting" in " ".join(map(str, wrong.values()))
        replay(home)
        assert_repaired(home, prepared)


class TestIndex:
    @pytest.mark.parametrize("harm", [other_bytes, pytest.param(Path.unlink, marks=LONG)])
    def test_a_missing_or_invalid_file_is_rebuilt(
        self, harm: Harm, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("append", tmp_path / "home")
        days_of(home)
        harm(home.state / "change_log.json")
        assert_repaired(home, prepared)

    def test_a_file_of_another_time_is_not_used(self, prepared: Prepared, tmp_path: Path) -> None:
        home = prepared.copy("rewind", tmp_path / "home")
        days_of(home)
        index = (home.state / "change_log.json").read_bytes()
        merge(home)
        (home.state / "change_log.json").write_bytes(index)
        assert_repaired(home, prepared)


class TestWarehouse:
    @pytest.mark.parametrize(("name", "harm"), [
        ("append", cut), pytest.param("done", other_bytes, marks=LONG),
        pytest.param("append", Path.unlink, marks=LONG),
    ])  # fmt: skip
    def test_a_missing_or_invalid_file_gets_a_full_build(
        self, name: str, harm: Harm, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy(name, tmp_path / "home")
        harm(home.warehouse)
        assert_repaired(home, prepared)

    def test_a_wal_beside_the_file_is_not_applied_to_the_new_one(
        self, prepared: Prepared, tmp_path: Path
    ) -> None:
        home = prepared.copy("append", tmp_path / "home")
        home.warehouse.with_name("warehouse.duckdb.wal").write_bytes(b"garbage" * 100)
        assert_repaired(home, prepared)


class TestEventsByMonth:
    def test_verify_detects_a_missing_file(self, prepared: Prepared, tmp_path: Path) -> None:
        home = prepared.copy("done", tmp_path / "home")
        shutil.rmtree(next(home.lake.path("events").glob("event_month=*")))
        wrong = [check for check in verify(home) if not check.holds]
        assert ["the events by month" in check.check for check in wrong] == [True]
        replay(home)
        assert_repaired(home, prepared)


def with_another_title(path: Path) -> None:
    """Rewrite a day with other rows and the same metadata."""
    with duckdb.connect() as connection:
        query = "SELECT decode(value) FROM parquet_kv_metadata($file) WHERE decode(key) = 'almanac'"
        ((meta,),) = connection.execute(query, {"file": str(path)}).fetchall()
        other = path.with_suffix(".other")
        connection.execute(
            "COPY (SELECT * REPLACE (title || '!' AS title) "
            "FROM read_parquet($file, hive_partitioning = false)) "
            "TO $other (FORMAT parquet, KV_METADATA {almanac: $meta})",
            {"file": str(path), "other": str(other), "meta": meta},
        )
    other.replace(path)
