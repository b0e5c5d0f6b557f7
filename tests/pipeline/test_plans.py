"""Landing steps of plans that show less, while the service fails, and near the limits of a key."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import httpx
import pytest

from almanac.core.errors import WarehouseError
from assets.layout import Layout
from catalog.contract.plans import PLANS
from catalog.sandbox.sandbox import Sandbox
from pipeline.automation.jobs import daily_schedule
from pipeline.build import make_layout
from pipeline.health.warnings import read_health
from pipeline.service_session import OpenedSession, find_pace, open_service
from pipeline.settings import Settings
from resources.errors import Defer
from resources.feed_day import pull_or_reuse
from resources.http.retry import RetryPolicy
from resources.limits.ledger import Ledger, Pace, ledger_name
from resources.session import LazySession
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import (
    address_of,
    metadata_of,
    opened_session,
    run_assets,
    settings_of,
)
from tests.pipeline.small_home import SmallHome
from tests.resources.fakes import paginated
from warehouse.history.merge import merge
from warehouse.home import Home

NOW = datetime(2019, 3, 2, 9, tzinfo=UTC)
TODAY = NOW.date()


def test_categories_that_the_service_refuses_fail_no_run_and_status_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, home = settings_of(tmp_path, plan="standard"), Home(tmp_path)
    send, is_refusing = httpx.HTTPTransport.handle_request, True

    def refusing(self: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        if is_refusing and request.url.path == "/v2/categories":
            return httpx.Response(403, json={"message": "Forbidden"})
        return send(self, request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", refusing)
    with (
        dg.DagsterInstance.ephemeral() as instance,
        opened_session(settings, now=NOW) as (session, service),
    ):
        for is_refusing in (True, False):
            names = ("landed_categories", "landed_coins", "landed_export")
            given = {"partition": TODAY, "catalog": session, "clock": service.clock}
            done = run_assets(settings, instance, *names, **given)
            assert done.success
            shown = metadata_of(done, "landed_export", TODAY)
            assert "not in the plan standard" in str(shown)
            merge(home)
            feeds = read_health(settings, home, NOW + timedelta(hours=1)).feeds
            (feed,) = (each for each in feeds if each.feed == "categories")
            assert bool(feed.refused) is is_refusing
            assert feed.batches == (0 if is_refusing else 1)


@pytest.mark.parametrize(
    ("status", "times", "succeeds"), [(500, 8, True), (401, 99, False)], ids=["500", "401"]
)
def test_a_step_is_retried_after_errors_of_the_service_and_not_after_a_refused_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, times: int, succeeds: bool
) -> None:
    settings, sent = settings_of(tmp_path), Counter[str]()
    send = httpx.HTTPTransport.handle_request

    def fail_first(self: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        sent[request.url.path] += 1
        if request.url.path == "/v2/coins" and sent["/v2/coins"] <= times:
            return httpx.Response(status, json={"message": "try later"})
        return send(self, request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", fail_first)
    monkeypatch.setattr(RetryPolicy, "backoff_s", lambda *_: 0.0)
    layout = replace(
        make_layout(Home(tmp_path), NOW, first_day=NOW.date()),
        retry_policy=dg.RetryPolicy(max_retries=2),
    )
    with (
        dg.DagsterInstance.ephemeral() as instance,
        opened_session(settings, now=NOW) as (session, service),
    ):
        given = {"clock": service.clock, "layout": layout, "catalog": session}
        result = run_assets(settings, instance, "landed_coins", partition=NOW.date(), **given)
    assert result.success is succeeds
    retried = [event.step_key for event in result.all_events if event.is_step_up_for_retry]
    assert retried == ["landed_coins"] * succeeds
    assert succeeds or sent["/v2/coins"] == 1


def open_ledger(settings: Settings) -> Ledger:
    address = settings.service_address()
    assert address is not None
    return Ledger(settings.state / "limits" / ledger_name(*address))


def send_request(service: OpenedSession) -> None:
    assert list(paginated(service.client, feed="categories"))


def test_an_enterprise_key_of_5_a_second_meets_no_429(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", rate_per_s=5, burst=5)
    settings = settings_of(tmp_path, **address_of(almanac_sandbox.base_url, key))
    almanac_sandbox.forget_requests()
    with open_service(settings) as service:
        for _ in range(7):
            send_request(service)
    assert [request.status for request in almanac_sandbox.requests] == [200] * 8
    # The next start sends its first request at that pace.
    assert find_pace(settings, PLANS["free"], open_ledger(settings).peek()) == Pace(5, 1)
    own = settings.model_copy(update={"rate_per_s": 2.0, "burst": 3})
    assert find_pace(own, service.plan, open_ledger(own).peek()) == Pace(2.0, 1)


def test_a_stated_quota_of_40_has_a_reserve_that_only_daily_pulls_use(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", monthly_quota=40)
    settings = settings_of(tmp_path, **address_of(almanac_sandbox.base_url, key))
    with open_service(settings, work="polls") as service:
        with pytest.raises(Defer, match="reserved for daily pulls"):
            for _ in range(40):
                send_request(service)
        assert (service.available, service.quota_left) == (0, 8)
    with open_service(settings, work="daily") as service:
        send_request(service)
        assert service.quota_left == 6


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def shifted() -> Iterator[Sandbox]:
    """A service whose clock is hours behind the machine's."""
    now = datetime.now(UTC).replace(microsecond=0) - 47 * HOUR
    with Sandbox(now=now, export_interval_s=0) as sandbox:
        yield sandbox


def test_a_run_is_of_the_services_day_and_the_offset_is_shown(
    almanac: Almanac, shifted: Sandbox, tmp_path: Path
) -> None:
    given = {
        **{"base_url": shifted.base_url, "api_key": shifted.new_key("standard")},
        **{"home": str(tmp_path / "home"), "coins": "bitcoin", "plan": "standard"},
        "max_clock_skew_days": "3",
    }
    today = shifted.clock.now().date()
    summary = json.loads(almanac("run", "--json", **given).stdout)
    assert summary["days"] == [today.isoformat()]
    assert summary["problems"] == []
    home = Home(tmp_path / "home")
    assert home.landing.days() == [today]
    health = read_health(settings_of(home.root), home, datetime.now(UTC))
    assert {warning.kind for warning in health.warnings} <= {"disk", "secrets", "stale"}
    assert [feed.age_s < 600 for feed in health.feeds if feed.age_s is not None] == [True] * 4
    offset = shifted.clock.now() - datetime.now(UTC)
    assert health.ahead_s == pytest.approx(offset.total_seconds(), abs=300)
    assert "behind this machine's" in almanac("status", **given).output


def test_partitions_are_the_days_from_the_first_observation_to_the_machines_today(
    tmp_path: Path,
) -> None:
    now = datetime.now(UTC)
    small = SmallHome(tmp_path)
    small.land("events", at=now - 2 * DAY)
    for ahead in (-1, -0.2, 0, 0.2, 1):
        layout = make_layout(small.home, now + ahead * DAY)
        days = [date.fromisoformat(key) for key in layout.observed_days.get_partition_keys()]
        assert days[0] == (now - 2 * DAY).date()
        # A service that is a whole day ahead has its day, else nothing could ever be pulled.
        assert days[-1] == (now + (ahead == 1) * DAY).date()


def test_a_day_that_has_not_begun_for_the_service_is_refused(tmp_path: Path) -> None:
    def never() -> None:
        raise AssertionError("a session was opened")

    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    session = LazySession(never, clock=lambda: now)  # type: ignore[arg-type]
    with pytest.raises(WarehouseError, match="2026-03-05 has not begun for the service"):
        pull_or_reuse("export", (now + 3 * DAY).date(), session, Home(tmp_path).landing)


@pytest.mark.parametrize(("hours", "is_day"), [(-47, True), (-3.5, True), (0, True), (47, False)])
def test_the_schedule_requests_the_service_day_once_it_is_a_partition(
    hours: float, is_day: bool
) -> None:
    now = datetime.now(UTC).replace(hour=0, minute=20, second=0, microsecond=0)
    service_now = now + hours * HOUR
    schedule = daily_schedule(Layout(), lambda: now, lambda: service_now, lambda day: False)
    request = schedule(dg.build_schedule_context(scheduled_execution_time=now))
    if is_day:
        assert isinstance(request, dg.RunRequest)
        assert request.partition_key == service_now.date().isoformat()
    else:
        assert isinstance(request, dg.SkipReason)
        assert "not a partition by this machine's clock" in str(request.skip_message)
