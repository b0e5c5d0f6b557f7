"""The daily job while the service fails: a wait mends some errors, and others are not retried."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import dagster as dg
import httpx
import pytest

from pipeline.build import build_definitions, layout_of
from pipeline.instance import instance_of
from tests.pipeline.homes_in_days import NOW, QUIET, TODAY, opened_session, settings_of
from warehouse.home import Home


def run_daily(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, times: int
) -> tuple[dg.ExecuteInProcessResult, int]:
    """Run the daily job while the coins are answered with an error so many times.

    Returns:
        The result, and the number of requests for coins.
    """
    settings, home, sent = settings_of(tmp_path), Home(tmp_path), Counter[str]()
    send = httpx.HTTPTransport.handle_request

    def fail_first(self: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        sent[request.url.path] += 1
        if request.url.path == "/v2/coins" and sent["/v2/coins"] <= times:
            return httpx.Response(status, json={"message": "try later"})
        return send(self, request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", fail_first)
    layout = replace(
        layout_of(settings, home, NOW, first_day=TODAY), retry_policy=dg.RetryPolicy(max_retries=2)
    )
    with instance_of(home) as instance, opened_session(settings) as (session, service):
        definitions = build_definitions(
            settings, clock=service.clock, layout=layout, catalog=session
        )
        result = definitions.resolve_job_def("daily").execute_in_process(
            instance=instance,
            partition_key=TODAY.isoformat(),
            raise_on_error=False,
            run_config=QUIET,
        )
    return result, sent["/v2/coins"]


def test_a_day_succeeds_after_a_feed_failed_longer_than_one_request_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = run_daily(tmp_path, monkeypatch, 500, times=8)
    assert result.success
    retried = [event.step_key for event in result.all_events if event.is_step_up_for_retry]
    assert retried == ["landed_coins"]


def test_a_refused_key_fails_the_day_without_a_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, requests = run_daily(tmp_path, monkeypatch, 401, times=99)
    assert not result.success
    assert not [event for event in result.all_events if event.is_step_up_for_retry]
    assert requests == 1
