"""The daily job on plans that show less, and with a used up quota."""

from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from catalog.sandbox.sandbox import Sandbox
from pipeline.health.warnings import read_health
from pipeline.instance import instance_of
from tests.pipeline.homes_in_days import (
    NOW,
    TODAY,
    address_of,
    opened_session,
    run_assets,
    run_sandbox_days,
    settings_of,
)
from warehouse.history.merge import merge
from warehouse.home import Home


@pytest.mark.parametrize(
    ("plan", "lacking"),
    [
        ("free", ["export"]),
        pytest.param("standard", ["export"], marks=pytest.mark.long),
    ],
)
def test_a_run_reports_feeds_that_the_plan_lacks_and_pulls_the_rest(
    tmp_path: Path, plan: str, lacking: list[str]
) -> None:
    settings = settings_of(tmp_path, plan=plan)
    with instance_of(Home(tmp_path)) as instance:
        summary = run_sandbox_days(settings, instance, days=1)
    assert sorted(summary.notes) == [
        f"{TODAY} landed_{feed}: not in the plan {plan}" for feed in lacking
    ]
    assert summary.rows > 0
    feeds = {batch_id.split("-")[1] for batch_id in Home(tmp_path).landing.batch_ids()}
    assert feeds == {"events", "cancellations", "coins", "categories"} - set(lacking)
    assert Home(tmp_path).warehouse.exists()


def test_a_run_goes_on_without_categories_that_the_service_refuses_and_status_says_so(
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
        instance_of(home) as instance,
        opened_session(settings) as (session, service),
    ):
        for is_refusing in (True, False):
            done = run_assets(
                settings,
                instance,
                "landed_categories",
                "landed_coins",
                partition=TODAY,
                catalog=session,
                clock=service.clock,
            )
            assert done.success
            merge(home)
            feeds = read_health(settings, home, NOW + timedelta(hours=1)).feeds
            (feed,) = (each for each in feeds if each.feed == "categories")
            assert bool(feed.refused) is is_refusing
            assert feed.batches == (0 if is_refusing else 1)


def test_a_run_whose_quota_runs_out_lands_the_received_rows_and_succeeds(
    tmp_path: Path, almanac_sandbox: Sandbox
) -> None:
    key = almanac_sandbox.new_key("enterprise", monthly_quota=12)
    settings = settings_of(tmp_path, **address_of(almanac_sandbox.base_url, key))
    with instance_of(Home(tmp_path)) as instance:
        summary = run_sandbox_days(settings, instance, days=1, now=NOW.replace(hour=12))
    assert summary.requests >= 10
    assert any("deferred" in note for note in summary.notes)
    assert summary.rows > 0
    assert summary.quota_left == 0
