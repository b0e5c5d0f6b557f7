"""Caching, compression, CORS, the form of the export, metrics."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from catalog.contract.records import EVENT_FIELDS
from catalog.server.app import ServerOptions
from tests.server.small_catalog import DAY, NOW, TODAY, Service, TimedStore, event, serving, view

SNAPSHOT = datetime(2026, 6, 15, 0, 5, tzinfo=UTC)


pytestmark = pytest.mark.usefixtures("kept_in")


@pytest.fixture(scope="module")
def service(kept_in: str) -> Iterator[Service]:
    events = [event(f"e{n:03}", TODAY + n * DAY) for n in range(60)]
    with serving(view(events)) as service:
        yield service


class TestConditionalRequests:
    @pytest.mark.parametrize(
        "path",
        [
            *("/v2/events", "/v2/events/e001", "/v2/coins", "/v2/coins/first", "/v2/categories"),
            *("/v2/events/cancellations", "/v2/events/export"),
        ],
    )
    def test_a_known_etag_is_a_304_without_a_body(self, service: Service, path: str) -> None:
        first = service.get(path)
        etag = first.headers["etag"]
        for header in (etag, f'"other", {etag}', "*", etag.removeprefix("W/")):
            answer = service.get(path, if_none_match=header)
            assert (answer.status_code, answer.content) == (304, b""), header
            assert answer.headers["etag"] == etag
        assert service.get(path, if_none_match='"other"').status_code == 200
        assert first.headers["cache-control"].startswith("private, max-age=")
        assert "x-api-key" in first.headers["vary"]

    def test_the_etag_changes_with_what_is_shown(self) -> None:
        store = TimedStore(view([event("a")])).then(NOW, view([event("a", title="New")]))
        with serving(store) as service:
            tags = [service.get(path).headers["etag"] for path in ("/v2/events", "/v2/events/a")]
            service.clock.now = NOW + timedelta(minutes=2)
            for path, etag in zip(("/v2/events", "/v2/events/a"), tags, strict=True):
                answer = service.get(path, if_none_match=etag)
                assert answer.status_code == 200
                assert answer.headers["etag"] != etag

    def test_plans_have_etags_of_their_own(self, service: Service) -> None:
        tags = {
            service.get("/v2/events", plan).headers["etag"] for plan in ("free", "pro", "elite")
        }
        assert len(tags) == 3

    def test_gzip_is_the_same_body(self, service: Service) -> None:
        for path in ("/v2/events", "/v2/events/export"):
            packed = service.get(path, accept_encoding="gzip")
            plain = service.get(path, accept_encoding="identity")
            assert packed.headers["content-encoding"] == "gzip"
            assert "content-encoding" not in plain.headers
            assert packed.content == plain.content


class TestExport:
    def rows(self, answer: httpx.Response) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(answer.text, newline="")))

    def test_it_has_the_columns_of_the_event_fields(self, service: Service) -> None:
        answer = service.get("/v2/events/export")
        assert answer.headers["content-type"].startswith("text/csv")
        assert (
            answer.headers["content-disposition"] == 'attachment; filename="events-2026-06-15.csv"'
        )
        assert answer.content.split(b"\r\n")[0].decode() == ",".join(EVENT_FIELDS)
        assert self.rows(answer)[0] == {
            "id": "e000",
            "slug": "slug-e000",
            "title": "Title of e000",
            "description": "Description of e000",
            "displayedDate": "16 Jun",
            "date": "2026-06-15T00:00:00Z",
            "dateEnd": "",
            "dateType": "date",
            "isEstimated": "false",
            "categories": "Release;Hard Fork",
            "coins": "first;hundredth",
            "impact": "6.5",
            "impactSummary": "It matters.",
            "sourceUrl": "https://source.example/1",
            "snapshotUrl": "https://snapshot.example/1.png",
            "lastVerifiedAt": "2026-05-03T00:00:00Z",
            "createdAt": "2026-05-01T00:00:00Z",
            "updatedAt": "2026-05-02T00:00:00Z",
        }

    def test_without_bounds_it_covers_the_whole_window(self) -> None:
        names = {"old": TODAY - 2000 * DAY, "now": TODAY, "far": TODAY + 2000 * DAY}
        with serving(view([event(name, at) for name, at in names.items()])) as service:
            for query, ids in (
                ("", ["old", "now", "far"]),
                ("?from=2026-01-01", ["now", "far"]),
                ("?to=2026-12-31", ["old", "now"]),
                ("?from=2026-01-01&to=2026-12-31", ["now"]),
                ("?limit=1&cursor=anything", ["old", "now", "far"]),
                ("?coins=nope", []),
            ):
                found = self.rows(service.get(f"/v2/events/export{query}"))
                assert [row["id"] for row in found] == ids, query

    def test_it_has_the_filters_and_order_of_the_list(self, service: Service) -> None:
        for query in ("impactMin=7", "coins=first", "keyword=e01", "sortBy=impact_desc"):
            rows = self.rows(service.get(f"/v2/events/export?{query}"))
            assert [row["id"] for row in rows] == service.all_ids(f"/v2/events?{query}")
        assert service.get("/v2/events/export?impactMin=x").status_code == 400

    def test_it_is_the_snapshot_of_five_past_midnight(self) -> None:
        store = TimedStore(view([event("old")])).then(SNAPSHOT, view([event("of-the-day")]))
        store.then(NOW - DAY, view([])).views.sort(key=lambda pair: pair[0])
        with serving(store) as service:
            answer = service.get("/v2/events/export")
            assert answer.headers["last-modified"] == "Mon, 15 Jun 2026 00:05:00 GMT"
            assert [row["id"] for row in self.rows(answer)] == ["of-the-day"]

    @pytest.mark.parametrize(
        ("now", "day"), [((0, 0, 0), 14), ((0, 5, 59), 14), ((0, 6, 0), 15), ((23, 59, 59), 15)]
    )
    def test_it_is_published_with_the_plans_freshness(
        self, now: tuple[int, int, int], day: int
    ) -> None:
        at = datetime(2026, 6, 15, *now, tzinfo=UTC)
        with serving(view(), now=at) as service:
            answer = service.get("/v2/events/export")
            assert answer.headers["last-modified"].startswith(
                f"{'Sun' if day == 14 else 'Mon'}, {day}"
            )
            assert service.store.requested == [SNAPSHOT - (15 - day) * DAY]

    def test_awkward_text_survives(self) -> None:
        title = 'a "quoted", line;\r\nbroken\n – ünï'
        with serving(view([event("a", title=title, description="\ttab ")])) as service:
            row = self.rows(service.get("/v2/events/export"))[0]
            assert (row["title"], row["description"]) == (title, "\ttab ")


class TestCors:
    def test_it_is_off_by_default(self, service: Service) -> None:
        answer = service.get("/v2/events", origin="https://app.example")
        assert not [name for name in answer.headers if name.startswith("access-control")]

    def test_a_named_origin_may_send_its_key(self) -> None:
        options = ServerOptions(cors_origins=("https://app.example",))
        with serving(view([event("a")]), options=options) as service:
            preflight = service.client.options(
                "/v2/events",
                headers={
                    "Origin": "https://app.example",
                    "Access-Control-Request-Method": "GET",
                    "Access-Control-Request-Headers": "x-api-key",
                },
            )
            assert preflight.status_code == 200
            assert preflight.headers["access-control-allow-origin"] == "https://app.example"
            answer = service.get("/v2/events", origin="https://app.example")
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            other = service.get("/v2/events", origin="https://evil.example")
            assert "access-control-allow-origin" not in other.headers


class TestFixedHeaders:
    def test_the_date_is_the_services_on_every_answer(self, service: Service) -> None:
        for path in ("/v2/events", "/v2/nope", "/v1/events", "/healthz", "/v2/events?limit=0"):
            dates = service.get(path).headers.get_list("date")
            assert dates == ["Mon, 15 Jun 2026 10:00:00 GMT"], path

    def test_a_deprecated_version_has_its_headers_on_every_answer(self) -> None:
        options = ServerOptions(deprecation="@1767225600", sunset="Fri, 01 Jan 2027 00:00:00 GMT")
        with serving(view(), options=options) as service:
            for path in ("/v2/events", "/v2/nope", "/v2/events?limit=0"):
                headers = service.get(path).headers
                assert headers["deprecation"] == "@1767225600"
                assert headers["sunset"] == "Fri, 01 Jan 2027 00:00:00 GMT"


def test_metrics_count_by_route_plan_and_status() -> None:
    with serving(view([event("a")])) as service:
        for path, key in (
            *(("/v2/events", "pro"), ("/v2/events/a", "pro"), ("/v2/events/b", "pro")),
            *(("/v2/secret-looking-path", "pro"), ("/v2/events", "unknown-key")),
        ):
            service.get(path, key)
        text = service.client.get("/metrics").text
        for route, plan, status in (
            *(("events", "pro", 200), ("event", "pro", 200), ("event", "pro", 404)),
            *(("other", "pro", 404), ("other", "none", 403)),
        ):
            labels = f'plan="{plan}",route="{route}",status="{status}"'
            assert f"almanac_requests_total{{{labels}}} 1.0" in text
        assert "secret-looking-path" not in text
        assert "unknown-key" not in text


def test_healthz_and_the_root() -> None:
    with serving(view()) as service:
        assert service.client.get("/healthz").json() == {"status": "ok"}
        root = service.client.get("/")
        assert (root.status_code, root.headers["location"]) == (307, "/docs")
