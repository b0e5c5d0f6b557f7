"""The daily job, in this process, with the real sandbox over HTTP."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest

from almanac.events import KINDS
from application.daily_run import RunSummary
from assets.event_changes import CHANGES, ONE_ROW_PER_VERSION, check_days
from assets.feed_day import pull_or_reuse
from assets.landed_calendar import EVENT_MONTHS
from assets.layout import Layout
from assets.published_tables import check_specs
from assets.table_columns import CHANGES_COLUMNS
from pipeline.instance import instance_of
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
from warehouse.history.merge import merge
from warehouse.history.partitions import list_files
from warehouse.home import Home
from warehouse.landing.batches import Pull, Scope
from warehouse.landing.landing import Landing
from warehouse.queries import connected

NOW = datetime(2019, 3, 2, 9, tzinfo=UTC)
"""The catalog of that year is a fraction of today's."""
TODAY, YESTERDAY = NOW.date(), date(2019, 3, 1)


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
    with instance_of(Home(settings.home)) as instance:
        yield TwoDayHome(settings, instance, run_sandbox_days(settings, instance, days=2, now=NOW))


def rows_of(home: Home, table: str) -> list[tuple[object, ...]]:
    with connected(home.warehouse) as connection:
        return sorted(connection.table(table).fetchall(), key=str)


def test_two_days_with_polls_are_runs_of_the_instance_and_published(two_days: TwoDayHome) -> None:
    summary = two_days.summary
    assert summary.days == [YESTERDAY, TODAY]
    assert summary.instants == 4
    assert summary.notes == []
    assert summary.rejected == 0
    assert summary.changes["revealed"] > 100
    assert summary.quota_left is not None
    runs = two_days.instance.get_runs()
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * 2
    assert {run.tags["dagster/partition"] for run in runs} == {"2019-03-01", "2019-03-02"}
    assert len(rows_of(two_days.home, "events")) > 100
    feeds = [batch_id.split("-")[1] for batch_id in two_days.home.landing.batch_ids(day=YESTERDAY)]
    assert (feeds.count("events"), feeds.count("cancellations"), feeds.count("export")) == (3, 3, 1)


def test_runs_of_almanac_run_are_those_of_the_job_in_the_ui(two_days: TwoDayHome) -> None:
    # The filter of a job's Runs page.
    label = {".dagster/repository": "__repository__@almanac"}
    assert len(two_days.instance.get_runs(dg.RunsFilter(job_name="daily", tags=label))) == 2


def test_the_changes_of_each_day_are_recorded_and_the_tables_once_after_the_last_day(
    two_days: TwoDayHome,
) -> None:
    def recorded(asset: str) -> list[str | None]:
        found = two_days.instance.fetch_materializations(dg.AssetKey(asset), limit=10).records
        return [record.partition_key for record in found]

    # Yesterday's once more, with its polls, which today's run merged.
    assert set(recorded("event_changes")) == {TODAY.isoformat(), YESTERDAY.isoformat()}
    assert recorded("events") == [None]
    assert recorded("event_versions") == [None]
    with connected(two_days.home.warehouse) as connection:
        merged = connection.table("batches").aggregate("status, count(*)").fetchall()
    assert merged == [("merged", len(two_days.home.landing.batch_ids()))]


def test_every_request_is_logged_and_none_is_refused(two_days: TwoDayHome) -> None:
    with connected(two_days.home.warehouse) as connection:
        statuses = connection.table("requests").aggregate("status, count(*)").fetchall()
        usage = connection.table("usage").fetchall()
    # The categories of the second day are those of the first.
    assert sorted(status for status, _ in statuses) == [200, 304]
    assert dict(statuses)[304] == 1
    assert 0 < dict(statuses)[200] <= two_days.summary.requests
    assert len(usage) == 2


def test_every_materialisation_has_rows_requests_quota_bytes_and_batches(
    two_days: TwoDayHome,
) -> None:
    records = two_days.instance.fetch_materializations(dg.AssetKey("landed_export"), limit=5)
    for record in records.records:
        metadata = record.asset_materialization.metadata  # type: ignore[union-attr]
        assert metadata["outcome"].value == "pulled"
        assert {"rows", "requests", "quota left", "bytes", "batches", "preview"} <= metadata.keys()
    events = two_days.instance.get_latest_materialization_event(dg.AssetKey("events"))
    assert events is not None and events.asset_materialization is not None
    assert events.asset_materialization.metadata["rows"].value == len(
        rows_of(two_days.home, "events")
    )


def test_every_observed_day_shows_its_totals(two_days: TwoDayHome) -> None:
    # `almanac merge` merges outside Dagster, after the day was recorded.
    small = Home(two_days.settings.home)
    landed_at = NOW + timedelta(minutes=5)
    small.landing.land(
        Pull(
            feed="events",
            scope=Scope(event_id="0" * 24),
            plan="elite",
            source=small.stamp().source,  # type: ignore[union-attr]
            observed_at=landed_at,
            content_at=landed_at,
            landed_at=landed_at,
            requests=1,
        ),
        [(b'{"data": []}', None)],
    )
    merge(small)
    assert run_assets(two_days.settings, two_days.instance, "events").success
    with connected(two_days.home.warehouse) as connection:
        totals = connection.execute(
            "SELECT observed_date, count(*), sum(versions), sum(arrived) FROM batches GROUP BY ALL"
        ).fetchall()
    for day, *counts in totals:
        of_day = dg.AssetRecordsFilter(
            asset_key=dg.AssetKey("event_changes"), asset_partitions=[day.isoformat()]
        )
        (record,) = two_days.instance.fetch_materializations(of_day, limit=1).records
        shown = record.asset_materialization.metadata  # type: ignore[union-attr]
        names = ("batches folded", "versions", "rows")
        assert [shown[name].value for name in names] == counts, day
        assert shown["dagster/partition_row_count"].value == counts[1]
        kinds = {name: shown[name].value for name in shown if name.startswith("changes/")}
        assert kinds.keys() == {f"changes/{kind}" for kind in KINDS}
        assert bool(sum(kinds.values())) == bool(counts[1])


def test_deliveries_say_why_there_are_none(two_days: TwoDayHome) -> None:
    landing = Landing(two_days.settings.home / "landing")
    never = pull_or_reuse("deliveries", TODAY, None, landing)  # type: ignore[arg-type]
    assert never.outcome == "none arrived"
    assert never.why_empty.startswith("No delivery was ever pushed to this home")
    record = two_days.instance.get_latest_materialization_event(dg.AssetKey("landed_deliveries"))
    assert record is not None and record.asset_materialization is not None
    shown = record.asset_materialization.metadata["why it is empty"].value
    assert shown == never.why_empty


def test_deliveries_of_another_day_mean_that_none_arrived_on_this_one(tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "home")
    small.land("deliveries")
    found = pull_or_reuse("deliveries", YESTERDAY, None, small.home.landing)  # type: ignore[arg-type]
    assert found.why_empty == "No webhook delivery arrived on that day."


def test_all_checks_of_the_published_file_passed(two_days: TwoDayHome) -> None:
    assert run_assets(two_days.settings, two_days.instance, "events", clock=lambda: NOW).success
    of_changes = dg.AssetCheckKey(dg.AssetKey(CHANGES), ONE_ROW_PER_VERSION)
    for key in [of_changes, *(spec.key for spec in check_specs(Layout()))]:
        (record,) = two_days.instance.event_log_storage.get_asset_check_execution_history(
            key, limit=1
        )
        assert record.status.value == "SUCCEEDED", key


def test_the_declared_columns_of_the_changes_are_those_of_their_files(
    two_days: TwoDayHome,
) -> None:
    file, *_ = list_files(two_days.home, CHANGES)
    with duckdb.connect() as connection:
        relation = connection.read_parquet(str(file), hive_partitioning=False)
        found = dict(zip(relation.columns, map(str, relation.types), strict=True))
    declared = {column.name: column.type for column in CHANGES_COLUMNS}
    # Parquet has no JSON type.
    assert {**declared, "extra": "VARCHAR"} == found


def test_a_day_file_with_a_repeated_version_does_not_pass(tmp_path: Path) -> None:
    small = SmallHome(tmp_path / "home")
    event = b'{"data": [{"id": "a", "title": "Listing", "date": "2026-04-01T00:00:00Z"}]}'
    small.land("events", body=event)
    merge(small.home)
    day = SMALL_NOW.date()
    assert check_days(small.home, [day]).passed
    (file,) = list_files(small.home, CHANGES)
    twice = tmp_path / "twice.parquet"
    with duckdb.connect() as connection:
        relation = connection.read_parquet(str(file), hive_partitioning=False)
        relation.union(relation).write_parquet(str(twice))
    twice.replace(file)
    result = check_days(small.home, [day])
    assert not result.passed
    assert "2 rows, 1 different versions" in str(result.metadata["wrong days"].value)


def test_a_day_without_a_version_passes_and_a_day_without_its_file_does_not(
    tmp_path: Path,
) -> None:
    small, day = SmallHome(tmp_path / "home"), SMALL_NOW.date()
    small.land("events", body=b'{"data": []}')
    merge(small.home)
    assert list_files(small.home, CHANGES) == []
    assert check_days(small.home, [day]).passed
    event = b'{"data": [{"id": "a", "title": "Listing", "date": "2026-04-01T00:00:00Z"}]}'
    small.land("events", at=SMALL_NOW + timedelta(hours=1), body=event)
    merge(small.home)
    (file,) = list_files(small.home, CHANGES)
    assert check_days(small.home, [day]).passed
    file.unlink()
    assert not check_days(small.home, [day]).passed


def test_a_past_day_is_reused_without_a_request(two_days: TwoDayHome) -> None:
    with opened_session(two_days.settings, now=NOW) as (session, service):
        sent = service.log.count
        result = run_assets(
            two_days.settings,
            two_days.instance,
            *("landed_export", "landed_events", "landed_coins"),
            partition=YESTERDAY,
            catalog=session,
        )
        assert result.success
        assert service.log.count == sent
    metadata = metadata_of(result, "landed_export", YESTERDAY)
    assert metadata["outcome"] == "reused from landing"
    assert "-export-" in metadata["batches"]


def test_a_past_day_opens_no_session_and_sends_no_request(two_days: TwoDayHome) -> None:
    later = NOW + timedelta(days=3)
    log = two_days.settings.home / "state" / "requests"
    before = sorted(path.read_bytes() for path in log.iterdir())
    result = run_assets(
        two_days.settings,
        two_days.instance,
        "landed_events",
        span=(YESTERDAY, TODAY),
        clock=lambda: later,
    )
    assert result.success
    assert sorted(path.read_bytes() for path in log.iterdir()) == before
    for day in (YESTERDAY, TODAY):
        assert metadata_of(result, "landed_events", day)["outcome"] == "reused from landing"


def test_a_past_day_that_was_not_landed_fails_with_the_reason(two_days: TwoDayHome) -> None:
    missed = date(2019, 2, 20)
    result = run_assets(
        two_days.settings,
        two_days.instance,
        "landed_export",
        span=(missed, TODAY),
        layout=Layout(),
        clock=lambda: NOW + timedelta(days=3),
    )
    assert not result.success
    message = failure_of(result)
    assert "2019-02-20" in message
    assert "the service gives today's data only" in message


def test_the_days_before_a_failure_in_a_span_stay_recorded(two_days: TwoDayHome) -> None:
    result = run_assets(
        two_days.settings,
        two_days.instance,
        "landed_export",
        span=(TODAY, TODAY + timedelta(days=1)),
        clock=lambda: NOW + timedelta(days=9),
    )
    assert not result.success
    (record,) = two_days.instance.fetch_materializations(
        dg.AssetKey("landed_export"), limit=1
    ).records
    assert (record.run_id, record.partition_key) == (result.run_id, TODAY.isoformat())


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
    assert "-export-" in metadata_of(result, "event_changes", YESTERDAY)["newest batches"]
    assert "2019-03-02" in metadata_of(result, "event_changes", TODAY)["folded again"]
    assert run_assets(two_days.settings, two_days.instance, "events").success
    assert rows_of(two_days.home, "event_versions") == before


def test_a_past_day_without_batches_has_nothing_to_refold(two_days: TwoDayHome) -> None:
    result = run_assets(
        two_days.settings,
        two_days.instance,
        "event_changes",
        partition=date(2019, 2, 1),
        clock=lambda: NOW,
        layout=Layout(),
    )
    assert "Nothing was landed on 2019-02-01" in failure_of(result)


def test_an_empty_home_publishes_empty_tables(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with instance_of(Home(tmp_path)) as instance:
        assert run_assets(settings, instance, "events").success
    assert rows_of(Home(tmp_path), "events") == []


def test_the_months_that_the_export_covers_are_recorded_once_with_their_events(
    two_days: TwoDayHome,
) -> None:
    key = dg.AssetKey("landed_calendar")
    months = two_days.instance.get_materialized_partitions(key)
    assert months == set(EVENT_MONTHS.get_partition_keys())
    records = two_days.instance.fetch_materializations(key, limit=1_000).records
    assert len(records) == len(months)
    rows = {
        record.partition_key: record.asset_materialization.metadata["rows"].value
        for record in records
    }
    # As of the run of the last day, which published and recorded them.
    at = datetime.combine(TODAY, time(9, 30), UTC)
    with connected(two_days.home.warehouse) as connection:
        dates = connection.execute("SELECT date FROM events_as_of(?)", [at]).fetchall()
    known = Counter(f"{date:%Y-%m}-01" for (date,) in dates)
    assert rows == {month: known[month] for month in months}
    assert sum(known.values()) > 500
