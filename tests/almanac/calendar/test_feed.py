"""The feed against the warehouse: dates, titles, updates, the window, the limit."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import icalendar
import pytest

import almanac
from almanac.calendar.feed import FeedQuery, write_feed
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known

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


DATES = {
    "instant": (
        dict(date=datetime(2026, 3, 9, 14, 30, tzinfo=UTC)),
        (datetime(2026, 3, 9, 14, 30, tzinfo=UTC), None),
    ),
    "instant with an end": (
        dict(
            date=datetime(2026, 3, 9, 14, tzinfo=UTC), date_end=datetime(2026, 3, 10, 8, tzinfo=UTC)
        ),
        (datetime(2026, 3, 9, 14, tzinfo=UTC), datetime(2026, 3, 10, 8, tzinfo=UTC)),
    ),
    "instant with an end of a day": (
        dict(date=datetime(2026, 3, 9, 14, tzinfo=UTC), date_end=datetime(2026, 3, 10, tzinfo=UTC)),
        (datetime(2026, 3, 9, 14, tzinfo=UTC), datetime(2026, 3, 11, tzinfo=UTC)),
    ),
    "day": (dict(date=datetime(2026, 3, 9, tzinfo=UTC)), (date(2026, 3, 9), date(2026, 3, 10))),
    "days": (
        dict(date=datetime(2026, 3, 9, tzinfo=UTC), date_end=datetime(2026, 3, 11, tzinfo=UTC)),
        (date(2026, 3, 9), date(2026, 3, 12)),
    ),
    "day that ends at a time": (
        dict(date=datetime(2026, 3, 9, tzinfo=UTC), date_end=datetime(2026, 3, 10, 8, tzinfo=UTC)),
        (date(2026, 3, 9), date(2026, 3, 11)),
    ),
}


@pytest.mark.parametrize("name", DATES)
def test_exact_dates_keep_their_precision(name: str, tmp_path: Path) -> None:
    fields, expected = DATES[name]
    event = only_event(tmp_path, **fields)
    assert times(event) == expected
    assert str(event["status"]) == "CONFIRMED"


PERIODS = {
    "month": (
        dict(
            date_type="month",
            displayed_date="Mar 2026",
            date=datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC),
        ),
        date(2026, 3, 31),
        "[Mar 2026] title",
    ),
    "quarter": (
        dict(
            date_type="quarter",
            displayed_date="Q3 2026",
            date=datetime(2026, 9, 30, 23, 59, 59, tzinfo=UTC),
        ),
        date(2026, 9, 30),
        "[Q3 2026] title",
    ),
    "quarter that ends at the first timestamp after it": (
        dict(date_type="quarter", displayed_date="Q3 2026", date=datetime(2026, 10, 1, tzinfo=UTC)),
        date(2026, 9, 30),
        "[Q3 2026] title",
    ),
    "year": (
        dict(
            date_type="year",
            displayed_date="2026",
            date=datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC),
        ),
        date(2026, 12, 31),
        "[2026] title",
    ),
    "deadline": (
        dict(displayed_date="By 11 Oct", date=datetime(2026, 10, 11, 23, 59, 59, tzinfo=UTC)),
        date(2026, 10, 11),
        "[By 11 Oct 2026] title",
    ),
}


@pytest.mark.parametrize("name", PERIODS)
def test_period_is_shown_on_its_last_day_with_the_period_in_the_title(
    name: str, tmp_path: Path
) -> None:
    fields, last_day, title = PERIODS[name]
    event = only_event(tmp_path, is_estimated=True, **fields)
    assert times(event) == (last_day, last_day + DAY)
    assert (str(event["summary"]), str(event["status"])) == (title, "TENTATIVE")
    assert "not an exact date" in event["description"]
    assert str(event["transp"]) == "TRANSPARENT"
