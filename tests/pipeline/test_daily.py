"""The daily job, in this process, with the real sandbox over HTTP."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from almanac.core.progress import listening
from almanac.events import KINDS
from application.daily_run import (
    PastDaysMerge,
    RunFailed,
    RunSummary,
    RunTime,
    plan_run_times,
    run_days,
)
from assets.event_changes import CHANGES, ONE_ROW_PER_VERSION, find_faults
from assets.landed import COMPLETE_DAY
from assets.layout import Layout
from pipeline.instance import open_instance
from pipeline.service_session import open_service
from pipeline.settings import Settings
from tests.pipeline.homes_in_days import (
    failure_of,
    metadata_of,
    opened_session,
    run_assets,
    run_sandbox_days,
    settings_of,
)
from tests.pipeline.small_home import NOW as SMALL_NOW
from tests.pipeline.small_home import SmallHome
from tests.reading import list_files, reading
from warehouse.history.merge import merge
from warehouse.history.partitions import CHANGES_COLUMNS
from warehouse.home import Home
from warehouse.schema.tables import EVENT_VERSIONS

NOW = datetime(2019, 3, 2, 9, tzinfo=UTC)
"""The catalog of that year is a fraction of today's."""
TODAY, YESTERDAY = NOW.date(), date(2019, 3, 1)
EVENT = b'{"data": [{"id": "a", "title": "Listing", "date": "2026-04-01T00:00:00Z"}]}'


@dataclass(frozen=True)
class TwoDayHome:
    settings: Settings
    instance: dg.DagsterInstance
    summary: RunSummary

    @property
    def home(self) -> Home:
        return Home(self.settings.home)


@pytest.fixture(scope="module")
def two_days(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoDayHome]:
    settings = settings_of(tmp_path_factory.mktemp("home"))
    with open_instance(Home(settings.home)) as instance:
        yield TwoDayHome(settings, instance, run_sandbox_days(settings, instance, days=2, now=NOW))


def rows_of(home: Home, table: str) -> list[tuple[object, ...]]:
    with reading(home) as connection:
        return sorted(connection.table(table).fetchall(), key=str)


def test_two_days_with_polls_are_one_run_of_the_instance_and_published(
    two_days: TwoDayHome,
) -> None:
    summary = two_days.summary
    assert summary.days == [YESTERDAY, TODAY]
    assert summary.instants == 4
    assert summary.notes == []
    assert summary.rejected == 0
    assert summary.changes["revealed"] > 100
    assert summary.quota_left is not None
    with reading(two_days.home) as connection:
        statuses = dict(connection.table("requests").aggregate("status, count(*)").fetchall())
        assert len(connection.table("usage").fetchall()) == 2
    # One more request asked for the usage when the session was opened.
    assert statuses == {200: summary.requests}
    records = two_days.instance.fetch_materializations(dg.AssetKey("landed_export"), limit=5)
    outcomes = {}
    for record in records.records:
        metadata = record.asset_materialization.metadata  # type: ignore[union-attr]
        outcomes[record.partition_key] = metadata["outcome"].value
        assert {"rows", "requests", "quota left", "bytes", "batches"} <= metadata.keys()
    assert outcomes == {"2019-03-01": "reused from landing", "2019-03-02": "pulled"}
    (run,) = two_days.instance.get_runs()
    assert run.status == dg.DagsterRunStatus.SUCCESS
    bounds = ("2019-03-01", "2019-03-02")
    assert (
        tuple(run.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end"))
        == bounds
    )
    # The filter of a job's Runs page.
    label = {".dagster/repository": "__repository__@almanac"}
    assert len(two_days.instance.get_runs(dg.RunsFilter(job_name="daily", tags=label))) == 1
    assert len(rows_of(two_days.home, "events")) > 100
    feeds = [batch_id.split("-")[1] for batch_id in two_days.home.landing.batch_ids(day=YESTERDAY)]
    assert (feeds.count("events"), feeds.count("cancellations"), feeds.count("export")) == (3, 3, 1)


def test_the_changes_of_each_day_are_recorded_and_the_tables_once_after_the_last_day(
    two_days: TwoDayHome,
) -> None:
    def recorded(asset: str) -> list[str | None]:
        found = two_days.instance.fetch_materializations(dg.AssetKey(asset), limit=10).records
        return [record.partition_key for record in found]

    changes = two_days.instance.fetch_materializations(dg.AssetKey("event_changes"), limit=10)
    days = [TODAY.isoformat(), YESTERDAY.isoformat()]
    assert [record.partition_key for record in changes.records] == days
    for record in changes.records:
        metadata = record.asset_materialization.metadata  # type: ignore[union-attr]
        assert "folded again" not in metadata
    assert recorded("events") == [None]
    assert recorded("event_versions") == [None]
    with reading(two_days.home) as connection:
        merged = connection.table("batches").aggregate("status, count(*)").fetchall()
    assert merged == [("merged", len(two_days.home.landing.batch_ids()))]


def test_a_stopped_run_has_published_past_days_and_the_next_run_records_them(
    tmp_path: Path,
) -> None:
    settings = settings_of(tmp_path / "home")
    home, days = Home(settings.home), [date(2019, 2, 28), YESTERDAY, TODAY]
    instants = plan_run_times(3, now=NOW, last_day=None)

    def stop(number: int, _: RunTime) -> None:
        if number == 5:
            raise KeyboardInterrupt

    reports: list[str] = []
    with open_instance(home) as instance:
        with (
            open_service(settings, now=instants[0].at) as service,
            listening(wait=reports.append),
            pytest.raises(KeyboardInterrupt),
        ):
            run_days(settings, service, instance, instants, on_instant=stop)
        assert reports == ["The days until 2019-02-28 are merged and published."]
        with reading(home) as connection:
            merged = connection.execute("SELECT DISTINCT observed_date FROM batches").fetchall()
        assert (merged, home.landing.days()) == ([(days[0],)], days[:2])
        assert run_sandbox_days(settings, instance, days=3, now=NOW).days == days
        for asset in ("landed_coins", "event_changes"):
            recorded = instance.get_materialized_partitions(dg.AssetKey(asset))
            assert recorded == {day.isoformat() for day in days}


def test_a_merge_of_past_days_that_fails_ends_the_run(tmp_path: Path) -> None:
    small, day = SmallHome(tmp_path / "home"), SMALL_NOW.date()
    small.land("events")
    small.home.warehouse.mkdir()
    with (
        pytest.raises(RunFailed, match=f"{day}, merge: .* is a folder"),
        PastDaysMerge(small.home, RunSummary()) as merging,
    ):
        merging.until(day)


def test_a_past_day_is_reused_without_a_request(two_days: TwoDayHome) -> None:
    with opened_session(two_days.settings, now=NOW) as (session, service):
        sent = service.log.count
        result = run_assets(
            two_days.settings,
            two_days.instance,
            "landed_export",
            "landed_coins",
            partition=YESTERDAY,
            catalog=session,
        )
        assert result.success
        assert service.log.count == sent
    metadata = metadata_of(result, "landed_export", YESTERDAY)
    assert metadata["outcome"] == "reused from landing"
    assert "-export-" in str(metadata["batches"])


def test_a_missed_day_is_recorded_as_not_observed_and_the_run_of_a_range_succeeds(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    small, missed = SmallHome(tmp_path / "home"), SMALL_NOW.date() - timedelta(days=1)
    small.land(at=SMALL_NOW - timedelta(days=2), body=EVENT)
    small.land(body=EVENT)
    result = run_assets(
        small.settings,
        instance,
        *("landed_export", "landed_events", CHANGES, "events"),
        span=(missed - timedelta(days=1), missed + timedelta(days=1)),
        clock=lambda: SMALL_NOW + timedelta(days=1),
    )
    assert result.success
    for asset in ("landed_export", CHANGES):
        found = metadata_of(result, asset, missed)
        assert (found["rows"], found["outcome"]) == (0, "not observed")
        for day in (missed - timedelta(days=1), missed + timedelta(days=1)):
            assert metadata_of(result, asset, day).get("outcome") != "not observed"
    checks = {
        (each.asset_key.path[-1], each.check_name, each.partition): each
        for each in result.get_asset_check_evaluations()
    }
    check = checks["landed_export", COMPLETE_DAY, missed.isoformat()]
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.description == "No complete pull: not observed"
    assert checks[CHANGES, ONE_ROW_PER_VERSION, missed.isoformat()].passed
    assert instance.get_latest_materialization_event(dg.AssetKey("events")) is not None
    with reading(small.home) as connection:
        days = connection.sql("SELECT DISTINCT observed_date FROM batches").fetchall()
    assert len(days) == 2 and (missed,) not in days


def test_a_missed_day_alone_is_recorded_in_a_home_without_a_publication(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    small, day = SmallHome(tmp_path / "home"), SMALL_NOW.date()
    names = ("landed_coins", CHANGES, "events")
    later = SMALL_NOW + timedelta(days=5)
    layout = Layout(first_day=day)
    result = run_assets(
        small.settings, instance, *names, partition=day, clock=lambda: later, layout=layout
    )
    assert result.success, failure_of(result)
    assert metadata_of(result, "landed_coins", day)["outcome"] == "not observed"


def check_file(home: Home, day: date) -> str | None:
    return find_faults(home, [day])[ONE_ROW_PER_VERSION][day]


def test_a_day_passes_its_check_if_its_file_has_each_version_once(tmp_path: Path) -> None:
    small, day = SmallHome(tmp_path / "home"), SMALL_NOW.date()
    small.land("events", body=b'{"data": []}')
    merge(small.home)
    assert list_files(small.home, CHANGES) == []
    assert check_file(small.home, day) is None
    small.land("events", at=SMALL_NOW + timedelta(hours=1), body=EVENT)
    merge(small.home)
    (file,) = list_files(small.home, CHANGES)
    assert check_file(small.home, day) is None
    twice = tmp_path / "twice.parquet"
    with duckdb.connect() as connection:
        relation = connection.read_parquet(str(file), hive_partitioning=False)
        columns = [each for each in EVENT_VERSIONS.columns if each.name in CHANGES_COLUMNS]
        declared = {column.name: column.type for column in columns}
        # Parquet has no JSON type.
        types = dict(zip(relation.columns, map(str, relation.types), strict=True))
        assert {**declared, "extra": "VARCHAR"} == types
        relation.union(relation).write_parquet(str(twice))
    twice.replace(file)
    assert "2 rows, 1 different versions" in str(check_file(small.home, day))
    file.unlink()
    assert check_file(small.home, day)


def test_every_observed_day_shows_its_totals(two_days: TwoDayHome) -> None:
    with reading(two_days.home) as connection:
        totals = connection.execute(
            "SELECT observed_date, count(*), sum(versions), sum(arrived) FROM batches GROUP BY ALL"
        ).fetchall()
    for day, *counts in totals:
        of_day = dg.AssetRecordsFilter(dg.AssetKey(CHANGES), asset_partitions=[day.isoformat()])
        (record,) = two_days.instance.fetch_materializations(of_day, limit=1).records
        shown = record.asset_materialization.metadata  # type: ignore[union-attr]
        names = ("batches folded", "rows", "rows received")
        assert [shown[name].value for name in names] == counts, day
        assert shown["dagster/partition_row_count"].value == counts[1]
        kinds = {name: shown[name].value for name in shown if name.startswith("changes/")}
        assert kinds.keys() == {f"changes/{kind}" for kind in KINDS}
        assert bool(sum(kinds.values())) == bool(counts[1])


def test_a_refold_of_past_days_gives_the_same_history(two_days: TwoDayHome) -> None:
    before = rows_of(two_days.home, "event_versions")
    result = run_assets(
        two_days.settings,
        two_days.instance,
        "event_changes",
        span=(YESTERDAY, TODAY),
        clock=lambda: NOW + timedelta(days=3),
    )
    assert result.success
    assert "2019-03-02" in str(metadata_of(result, "event_changes", TODAY)["folded again"])
    assert rows_of(two_days.home, "event_versions") == before
