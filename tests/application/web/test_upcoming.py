import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from starlette.testclient import TestClient

from tests.almanac.publications import NamedCoin
from tests.application.web.handmade_site import DAY, FIRST, serve_pages
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


def shown(client: TestClient, **parameters: str) -> list[str]:
    answer = client.get("/", params=parameters)
    assert answer.status_code == 200, answer.text
    listed = re.sub(r'<details class="left">.*?</details>', "", answer.text, flags=re.S)
    return re.findall(r'href="/event/([^"?]+)', listed)


def test_events_are_under_their_day_and_estimated_ones_apart(client: TestClient) -> None:
    page = client.get("/").text
    days = re.findall(r'<h2 class="day"><time datetime="([^"]+)"', page)
    assert days == ["2026-03-04", "2026-03-05", "2026-03-06", "2026-03-07", "2026-03-10"]
    before, after = page.split('<h2 id="open">')
    assert "Title open" not in before
    assert "Title open" in after
    assert "Q1 2026" in after
    assert "2026-03-31" not in page
    assert "14:00 UTC" in before
    for text in ("BTC (Bitcoin)", "BTC (Other)", "DASH"):
        assert f"<bdi>{text}</bdi>" in page
    assert "Low below 2.5, Mid below 5.0, High below 7.5, Critical from 7.5." in page


def select(
    found: Callable[..., list[str]], client: TestClient, table: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Return what each query of a table selects."""
    return {query: found(client, **dict(parse_qsl(query))) for query in table}


FILTERS = {
    "": ["today", "clock", "moved", "late", "next", "open"],
    "coin=dash": ["clock"],
    "coin=slug:other-btc": ["next"],
    "category=unlock": ["clock", "next"],
    "category=Unlock&when=next-week": ["next"],
    "when=today": ["today", "open"],
    "when=this-week": ["today", "clock", "moved", "late", "open"],
    "when=all&dates=exact&category=Listing": ["far"],
    "from=2026-03-10&dates=exact": ["next", "far"],
    "dates=estimated": ["open"],
    "impact=5": ["clock", "next"],
    "impact=critical": ["next"],
    "q=TITLE LATE": ["late"],
    "q=%25": [],
}


def test_filters_select_events(client: TestClient) -> None:
    assert select(shown, client, FILTERS) == FILTERS


def test_moved_and_new_events_are_marked(client: TestClient) -> None:
    page = " ".join(client.get("/").text.split())
    assert "moved 1 day ago from <bdi>12 Mar 2026</bdi>" in page
    assert page.count('class="mark new"') == 1


def test_past_time_shows_the_date_known_then(client: TestClient) -> None:
    then = client.get("/", params={"as_of": "2026-03-02T12:00:00"}).text
    assert re.findall(r'datetime="2026-03-12"', then)
    assert "Title late" not in then
    assert 'class="mark' not in then
    assert all("as_of=" in link for link in re.findall(r'href="(/event/[^"]+)"', then))


def test_ambiguous_ticker_lists_its_coins_as_links(client: TestClient) -> None:
    answer = client.get("/", params={"coin": "BTC", "when": "90d"})
    assert answer.status_code == 400
    links = [unescape(link) for link in re.findall(r'href="(/\?[^"]*slug[^"]*)"', answer.text)]
    assert links == ["/?coin=slug%3Abitcoin&when=90d", "/?coin=slug%3Aother-btc&when=90d"]
    assert client.get(links[0]).status_code == 200
    page = unescape(answer.text)
    assert "<h1><bdi>Which coin?</bdi></h1>" in page
    assert "2 coins have this ticker or name. Choose one." in page
    assert not [text for text in ("almanac.open", "coins={", "history begins") if text in page]


WRONG = {
    "coin=no-such": (404, "No coin has the slug"),
    "category=Unlok": (404, ">Unlock</bdi></a>"),
    "impact=high!": (400, "expected a score from 0 to 10"),
    "impact=nan": (400, "min_impact"),
    "impact=11": (400, "from 0 to 10"),
    "when=never": (400, "expected today"),
    "from=03/04/2026": (400, "expected such as 2026-03-02"),
    "from=2026-05-01&to=2026-04-01": (400, "no day lies between"),
    "from=2026-02-01&to=2026-03-03": (400, "are over, and this page shows events to come"),
    "page=0": (400, "expected a number from 1"),
    "page=7": (400, "there are fewer pages"),
    "dates=some": (400, "expected all, exact, estimated"),
}


def test_wrong_filter_says_what_was_expected(client: TestClient) -> None:
    for query, (status, text) in WRONG.items():
        answer = client.get(f"/?{query}")
        assert (answer.status_code, text in unescape(answer.text)) == (status, True), query
    page = client.get("/", params={"from": "2026-02-01", "to": "2026-03-10"}).text
    assert "04 Mar 2026 to 10 Mar 2026" in page, "days that are over are left out"


def test_long_list_has_pages_that_together_show_each_event_once(tmp_path: Path) -> None:
    versions = [event(f"evt{n:03}", at(4 + n % 20)) for n in range(70)]
    with serve_pages(tmp_path, versions) as client:
        pages = [shown(client, page=str(number)) for number in (1, 2)]
        assert [len(page) for page in pages] == [60, 10]
        assert len({name for page in pages for name in page}) == 70
        (link,) = re.findall('rel="next" href="([^"]*)"', client.get("/?q=title").text)
        assert {"page=2", "q=title"} == {*unescape(link).removeprefix("/?").split("&")}


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


def list_left(client: TestClient, **parameters: str) -> list[str]:
    page = client.get("/", params=parameters).text
    parts = re.findall(r'<details class="left">.*?</details>', page, re.S)
    return re.findall(r'href="/event/([^"?]+)', "".join(parts))


def test_events_that_left_the_shown_days_are_listed_with_the_reason(leaving: TestClient) -> None:
    page = " ".join(leaving.get("/").text.split())
    counts = "1 cancelled, 1 withdrawn, 1 missing from complete pulls, 1 moved away"
    assert f"In the last 7 days, 4 events left these days: {counts}</summary>" in page
    assert "<del><bdi>12 Mar 2026</bdi></del>: moved to <bdi>01 Aug 2026</bdi>" in page
    assert list_left(leaving) == ["cancelled", "withdrawn", "away", "missing"]
    assert not {"cancelled", "withdrawn", "away", "missing"} & set(shown(leaving))


LEFT_BY = {
    "category=unlock": ["cancelled"],
    "coin=dash": ["cancelled"],
    "from=2026-03-12&to=2026-03-12": ["away"],
    "from=2026-03-15&to=2026-03-15": ["within"],
    "when=all": ["cancelled", "withdrawn", "missing"],
    "dates=estimated": [],
    "q=missing": ["missing"],
    "impact=9": [],
    "as_of=2026-03-01T12:00:00": [],
    "as_of=2026-03-02T12:00:00": ["shown-again"],
    "as_of=2026-03-03T12:00:00": ["cancelled", "withdrawn", "missing"],
}


def test_filters_and_time_select_the_events_that_left(leaving: TestClient) -> None:
    assert select(list_left, leaving, LEFT_BY) == LEFT_BY
