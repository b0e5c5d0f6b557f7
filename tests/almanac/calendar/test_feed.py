"""The feed against the warehouse: dates, titles, updates, the window, the limit."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import icalendar
import pytest

import almanac
from almanac.calendar.feed import FeedQuery, count_events, sequence_number, write_feed
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Absence, Known

DAY = timedelta(days=1)
PULLED = datetime(2026, 3, 1, 6, tzinfo=UTC)
NOW = PULLED + 5 * DAY
COINS = (NamedCoin("bitcoin", "btc", "Bitcoin", 1), NamedCoin("ether", "eth", "Ether", 2))


def open_at(path: Path, versions: list[Known], **options: Any) -> almanac.Database:
    """Open a warehouse that was pulled each day, at `NOW`."""
    options.setdefault("coins", COINS)
    pulls = [PULLED + number * DAY for number in range(6)]
    file = publish_by_hand(path / "warehouse.duckdb", versions, pulls=pulls, **options)
    return almanac.open(file, clock=lambda: NOW)


def events_in(content: bytes) -> dict[str, Any]:
    calendar = icalendar.Calendar.from_ical(content)
    return {str(event["uid"]).partition("@")[0]: event for event in calendar.walk("VEVENT")}


def only_event(path: Path, **fields: Any) -> Any:
    fields.setdefault("date", NOW)
    known = Known(event_id="evt", known_from=PULLED, **fields)
    with open_at(path, [known]) as db:
        return events_in(write_feed(db, FeedQuery()).content)["evt"]


def times(event: Any) -> tuple[Any, Any]:
    return event["dtstart"].dt, event["dtend"].dt if "dtend" in event else None


def utc(month: int, day: int, *time: int) -> datetime:
    return datetime(2026, month, day, *time, tzinfo=UTC)


DATES: dict[str, tuple[dict[str, Any], tuple[Any, Any]]] = {
    "instant": ({"date": utc(3, 9, 14, 30)}, (utc(3, 9, 14, 30), None)),
    "instant with an end": (
        {"date": utc(3, 9, 14), "date_end": utc(3, 10, 8)},
        (utc(3, 9, 14), utc(3, 10, 8)),
    ),
    "instant with an end of a day": (
        {"date": utc(3, 9, 14), "date_end": utc(3, 10)},
        (utc(3, 9, 14), utc(3, 11)),
    ),
    # RFC 5545 wants an end after the start, and a feed has whole seconds.
    "instant with an end in its second": (
        {"date": utc(3, 9, 14, 0, 0, 200_000), "date_end": utc(3, 9, 14, 0, 0, 700_000)},
        (utc(3, 9, 14), None),
    ),
    "day": ({"date": utc(3, 9)}, (date(2026, 3, 9), date(2026, 3, 10))),
    "days": (
        {"date": utc(3, 9), "date_end": utc(3, 11)},
        (date(2026, 3, 9), date(2026, 3, 12)),
    ),
    "day that ends at a time": (
        {"date": utc(3, 9), "date_end": utc(3, 10, 8)},
        (date(2026, 3, 9), date(2026, 3, 11)),
    ),
}


def events_of(path: Path, fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return an event for each name, with the fields of a version."""
    known = [Known(event_id=name, known_from=PULLED, **given) for name, given in fields.items()]
    with open_at(path, known) as db:
        return events_in(write_feed(db, FeedQuery(estimated="include")).content)


def test_exact_dates_keep_their_precision(tmp_path: Path) -> None:
    events = events_of(tmp_path, {name: fields for name, (fields, _) in DATES.items()})
    found = {name: times(event) for name, event in events.items()}
    assert found == {name: expected for name, (_, expected) in DATES.items()}
    assert {str(event["status"]) for event in events.values()} == {"CONFIRMED"}


LAST = (23, 59, 59)
PERIODS: dict[str, tuple[str, str, datetime, date, str]] = {
    "month": ("month", "Mar 2026", utc(3, 31, *LAST), date(2026, 3, 31), "[Mar 2026] title"),
    "quarter": ("quarter", "Q3 2026", utc(9, 30, *LAST), date(2026, 9, 30), "[Q3 2026] title"),
    "until the next": ("quarter", "Q3 2026", utc(10, 1), date(2026, 9, 30), "[Q3 2026] title"),
    "year": ("year", "2026", utc(12, 31, *LAST), date(2026, 12, 31), "[2026] title"),
    "deadline": ("", "By 11 Oct", utc(10, 11, *LAST), date(2026, 10, 11), "[By 11 Oct 2026] title"),
}
ESTIMATED: dict[str, dict[str, Any]] = {
    name: {"is_estimated": True, "displayed_date": shown, "date": ends}
    | ({"date_type": kind} if kind else {})
    for name, (kind, shown, ends, *_) in PERIODS.items()
}


def test_period_is_shown_on_its_last_day_with_the_period_in_the_title(tmp_path: Path) -> None:
    events = events_of(tmp_path, ESTIMATED)
    found = {name: (*times(event), str(event["summary"])) for name, event in events.items()}
    assert found == {name: (day, day + DAY, title) for name, (*_, day, title) in PERIODS.items()}
    for event in events.values():
        assert (str(event["status"]), str(event["transp"])) == ("TENTATIVE", "TRANSPARENT")
        assert "not an exact date" in event["description"]


def test_estimated_events_are_left_out_unless_they_are_asked_for(tmp_path: Path) -> None:
    versions = [
        Known(event_id=name, known_from=PULLED, **fields) for name, fields in ESTIMATED.items()
    ]
    with open_at(tmp_path, [*versions, Known(event_id="exact", known_from=PULLED, date=NOW)]) as db:
        for query, names in (
            (FeedQuery(), {"exact"}),
            (FeedQuery(estimated="drop"), {"exact"}),
            (FeedQuery(estimated="include"), {"exact", *ESTIMATED}),
            (FeedQuery(estimated="only"), {*ESTIMATED}),
            (FeedQuery(event_ids=("year", "exact")), {"exact", "year"}),
            (FeedQuery(event_ids=("year", "exact"), estimated="drop"), {"exact"}),
        ):
            feed = write_feed(db, query)
            assert (set(events_in(feed.content)), feed.total) == (names, len(names))
            assert count_events(db, query) == feed.total
            assert (b"without an exact date are left out" in feed.content) == ("year" not in names)


def test_missing_displayed_date_falls_back_to_the_date(tmp_path: Path) -> None:
    fields = {name: {**given, "displayed_date": None} for name, given in ESTIMATED.items()}
    events = events_of(tmp_path, fields)
    titles = {name: str(event["summary"]) for name, event in events.items()}
    assert titles == {name: title for name, (*_, title) in PERIODS.items()}
    assert "Date: By 11 Oct 2026. This is not" in events["deadline"]["description"]


def test_same_knowledge_gives_the_same_bytes_and_later_knowledge_does_not(tmp_path: Path) -> None:
    first = [Known(event_id="evt", known_from=PULLED, date=NOW + DAY)]
    moved = Known(event_id="evt", version=2, known_from=PULLED + DAY, date=NOW + 2 * DAY)
    query = FeedQuery(as_of=PULLED + timedelta(hours=1), starts="2026-02-01")
    with open_at(tmp_path, first) as db:
        then = write_feed(db, query)
    with open_at(tmp_path, [*first, moved]) as db:
        assert write_feed(db, query) == then
        assert write_feed(db, FeedQuery(starts="2026-02-01")).content != then.content


def test_feed_has_a_title_links_and_facts_of_the_event(tmp_path: Path) -> None:
    event = only_event(
        tmp_path,
        title="Main\tnet\u202e \x1b[31m \U0001f469\u200d\U0001f680",
        coins=("bitcoin", "ether", "third", "fourth"),
        categories=("Hard, Fork", "Release"),
        impact=7.5,
        impact_band="Critical",
        source_url="https://x.example/a?b=c,d",
    )
    assert str(event["summary"]) == "BTC, ETH, third +1: Main net [31m \U0001f469\u200d\U0001f680"
    assert event["categories"].cats == ["Hard, Fork", "Release"]
    assert str(event["url"]) == "https://x.example/a?b=c,d"
    description = str(event["description"]).splitlines()
    assert description[0] == "Coins: Bitcoin (BTC), Ether (ETH), third, fourth"
    assert "Impact: 7.5 of 10 (Critical)" in description
    assert description[-2:] == [
        "First seen 2026-03-01 06:00 UTC.",
        "Source: https://x.example/a?b=c,d",
    ]


def test_source_that_is_no_web_address_is_left_out(tmp_path: Path) -> None:
    addresses = ("javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "x", "http://")
    given = {address: {"date": NOW, "source_url": address} for address in addresses}
    events = events_of(tmp_path, given)
    assert set(events) == set(addresses)
    for address, event in events.items():
        assert "url" not in event
        assert f"Source: {address}" not in event["description"]


def test_hidden_field_is_named_and_not_invented(tmp_path: Path) -> None:
    event = only_event(tmp_path, unknown_fields=("impact", "categories"))
    assert "Impact: not shown by the plan" in event["description"]
    assert "Categories: not shown by the plan" in event["description"]
    assert "categories" not in event
    assert "Impact" not in only_event(tmp_path)["description"]


def test_feed_begins_30_days_ago_and_has_no_end(tmp_path: Path) -> None:
    ages = {"old": -31, "recent": -29, "today": 0, "far": 3000}
    known = [
        Known(event_id=name, known_from=PULLED, date=NOW + days * DAY)
        for name, days in ages.items()
    ]
    undated = Known(event_id="undated", known_from=PULLED)
    with open_at(tmp_path, [*known, undated]) as db:

        def shown(**given: Any) -> set[str]:
            return set(events_in(write_feed(db, FeedQuery(**given)).content))

        assert shown() == {"recent", "today", "far"}
        assert shown(starts="2020-01-01") == set(ages)
        assert shown(ends="2026-03-10") == {"recent", "today"}
        assert shown(starts="2026-03-06", ends="2026-03-06") == {"today"}
        assert shown(ends=f"{NOW:%Y-%m-%dT%H:%M:%SZ}") == {"recent"}
        assert shown(q=" tIt") == {"recent", "today", "far"}
        assert shown(q="other") == set()
        assert shown(event_ids=("old",)) == {"old"}
        assert shown(event_ids=("undated",)) == set()
        with pytest.raises(almanac.UnknownName, match="nothing"):
            shown(event_ids=("nothing",))


def test_limit_leaves_out_the_latest_dates_and_says_so(tmp_path: Path) -> None:
    known = [
        Known(event_id=f"evt_{number}", known_from=PULLED, date=NOW + number * DAY)
        for number in range(5)
    ]
    with open_at(tmp_path, known) as db:
        feed = write_feed(db, FeedQuery(limit=2))
        whole = write_feed(db, FeedQuery())
        for limit in (0, 100_001):
            with pytest.raises(almanac.InvalidArgument, match="1 to 100,000"):
                write_feed(db, FeedQuery(limit=limit))
    assert set(events_in(feed.content)) == {"evt_0", "evt_1"}
    assert (feed.is_truncated, feed.events, feed.total) == (True, 2, 5)
    calendar = icalendar.Calendar.from_ical(feed.content)
    assert str(calendar["x-almanac-truncated"]).startswith("Truncated: 2 of 5 events")
    assert "Truncated: 2 of 5 events" in str(calendar["x-wr-caldesc"])
    assert not whole.is_truncated
    assert b"TRUNCATED" not in whole.content


def test_coins_of_the_filter_come_first_and_name_the_calendar(tmp_path: Path) -> None:
    known = Known(
        event_id="evt", known_from=PULLED, date=NOW, coins=("aa", "bb", "bitcoin", "cc", "dd")
    )
    with open_at(tmp_path, [known]) as db:
        content = write_feed(db, FeedQuery(coins="btc", min_impact=0)).content
        assert not events_in(content)  # its score is unknown
        content = write_feed(db, FeedQuery(coins="BTC/USDT", q="Title")).content
    assert str(events_in(content)["evt"]["summary"]) == "BTC, aa, bb +2: title"
    assert str(icalendar.Calendar.from_ical(content)["name"]) == "Crypto events · BTC · “Title”"


def test_missing_event_is_tentative_until_it_returns(tmp_path: Path) -> None:
    known = [Known(event_id="evt", known_from=PULLED, date=NOW)]
    gone, back = PULLED + DAY, PULLED + 2 * DAY
    absences = [Absence("evt", gone, gone), Absence("evt", back, None)]
    sequences, changes, statuses = [], [], []
    with open_at(tmp_path, known, absences=absences) as db:
        for as_of in (PULLED, gone, back):
            event = events_in(write_feed(db, FeedQuery(as_of=as_of)).content)["evt"]
            sequences.append(event["sequence"])
            changes.append(event["last-modified"].dt)
            statuses.append(str(event["status"]))
            assert ("stopped listing" in event["description"]) == (as_of == gone)
    assert statuses == ["CONFIRMED", "TENTATIVE", "CONFIRMED"]
    assert changes == [PULLED, gone, back]
    # Of the version alone: an absence that a refold removes can't lower it.
    assert sequences == [sequence_number(PULLED, 1)] * 3
