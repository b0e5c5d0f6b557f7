import csv
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest

from catalog.contract.plans import Window, day_end
from catalog.contract.records import EVENT_FIELDS
from catalog.server.app import ServerOptions
from tests.server.bare_server import NOW, BareServer, BareStore, bare_server, event

DAY = timedelta(days=1)
EXPORT = "/v2/events/export"


@pytest.fixture(scope="module")
def server() -> Iterator[BareServer]:
    events = [event(f"e{n:03}", NOW + n * DAY) for n in range(150)]
    with bare_server(store=BareStore(*events)) as server:
        yield server


class TestConditionalRequests:
    def test_a_known_etag_is_a_304_without_a_body(self, server: BareServer) -> None:
        lists = ("events", "coins", "categories", "events/cancellations", "events/export")
        for path in (*lists, "events/e001", "coins/first"):
            path = f"/v2/{path}"
            first = server.get(path)
            etag = first.headers["etag"]
            for header in (etag, f'"other", {etag}', "*", etag.removeprefix("W/")):
                answer = server.get(path, if_none_match=header)
                assert (answer.status_code, answer.content) == (304, b""), header
                assert answer.headers["etag"] == etag
            assert server.get(path, if_none_match='"other"').status_code == 200
            assert first.headers["cache-control"].startswith("private, max-age=")
            assert "x-api-key" in first.headers["vary"]

    def test_an_export_that_is_not_newer_is_a_304(self, server: BareServer) -> None:
        for since, status in (
            *(("Mon, 15 Jun 2026 00:05:00 GMT", 304), ("Mon, 15 Jun 2026 00:04:59 GMT", 200)),
            ("yesterday", 200),
        ):
            assert server.get(EXPORT, if_modified_since=since).status_code == status
            # A tag is exact, so it goes before a date (RFC 9110, 13.1.3).
            answer = server.get(EXPORT, if_modified_since=since, if_none_match='"x"')
            assert answer.status_code == 200

    def test_the_etag_changes_with_what_is_shown_and_with_the_plan(self) -> None:
        tags = []
        for title in ("Old", "New"):
            with bare_server(store=BareStore(event("a", title=title))) as server:
                tags.append(server.get("/v2/events/a").headers["etag"])
                for plan in ("free", "pro", "elite"):
                    tags.append(server.get("/v2/events", plan).headers["etag"])
        assert len(set(tags)) == 8


class TestExport:
    def test_it_has_the_columns_of_the_event_fields(self, server: BareServer) -> None:
        answer = server.get(EXPORT)
        assert answer.headers["content-type"].startswith("text/csv")
        disposition = 'attachment; filename="events-2026-06-15.csv"'
        assert answer.headers["content-disposition"] == disposition
        assert answer.content.split(b"\r\n")[0].decode() == ",".join(EVENT_FIELDS)
        rows = [*csv.DictReader(io.StringIO(answer.text, newline=""))]
        assert len(rows) == 150
        event_json = server.get("/v2/events/e000").json()
        lists = {"categories": "Release;Hard Fork", "coins": "first;hundredth"}
        plain = {"dateEnd": "", "isEstimated": "false", "impact": "6.5"}
        assert rows[0] == {**event_json, **lists, **plain}

    def test_a_bound_that_is_not_given_is_that_of_the_window(self, server: BareServer) -> None:
        lower, since_2017 = datetime(2026, 1, 1, tzinfo=UTC), datetime(2017, 1, 1, tzinfo=UTC)
        upper = day_end(date(2026, 12, 31))
        for query, window in (
            ("", Window(since_2017, None)),
            ("from=2026-01-01", Window(lower, None)),
            ("to=2026-12-31", Window(since_2017, upper)),
            ("from=2026-01-01&to=2026-12-31&limit=1&cursor=any", Window(lower, upper)),
        ):
            assert server.get(f"{EXPORT}?{query}").status_code == 200
            assert server.store.queries[-1].window == window, query
        query = "impactMin=7&coins=b,a&categories=c&keyword=X&sortBy=impact_desc"
        server.get(f"{EXPORT}?{query}")
        found = server.store.queries[-1]
        assert (found.impact_min, found.coins, found.categories) == (7, {"a", "b"}, {"c"})
        assert (found.keyword, found.order) == ("x", "impact_desc")

    def test_it_is_the_snapshot_of_five_past_midnight_with_the_plans_freshness(self) -> None:
        for *now, day in ((0, 0, 0, 14), (0, 5, 59, 14), (0, 6, 0, 15), (23, 59, 59, 15)):
            snapshot = datetime(2026, 6, day, 0, 5, tzinfo=UTC)
            with bare_server(now=datetime(2026, 6, 15, *now, tzinfo=UTC)) as server:
                answer = server.get(EXPORT)
                assert answer.headers["last-modified"] == f"{snapshot:%a, %d %b %Y %T} GMT"
                assert server.store.times == [snapshot]


def test_every_answer_has_the_date_of_the_service_and_that_of_a_version_that_ends() -> None:
    fixed = {"deprecation": "@1767225600", "sunset": "Fri, 01 Jan 2027 00:00:00 GMT"}
    with bare_server(options=ServerOptions(**fixed)) as server:
        for path in ("/v2/events", "/v2/nope", "/v1/events", "/healthz", "/v2/events?limit=0"):
            headers = server.get(path).headers
            assert headers.get_list("date") == ["Mon, 15 Jun 2026 10:00:00 GMT"], path
            assert {name: headers[name] for name in fixed} == fixed


def test_metrics_count_by_route_plan_and_status() -> None:
    with bare_server(store=BareStore(event("a"))) as server:
        for path, key in (
            *(("/v2/events", "pro"), ("/v2/events/a", "pro"), ("/v2/events/b", "pro")),
            *(("/v2/secret-looking-path", "pro"), ("/v2/events", "unknown-key")),
        ):
            server.get(path, key)
        text = server.client.get("/metrics").text
        for route, plan, status in (
            *(("events", "pro", 200), ("event", "pro", 200), ("event", "pro", 404)),
            *(("other", "pro", 404), ("other", "none", 403)),
        ):
            labels = f'plan="{plan}",route="{route}",status="{status}"'
            assert f"almanac_requests_total{{{labels}}} 1.0" in text
        assert 'almanac_request_seconds_bucket{le="0.001",route="events"}' in text
        assert "secret-looking-path" not in text
        assert "unknown-key" not in text
