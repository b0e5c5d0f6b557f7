from collections.abc import Iterator
from datetime import timedelta

import pytest

from catalog.server.routes import write_cursor
from tests.server.bare_server import NOW
from tests.server.small_catalog import DAY, SECOND, TODAY, Service, TimedStore, event, serving, view


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    events = [
        event("began-long-ago", TODAY - 40 * DAY, date_end=TODAY + SECOND, categories=("airdrop",)),
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
    # A cancellation that became known long after it is in the list since then; these are not.
    later = [
        (at, view(events, cancelled={k: v for k, v in cancelled.items() if v <= at}))
        for at in sorted({*cancelled.values()})
    ]
    with serving(TimedStore(view(events), *later)) as service:
        yield service


ALL = [
    *("began-long-ago", "ends-today", "now", "same-date-a", "same-date-b"),
    *("noon", "last-second", "next-midnight", "far"),
]
BY_IMPACT = [
    *("next-midnight", "same-date-b", "last-second", "began-long-ago", "ends-today"),
    *("noon", "now", "far", "same-date-a"),
]


def test_filters_combine_with_and_and_pages_join_to_the_whole_list(service: Service) -> None:
    """What a filter selects is in the tests of the store."""
    for query, ids in {
        "": ALL,
        "from=2026-06-16T12:00:00Z&to=2026-06-16T12:00:00Z": ["noon"],
        "from=2026-06-13&to=2026-06-14": ["began-long-ago", "ended-yesterday", "ends-today"],
        "coins=next,no-such-coin": ["now", "noon"],
        "categories=airdrop,fork": ALL,
        "coins=next&categories=airdrop": [],
        "impactMin=9": ["same-date-b", "last-second", "next-midnight"],
        "keyword=%26%20%3Cgrösse%3E": ["same-date-b"],
        "exchanges=1&showOnly=x&page=7&max=1": ALL,
        "sortBy=impact_desc": BY_IMPACT,
    }.items():
        pages = service.pages(f"/v2/events?limit=2&{query}")
        assert [row["id"] for page in pages for row in page["data"]] == ids, query
        assert {page["meta"]["total"] for page in pages} == {len(ids)}
        assert {page["meta"]["limit"] for page in pages} == {2}


def test_invalid_parameters_are_a_400_that_names_them(service: Service) -> None:
    """The values that each parameter admits are in the tests of the contract."""
    cursors = ("cursor=", "cursor=AAAA", "cursor=%FF", "cursor=" + "A" * 2000)
    for query in ("limit=101", "from=2026-06-16&to=2026-06-15", "coins=a,,b", *cursors):
        answer = service.get(f"/v2/events?{query}")
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["code"] == "invalid_request"
        assert query.split("=")[0] in error["message"]
    for path in ("coins?tracked=1", "coins?limit=201", "events/cancellations?since=now"):
        assert service.get(f"/v2/{path}").status_code == 400


def test_rows_added_or_removed_between_two_pages_never_shift_a_page() -> None:
    first = [event(f"e{n}", TODAY + n * DAY) for n in range(10)]
    second = [
        event("before", TODAY + SECOND),
        *(row for row in first if row.id not in ("e1", "e3", "e6")),
        event("after", TODAY + 5 * DAY + SECOND),
    ]
    with serving(TimedStore(view(first), (NOW, view(second)))) as service:
        page = service.get("/v2/events?limit=4").json()
        assert [row["id"] for row in page["data"]] == ["e0", "e1", "e2", "e3"]
        service.clock.now = NOW + timedelta(minutes=2)
        following = f"/v2/events?limit=4&cursor={page['meta']['cursor']}"
        assert service.ids(following) == ["e4", "e5", "after", "e7"]


def test_a_cursor_is_of_a_list_its_filters_and_a_plan(service: Service) -> None:
    coins = service.get("/v2/coins?limit=1").json()["meta"]["cursor"]
    bare = service.get("/v2/events?limit=2").json()["meta"]["cursor"]
    assert service.ids(f"/v2/events?limit=5&cursor={bare}") == ALL[2:7]
    forged = write_cursor("events", (), (float("nan"), ""))
    filters = ("coins=first", "keyword=a", "impactMin=0", "sortBy=impact_desc", "to=2027-01-01")
    for path in (
        *(f"events?cursor={cursor}" for cursor in (coins, forged, f"{bare}x")),
        *(f"{name}?cursor={bare}" for name in ("coins", "events/cancellations")),
        *(f"events?{query}&cursor={bare}" for query in filters),
    ):
        refused = service.get(f"/v2/{path}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    assert service.get(f"/v2/events?cursor={bare}", "enterprise").status_code == 400


def test_an_unknown_id_is_not_found_and_a_running_event_is(service: Service) -> None:
    for unknown in ("nope", "NOW", "now%20", "%00", "a%2Fb", "..", "%FF", "%C3%BC"):
        for path in ("/v2/events/", "/v2/coins/"):
            answer = service.get(path + unknown)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    for name, plan, status in (
        ("began-long-ago", "free", 200),
        ("ended-yesterday", "free", 404),
        ("ended-yesterday", "pro", 200),
    ):
        assert service.get(f"/v2/events/{name}", plan).status_code == status


def test_coins_are_by_rank_with_the_unranked_last_and_one_is_bare(service: Service) -> None:
    for query, slugs in {
        "": ["first", "hundredth", "next", "unranked"],
        "q=FIR": ["first"],
        "tracked=false": ["next"],
        "tracked=true&q=d": ["hundredth", "unranked"],
    }.items():
        pages = service.pages(f"/v2/coins?limit=1&{query}")
        assert [row["slug"] for page in pages for row in page["data"]] == slugs
        assert {page["meta"]["total"] for page in pages} == {len(slugs)}
    assert service.get("/v2/coins/next").json() == {
        **{"slug": "next", "symbol": "nex", "name": "Next", "rank": 101, "tracked": False},
        **{"iconUrl": "https://i.example/next", "upcomingCount": 2, "majorCount": 0},
        "peakImpact": 5.0,
    }


def test_cancellations_are_by_default_those_of_ninety_days(service: Service) -> None:
    pages = service.pages("/v2/events/cancellations?limit=7", "free")
    ids = [row["id"] for page in pages for row in page["data"]]
    assert ids == [*(f"cancelled-{n}" for n in range(10, 100)), "twin-a", "twin-b"][: len(ids)]
    assert len(ids) >= 90
    for since, first in ((NOW - 5 * DAY, 95), (NOW - 5 * DAY + SECOND, 96)):
        path = f"/v2/events/cancellations?since={since:%Y-%m-%dT%H:%M:%SZ}"
        page = service.get(path).json()
        assert page["data"][0]["id"] == f"cancelled-{first}"
        assert page["meta"]["total"] == len(page["data"])
    assert service.ids("/v2/events/cancellations?since=2026-06-15") == ["twin-a", "twin-b"]


def test_a_late_cancellation_is_in_the_list_since_then() -> None:
    late = view(cancelled={"late": NOW - 300 * DAY})
    with serving(TimedStore(view([event("late")]), (NOW - 2 * DAY, late))) as service:
        for days, ids in ((3, ["late"]), (1, [])):
            since = (NOW - days * DAY).date()
            assert service.ids(f"/v2/events/cancellations?since={since}") == ids


def test_categories_are_a_list_with_ids_and_names(service: Service) -> None:
    answer = service.get("/v2/categories", "free")
    names = {"airdrop": "Airdrop", "fork": "Hard Fork", "release": "Release"}
    assert answer.json() == {
        "data": [{"id": key, "name": name} for key, name in names.items()],
        "meta": {"total": 3, "limit": 3, "cursor": None},
    }
    assert answer.headers["cache-control"] == "private, max-age=86400"
