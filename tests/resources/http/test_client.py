"""The client against the real sandbox, endpoint by endpoint."""

import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from catalog.sandbox.pytest_plugin import STANDS_AT
from catalog.sandbox.sandbox import Sandbox
from resources import service_address
from resources.errors import AccessDenied, PlanLacksAccess, RequestRejected
from resources.http.paginator import RawPage
from resources.request_log import RequestLog, SentRequest, last_usage
from resources.service_address import checked_base_url
from tests.resources.conftest import MakeClient
from tests.resources.fakes import KEY, FakeTime, days, mocked, paginated
from warehouse.landing.batches import Scope

MARCH = (date(2026, 3, 1), date(2026, 3, 31))
IN_MARCH = days(*MARCH)


def rows_of(pages: Iterable[RawPage]) -> list[dict[str, Any]]:
    return [row for page in pages for row in json.loads(page.body)["data"]]


def ids_on(sandbox: Sandbox, lower: date, upper: date) -> set[str]:
    """Return the ids of the events that the list had a minute ago, by the sandbox's truth."""
    first = datetime(lower.year, lower.month, lower.day, tzinfo=UTC)
    last = datetime(upper.year, upper.month, upper.day, 23, 59, 59, tzinfo=UTC)
    seen = sandbox.truth().events_at(STANDS_AT - timedelta(seconds=60)).values()
    return {
        request.id
        for request in seen
        if request.date <= last and (request.date_end or request.date) >= first
    }


class TestEvents:
    def test_a_list_has_every_event_of_the_range_once(
        self, almanac_sandbox: Sandbox, make_client: MakeClient
    ) -> None:
        paginator = paginated(make_client(), IN_MARCH)
        pages = list(paginator)
        ids = [row["id"] for row in rows_of(pages)]
        assert set(ids) == ids_on(almanac_sandbox, *MARCH)
        assert paginator.progress.why_incomplete() == ""
        assert paginator.progress.rows == len(ids) == paginator.progress.total_last
        assert paginator.progress.pages == paginator.requests == -(-len(ids) // 100)
        assert paginator.progress.ended
        assert [row for page in pages for row in page.ids] == ids

    def test_a_page_keeps_the_raw_body_the_dates_and_the_cursors(
        self, make_client: MakeClient
    ) -> None:
        pages = list(paginated(make_client(), days(*MARCH, coins=("bitcoin",)), limit=20))
        first, second = pages[0], pages[1]
        assert json.loads(first.body)["meta"]["cursor"] == first.cursor_out == second.cursor_in
        assert first.cursor_in is None
        assert pages[-1].cursor_out is None
        assert first.params == {
            "coins": "bitcoin", "from": "2026-03-01", "to": "2026-03-31", "limit": "20",
        }  # fmt: skip
        assert first.date == STANDS_AT
        assert not first.date_doubt
        assert first.headers["content-type"].startswith("application/json")
        assert "sandbox" not in repr(first).lower()

    def test_more_coins_than_a_request_takes_become_several_lists(
        self, almanac_sandbox: Sandbox, make_client: MakeClient
    ) -> None:
        slugs = [coin.slug for coin in almanac_sandbox.truth().coins_at(STANDS_AT)[:150]]
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

    def test_the_total_of_a_range_costs_one_request(
        self, almanac_sandbox: Sandbox, make_client: MakeClient
    ) -> None:
        sent: list[SentRequest] = []
        total = make_client(observer=sent.append).events_total(IN_MARCH)
        assert total == len(ids_on(almanac_sandbox, *MARCH))
        assert [request.path for request in sent] == ["/v2/events"]


class TestLookUps:
    def test_a_found_a_cancelled_and_an_unknown_event_have_their_status(
        self, almanac_sandbox: Sandbox, make_client: MakeClient
    ) -> None:
        client = make_client()
        listed = rows_of(paginated(client, days(*MARCH, coins=("bitcoin",)), limit=1))[0]
        found = client.event(listed["id"])
        assert (found.status, json.loads(found.body)) == (200, listed)
        assert found.date == STANDS_AT
        cancelled = rows_of(paginated(client, feed="cancellations"))[0]
        gone = client.event(cancelled["id"])
        assert gone.status == 410
        assert json.loads(gone.body)["cancelledAt"] == cancelled["cancelledAt"]
        unknown = client.event("no/such?event")
        assert unknown.status == 404

    @pytest.mark.parametrize("event_id", ["", ".", ".."])
    def test_an_id_that_would_be_another_path_is_refused(
        self, make_client: MakeClient, event_id: str
    ) -> None:
        with pytest.raises(ValueError, match="can't be looked up"):
            make_client().event(event_id)

    def test_a_410_of_a_retired_version_is_no_cancellation(self) -> None:
        answer = httpx.Response(410, json={"error": {"code": "version_retired"}})
        with pytest.raises(RequestRejected):
            mocked(lambda _: answer).event("a")

    def test_usage_is_read(self, almanac_sandbox: Sandbox, make_client: MakeClient) -> None:
        key = almanac_sandbox.new_key("free")
        client = make_client(key)
        assert client.usage().used == 1
        usage = client.usage()
        assert (usage.plan, usage.used, usage.quota, usage.remaining) == ("free", 2, 3000, 2998)
        assert usage.reset_at == usage.period_end == datetime(2026, 4, 1, tzinfo=UTC)
        assert usage.period_start == datetime(2026, 3, 1, tzinfo=UTC)
        assert (usage.rate, usage.burst) == (1.0, 5)

    def test_usage_survives_unknown_names_and_strange_values(self) -> None:
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
        self, reset: str
    ) -> None:
        usage_body = {"used": 3_000, "limit": 3_000, "resetAt": reset}
        headers = {"Date": "Mon, 02 Mar 2026 12:00:00 GMT"}
        usage = mocked(lambda _: httpx.Response(200, json=usage_body, headers=headers)).usage()
        assert usage.account is not None
        assert usage.received_at is not None
        ahead = usage.account.resets_at - usage.received_at
        assert ahead == datetime(2026, 4, 1, tzinfo=UTC) - STANDS_AT


class TestOtherLists:
    def test_cancellations_since_an_instant_are_listed(self, make_client: MakeClient) -> None:
        since = STANDS_AT - timedelta(days=10)
        paginator = paginated(make_client(), Scope(since=since), feed="cancellations", limit=10)
        rows = rows_of(paginator)
        assert not paginator.progress.why_incomplete()
        assert paginator.progress.pages > 1
        assert min(datetime.fromisoformat(row["cancelledAt"]) for row in rows) >= since


class TestRefusals:
    def test_a_bad_key_is_sent_once(self, make_client: MakeClient) -> None:
        sent: list[SentRequest] = []
        with pytest.raises(AccessDenied, match="Check the API key"):
            make_client("no-such-key", observer=sent.append).usage()
        assert len(sent) == 1

    def test_a_plan_that_lacks_the_export_or_a_filter_says_so(
        self, almanac_sandbox: Sandbox, make_client: MakeClient, tmp_path: Path
    ) -> None:
        client = make_client(almanac_sandbox.new_key("free"))
        with pytest.raises(PlanLacksAccess, match="needs the plan Elite"):
            client.export(tmp_path / "export.csv", Scope())
        with pytest.raises(PlanLacksAccess):
            list(paginated(client, Scope(categories=("release",))))

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
        self, status: int, body: object, error: type[Exception]
    ) -> None:
        sent: list[SentRequest] = []
        client = mocked(lambda _: httpx.Response(status, json=body), observer=sent.append)
        with pytest.raises(error) as raised:
            client.events_total(Scope())
        assert type(raised.value) is error
        assert [request.status for request in sent] == [status]


class TestConstruction:
    def test_a_path_before_the_version_is_kept(self) -> None:
        assert checked_base_url("https://h.test/api/v2/") == "https://h.test/api"

    @pytest.mark.parametrize(
        "text", ["", "h.test", "ftp://h.test", "https://", "https://u:p@h.test", "https://h/?a=1"]
    )
    def test_an_invalid_address_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="base address"):
            checked_base_url(text)

    @given(st.from_regex(service_address._USUAL, fullmatch=True))
    def test_an_address_with_one_spelling_is_what_a_parser_returns(self, text: str) -> None:
        """So that a home stays bound to its source: the parser is left out to start faster."""
        assert service_address._normalised(text) == text.strip()

    @pytest.mark.parametrize("key", ["", "  ", "two words", "line\nbreak", "schlüssel"])
    def test_a_key_that_is_not_allowed_in_a_header_is_refused_and_not_shown(
        self, make_client: MakeClient, key: str
    ) -> None:
        with pytest.raises(ValueError, match="the API key") as raised:
            make_client(key)
        assert key.strip() == "" or key not in str(raised.value)

    def test_a_version_that_will_end_is_shown(self) -> None:
        headers = {"Deprecation": "@1780000000", "Sunset": "Thu, 01 Apr 2027 00:00:00 GMT"}
        client = mocked(lambda _: httpx.Response(200, json={}, headers=headers))
        usage = client.usage()
        assert (usage.deprecation, usage.sunset) == (headers["Deprecation"], headers["Sunset"])

    def test_without_a_date_header_a_page_has_our_own_time_with_a_doubt(self) -> None:
        fake = FakeTime()
        answer = httpx.Response(200, json={"data": []})
        (page,) = paginated(mocked(lambda _: answer, ambient=fake.ambient()), feed="categories")
        assert page.date_doubt
        assert page.date == fake.clock()

    def test_the_observer_is_called_for_every_attempt_with_its_bytes(
        self, make_client: MakeClient
    ) -> None:
        sent: list[SentRequest] = []
        pages = list(paginated(make_client(observer=sent.append), IN_MARCH, limit=50))
        assert [request.bytes for request in sent] == [len(page.body) for page in pages]
        assert {(request.path, request.status) for request in sent} == {("/v2/events", 200)}

    @pytest.mark.parametrize("plan", ["\ud800lite", "caf\udce9", "p" * 5_000_000])
    def test_a_plan_name_of_any_length_can_be_logged_and_is_cut(
        self, plan: str, tmp_path: Path
    ) -> None:
        body = json.dumps({"plan": plan, "used": 1, "limit": 2}).encode()
        headers = {"Deprecation": "x" * 90_000, "Sunset": "y" * 90_000}
        client = mocked(lambda _: httpx.Response(200, content=body, headers=headers))
        RequestLog(tmp_path, lambda: STANDS_AT, key=SecretStr(KEY)).usage(client.usage())
        usage = last_usage(tmp_path)
        assert usage is not None
        assert (usage.used, usage.quota) == (1, 2)
        assert (tmp_path / "usage.jsonl").stat().st_size < 5_000

    def test_no_cookie_is_stored_or_sent_back(self) -> None:
        cookies: list[str | None] = []

        def setting(request: httpx.Request) -> httpx.Response:
            cookies.append(request.headers.get("cookie"))
            return httpx.Response(200, headers={"Set-Cookie": "a=b; Path=/"}, json={"data": []})

        client = mocked(setting)
        for _ in range(2):
            list(paginated(client, feed="coins"))
        assert cookies == [None, None]
