"""What `almanac status` shows of a home, and what it warns of."""

import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from almanac.console import people
from pipeline.cli.status import show
from pipeline.health import facts as facts_module
from pipeline.health.batches import BatchFacts, find_lost_cancellations
from pipeline.health.checks import read_health
from pipeline.health.facts import Health, HealthWarning
from pipeline.session import ledger_of
from resources.backfill.state import BackfillState, BackfillStates
from resources.limits.ledger import Ledger
from resources.request_log import DeferredPull, DeferredPulls
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import address_of
from tests.pipeline.small_home import DAY, NOW, PULLED, SmallHome
from tests.warehouse.normalise.catalog_bodies import csv_body, plain
from warehouse.files.storage import Storage
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Scope

MIDNIGHT = NOW.replace(hour=0)
SERVICE = "https://api.example.com"


def kinds(health: Health) -> list[str]:
    """Return the kinds of warnings but those of waiting work, which test_stuck.py has."""
    return [warning.kind for warning in health.warnings if warning.kind != "unpublished"]


def warned(health: Health, kind: str) -> HealthWarning:
    (found,) = [warning for warning in health.warnings if warning.kind == kind]
    return found


def health_at(small: SmallHome, now: datetime = NOW) -> Health:
    return read_health(small.settings, small.home, now)


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    return SmallHome(tmp_path / "home")


class TestFreshness:
    def test_a_pull_that_is_landed_and_not_merged_counts_as_fresh(self, small: SmallHome) -> None:
        small.land()
        health = health_at(small, NOW + DAY)
        assert kinds(health) == []
        assert health.pending == len(PULLED)
        assert {feed.age_s for feed in health.feeds if feed.feed in PULLED} == {86_400.0}

    def test_a_feed_is_stale_after_twice_its_interval_and_its_warning_has_the_time(
        self, small: SmallHome
    ) -> None:
        small.land()
        small.land("export", "events", at=NOW + DAY)
        health = health_at(small, NOW + 2 * DAY + timedelta(minutes=1))
        assert kinds(health) == ["stale:cancellations", "stale:coins", "stale:categories"]
        assert warned(health, "stale:coins").since == NOW + 2 * DAY
        assert "2026-03-02 12:00 UTC" in warned(health, "stale:coins").text

    def test_a_feed_that_is_not_in_the_plan_is_not_stale(self, small: SmallHome) -> None:
        in_plan: tuple[Feed, ...] = ("events", "cancellations", "coins", "categories")
        small.land(*in_plan, plan="free")
        small.land(*in_plan, plan="free", at=NOW + 5 * DAY)
        health = health_at(small, NOW + 6 * DAY)
        assert kinds(health) == ["coverage"]
        not_in_plan = [feed.feed for feed in health.feeds if not feed.in_plan]
        assert not_in_plan == ["export"]

    def test_the_plan_of_the_newest_batch_counts(self, small: SmallHome) -> None:
        small.land(at=NOW - 5 * DAY, plan="elite")
        small.land("events", "cancellations", "coins", "categories", plan="pro")
        assert health_at(small).plan == "pro"
        assert "stale:export" not in kinds(health_at(small))

    def test_a_backfill_of_the_past_keeps_no_event_feed_fresh(self, small: SmallHome) -> None:
        small.land()
        old = Scope(lower=datetime(2019, 1, 1, tzinfo=UTC), upper=datetime(2019, 2, 1, tzinfo=UTC))
        small.land("events", at=NOW + 4 * DAY, scope=old)
        assert "stale:events" in kinds(health_at(small, NOW + 4 * DAY))

    def test_a_partial_pull_keeps_no_feed_fresh(self, small: SmallHome) -> None:
        small.land()
        small.land(at=NOW + 3 * DAY, why_incomplete="the quota")
        assert "stale:events" in kinds(health_at(small, NOW + 3 * DAY))

    def test_status_before_the_first_pull_names_the_command_to_run(self, small: SmallHome) -> None:
        (only,) = health_at(small).warnings
        assert only == HealthWarning("stale:events", "No complete pull of events yet: almanac run")
        assert health_at(SmallHome(small.home.root.parent / "other")).source == "sandbox:1"

    def test_the_time_of_publication_is_that_of_the_file_wherever_it_was_copied(
        self, small: SmallHome, tmp_path: Path
    ) -> None:
        small.land()
        before = datetime.now(UTC)
        merge(small.home)
        published = health_at(small).published_at
        assert published is not None and before <= published <= datetime.now(UTC)
        copy = SmallHome(tmp_path / "copy")
        shutil.copyfile(small.home.warehouse, copy.home.warehouse)
        os.utime(copy.home.warehouse, (0, 0))
        assert health_at(copy).published_at == published

    def test_a_file_of_an_earlier_format_or_a_damaged_one_has_no_time_of_publication(
        self, small: SmallHome
    ) -> None:
        small.land()
        merge(small.home)
        small.home.warehouse.chmod(0o600)
        with duckdb.connect(small.home.warehouse) as older:
            older.execute("DROP SCHEMA state CASCADE")
        assert health_at(small).published_at is None
        small.home.warehouse.write_bytes(b"no database")
        assert health_at(small).published_at is None

    def test_without_a_home_there_is_nothing_to_warn_of(self, tmp_path: Path) -> None:
        settings = SmallHome(tmp_path / "one").settings
        health = read_health(settings, Home(tmp_path / "none"), NOW)
        assert (health.source, health.warnings) == (None, [])
        assert not (tmp_path / "none").exists()


class TestCancellations:
    def test_cancellations_are_lost_after_90_days_without_a_pull(self, small: SmallHome) -> None:
        small.land(at=NOW)
        health = health_at(small, NOW + 31 * DAY)
        assert "after 90 days some are lost" in warned(health, "stale:cancellations").text
        assert health.coverage.cancellations_lost == []
        small.land("cancellations", at=NOW + 95 * DAY)
        (lost,) = health_at(small, NOW + 95 * DAY).coverage.cancellations_lost
        assert (lost.first, lost.last) == (NOW.date(), (NOW + 5 * DAY).date())

    def test_polls_of_cancellations_since_the_pull_before_leave_no_gap(self) -> None:
        begin = NOW - 99 * DAY
        polls = [seen_at(begin + days * DAY, since=days * DAY + begin - DAY) for days in range(100)]
        assert find_lost_cancellations(polls, begin, NOW) == []
        (lost,) = find_lost_cancellations([*polls[:3], *polls[6:]], begin, NOW)
        assert (lost.first, lost.last) == (polls[2].content_at.date(), polls[5].content_at.date())


def seen_at(at: datetime, *, since: datetime) -> BatchFacts:
    return BatchFacts(
        batch_id="",
        feed="cancellations",
        plan="pro",
        scope=Scope(since=since),
        observed_at=at,
        content_at=at,
        complete=True,
    )


class TestCoverage:
    def test_days_without_a_pull_are_listed_as_ranges_up_to_yesterday(
        self, small: SmallHome
    ) -> None:
        for days in (20, 19, 15, 3, 1):
            small.land("events", at=NOW - days * DAY)
        coverage = health_at(small).coverage
        gaps = [str(gap) for gap in coverage.unseen]
        assert gaps == ["2026-02-12 to 2026-02-14", "2026-02-16 to 2026-02-26", "2026-02-28"]
        assert coverage.days_unseen == 15
        assert coverage.since == date(2026, 2, 10)

    def test_a_gap_is_warned_of_for_two_days(self, small: SmallHome) -> None:
        for days in (3, 1):
            small.land("events", at=NOW - days * DAY)
        assert "on 2026-02-28: " in warned(health_at(small), "coverage").text
        small.land("events", at=NOW)
        health = health_at(small, NOW + DAY)
        assert "coverage" not in kinds(health)
        assert health.coverage.days_unseen == 1

    def test_the_first_day_of_a_home_begun_by_a_backfill_is_no_gap(self, small: SmallHome) -> None:
        years_ago = Scope(lower=NOW - 900 * DAY, upper=NOW - 800 * DAY)
        small.land("events", scope=years_ago)
        assert health_at(small, NOW + DAY).coverage.days_unseen == 0
        small.land("events", scope=Scope(lower=NOW - 9 * DAY, upper=NOW + 2 * DAY))
        assert [str(gap) for gap in health_at(small, NOW + 2 * DAY).coverage.unseen] == [
            "2026-03-03"
        ]

    def test_a_home_that_got_no_events_on_its_first_day_missed_it(self, small: SmallHome) -> None:
        small.land("coins", "categories")
        assert health_at(small, NOW + DAY).coverage.days_unseen == 1

    def test_polls_that_cover_all_near_dates_count_as_one_pull(self, small: SmallHome) -> None:
        def window(first: int, last: int) -> Scope:
            step = timedelta(microseconds=1)
            return Scope(lower=MIDNIGHT + first * DAY, upper=MIDNIGHT + (last + 1) * DAY - step)

        small.land("events", scope=window(0, 2))
        small.land("events", scope=window(4, 9))
        assert health_at(small, NOW + DAY).coverage.days_unseen == 1
        small.land("events", scope=replaced(window(3, 3), coins=("bitcoin",)))
        assert health_at(small, NOW + DAY).coverage.days_unseen == 1
        small.land("events", scope=window(3, 3))
        assert health_at(small, NOW + DAY).coverage.days_unseen == 0

    def test_the_list_of_the_lowest_plan_counts_as_a_complete_pull(self, small: SmallHome) -> None:
        scope = Scope(lower=MIDNIGHT, upper=MIDNIGHT + 8 * DAY - timedelta(microseconds=1))
        small.land("events", plan="free", scope=scope)
        assert health_at(small, NOW + DAY).coverage.days_unseen == 0


def replaced(scope: Scope, **given: object) -> Scope:
    return Scope(**{"lower": scope.lower, "upper": scope.upper, **given})  # type: ignore[arg-type]


class TestBatches:
    def test_rejected_rows_are_warned_of_for_two_days_and_counted_for_a_hundred(
        self, small: SmallHome
    ) -> None:
        small.land("categories", body=b'{"data": [{"name": "no id"}]}')
        small.land("events", "cancellations", "coins", "export")
        merge(small.home)
        health = health_at(small, NOW + timedelta(hours=1))
        text = warned(health, "rejected").text
        assert text.startswith(
            "1 row of 1 batch of the last 2 days could not be read: almanac sql "
        )
        assert warned(health, "rejected").since == NOW
        later = health_at(small, NOW + timedelta(hours=49))
        assert "rejected" not in kinds(later)
        assert later.rejected == 1

    def test_a_quarantined_batch_keeps_no_feed_fresh_and_is_warned_of(
        self, small: SmallHome
    ) -> None:
        small.land("coins", body=b"<!DOCTYPE html><html></html>")
        merge(small.home)
        health = health_at(small, NOW + timedelta(hours=1))
        assert warned(health, "quarantined").since == NOW
        assert next(feed.complete_at for feed in health.feeds if feed.feed == "coins") is None

    def test_a_marker_whose_batch_was_never_written_is_passed_over(self, small: SmallHome) -> None:
        small.land()
        small.home.landing.storage.put("pending/20260302T120000Z-coins-000000000000.json", b"{}")
        assert kinds(health_at(small)) == []


class TestDisk:
    def test_a_disk_that_fills_is_warned_of(
        self, small: SmallHome, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small.land()
        full = SimpleNamespace(free=1_500_000_000)
        monkeypatch.setattr(facts_module.shutil, "disk_usage", lambda path: full)
        assert warned(health_at(small), "disk").text == "The disk has 1.5 GB free: almanac prune"


class TestDeferredWork:
    def test_deferred_work_is_shown_and_warned_of_if_it_does_not_resume(
        self, small: SmallHome
    ) -> None:
        small.land()
        DeferredPulls(Storage(small.home.state)).note(
            DeferredPull(
                work="daily",
                feed="export",
                noted_at=NOW,
                resume_at=NOW + timedelta(hours=2),
                why="the monthly quota is used up",
            )
        )
        scope = Scope(lower=MIDNIGHT - 60 * DAY, upper=MIDNIGHT)
        states = BackfillStates(Storage(small.home.state), small.home.landing)
        states.put(BackfillState(scope=scope, plan="elite", source="sandbox:1", started_at=NOW))
        with states.locked():
            health = health_at(small, NOW + DAY)
        assert [deferred.what for deferred in health.deferred] == [
            "export",
            "events of 2026-01-01 to 2026-03-02",
        ]
        assert "deferred" not in kinds(health)
        with states.locked():
            late = warned(health_at(small, NOW + timedelta(hours=27)), "deferred")
        assert "daily export: should have resumed at 2026-03-02 14:00 UTC" in late.text
        assert late.since == NOW + timedelta(hours=26)


@pytest.fixture
def served(tmp_path: Path) -> SmallHome:
    """A home of a service with an address, on a machine without a ledger."""
    small = SmallHome(tmp_path / "home", SERVICE, **address_of(SERVICE, "key"), plan="pro")
    small.land(plan="pro")
    return small


@pytest.fixture
def ledger(served: SmallHome) -> Iterator[Ledger]:
    """Its ledger: the service reported 1,000 of 3,000 used."""
    found = ledger_of(served.settings)
    assert found is not None
    with found.locked() as state:
        state.allowed, state.used, state.own = 3_000, 1_000, 400
        state.resets_at = int(datetime(2026, 4, 1, tzinfo=UTC).timestamp())
    yield found


def log(small: SmallHome, at: datetime, *, status: int | None = 200, count: int = 1) -> None:
    folder = small.home.state / "requests"
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"at": at.isoformat(), "path": "/v2/events", "status": status})
    with (folder / f"{at:%Y-%m-%d}.jsonl").open("a") as file:
        file.write(f"{line}\n" * count)


class TestQuota:
    def test_status_never_creates_a_ledger(self, served: SmallHome) -> None:
        assert health_at(served).quota is None
        assert not served.settings.state.exists()

    def test_status_shows_the_requests_in_the_ledger(
        self, served: SmallHome, ledger: Ledger
    ) -> None:
        before = ledger.path.read_bytes()
        ledger.path.chmod(0o400)
        quota = health_at(served).quota
        assert quota is not None
        assert (quota.counted_by, quota.quota, quota.used, quota.remaining) == (
            *("ledger", 3_000, 1_000, 2_000),
        )
        assert quota.own == 400
        assert quota.reset_at == datetime(2026, 4, 1, tzinfo=UTC)
        assert quota.reserve == 600
        assert quota.held_until is None
        assert ledger.path.read_bytes() == before

    def test_the_users_own_quota_counts_where_it_is_less(
        self, served: SmallHome, ledger: Ledger
    ) -> None:
        served.settings = served.settings.model_copy(update={"monthly_quota": 500})
        quota = health_at(served).quota
        assert quota is not None
        assert (quota.quota, quota.used, quota.remaining, quota.reserve) == (500, 400, 100, 100)

    def test_status_shows_until_when_a_429_holds_requests_back(
        self, served: SmallHome, ledger: Ledger
    ) -> None:
        with ledger.locked() as state:
            state.held_until_ns = ledger.now_ns() + 300 * 10**9
        quota = health_at(served).quota
        assert quota is not None
        assert quota.held_until is not None
        assert timedelta(seconds=290) < quota.held_until - NOW <= timedelta(seconds=300)

    def test_the_quota_is_projected_by_the_pace_of_the_last_week(
        self, served: SmallHome, ledger: Ledger
    ) -> None:
        log(served, NOW - 20 * DAY, count=10_000)
        log(served, NOW - 2 * DAY, count=400)
        log(served, NOW - DAY, status=429, count=10_000)
        log(served, NOW - DAY, status=None, count=20)
        health = health_at(served)
        assert health.quota is not None
        assert health.quota.pace_per_day == 60.0
        assert health.quota.projected == 1_000 + 29.5 * 60
        assert "quota" not in kinds(health)
        log(served, NOW - DAY, count=70)
        text = warned(health_at(served), "quota").text
        assert text.startswith("The monthly quota of 3,000 will run out: 3,065 by 2026-04-01 00:00")

    def test_a_home_of_a_day_has_the_pace_of_that_day(
        self, served: SmallHome, ledger: Ledger
    ) -> None:
        log(served, NOW - timedelta(hours=1), count=24)
        quota = health_at(served).quota
        assert quota is not None
        assert quota.pace_per_day == 24.0

    def test_the_warning_of_a_used_up_quota_has_the_reset(
        self, served: SmallHome, ledger: Ledger
    ) -> None:
        with ledger.locked() as state:
            state.used = 3_000
        text = warned(health_at(served), "quota").text
        assert "is used up until 2026-04-01 00:00 UTC" in text

    def test_a_ledger_of_last_month_or_a_damaged_one_gives_no_quota(
        self, served: SmallHome, ledger: Ledger
    ) -> None:
        assert health_at(served, datetime(2026, 4, 1, tzinfo=UTC)).quota is None
        ledger.path.write_bytes(b"damaged")
        assert health_at(served).quota is None

    def test_the_reported_usage_is_projected_with_the_requests_sent_since(
        self, small: SmallHome
    ) -> None:
        small.land()
        log(small, NOW - timedelta(hours=2), count=30)
        expected = {
            "at": (NOW - timedelta(hours=1)).isoformat(),
            **{"plan": "elite", "used": 70, "quota": 100, "remaining": 30},
            "reset_at": "2026-03-03T00:00:00+00:00",
        }
        (small.home.state / "usage.jsonl").write_text(json.dumps(expected) + '\n{"at": "20')
        log(small, NOW, count=10)
        health = health_at(small)
        assert health.quota is not None
        assert (health.quota.counted_by, health.quota.remaining) == ("service", 30)
        assert health.quota.projected == 70 + 10 + 20
        assert "quota" not in kinds(health)
        log(small, NOW, count=2)
        assert "quota" in kinds(health_at(small))
        over = health_at(small, datetime(2026, 3, 3, 1, tzinfo=UTC)).quota
        assert over is not None
        assert over.projected is None


def test_status_prints_feeds_quota_and_gaps(
    served: SmallHome,
    ledger: Ledger,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Not `width`: putting its value back would fix the width for all tests after this one.
    monkeypatch.setattr(people, "_width", 200)
    log(served, NOW, count=7)
    show(served.home, health_at(served, NOW + 4 * DAY))
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for part in (
        "2,000 of 3,000, counted by this machine",
        "Sent this month 400 by this machine",
        "Reserved for daily pulls 600",
        "Days without a pull 3: 2026-03-03 to 2026-03-05",
        "stale",
        "not in the plan",
    ):
        assert part in shown


def test_status_shows_the_separator_of_lists(small: SmallHome) -> None:
    body = csv_body([plain(categories="Fork", coins="bitcoin|ethereum")])
    assert health_at(small).list_separator is None
    small.land("export", body=body)
    merge(small.home)
    assert health_at(small).list_separator == "|"
    small.home.list_separator = ","
    assert health_at(small).list_separator == ","


def test_the_json_has_every_key_and_warnings_with_their_kind(
    almanac: Almanac, tmp_path: Path
) -> None:
    SmallHome(tmp_path / "data").land(at=datetime.now(UTC) - 4 * DAY)
    record = json.loads(almanac("status", "--json", "--exit-code", code=1).stdout)
    assert {"kind", "text", "since"} == set(record["warnings"][0])
    assert "stale:coins" in [warning["kind"] for warning in record["warnings"]]
    assert record["bytes"].keys() >= {"landing", "parquet", "checkpoints", "dagster"}
    assert record["coverage"]["unseen"][0].keys() == {"first", "last"}
    assert {feed["feed"] for feed in record["feeds"] if feed["stale_since"]} >= {"coins"}
