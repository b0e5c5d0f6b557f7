"""The limits of a key in open sessions, with the real server."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from catalog.contract.plans import PLANS
from catalog.sandbox.sandbox import Sandbox
from pipeline.service_session import OpenedSession, open_service, pace_of
from pipeline.settings import Settings
from resources.errors import Defer
from resources.limits.ledger import Ledger, Pace, ledger_name
from tests.pipeline.homes_in_days import NOW, address_of, settings_of
from tests.resources.fakes import paginated


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A sandbox of its own, since the test moves its clock."""
    with Sandbox(seed=1, now=NOW, export_interval_s=0) as sandbox:
        yield sandbox


def ledger_of(settings: Settings) -> Ledger:
    address = settings.service_address()
    assert address is not None
    return Ledger(settings.state / "limits" / ledger_name(*address))


def send_request(service: OpenedSession) -> None:
    assert list(paginated(service.client, feed="categories"))


def test_two_homes_with_one_key_count_together_as_the_service_does(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", monthly_quota=50)
    given = {**address_of(almanac_sandbox.base_url, key), "state": tmp_path / "machine"}
    homes = [settings_of(tmp_path / name, **given) for name in ("one", "two")]
    with open_service(homes[0]) as first, open_service(homes[1]) as second:
        for service in (first, second, first):
            send_request(service)
        assert first.request_usage().used == ledger_of(homes[1]).peek().used == 6


def test_a_share_of_the_quota_is_not_passed_though_the_service_would_allow_more(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("pro")
    given = address_of(almanac_sandbox.base_url, key)
    almanac_sandbox.forget_requests()
    with open_service(settings_of(tmp_path, **given, monthly_quota=3)) as service:
        send_request(service)
        send_request(service)
        with pytest.raises(Defer, match="this machine has used its quota"):
            send_request(service)
    assert len(almanac_sandbox.requests) == 3


def test_a_month_that_ends_during_a_session_causes_one_usage_request(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    settings = settings_of(tmp_path, **address_of(sandbox.base_url, sandbox.keys["standard"]))
    with open_service(settings) as service:
        send_request(service)
        sandbox.advance(timedelta(days=31))
        with ledger_of(settings).locked() as state:
            state.resets_at = int(service.client.service_clock.now().timestamp()) - 1
        sandbox.forget_requests()
        send_request(service)
        paths = [request.path.rsplit("/", 1)[-1] for request in sandbox.requests]
        assert paths == ["usage", "categories"]
        assert ledger_of(settings).peek().used == 2


def test_a_new_month_is_counted_by_headers_where_the_service_reports_no_usage(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    sandbox.faults.set("html~usage")
    given = address_of(sandbox.base_url, sandbox.keys["standard"])
    settings = settings_of(tmp_path, **given, plan="standard")
    with open_service(settings) as service:
        send_request(service)
        send_request(service)
        with ledger_of(settings).locked() as state:
            state.resets_at = int(service.client.service_clock.now().timestamp()) - 1
        send_request(service)
        state = ledger_of(settings).peek()
        # Of the service's month, which is not over.
        assert (state.allowed, state.used) == (30_000, 3)


def test_a_ledger_lost_during_a_session_is_filled_by_a_usage_request(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("pro")
    settings = settings_of(tmp_path, **address_of(almanac_sandbox.base_url, key))
    with open_service(settings) as service:
        send_request(service)
        (settings.state / "limits" / ledger_of(settings).path.name).write_bytes(b"")
        send_request(service)
    assert ledger_of(settings).peek().used == 4


def test_the_embedded_sandbox_keeps_no_ledger(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home", state=tmp_path / "machine")
    with open_service(settings) as service:
        send_request(service)
    assert not (tmp_path / "machine").exists()


def test_an_enterprise_key_of_5_a_second_meets_no_429(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", rate_per_s=5, burst=5)
    settings = settings_of(tmp_path, **address_of(almanac_sandbox.base_url, key))
    almanac_sandbox.forget_requests()
    with open_service(settings) as service:
        for _ in range(14):
            send_request(service)
    assert [request.status for request in almanac_sandbox.requests] == [200] * 15
    # The next start sends its first request at that pace.
    assert pace_of(settings, PLANS["free"], ledger_of(settings).peek()) == Pace(5, 1)


def test_settings_go_before_what_the_service_states(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", rate_per_s=5, burst=5)
    given = {**address_of(almanac_sandbox.base_url, key), "rate_per_s": 2.0, "burst": 3}
    settings = settings_of(tmp_path, **given)
    with open_service(settings) as service:
        assert pace_of(settings, service.plan, ledger_of(settings).peek()) == Pace(2.0, 1)


def test_a_stated_quota_of_40_has_a_reserve_that_only_daily_pulls_use(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", monthly_quota=40)
    settings = settings_of(tmp_path, **address_of(almanac_sandbox.base_url, key))
    with open_service(settings, work="polls") as service:
        with pytest.raises(Defer, match="reserved for other work"):
            for _ in range(40):
                send_request(service)
        assert (service.available, service.quota_left) == (0, 8)
    with open_service(settings, work="daily") as service:
        send_request(service)
        assert service.quota_left == 6
