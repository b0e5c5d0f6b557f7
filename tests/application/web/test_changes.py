import re
from dataclasses import replace
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest
from starlette.testclient import TestClient

from almanac.database import Database
from application.web.changes_page import describe_move
from tests.application.mirror.filled_home import NOW, STARTS
from tests.application.web.handmade_site import DAY, FIRST, PULLS, serve_pages
from tests.warehouse.answers.handmade import Known


def make_move(event_id: str, days: int, *, title: str = "A move") -> list[Known]:
    """Return an event that is announced at the first pull, and moves two pulls later."""
    shown = {"event_id": event_id, "title": title, "categories": ("Airdrop",), "impact": 6.0}
    first = Known(
        **shown,  # type: ignore[arg-type]
        known_from=PULLS[0],
        change_kinds=("created",),
        created_at=PULLS[0],
        displayed_date="20 Mar 2026",
        date=FIRST.replace(hour=0) + 19 * DAY,
        coins=("bitcoin",),
    )
    moved = replace(
        first,
        version=2,
        known_from=PULLS[2],
        change_kinds=("rescheduled",),
        changed_fields=("date", "displayed_date"),
        created_at=None,
        displayed_date="later",
        date=FIRST.replace(hour=0) + (19 + days) * DAY,
    )
    return [first, moved]


def make_cancellation(event_id: str) -> Known:
    """Return the third version of such an event, cancelled and rescored at the last pull."""
    _, moved = make_move(event_id, 5)
    return replace(
        moved,
        version=3,
        known_from=PULLS[3],
        change_kinds=("rescored", "revised", "cancelled"),
        changed_fields=("impact", "title", "status"),
        status="cancelled",
        impact=8.0,
    )


def read_rows(client: TestClient, query: str = "") -> list[str]:
    """Return the headings of days and the rows of the timeline, as texts."""
    answer = client.get(f"/changes{query}")
    assert answer.status_code == 200, answer.text
    rows = re.findall(r"<tr(?: data-version| class=\"day\")[^>]*>(.*?)</tr>", answer.text, re.S)
    return [" ".join(unescape(re.sub("<[^>]*>", " ", row)).split()) for row in rows]


def test_changes_are_one_timeline_by_day_with_values_and_shifts(tmp_path: Path) -> None:
    versions = [*make_move("a", 5), make_cancellation("a"), *make_move("b", -3, title="B")]
    with serve_pages(tmp_path, versions) as client:
        rows = read_rows(client)
        assert [row for row in rows if "2026" in row[:20]] == [
            *("Wed 04 Mar 2026", "Tue 03 Mar 2026", "Sun 01 Mar 2026"),
        ]
        assert rows[1].startswith("06:00 bitcoin A move 8.0 Cancelled")
        assert rows[2] == "06:00 bitcoin A move 8.0 Rescored 6.0 → 8.0"
        assert rows[3] == (
            "06:00 bitcoin A move 8.0 Revised Title A move → A move , Status scheduled → cancelled"
        )
        moved = "bitcoin A move 6.0 Rescheduled 20 Mar 2026 → later 5 days later"
        assert rows[5] == f"06:00 {moved}"
        assert "3 days earlier" in rows[6]
        assert len(rows) == 3 + 7
        then = read_rows(client, f"?as_of={PULLS[1]:%Y-%m-%dT%H:%M}")
        assert ["New" in row for row in then[1:]] == [True, True]
        assert read_rows(client, "?last=pull") == rows[:4]


def test_kinds_are_chosen_by_chips_with_their_counts(tmp_path: Path) -> None:
    versions = [*make_move("a", 5), make_cancellation("a"), *make_move("b", -3)]
    with serve_pages(tmp_path, versions) as client:
        page = client.get("/changes?kinds=rescheduled").text
        chips = re.findall(r'<a href="([^"]*)"( aria-current="true")?>(\w+) <span[^>]*>(\d+)', page)
        assert chips == [
            ("/changes?kinds=cancelled%2Crescheduled", "", "Cancelled", "1"),
            ("/changes", ' aria-current="true"', "Rescheduled", "2"),
            ("/changes?kinds=rescheduled%2Crescored", "", "Rescored", "1"),
            ("/changes?kinds=rescheduled%2Ccreated", "", "New", "2"),
            ("/changes?kinds=rescheduled%2Crevised", "", "Revised", "1"),
        ]
        both = " ".join(read_rows(client, "?kinds=rescheduled,cancelled"))
        assert re.findall("Cancelled|Rescheduled|Rescored", both) == [
            *("Cancelled", "Rescheduled", "Rescheduled"),
        ]


def test_filters_select_rows_and_name_the_page(tmp_path: Path) -> None:
    versions = [*make_move("a", 5), *make_move("b", -3, title="Fork")]
    with serve_pages(tmp_path, versions) as client:
        for query, count in {
            "categories=airdrop": 2,
            "min_impact=High": 2,
            "min_impact=7": 0,
            "q=FORK": 1,
            "coins=slug:bitcoin": 2,
        }.items():
            page = client.get(f"/changes?kinds=rescheduled&{query}").text
            assert page.count("<tr data-version") == count, query
        named = client.get("/changes?kinds=rescheduled&categories=airdrop&as_of=2026-03-03T12:00")
        (title,) = re.findall("<title>(.*?)</title>", named.text)
        assert title == "Airdrop: rescheduled, last 7 days, as known on 3 Mar 2026 12:00 · Almanac"


def test_long_timeline_is_paged_and_its_file_has_all_rows(tmp_path: Path) -> None:
    versions = [each for number in range(70) for each in make_move(f"evt_{number}", 1)]
    with serve_pages(tmp_path, versions) as client:
        pages = [read_rows(client, f"?kinds=rescheduled&page={number}") for number in (1, 2)]
        assert [len(rows) for rows in pages] == [1 + 50, 1 + 20]
        assert len({*pages[0], *pages[1]}) == 2
        assert client.get("/changes?kinds=rescheduled&page=3").status_code == 400
        table = client.get("/changes?kinds=rescheduled&format=csv").text.splitlines()
        assert len(table) == 1 + 70


def test_many_first_seen_events_are_a_count(tmp_path: Path) -> None:
    versions = [Known(event_id=f"evt_{number}", known_from=FIRST) for number in range(21)]
    with serve_pages(tmp_path, versions + make_move("a", 5)) as client:
        assert "21 events were shown for the first time" in client.get("/changes").text
        assert len(read_rows(client)) == 2 + 2
        assert len(read_rows(client, "?kinds=revealed")) == 1 + 21


def test_rows_equal_the_views_at_any_time(client: httpx.Client, database: Database) -> None:
    kinds = "cancelled,rescheduled,made_exact,made_estimated,rescored,created,withdrawn,restored"
    for at in (STARTS, STARTS + timedelta(days=1, hours=5), NOW):
        given = {"last": "30d", "kinds": kinds, "format": "json", "as_of": at.isoformat()}
        rows = client.get("/changes", params=given).json()["rows"]
        expected = database.sql(
            "SELECT c.event_id, c.version, c.kind, c.old_value, c.new_value, m.kind AS move, "
            "m.shift_days, m.least_shift_days, m.most_shift_days FROM changes AS c "
            "LEFT JOIN reschedules AS m USING (event_id, version) "
            "WHERE c.known_from <= $at AND list_contains(string_split($kinds, ','), c.kind)",
            at=at,
            kinds=kinds,
        ).rows()
        found = [{name: row[name] for name in expected[0]} for row in rows] if expected else rows
        key = lambda row: (row["event_id"], row["version"], row["kind"])  # noqa: E731
        assert sorted(found, key=key) == sorted(expected, key=key)
    assert len(expected) > 20


MOVES = {
    "5 days later": ("slipped", 5.0, 5.0, 5.0),
    "3 h earlier": ("time_only", -0.125, -0.125, -0.125),
    "2 to 31 days later": ("slipped", None, 2.0, 31.0),
    "1 to 4 days earlier": ("pulled_in", None, -4.0, -1.0),
    "earlier": ("pulled_in", None, -4.0, 3.0),
    "more precise": ("refined", 0.0, 0.0, 0.0),
    "less precise": ("loosened", None, None, None),
    "the end moved": ("end_only", 0.0, 0.0, 0.0),
    "": (None, None, None, None),
}


@pytest.mark.parametrize("text", MOVES)
def test_move_is_described_as_far_as_it_is_known(text: str) -> None:
    names = ("move", "shift_days", "least_shift_days", "most_shift_days")
    assert describe_move(dict(zip(names, MOVES[text], strict=True))) == text


def test_wrong_filter_is_refused_with_the_reason(tmp_path: Path) -> None:
    wrong = {
        **dict.fromkeys(("kinds=nothing", "last=1y", "min_impact=11", "format=xml", "kind=x"), 400),
        **dict.fromkeys(("last=pull&until=2026-03-02", "since=2026-03-03&until=2026-03-02"), 400),
        **dict.fromkeys(("since=2999-01-01", "until=2999-01-01"), 422),
    }
    with serve_pages(tmp_path, make_move("evt_1", 1)) as client:
        for query, status in wrong.items():
            answer = client.get(f"/changes?{query}")
            assert (answer.status_code, 'role="alert"' in answer.text) == (status, True), query


@pytest.mark.parametrize("as_of", [None, STARTS + DAY])
def test_the_json_has_the_cursor_of_the_feed_after_its_period(
    client: httpx.Client, as_of: datetime | None
) -> None:
    asked = {} if as_of is None else {"as_of": as_of.isoformat()}
    asked = {name: text.replace("+00:00", "Z") for name, text in asked.items()}
    cursor = client.get("/changes", params={"format": "json", **asked}).json()["cursor"]
    later = client.get("/v2/events/changes", params={"cursor": cursor, **asked}).json()
    assert (later["data"], later["meta"]["cursor"]) == ([], cursor)
    until = {"until": f"{STARTS + DAY:%Y-%m-%d}", "since": f"{STARTS:%Y-%m-%d}"}
    early = client.get("/changes", params={"format": "json", **until}).json()["cursor"]
    assert early != cursor or as_of is not None


def test_feed_has_the_changes_of_the_page_with_absolute_addresses(client: httpx.Client) -> None:
    filters = f"last=30d&kinds=rescheduled,cancelled&as_of={NOW:%Y-%m-%dT%H:%M:%SZ}"
    answer = client.get(f"/changes.atom?{filters}")
    assert answer.headers["content-type"] == "application/atom+xml"
    feed = ElementTree.fromstring(answer.text)
    name = "{http://www.w3.org/2005/Atom}"
    rows = client.get(f"/changes?{filters}&format=json").json()["rows"]
    entries = feed.findall(f"{name}entry")
    shown = [entry.findtext(f"{name}id", "").rpartition("/event/")[2] for entry in entries]
    assert {each.partition("?")[0] for each in shown} == {row["event_id"] for row in rows}
    assert len(set(shown)) == len(shown) > 5
    links = [entry.find(f"{name}link") for entry in entries]
    assert all(link is not None and link.get("href", "").startswith("http://") for link in links)
    assert client.get("/changes.atom?page=2").status_code == 400
    coins = f"{client.get('/coins?format=json').json()['rows'][0]['coin']},no-such-coin"
    for path, status in (("/changes", 200), ("/changes.atom", 404)):
        assert client.get(path, params={"coins": coins}).status_code == status
