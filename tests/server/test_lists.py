"""Filters, order, paging and cursors of the lists, and single look-ups, over loopback HTTP."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from catalog.server.routes import CursorSigner
from tests.server.small_catalog import (
    DAY,
    NOW,
    SECOND,
    TODAY,
    Service,
    TimedStore,
    coin,
    event,
    serving,
    view,
)

LONG = 40 * DAY


pytestmark = pytest.mark.usefixtures("kept_in")


@pytest.fixture(scope="module")
def service(kept_in: str) -> Iterator[Service]:
    events = [
        event("began-long-ago", TODAY - LONG, date_end=TODAY + SECOND, categories=("airdrop",)),
        event("ended-yesterday", TODAY - 2 * DAY, date_end=TODAY - SECOND),
        event("ends-today", TODAY - DAY, date_end=TODAY),
        event("now", TODAY, coins=("next",), impact=2.0),
        event("same-date-b", TODAY + DAY, impact=9.0, title="Übergang & <Größe>"),
        event("same-date-a", TODAY + DAY, impact=None, description=None),
        event("noon", TODAY + DAY + timedelta(hours=12), coins=("first", "next"), impact=5.0),
        event("last-second", TODAY + 2 * DAY - SECOND, categories=("fork",), impact=9.0),
        event("next-midnight", TODAY + 2 * DAY, impact=10.0),
        event("far", TODAY + 300 * DAY, is_estimated=True, date_type="quarter", impact=0.0),
    ]
    cancelled = {f"cancelled-{n}": NOW - 100 * DAY + n * DAY for n in range(100)}
    cancelled["twin-a"] = cancelled["twin-b"] = NOW - timedelta(hours=1)
    with serving(view(events, cancelled=cancelled)) as service:
        yield service


ALL = [
    *("began-long-ago", "ends-today", "now", "same-date-a", "same-date-b"),
    *("noon", "last-second", "next-midnight", "far"),
]


BY_IMPACT = [
    *("next-midnight", "same-date-b", "last-second", "began-long-ago", "ends-today"),
    *("noon", "now", "far", "same-date-a"),
]


class TestFilters:
    @pytest.mark.parametrize(
        ("query", "ids"),
        [
            ("", ALL),
            ("limit=100", ALL),
            ("to=2026-06-15", ["began-long-ago", "ends-today", "now"]),
            ("to=2026-06-16", ALL[:7]),
            ("to=2026-06-16T23:59:59Z", ALL[:7]),
            ("to=2026-06-16T23:59:58Z", ALL[:6]),
            (
                "from=2026-06-16&to=2026-06-16",
                ["same-date-a", "same-date-b", "noon", "last-second"],
            ),
            ("from=2026-06-16T12:00:00Z&to=2026-06-16", ["noon", "last-second"]),
            ("from=2026-06-16T12:00:01Z&to=2026-06-16", ["last-second"]),
            ("from=2026-06-16T12:00:00Z&to=2026-06-16T12:00:00Z", ["noon"]),
            ("from=2026-06-13&to=2026-06-14", ["began-long-ago", "ended-yesterday", "ends-today"]),
            ("from=2026-06-15T00:00:01Z&to=2026-06-15", ["began-long-ago"]),
            ("from=2026-06-15T00:00:02Z&to=2026-06-15", []),
            ("from=2026-05-01&to=2026-05-07", ["began-long-ago"]),
            ("to=2026-01-01", []),
            ("from=2026-06-17", ["next-midnight", "far"]),
            ("coins=next", ["now", "noon"]),
            ("coins=next,first", ALL),
            ("coins=first,next,first", ALL),
            ("coins=unranked", []),
            ("coins=no-such-coin", []),
            ("coins=no-such-coin,next", ["now", "noon"]),
            ("categories=airdrop", ["began-long-ago"]),
            ("categories=airdrop,fork", ALL),
            ("categories=Release", []),
            ("categories=nope", []),
            ("coins=next&categories=release", ["now", "noon"]),
            ("coins=next&categories=airdrop", []),
            ("impactMin=9", ["same-date-b", "last-second", "next-midnight"]),
            ("impactMin=10", ["next-midnight"]),
            ("impactMin=0", [name for name in ALL if name != "same-date-a"]),
            ("coins=next&impactMin=5", ["noon"]),
            ("keyword=ÜBERGANG", ["same-date-b"]),
            ("keyword=%26%20%3Cgrösse%3E", ["same-date-b"]),
            ("keyword=description%20of%20noon", ["noon"]),
            ("keyword=of%20n", ["now", "noon", "next-midnight"]),
            ("keyword=noon%0Adescription", []),
            ("keyword=fir", []),
            ("exchanges=1&showOnly=x&translations=de&page=7&max=1", ALL),
        ],
    )
    def test_filters_combine_with_and(self, service: Service, query: str, ids: list[str]) -> None:
        answer = service.get(f"/v2/events?{query}").json()
        assert [row["id"] for row in answer["data"]] == ids
        assert answer["meta"]["total"] == len(ids)

    @pytest.mark.parametrize(
        ("query", "ids"),
        [
            ("", BY_IMPACT),
            ("coins=next", ["noon", "now"]),
            ("categories=airdrop", ["began-long-ago"]),
            ("to=2026-06-16", [name for name in BY_IMPACT if name not in ("next-midnight", "far")]),
            ("impactMin=5", BY_IMPACT[:6]),
        ],
    )
    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    def test_impact_desc_breaks_ties_by_date_and_puts_the_unscored_last(
        self, service: Service, query: str, ids: list[str], limit: int
    ) -> None:
        pages = service.pages(f"/v2/events?sortBy=impact_desc&limit={limit}&{query}")
        assert [row["id"] for page in pages for row in page["data"]] == ids
        assert {page["meta"]["total"] for page in pages} == {len(ids)}

    def test_an_empty_window_is_empty_in_every_order(self, service: Service) -> None:
        for order in ("date_asc", "impact_desc"):
            page = service.get(f"/v2/events?to=2026-06-14&sortBy={order}&limit=1").json()
            assert (page["data"], page["meta"]["total"], page["meta"]["cursor"]) == ([], 0, None)

    @pytest.mark.parametrize(
        "query",
        [
            *("limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "limit=1.0", "limit=1e1"),
            *("limit=%D9%A1", "limit=+5", "limit=5%00", "limit=99999999999999999999"),
            *(
                "from=yesterday",
                "from=2026-02-30",
                "from=2026-6-1",
                "from=",
                "from=2026-06-15T10:00",
            ),
            *("to=2026-06-15T25:00:00Z", "to=2026-06-15T10:00:00%2B02:00", "to=1750000000"),
            *("from=2026-06-16&to=2026-06-15", "from=2026-06-15T10:00:01Z&to=2026-06-15T10:00:00Z"),
            *(
                "impactMin=nan",
                "impactMin=inf",
                "impactMin=-1",
                "impactMin=10.1",
                "impactMin=1e999",
            ),
            *("sortBy=date", "sortBy=", "keyword=", "coins=", "coins=a,,b", "coins=,"),
            *("coins=" + ",".join(f"c{n}" for n in range(101)), "keyword=" + "x" * 201),
            *("limit=1&limit=2", "cursor=", "cursor=AAAA", "cursor=%FF", "cursor=" + "A" * 2000),
        ],
    )
    def test_invalid_parameters_are_a_400_that_names_them(
        self, service: Service, query: str
    ) -> None:
        answer = service.get(f"/v2/events?{query}")
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["code"] == "invalid_request"
        assert query.split("=")[0] in error["message"] or "&" in query

    def test_a_hundred_coins_are_allowed(self, service: Service) -> None:
        slugs = ",".join(f"c{n}" for n in range(99)) + ",next"
        assert service.ids(f"/v2/events?coins={slugs}") == ["now", "noon"]


class TestPaging:
    @pytest.mark.parametrize("limit", [1, 2, 3, 8, 9, 10, 100])
    @pytest.mark.parametrize(
        "query",
        [
            "",
            "&sortBy=impact_desc",
            "&coins=first,next",
            "&impactMin=2",
            "&keyword=title",
            "&to=2026-06-16",
        ],
    )
    def test_pages_join_to_the_whole_list(self, service: Service, limit: int, query: str) -> None:
        whole = service.ids(f"/v2/events?limit=100{query}")
        pages = service.pages(f"/v2/events?limit={limit}{query}")
        assert [row["id"] for page in pages for row in page["data"]] == whole
        assert {page["meta"]["total"] for page in pages} == {len(whole)}
        assert {page["meta"]["limit"] for page in pages} == {limit}
        assert [len(page["data"]) for page in pages[:-1]] == [limit] * (len(pages) - 1)
        assert 1 <= len(pages[-1]["data"]) <= limit

    def test_the_default_limit_is_fifty(self) -> None:
        many = [event(f"e{n:03}", TODAY + DAY) for n in range(120)]
        with serving(view(many, cancelled={f"c{n}": NOW - DAY for n in range(60)})) as service:
            for path, total in (("/v2/events", 120), ("/v2/events/cancellations", 60)):
                page = service.get(path).json()
                assert (len(page["data"]), page["meta"]["limit"]) == (50, 50)
                assert page["meta"]["total"] == total
            assert len(service.get("/v2/events?limit=100").json()["data"]) == 100
            assert len(service.get("/v2/coins").json()["data"]) == 4
            assert service.get("/v2/coins?limit=200").status_code == 200
            assert service.get("/v2/coins?limit=201").status_code == 400
            assert service.get("/v2/events/cancellations?limit=101").status_code == 400

    def test_rows_added_or_removed_between_two_pages_never_shift_a_page(self) -> None:
        first = [event(f"e{n}", TODAY + n * DAY) for n in range(10)]
        second = [
            event("before", TODAY + SECOND),
            *(row for row in first if row.id not in ("e1", "e3", "e6")),
            event("after", TODAY + 5 * DAY + SECOND),
        ]
        store = TimedStore(view(first)).then(NOW, view(second))
        with serving(store) as service:
            page = service.get("/v2/events?limit=4").json()
            assert [row["id"] for row in page["data"]] == ["e0", "e1", "e2", "e3"]
            service.clock.now = NOW + timedelta(minutes=2)
            following = f"/v2/events?limit=4&cursor={page['meta']['cursor']}"
            assert service.ids(following) == ["e4", "e5", "after", "e7"]

    def test_a_page_may_have_another_limit_than_the_one_before(self, service: Service) -> None:
        cursor = service.get("/v2/events?limit=2").json()["meta"]["cursor"]
        assert service.ids(f"/v2/events?limit=5&cursor={cursor}") == ALL[2:7]

    def test_an_altered_cursor_is_refused_wherever_it_is_altered(self, service: Service) -> None:
        cursor = service.get("/v2/events?limit=2").json()["meta"]["cursor"]
        assert service.ids(f"/v2/events?limit=2&cursor={cursor}") == ALL[2:4]
        for place in range(len(cursor)):
            other = "A" if cursor[place] != "A" else "B"
            altered = cursor[:place] + other + cursor[place + 1 :]
            answer = service.get(f"/v2/events?limit=2&cursor={altered}")
            assert answer.json()["error"]["code"] == "invalid_request", place
        for altered in (cursor[:-1], cursor + "A", cursor + "=", cursor[4:]):
            assert service.get(f"/v2/events?limit=2&cursor={altered}").status_code == 400

    @pytest.mark.parametrize(
        "query",
        [
            *(
                "coins=first",
                "categories=release",
                "keyword=a",
                "impactMin=0",
                "sortBy=impact_desc",
            ),
            *("from=2026-06-15", "to=2027-06-15"),
        ],
    )
    def test_a_cursor_is_bound_to_its_filters(self, service: Service, query: str) -> None:
        bare = service.get("/v2/events?limit=1").json()["meta"]["cursor"]
        assert service.get(f"/v2/events?limit=1&{query}&cursor={bare}").status_code == 400
        own = service.get(f"/v2/events?limit=1&{query}").json()["meta"]["cursor"]
        assert service.get(f"/v2/events?limit=1&{query}&cursor={own}").status_code == 200
        assert service.get(f"/v2/events?limit=1&cursor={own}").status_code == 400

    def test_a_cursor_of_another_list_or_another_server_is_refused(self, service: Service) -> None:
        coins = service.get("/v2/coins?limit=1").json()["meta"]["cursor"]
        events = service.get("/v2/events?limit=1").json()["meta"]["cursor"]
        assert service.get(f"/v2/events?cursor={coins}").status_code == 400
        assert service.get(f"/v2/coins?cursor={events}").status_code == 400
        assert service.get(f"/v2/events/cancellations?cursor={events}").status_code == 400
        foreign = CursorSigner(b"the secret of another server").seal(
            "coins", (None, None), (1, "a")
        )
        assert service.get(f"/v2/coins?cursor={foreign}").status_code == 400
        forged = base64.urlsafe_b64encode(b"\x00" * 40).decode()
        assert service.get(f"/v2/coins?cursor={forged}").status_code == 400


class TestCoins:
    def test_rank_ascending_and_the_unranked_last(self, service: Service) -> None:
        for limit in (1, 2, 3, 4):
            pages = service.pages(f"/v2/coins?limit={limit}")
            slugs = [row["slug"] for page in pages for row in page["data"]]
            assert slugs == ["first", "hundredth", "next", "unranked"]

    @pytest.mark.parametrize(
        ("query", "slugs"),
        [
            ("q=FIR", ["first"]),
            ("q=next", ["next"]),
            ("q=ex", ["next"]),
            ("q=hun", ["hundredth"]),
            ("q=r", ["first", "hundredth", "unranked"]),
            ("q=zzz", []),
            ("tracked=true", ["first", "hundredth", "unranked"]),
            ("tracked=false", ["next"]),
            ("tracked=false&q=first", []),
            ("tracked=true&q=d", ["hundredth", "unranked"]),
        ],
    )
    def test_search_is_substring_over_name_and_symbol(
        self, service: Service, query: str, slugs: list[str]
    ) -> None:
        pages = service.pages(f"/v2/coins?limit=1&{query}")
        assert [row["slug"] for page in pages for row in page["data"]] == slugs
        assert {page["meta"]["total"] for page in pages} == {len(slugs)}

    def test_a_search_does_not_run_from_the_name_into_the_symbol(self) -> None:
        with serving(view(coins=[coin("abc", 1, name="Xy")])) as service:
            assert service.get("/v2/coins?q=ya").json()["data"] == []
            assert service.get("/v2/coins?q=y%0Aa").json()["data"] == []
            assert service.get("/v2/coins?q=%0A").json()["data"] == []
            assert len(service.get("/v2/coins?q=xy").json()["data"]) == 1
            assert len(service.get("/v2/coins?q=ABC").json()["data"]) == 1

    @pytest.mark.parametrize("query", ["tracked=1", "tracked=True", "tracked=", "q=", "limit=0"])
    def test_invalid_parameters(self, service: Service, query: str) -> None:
        assert service.get(f"/v2/coins?{query}").status_code == 400

    def test_one_coin_is_bare_and_an_unknown_one_is_not_found(self, service: Service) -> None:
        assert service.get("/v2/coins/next").json() == {
            "slug": "next",
            "symbol": "nex",
            "name": "Next",
            "rank": 101,
            "tracked": False,
            "iconUrl": "https://i.example/next",
            "upcomingCount": 2,
            "majorCount": 0,
            "peakImpact": 5.0,
        }
        assert service.get("/v2/coins/unranked").json()["rank"] is None
        for slug in ("nope", "First", "a%2Fb", "%00", "first%20", "ü"):
            assert service.get(f"/v2/coins/{slug}").status_code == 404


class TestCancellations:
    def test_the_default_is_the_last_ninety_days(self, service: Service) -> None:
        ids = service.all_ids("/v2/events/cancellations?limit=7")
        assert ids == [f"cancelled-{n}" for n in range(10, 100)] + ["twin-a", "twin-b"]

    def test_since_is_inclusive(self, service: Service) -> None:
        at = NOW - 5 * DAY
        for since, first in ((at, "cancelled-95"), (at + SECOND, "cancelled-96")):
            path = f"/v2/events/cancellations?since={since:%Y-%m-%dT%H:%M:%SZ}"
            page = service.get(path).json()
            assert page["data"][0]["id"] == first
            assert page["meta"]["total"] == len(page["data"])
        assert service.ids("/v2/events/cancellations?since=2026-06-15") == ["twin-a", "twin-b"]

    def test_a_row_has_the_id_and_the_cancelled_at(self, service: Service) -> None:
        row = service.get("/v2/events/cancellations?limit=1").json()["data"][0]
        assert row == {"id": "cancelled-10", "cancelledAt": "2026-03-17T10:00:00Z"}

    def test_pages_over_equal_instants_neither_skip_nor_repeat(self) -> None:
        cancelled = {f"c{n}": NOW - DAY for n in range(9)}
        with serving(view(cancelled=cancelled)) as service:
            for plan in ("free", "elite"):
                pages = service.pages("/v2/events/cancellations?limit=2", plan)
                assert [row["id"] for page in pages for row in page["data"]] == sorted(cancelled)
                assert {page["meta"]["total"] for page in pages} == {9}

    def test_a_bad_since_is_a_400(self, service: Service) -> None:
        for since in ("", "now", "2026-13-01"):
            assert service.get(f"/v2/events/cancellations?since={since}").status_code == 400


class TestSingleEvent:
    def test_a_cancelled_event_is_a_410_with_its_cancelled_at(self, service: Service) -> None:
        for plan in ("free", "elite"):
            answer = service.get("/v2/events/twin-a", plan)
            assert answer.status_code == 410
            body = answer.json()
            assert body["error"].pop("requestId").startswith("req_")
            assert body == {
                "error": {
                    "code": "event_cancelled",
                    "message": "The event was cancelled",
                    "docs": "/docs#error-event_cancelled",
                },
                "message": "The event was cancelled",
                "id": "twin-a",
                "cancelledAt": "2026-06-15T09:00:00Z",
            }

    @pytest.mark.parametrize(
        "event_id", ["nope", "NOW", "now ", "%00", "a%2Fb", "..", "%FF", "ü" * 50]
    )
    def test_an_unknown_id_is_not_found(self, service: Service, event_id: str) -> None:
        answer = service.get(f"/v2/events/{quote(event_id, safe='%')}")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "not_found"

    def test_a_running_event_is_inside_every_window(self, service: Service) -> None:
        assert service.get("/v2/events/began-long-ago", "free").status_code == 200
        assert service.get("/v2/events/ended-yesterday", "free").status_code == 404
        assert service.get("/v2/events/ended-yesterday", "pro").status_code == 200


def test_categories_are_a_list_with_ids_and_names(service: Service) -> None:
    answer = service.get("/v2/categories", "free")
    assert answer.json() == {
        "data": [
            {"id": "release", "name": "Release"},
            {"id": "airdrop", "name": "Airdrop"},
            {"id": "fork", "name": "Hard Fork"},
        ],
        "meta": {"total": 3, "limit": 3, "cursor": None},
    }
    assert answer.headers["cache-control"] == "private, max-age=86400"


def test_defaults_follow_the_service_day() -> None:
    events = [event("yesterday", TODAY), event("today", TODAY + DAY)]
    with serving(view(events), now=datetime(2026, 6, 15, 23, 59, 59, tzinfo=UTC)) as service:
        assert service.ids("/v2/events") == ["yesterday", "today"]
        service.clock.now += SECOND
        assert service.ids("/v2/events") == ["today"]
