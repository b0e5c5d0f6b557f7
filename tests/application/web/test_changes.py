"""The page of changes: equal to SQL at random times, paged without loss, with its plots."""

import re
from collections import Counter
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path

import httpx
import pytest

from almanac.database import Database
from tests.application.web.handmade_site import DAY, FIRST, PULLS, serve_pages
from tests.application.web.test_as_of_pages import PastSite, random_times
from tests.warehouse.answers.handmade import Known

_ROW = re.compile(r'<tr data-version="(\S+) (\d+)">')
_COUNT = re.compile(r'kind=(\w+)[^"]*"[^>]*>[^<]*<span class="nums">([\d,]+)</span>')


def list_pages(site: PastSite, **parameters: str) -> list[tuple[str, int]]:
    """Return event and version of each row, from all pages of a kind."""
    found: list[tuple[str, int]] = []
    number = 1
    while True:
        page = site.get("/changes", **parameters, page=str(number))
        assert page.status_code == 200, page.text
        found += [(unescape(event), int(version)) for event, version in _ROW.findall(page.text)]
        if 'rel="next"' not in page.text:
            return found
        number += 1


def check_changes(
    client: httpx.Client, database: Database, at: datetime, *, since: datetime, kind: str
) -> None:
    rows = database.sql(
        "SELECT event_id, version, unnest(change_kinds) AS kind FROM event_versions "
        "WHERE known_from > $since AND known_from <= $at",
        since=since,
        at=at,
    ).rows()
    site = PastSite(client, at)
    asked = {"since": f"{since:%Y-%m-%dT%H:%M:%S.%fZ}"}
    shown = _COUNT.findall(site.get("/changes", **asked).text)
    counts = {name: int(count.replace(",", "")) for name, count in shown}
    assert counts == dict(Counter(row["kind"] for row in rows)), (at, since)
    expected = sorted((row["event_id"], row["version"]) for row in rows if row["kind"] == kind)
    assert sorted(list_pages(site, kind=kind, **asked)) == expected, (at, since, kind)


def check_times(client: httpx.Client, database: Database, count: int) -> None:
    kinds = ("rescheduled", "created", "cancelled", "rescored", "revised")
    for number, at in enumerate(random_times(database, count)):
        since = at - timedelta(hours=(7, 30, 80)[number % 3])
        check_changes(client, database, at, since=since, kind=kinds[number % len(kinds)])


def test_changes_at_random_times_are_those_known(client: httpx.Client, database: Database) -> None:
    check_times(client, database, 6)


@pytest.mark.long
def test_changes_at_a_hundred_random_times_are_those_known(
    client: httpx.Client, database: Database
) -> None:
    check_times(client, database, 100)


def make_move(event_id: str, days: int, *, title: str = "A move") -> list[Known]:
    """Return an event that is announced at the first pull, and moves two pulls later."""
    first = Known(
        event_id=event_id,
        known_from=PULLS[0],
        change_kinds=("created",),
        created_at=PULLS[0],
        title=title,
        displayed_date="20 Mar 2026",
        date=FIRST.replace(hour=0) + 19 * DAY,
        categories=("Airdrop",),
        coins=("bitcoin",),
        impact=6.0,
    )
    moved = Known(
        event_id=event_id,
        version=2,
        known_from=PULLS[2],
        change_kinds=("rescheduled",),
        changed_fields=("date", "displayed_date"),
        title=title,
        displayed_date="later",
        date=FIRST.replace(hour=0) + (19 + days) * DAY,
        categories=("Airdrop",),
        coins=("bitcoin",),
        impact=6.0,
    )
    return [first, moved]


def test_move_has_its_old_and_new_date_and_its_days(tmp_path: Path) -> None:
    with serve_pages(tmp_path, make_move("evt_1", 5)) as client:
        page = client.get("/changes?kind=rescheduled").text
        assert "<bdi>20 Mar 2026</bdi></del>" in page
        assert "later, by 5 days" in page
        assert client.get("/changes?kind=rescheduled&category=airdrop").text.count("<tr data") == 1
        assert client.get("/changes?kind=rescheduled&impact=High").text.count("<tr data") == 1
        assert client.get("/changes?kind=rescheduled&impact=7").text.count("<tr data") == 0


def test_plots_have_the_numbers_as_a_table_and_nothing_of_later(tmp_path: Path) -> None:
    versions = make_move("evt_1", 5) + make_move("evt_2", -3)
    with serve_pages(tmp_path, versions) as client:
        page = client.get("/changes").text
        assert page.count('<svg role="img"') == 2
        (row,) = re.findall(r'<th scope="row"><bdi>Airdrop</bdi></th>(.*?)</tr>', page)
        assert re.findall(r"[\d,]+(?=</td>)", row) == ["1", "1", "0", "0", "2"]
        then = client.get("/changes", params={"as_of": PULLS[1].isoformat()}).text
        assert "Which categories" not in then
        assert "How long before its date" in then
        assert re.search(r"<bdi>15–30</bdi></th><td class=\"n\">2</td>", then)


def test_kinds_with_many_changes_are_paged_and_say_so(tmp_path: Path) -> None:
    versions = [each for number in range(120) for each in make_move(f"evt_{number}", 1)]
    with serve_pages(tmp_path, versions) as client:
        page = client.get("/changes").text
        assert "The newest 10." in page
        assert "Show all 120" in page
        pages = [client.get(f"/changes?kind=rescheduled&page={n}").text for n in (1, 2, 3)]
        assert [text.count("<tr data-version") for text in pages] == [50, 50, 20]
        assert "101 to 120 of 120" in pages[2]
        assert client.get("/changes?kind=rescheduled&page=4").status_code == 400


@pytest.mark.parametrize(
    "query",
    ["kind=nothing", "last=1y", "since=2999-01-01", "until=2999-01-01", "since=x", "impact=11"],
)
def test_wrong_filter_is_refused_with_the_reason(tmp_path: Path, query: str) -> None:
    with serve_pages(tmp_path, make_move("evt_1", 1)) as client:
        answer = client.get(f"/changes?{query}")
        assert answer.status_code == 400
        assert 'role="alert"' in answer.text


def test_weeks_of_upcoming_events_have_their_bands_and_leave_out_estimated_ones(
    tmp_path: Path,
) -> None:
    open_date = Known(
        event_id="evt_open",
        known_from=PULLS[0],
        date=FIRST.replace(hour=0) + 25 * DAY,
        date_type="quarter",
        is_estimated=True,
    )
    versions = make_move("evt_1", -9) + make_move("evt_2", 7) + [open_date]
    with serve_pages(tmp_path, versions) as client:
        page = client.get("/?when=90d").text
        then = client.get("/", params={"when": "90d", "as_of": PULLS[1].isoformat()}).text
    rows = re.findall(r'<tr><th scope="row"><bdi>(.*?)</bdi></th>(.*?)</tr>', page)
    high = {week: re.findall(r"\d+(?=</td>)", cells)[1] for week, cells in rows}
    assert high == {"09 Mar": "1", "16 Mar": "0", "23 Mar": "1"}
    assert "1 more have an estimated date" in page
    assert "Events per week" not in then, "both were in one week then"
