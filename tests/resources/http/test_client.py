"""The client against the real sandbox, endpoint by endpoint."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from catalog.sandbox.pytest_plugin import STANDS_AT
from catalog.sandbox.sandbox import Sandbox
from resources.credentials import check_base_url
from resources.errors import AccessDenied, PlanLacksAccess, RequestRejected
from resources.http.paginator import RawPage
from resources.request_log import RequestLog, SentRequest, last_usage
from tests.resources.conftest import MakeClient
from tests.resources.fakes import KEY, days, mocked, paginated
from tests.sandbox.true_world import truth_of
from warehouse.landing.batches import Scope

MARCH = (date(2026, 3, 1), date(2026, 3, 31))
IN_MARCH = days(*MARCH)


def rows_of(pages: Iterable[RawPage]) -> list[dict[str, Any]]:
    return [row for page in pages for row in json.loads(page.body)["data"]]


def test_more_coins_than_a_request_takes_become_several_lists(
    almanac_sandbox: Sandbox, make_client: MakeClient
) -> None:
    slugs = [coin.slug for coin in truth_of(almanac_sandbox).coins_at(STANDS_AT)[:150]]
    paginator = paginated(make_client(), days(*MARCH, coins=tuple(slugs)))
    pages = list(paginator)
    assert len({page.params["coins"] for page in pages}) == 2
    wanted = set(slugs)
    ids = {row["id"] for row in rows_of(pages)}
    everything = rows_of(paginated(make_client(), IN_MARCH))
    assert ids == {
        row["id"] for row in everything if wanted & {coin["slug"] for coin in row["coins"]}
    }
    assert not paginator.progress.why_incomplete()


@pytest.mark.parametrize("event_id", ["", ".", ".."])
def test_an_id_that_would_be_another_path_is_refused(
    make_client: MakeClient, event_id: str
) -> None:
    with pytest.raises(ValueError, match="can't be looked up"):
        make_client().event(event_id)


def test_usage_is_read(almanac_sandbox: Sandbox, make_client: MakeClient) -> None:
    key = almanac_sandbox.new_key("free")
    client = make_client(key)
    assert client.usage().used == 1
    usage = client.usage()
    assert (usage.plan, usage.used, usage.quota, usage.remaining) == ("free", 2, 3000, 2998)
    assert usage.reset_at == usage.period_end == datetime(2026, 4, 1, tzinfo=UTC)
    assert usage.period_start == datetime(2026, 3, 1, tzinfo=UTC)
    assert (usage.rate, usage.burst) == (1.0, 5)


def test_usage_survives_unknown_names_and_strange_values() -> None:
    usage_body = {"plan": 7, "used": "12", "limit": -3, "rate": "fast", "resetAt": "soon",
            "period": "March", "burst": True, "seats": {"used": 1}}  # fmt: skip
    usage = mocked(lambda _: httpx.Response(200, json={"data": usage_body})).usage()
    assert usage.used == 12
    assert {usage.plan, usage.quota, usage.rate, usage.reset_at, usage.burst} == {None}


@pytest.mark.parametrize(
    "reset",
    [
        *("9999-12-31T23:59:59Z", "2031-01-01T00:00:00Z"),
        *("0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
    ],
)
def test_a_reset_in_the_past_or_years_ahead_is_replaced_by_the_first_of_next_month(
    reset: str,
) -> None:
    usage_body = {"used": 3_000, "limit": 3_000, "resetAt": reset}
    headers = {"Date": "Mon, 02 Mar 2026 12:00:00 GMT"}
    usage = mocked(lambda _: httpx.Response(200, json=usage_body, headers=headers)).usage()
    assert usage.account is not None
    assert usage.received_at is not None
    ahead = usage.account.resets_at - usage.received_at
    assert ahead == datetime(2026, 4, 1, tzinfo=UTC) - STANDS_AT


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, {"message": "Unauthorized"}, AccessDenied),
        (402, {}, PlanLacksAccess),
        (403, {"message": "Forbidden"}, AccessDenied),
        (403, {"message": "Upgrade your plan"}, PlanLacksAccess),
        (403, {"error": {"code": "version_retired"}}, RequestRejected),
        (410, {}, RequestRejected),
        (400, {"error": "bad limit"}, RequestRejected),
        (422, [], RequestRejected),
        (404, {}, RequestRejected),
        (302, {}, RequestRejected),
    ],
)
def test_an_error_that_would_recur_is_never_retried(
    status: int, body: object, error: type[Exception]
) -> None:
    sent: list[SentRequest] = []
    client = mocked(lambda _: httpx.Response(status, json=body), observer=sent.append)
    with pytest.raises(error) as raised:
        client.events_total(Scope())
    assert type(raised.value) is error
    assert [request.status for request in sent] == [status]


def test_a_path_before_the_version_is_kept() -> None:
    assert check_base_url("https://h.test/api/v2/") == "https://h.test/api"


@pytest.mark.parametrize(
    "text", ["", "h.test", "ftp://h.test", "https://", "https://u:p@h.test", "https://h/?a=1"]
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="base address"):
        check_base_url(text)


@pytest.mark.parametrize("login", ["u:Canary", "u:Can/ary", "u:Can#ary", "u:Can@ary", "u:1/Canary"])
def test_no_part_of_a_password_in_an_address_is_shown(login: str) -> None:
    with pytest.raises(ValueError, match="base address") as raised:
        check_base_url(f"https://{login}@h.test")
    assert re.search("Can|ary", str(raised.value)) is None


@pytest.mark.parametrize("key", ["", "  ", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_is_not_allowed_in_a_header_is_refused_and_not_shown(
    make_client: MakeClient, key: str
) -> None:
    with pytest.raises(ValueError, match="the API key") as raised:
        make_client(key)
    assert key.strip() == "" or key not in str(raised.value)


@pytest.mark.parametrize("plan", ["\ud800lite", "caf\udce9", "p" * 5_000_000])
def test_a_plan_name_of_any_length_can_be_logged_and_is_cut(plan: str, tmp_path: Path) -> None:
    body = json.dumps({"plan": plan, "used": 1, "limit": 2}).encode()
    headers = {"Deprecation": "x" * 90_000, "Sunset": "y" * 90_000}
    client = mocked(lambda _: httpx.Response(200, content=body, headers=headers))
    RequestLog(tmp_path, lambda: STANDS_AT, key=SecretStr(KEY)).usage(client.usage())
    usage = last_usage(tmp_path)
    assert usage is not None
    assert (usage.used, usage.quota) == (1, 2)
    assert (tmp_path / "usage.jsonl").stat().st_size < 5_000
