import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from starlette.testclient import TestClient

from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.application.web.handmade_site import DAY, FIRST, PULLS, serve_pages
from tests.warehouse.answers.handmade import Absence, Known


def at(day: int, hour: int = 0, month: int = 3) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


def event(name: str, date: datetime, **more: object) -> Known:
    shown = {"title": f"Title {name}", "displayed_date": f"{date:%d %b}", **more}
    return Known(event_id=name, known_from=FIRST, date=date, **shown)  # type: ignore[arg-type]


QUARTER = {"is_estimated": True, "date_type": "quarter", "displayed_date": "Q1 2026"}
VERSIONS = [
    event("today", at(4), categories=("AMA",), coins=("bitcoin",), impact=1.0, impact_band="Low"),
    event("clock", at(5, 14), categories=("Unlock",), coins=("dash",), impact_band="High"),
    event("next", at(10), categories=("Unlock",), coins=("other-btc",), impact=8.0),
    event("far", at(20, month=9), categories=("Listing",)),
    event("open", datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC), **QUARTER),
    event("over", at(1)),
    event("earlier", at(4, 8), categories=("AMA",)),
    event("ran", at(2), date_end=at(5), categories=("Contest",), displayed_date="02 Mar → 05 Mar"),
    event("gone", at(6), status="cancelled"),
    event("moved", at(12), displayed_date="12 Mar"),
    Known(
        event_id="moved",
        version=2,
        known_from=FIRST + 2 * DAY,
        change_kinds=("rescheduled",),
        changed_fields=("date", "displayed_date"),
        title="Title moved",
        date=at(6),
        displayed_date="06 Mar",
    ),
    Known(
        event_id="late",
        known_from=FIRST + 3 * DAY,
        change_kinds=("created",),
        title="Title late",
        date=at(7),
        displayed_date="07 Mar",
    ),
]
COINS = [
    NamedCoin("bitcoin", "btc", "Bitcoin", 1),
    NamedCoin("other-btc", "btc", "Other", 900),
    NamedCoin("dash", "dash", "Dash", 50),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with serve_pages(tmp_path_factory.mktemp("p"), VERSIONS, coins=COINS) as client:
        yield client


ROW = re.compile(r'<tr( class="gone")?>\n<td class="time">(.*?)</td>.*?href="/event/([^"?]+)', re.S)


def read_rows(page: str) -> list[tuple[str, str, bool]]:
    """Return id, text of its time, and whether it is struck through, of each event."""
    rows = ROW.findall(page)
    return [(name, re.sub("<.*?>", "", when).strip(), bool(gone)) for gone, when, name in rows]


def shown(client: TestClient, **parameters: str) -> list[str]:
    answer = client.get("/", params=parameters)
    assert answer.status_code == 200, answer.text
    return [name for name, _, is_gone in read_rows(answer.text) if not is_gone]


def list_gone(client: TestClient, **parameters: str) -> list[str]:
    return [
        name for name, _, is_gone in read_rows(client.get("/", params=parameters).text) if is_gone
    ]


def test_events_are_under_their_day_and_estimated_ones_apart(client: TestClient) -> None:
    page = client.get("/").text
    assert re.findall(r'scope="rowgroup">(?:<time datetime="([^"]+)")?', page) == [
        *("2026-03-04", "2026-03-04", "2026-03-05", "2026-03-06", "2026-03-07", "2026-03-10"),
        *("", ""),
    ]
    assert {name: when for name, when, _ in read_rows(page)} == {
        **{"earlier": "08:00", "today": "all day", "clock": "14:00", "moved": "all day"},
        **{"late": "all day", "next": "all day", "ran": "02 Mar – 05 Mar", "open": "Q1 2026"},
    }
    before, after = page.split('<h2 id="open">')
    assert "Title open" not in before
    assert "Some time in a quarter" in after
    assert not re.search(r"time[^>]*2026-03-31", page)
    for text in ("BTC (Bitcoin)", "BTC (Other)", "DASH"):
        assert f"<bdi>{text}</bdi>" in page
    assert "Low below 2.5, Mid below 5.0, High below 7.5, Critical from 7.5." in page


def test_earlier_today_is_collapsed_and_past_days_can_be_browsed(client: TestClient) -> None:
    page = client.get("/").text
    folded = re.findall(r'<details class="earlier">.*?</details>', page, re.S)
    assert [name for name, *_ in read_rows("".join(folded))] == ["earlier"]
    past = {"from": "2026-03-01", "to": "2026-03-06"}
    assert shown(client, **past) == ["over", "ran", "today", "earlier", "clock", "moved", "open"]
    page = client.get("/", params=past | {"to": "2026-03-03"}).text
    assert (list_gone(client, **past), "Earlier today" in page) == ([], False)
    links = dict(re.findall(r'<a href="([^"]*)">[^\n]*?(Earlier|Later) days', page))
    assert {unescape(link): way for link, way in links.items()} == {
        "/?from=2026-02-26&to=2026-02-28": "Earlier",
        "/?from=2026-03-04&to=2026-03-06": "Later",
    }


def select(
    found: Callable[..., list[str]], client: TestClient, table: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Return what each query of a table selects."""
    return {query: found(client, **dict(parse_qsl(query))) for query in table}


FILTERS = {
    "": ["earlier", "today", "clock", "moved", "late", "next", "ran", "open"],
    "coins=dash": ["clock"],
    "coins=dash,slug:other-btc": ["clock", "next"],
    "coins=DASH/USDT": ["clock"],
    "categories=unlock": ["clock", "next"],
    "categories=Unlock,ama&estimated=drop": ["earlier", "today", "clock", "next"],
    "categories=Unlock&when=next-week": ["next"],
    "when=today": ["earlier", "today", "ran", "open"],
    "when=this-week": ["earlier", "today", "clock", "moved", "late", "ran", "open"],
    "when=all&estimated=drop&categories=Listing": ["far"],
    "from=2026-03-10&estimated=drop": ["next", "far"],
    "from=2026-03-06&to=2026-03-07&estimated=drop": ["moved", "late"],
    "to=2026-03-01": ["over", "open"],
    "estimated=only": ["open"],
    "min_impact=5": ["clock", "next"],
    "min_impact=critical": ["next"],
    "sort=impact&categories=unlock,ama": ["next", "clock", "today", "earlier"],
    "q=TITLE LATE": ["late"],
    "q=%25": [],
}


def test_filters_select_events(client: TestClient) -> None:
    assert select(shown, client, FILTERS) == FILTERS


def test_file_has_the_rows_of_the_list(client: TestClient) -> None:
    query = "/?categories=unlock,ama&estimated=drop&min_impact=1&sort=impact"
    answer = client.get(f"{query}&format=json").json()
    assert [row["event_id"] for row in answer["rows"]] == ["next", "clock", "today"]
    assert answer["as_of"] == "2026-03-04T12:00:00Z"
    lines = client.get(f"{query}&format=csv").text.splitlines()
    assert [line.split(",")[0] for line in lines] == ["event_id", "next", "clock", "today"]
    assert client.get("/?view=month&format=csv").status_code == 400


def test_moved_and_new_events_are_marked(client: TestClient) -> None:
    page = client.get("/").text
    assert '<span class="mark moved" title="1 day ago">moved from 12 Mar</span>' in page
    assert page.count('class="mark new"') == 1


def test_past_time_shows_the_date_known_then(client: TestClient) -> None:
    then = client.get("/", params={"as_of": "2026-03-02T12:00:00"}).text
    assert re.findall(r'datetime="2026-03-12"', then)
    assert "Title late" not in then
    assert 'class="mark' not in then
    assert all("as_of=" in link for link in re.findall(r'href="(/event/[^"]+)"', then))


def test_title_names_filters_and_days(client: TestClient) -> None:
    titles = {
        "/": "Events: next 30 days",
        "/?coins=dash,slug:bitcoin&min_impact=mid": "Dash, Bitcoin, impact from 2.5: next 30 days",
        "/?categories=unlock&from=2026-03-05&to=2026-03-05": "Unlock: 05 Mar 2026",
        "/?q=a&view=month": "“a”: March 2026",
        "/?view=week&from=2026-03-05": "Events: 02 Mar 2026 to 08 Mar 2026",
    }
    found = {path: re.findall("<title>(.*?) · ", client.get(path).text)[0] for path in titles}
    assert found == titles


def test_chips_and_stars_change_the_coins_of_the_address(client: TestClient) -> None:
    page = unescape(client.get("/?coins=dash,slug:other-btc&categories=Unlock&when=90d").text)
    (chips,) = re.findall(r'aria-label="Filters that are set">(.*?)</ul>', page, re.S)
    kept = "categories=Unlock&when=90d"
    assert dict(re.findall(r'href="([^"]*)" aria-label="Remove (.*?)"', chips)) == {
        f"/?coins=slug%3Aother-btc&{kept}": "DASH",
        f"/?coins=slug%3Adash&{kept}": "BTC (Other)",
        "/?coins=dash%2Cslug%3Aother-btc&when=90d": "Unlock",
        "/?coins=dash%2Cslug%3Aother-btc&categories=Unlock": "when: 90d",
    }
    assert f'href="/?{kept}&coins=slug%3Adash" aria-label="Remove the star of BTC (Other)"' in page
    page = unescape(client.get("/?when=today").text)
    assert '<a class="star" href="/?when=today&coins=slug%3Abitcoin" aria-label="Star BTC' in page


def read_grid(page: str) -> dict[str, tuple[str, list[str]]]:
    """Return of each day with events the link of its list, and its links to events and more."""
    found = {}
    for cell in re.findall(r"<td class=.*?</td>", page, re.S):
        link, *more = [unescape(link) for link in re.findall(r'href="([^"]*)"', cell)]
        if more:
            found[link.partition("from=")[2][:10]] = link, more
    return found


def test_month_and_week_have_the_events_of_each_day(tmp_path: Path) -> None:
    versions = [*VERSIONS, *(event(f"more{n}", at(20), impact=float(n)) for n in range(5))]
    with serve_pages(tmp_path, versions, coins=COINS) as client:
        page = client.get("/?view=month&min_impact=0&from=2026-03-09&coins=&when=7d").text
        assert {
            day: [name.removeprefix("/event/") for name in links]
            for day, (_, links) in read_grid(page).items()
        } == {
            "2026-03-04": ["today"],
            "2026-03-05": ["clock"],
            "2026-03-10": ["next"],
            "2026-03-20": [
                *("more4", "more3", "more2"),
                "/?min_impact=0&from=2026-03-20&to=2026-03-20",
            ],
        }
        assert '<span class="s2">2</span>' in page
        assert '<time class="hour" datetime="2026-03-05T14:00:00Z">14:00</time>' in page
        listed = unescape(client.get("/?when=next-week&q=a").text)
        for view in ("month", "week"):
            assert f'href="/?q=a&view={view}&from=2026-03-09"' in listed
        assert 'href="/?view=week">Week' in unescape(client.get("/?when=7d").text)
        assert {
            rel: unescape(link) for rel, link in re.findall(r'rel="(prev|next)" href="(.*?)"', page)
        } == {
            "prev": "/?view=month&min_impact=0&from=2026-02-28",
            "next": "/?view=month&min_impact=0&from=2026-04-01",
        }
        page = client.get("/?view=week&as_of=2026-03-02T12:00:00").text
        grid = read_grid(page)
        assert list(grid) == ["2026-03-02", "2026-03-04", "2026-03-05"]
        assert grid["2026-03-04"][1] == [
            f"/event/{name}?as_of=2026-03-02T12%3A00%3A00Z" for name in ("today", "earlier")
        ]
        assert (
            grid["2026-03-04"][0] == "/?as_of=2026-03-02T12%3A00%3A00&from=2026-03-04&to=2026-03-04"
        )
        assert "1 more may take place in these days" in page


def test_coin_that_is_not_understood_is_named_and_the_others_are_kept(client: TestClient) -> None:
    answer = client.get("/", params={"coins": "dash,BTC,no-such", "when": "90d"})
    assert [name for name, *_ in read_rows(answer.text)] == ["clock"]
    page = unescape(answer.text)
    for text in ("2 coins have this ticker or name", "No coin has the slug", "no-such"):
        assert text in page
    kept = "/?coins=dash%2Cno-such%2Cslug%3A"
    for slug in ("bitcoin", "other-btc"):
        assert f'href="{kept}{slug}&when=90d"' in page
    assert client.get("/?coins=dash,BTC&format=json").status_code == 400


def test_ambiguous_ticker_lists_its_coins_as_links(client: TestClient) -> None:
    answer = client.get("/", params={"coins": "BTC", "when": "90d"})
    assert answer.status_code == 400
    links = [unescape(link) for link in re.findall(r'href="(/\?[^"]*slug[^"]*)"', answer.text)]
    assert links == [f"/?coins=slug%3A{slug}&when=90d" for slug in ("bitcoin", "other-btc")]
    assert client.get(links[0]).status_code == 200
    page = unescape(answer.text)
    assert "<h1><bdi>Which coin?</bdi></h1>" in page
    assert "2 coins have this ticker or name. Choose one." in page
    assert "/?coins=BTC&when=90d&ambiguous=largest" in page
    assert not [text for text in ("almanac.open", "coins={", "history begins") if text in page]


WRONG = {
    "coins=no-such": (404, "No coin has the slug"),
    "categories=AMA,Unlok": (404, ">Unlock</bdi></a>"),
    "min_impact=high!": (400, "expected a score from 0 to 10"),
    "min_impact=11": (400, "from 0 to 10"),
    "when=never": (400, "expected today"),
    "from=03/04/2026": (400, "expected such as 2026-03-02"),
    "from=2026-05-01&to=2026-04-01": (400, "no day lies between"),
    "page=0": (400, "expected a number from 1"),
    "page=7": (400, "there are fewer pages"),
    "estimated=some": (400, "expected include, only, drop"),
    "view=year": (400, "expected list, month, week"),
    "sort=name": (400, "expected time, impact"),
    "coin=btc": (400, "no parameter"),
}


def test_wrong_filter_says_what_was_expected(client: TestClient) -> None:
    for query, (status, text) in WRONG.items():
        answer = client.get(f"/?{query}")
        assert (answer.status_code, text in unescape(answer.text)) == (status, True), query


def test_long_list_has_pages_that_together_show_each_event_once(tmp_path: Path) -> None:
    versions = [event(f"evt{n:03}", at(4 + n % 20)) for n in range(70)]
    with serve_pages(tmp_path, versions) as client:
        pages = [shown(client, page=str(number)) for number in (1, 2)]
        assert [len(page) for page in pages] == [60, 10]
        assert len({name for page in pages for name in page}) == 70
        (link,) = re.findall('rel="next" href="([^"]*)"', client.get("/?q=title").text)
        assert {"page=2", "q=title"} == {*unescape(link).removeprefix("/?").split("&")}
        assert len(client.get("/?format=json").json()["rows"]) == 70


def test_newer_publication_replaces_the_prepared_rows(tmp_path: Path) -> None:
    with serve_pages(tmp_path, VERSIONS[:1]) as client:
        assert (shown(client), shown(client, categories="ama")) == (["today"], ["today"])
        publish_by_hand(tmp_path / "warehouse.duckdb", VERSIONS[1:3], pulls=PULLS)
        assert shown(client) == ["clock", "next"]
        assert client.get("/?categories=ama").status_code == 404


def later(version: Known, known_from: datetime, kind: str, **changes: object) -> Known:
    """Return the second version of an event."""
    changed = {"version": 2, "known_from": known_from, "change_kinds": (kind,), **changes}
    return replace(version, **changed)  # type: ignore[arg-type]


LEAVING = [
    event("cancelled", at(10), categories=("Unlock",), coins=("dash",)),
    event("withdrawn", at(11)),
    event("away", at(12), displayed_date="12 Mar"),
    event("missing", at(13)),
    event("shown-again", at(14)),
    event("within", at(15)),
    event("revised", at(16)),
]
LEFT = [
    *LEAVING,
    later(LEAVING[0], FIRST + 2 * DAY, "cancelled", status="cancelled"),
    later(LEAVING[1], FIRST + 2 * DAY, "withdrawn", status="withdrawn"),
    later(LEAVING[2], FIRST + 3 * DAY, "rescheduled", date=at(1, month=8), displayed_date="01 Aug"),
    later(LEAVING[5], FIRST + 2 * DAY, "rescheduled", date=at(17), displayed_date="17 Mar"),
    later(LEAVING[6], FIRST + 2 * DAY, "revised", title="Another title"),
]
ABSENCES = [
    Absence("missing", FIRST + 2 * DAY, FIRST + 2 * DAY),
    Absence("shown-again", FIRST + DAY, FIRST + DAY),
    Absence("shown-again", FIRST + 2 * DAY, None),
]


@pytest.fixture(scope="module")
def leaving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("l")
    with serve_pages(folder, LEFT, coins=COINS, absences=ABSENCES) as client:
        yield client


def test_events_that_left_the_shown_days_are_struck_through(leaving: TestClient) -> None:
    page = leaving.get("/").text
    marks = re.findall(r'<span class="mark (\w+)" title="(.*?)">(.*?)</span>', page)
    assert sorted(marks) == [
        ("moved", "1 day ago", "moved from 15 Mar"),
        ("moved", "6 h ago", "moved → 01 Aug"),
        *(("off", "1 day ago", gone) for gone in ("cancelled", "missing", "withdrawn")),
    ]
    assert "<strong>3</strong> events" in page
    assert list_gone(leaving) == ["cancelled", "withdrawn", "away", "missing"]
    assert not {"cancelled", "withdrawn", "away", "missing"} & set(shown(leaving))


LEFT_BY = {
    "categories=unlock": ["cancelled"],
    "coins=dash": ["cancelled"],
    "from=2026-03-12&to=2026-03-12": ["away"],
    "from=2026-03-15&to=2026-03-15": ["within"],
    "when=all": ["cancelled", "withdrawn", "missing"],
    "estimated=only": [],
    "q=missing": ["missing"],
    "min_impact=9": [],
    "as_of=2026-03-01T12:00:00": [],
    "as_of=2026-03-02T12:00:00": ["shown-again"],
    "as_of=2026-03-03T12:00:00": ["cancelled", "withdrawn", "missing"],
}


def test_filters_and_time_select_the_events_that_left(leaving: TestClient) -> None:
    assert select(list_gone, leaving, LEFT_BY) == LEFT_BY


def test_past_days_keep_cancelled_events_and_deadlines(tmp_path: Path) -> None:
    later_on = LEFT[0].known_from + 30 * DAY
    end = datetime(2026, 3, 20, 23, 59, 59, tzinfo=UTC)
    versions = [*LEFT, event("deadline", end, is_estimated=True)]
    with serve_pages(tmp_path, versions, coins=COINS, absences=ABSENCES, now=later_on) as client:
        past = {"from": "2026-03-10", "to": "2026-03-14"}
        assert list_gone(client, **past) == ["cancelled", "withdrawn", "missing"]
        assert shown(client, **past) == ["shown-again", "deadline"]
        assert shown(client, **{"from": "2026-02-27", "to": "2026-02-28"}) == []
        assert list_gone(client, when="all") == []
