"""The facts of a home: freshness, coverage, problems of batches, quota, and `almanac status`."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.health.facts import FeedHealth, Health, read_pulls
from pipeline.health.warnings import WARNINGS, read_health
from pipeline.service_session import open_ledger
from resources.limits.ledger import Ledger
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import address_of
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.history.merge import merge
from warehouse.landing.batches import Feed, Scope

MIDNIGHT = NOW.replace(hour=0)
SERVICE = "https://api.example.com"


def health_at(small: SmallHome, now: datetime = NOW) -> Health:
    """Merge what is landed, and return the health."""
    merge(small.home)
    return read_health(small.settings, small.home, now)


def feed_of(health: Health, name: Feed) -> FeedHealth:
    (found,) = [feed for feed in health.feeds if feed.feed == name]
    return found


def stale(health: Health) -> set[str]:
    return {feed.feed for feed in health.feeds if feed.stale_since is not None}


def batches_with(health: Health, problem: str) -> list[str]:
    return [batch.batch_id for batch in health.problems if batch.problem == problem]


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    return SmallHome(tmp_path / "home")


class TestFreshness:
    def test_a_feed_is_stale_after_36_hours_without_a_complete_pull(self, small: SmallHome) -> None:
        small.land()
        small.land("export", "events", at=NOW + DAY)
        stale_at = NOW + timedelta(hours=36)
        health = health_at(small, stale_at + timedelta(minutes=1))
        assert stale(health) == {"cancellations", "coins", "categories"}
        assert feed_of(health, "coins").stale_since == stale_at
        assert feed_of(health, "coins").age_s == 36 * 3600 + 60
        then = read_pulls(small.home.warehouse, NOW + timedelta(hours=1))
        assert {feed.observed_at for feed in then.feeds} == {NOW, None}, "of a past time"

    def test_a_feed_that_is_not_in_the_plan_is_not_stale(self, small: SmallHome) -> None:
        small.land(at=NOW - 5 * DAY, plan="elite")
        small.land("events", "cancellations", "coins", "categories", plan="free")
        health = health_at(small)
        assert health.plan == "free", "the plan of the newest batch counts"
        assert stale(health) == set()
        assert [feed.feed for feed in health.feeds if not feed.in_plan] == ["export"]

    def test_backfills_partial_and_quarantined_pulls_keep_no_feed_fresh(
        self, small: SmallHome
    ) -> None:
        small.land()
        old = Scope(lower=datetime(2019, 1, 1, tzinfo=UTC), upper=datetime(2019, 2, 1, tzinfo=UTC))
        small.land("events", at=NOW + 3 * DAY, scope=old)
        small.land("export", at=NOW + 3 * DAY, why_incomplete="the quota")
        small.land("coins", at=NOW + 3 * DAY, body=b"<!DOCTYPE html><html></html>")
        small.land("categories", at=NOW + 3 * DAY, body=b'{"data": [{"name": "no id"}]}')
        health = health_at(small, NOW + 3 * DAY)
        assert stale(health) >= {"events", "export", "coins"}
        ((bad,), (rejected,)) = (
            batches_with(health, "quarantined"),
            [found for found in health.problems if found.problem == "rejected"],
        )
        assert (rejected.rows, rejected.observed_at) == (1, NOW + 3 * DAY)
        small.home.landing.dismiss(bad)
        assert batches_with(health_at(small, NOW + 3 * DAY), "quarantined") == []


class TestCoverage:
    def test_days_without_a_pull_are_listed_as_spans_up_to_yesterday(
        self, small: SmallHome
    ) -> None:
        # A backfill of the past covers no day.
        small.land("events", scope=Scope(lower=NOW - 900 * DAY, upper=NOW - 800 * DAY))
        for days in (20, 19, 15, 3, 1):
            small.land("events", at=NOW - days * DAY)
        coverage = health_at(small).coverage
        gaps = [str(gap) for gap in coverage.unseen]
        assert gaps == ["2026-02-12 to 2026-02-14", "2026-02-16 to 2026-02-26", "2026-02-28"]
        assert (coverage.days_unseen, coverage.since) == (15, date(2026, 2, 10))

    @pytest.mark.parametrize(("days_ahead", "is_covered"), [(6, True), (5, False)])
    def test_a_pull_covers_its_day_if_it_reaches_as_far_as_the_lowest_plan(
        self, small: SmallHome, days_ahead: int, is_covered: bool
    ) -> None:
        end = MIDNIGHT + (days_ahead + 2) * DAY - timedelta(microseconds=1)
        small.land("events", at=NOW)
        small.land("events", at=NOW + DAY, scope=Scope(lower=MIDNIGHT + DAY, upper=end))
        small.land("events", at=NOW + 2 * DAY)
        coverage = health_at(small, NOW + 2 * DAY).coverage
        assert coverage.days_unseen == (0 if is_covered else 1)

    def test_cancellations_are_lost_after_90_days_without_a_pull(self, small: SmallHome) -> None:
        small.land(at=NOW)
        assert health_at(small, NOW + 31 * DAY).coverage.cancellations_lost == []
        small.land("cancellations", at=NOW + 95 * DAY)
        (lost,) = health_at(small, NOW + 95 * DAY).coverage.cancellations_lost
        assert (lost.first, lost.last) == (NOW.date(), (NOW + 5 * DAY).date())

    def test_cancellations_between_polls_are_lost_once_they_are_no_longer_listed(
        self, small: SmallHome
    ) -> None:
        for days in (0, *range(27, 100, 9)):
            at = NOW + days * DAY
            small.land("cancellations", at=at, scope=Scope(since=at - 9 * DAY))
        (lost,) = health_at(small, NOW + 99 * DAY).coverage.cancellations_lost
        assert (lost.first, lost.last) == (NOW.date(), (NOW + 9 * DAY).date())


class TestProblems:
    def test_a_partial_batch_is_a_problem_until_all_of_its_scope_is_pulled(
        self, small: SmallHome
    ) -> None:
        (partial,) = small.land("events", why_incomplete="page 2 broke")
        small.land("events", at=NOW + DAY, scope=Scope(lower=NOW, upper=NOW + DAY))
        assert batches_with(health_at(small), "incomplete") == [partial.batch_id]
        small.land("export", at=NOW + 2 * DAY)
        assert batches_with(health_at(small, NOW + 2 * DAY), "incomplete") == []


@pytest.fixture
def served(tmp_path: Path) -> SmallHome:
    """A home of a service with an address, on a machine without a ledger."""
    small = SmallHome(tmp_path / "home", SERVICE, **address_of(SERVICE, "key"), plan="pro")
    small.land(plan="pro")
    return small


@pytest.fixture
def ledger(served: SmallHome) -> Iterator[Ledger]:
    """Its ledger: the service reported 1,000 of 3,000 used."""
    found = open_ledger(served.settings)
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
    def test_the_ledger_is_read_as_it_is(self, served: SmallHome, ledger: Ledger) -> None:
        before = ledger.path.read_bytes()
        ledger.path.chmod(0o400)
        quota = health_at(served).quota
        assert quota is not None
        counted = (quota.counted_by, quota.quota, quota.used, quota.remaining)
        assert counted == ("ledger", 3_000, 1_000, 2_000)
        assert quota.reset_at == datetime(2026, 4, 1, tzinfo=UTC)
        assert ledger.path.read_bytes() == before
        served.settings = served.settings.model_copy(update={"monthly_quota": 500})
        quota = health_at(served).quota
        assert quota is not None
        assert (quota.quota, quota.used, quota.remaining) == (500, 400, 100)

    def test_the_quota_is_projected_by_the_pace_of_the_last_week(
        self, served: SmallHome, ledger: Ledger
    ) -> None:
        log(served, NOW - 20 * DAY, count=10_000)
        log(served, NOW - 2 * DAY, count=400)
        log(served, NOW - DAY, status=429, count=10_000)
        log(served, NOW - DAY, status=None, count=20)
        quota = health_at(served).quota
        assert quota is not None and not quota.runs_out
        assert (quota.pace_per_day, quota.projected) == (60.0, 1_000 + 29.5 * 60)
        log(served, NOW - DAY, count=70)
        quota = health_at(served).quota
        assert quota is not None and quota.runs_out

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
        usage = {
            "at": (NOW - timedelta(hours=1)).isoformat(),
            **{"plan": "elite", "used": 70, "quota": 100, "remaining": 30},
            "reset_at": "2026-03-03T00:00:00+00:00",
        }
        (small.home.state / "usage.jsonl").write_text(json.dumps(usage) + '\n{"at": "20')
        log(small, NOW, count=10)
        quota = health_at(small).quota
        assert quota is not None and not quota.runs_out
        assert (quota.counted_by, quota.remaining) == ("service", 30)
        assert quota.projected == 70 + 10 + 20
        over = health_at(small, datetime(2026, 3, 3, 1, tzinfo=UTC)).quota
        assert over is not None and over.projected is None


class TestShown:
    def test_the_json_has_facts_and_warnings(self, almanac: Almanac, tmp_path: Path) -> None:
        small = SmallHome(tmp_path / "data")
        small.land(at=datetime.now(UTC) - 4 * DAY)
        merge(small.home)
        metrics = almanac("status", "--prometheus", home=str(tmp_path / "none")).stdout
        assert metrics.startswith("almanac_home 0.0\n")
        lines = almanac("status", "--prometheus").stdout.splitlines()
        found = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
        assert found["almanac_home"] == 1
        assert found['almanac_feed_age_seconds{feed="export"}'] > 3 * 86_400
        warned = {kind: found[f'almanac_warning{{kind="{kind}"}}'] for kind in WARNINGS}
        assert warned["stale"] == 1 and warned["rejected"] == 0
        assert "almanac_quota_requests" not in found
        record = json.loads(almanac("status", "--json", "--exit-code", code=1).stdout)
        assert record["warnings"][0].keys() == {"kind", "text"}
        assert record["warnings"][0]["kind"] == "stale"
        assert record["coverage"]["unseen"][0].keys() == {"first", "last"}
        assert {feed["feed"] for feed in record["feeds"] if feed["stale_since"]} >= {"coins"}
        shown = " ".join(almanac("status").stdout.replace("│", " ").split())
        assert "Days without a pull 3: " in shown and " stale " in shown


NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
