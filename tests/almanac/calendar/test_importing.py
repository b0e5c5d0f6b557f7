"""A calendar that subscribed sees each move, cancellation and return."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from almanac.calendar.feed import FeedQuery, write_feed
from tests.almanac.calendar.importing import PROGRAMS, Subscription
from tests.almanac.calendar.test_feed import DAY, NOW, PULLED, open_at
from tests.warehouse.answers.handmade import Known

FIRST = Known(event_id="evt", known_from=PULLED, date=NOW + DAY)
MOVED = replace(FIRST, version=2, known_from=PULLED + DAY, date=NOW + 3 * DAY)
ENDED = replace(MOVED, version=3, known_from=PULLED + 2 * DAY, status="cancelled")
RESTORED = replace(MOVED, version=4, known_from=PULLED + 3 * DAY)
OTHER = Known(event_id="other", known_from=PULLED, date=NOW)


class Subscriptions:
    """A subscription of each program to the feed of one warehouse."""

    def __init__(self, path: Path, query: FeedQuery | None = None) -> None:
        self._path = path
        self._query = query or FeedQuery()
        self.each = [Subscription(program) for program in PROGRAMS]

    def fetch(self, *versions: Known, removed: Sequence[datetime] = ()) -> None:
        """Publish the versions; each program fetches twice."""
        gone = [("evt", moment) for moment in removed]
        with open_at(self._path, [*versions, OTHER], removed=gone) as db:
            content = write_feed(db, self._query).content
        for calendar in self.each:
            calendar.fetch(content)
            calendar.fetch(content)

    def starts(self) -> list[Any]:
        return [calendar.shown["evt"].start for calendar in self.each]


@pytest.mark.parametrize("cancelled", ["show", "drop"])
@pytest.mark.parametrize("status", ["cancelled", "withdrawn"])
def test_move_and_end_reach_a_subscription(status: str, cancelled: Any, tmp_path: Path) -> None:
    calendars = Subscriptions(tmp_path, FeedQuery(cancelled=cancelled))
    versions = [FIRST, MOVED, replace(ENDED, status=status), RESTORED]
    calendars.fetch(*versions[:1])
    assert calendars.starts() == [FIRST.date] * 3
    calendars.fetch(*versions[:2])
    assert calendars.starts() == [MOVED.date] * 3
    calendars.fetch(*versions[:3])
    for calendar in calendars.each:
        if calendar.program == "google" or cancelled == "drop":
            assert set(calendar.shown) == {"other"}
        else:
            assert calendar.shown["evt"] == (MOVED.date, f"{status.capitalize()}: title", True)
    calendars.fetch(*versions)
    for calendar in calendars.each:
        assert calendar.shown["evt"] == (MOVED.date, "title", False)


def test_estimated_date_becomes_exact_in_a_subscription(tmp_path: Path) -> None:
    quarter = replace(
        FIRST,
        is_estimated=True,
        date_type="quarter",
        displayed_date="Q1 2026",
        date=NOW.replace(day=31, hour=23, minute=59, second=59),
    )
    calendars = Subscriptions(tmp_path)
    calendars.fetch(quarter)
    for calendar in calendars.each:
        shown = calendar.shown["evt"]
        assert (str(shown.start), shown.title) == ("2026-03-31", "[Q1 2026] title")
    calendars.fetch(quarter, replace(FIRST, version=2, known_from=PULLED + DAY))
    assert calendars.starts() == [FIRST.date] * 3


def test_refold_that_numbers_versions_anew_hides_no_later_change(tmp_path: Path) -> None:
    """Version 3 becomes version 1, and the next change is then version 2."""
    renumbered = replace(ENDED, version=1)
    later = replace(RESTORED, version=2, date=NOW + 9 * DAY)
    calendars = Subscriptions(tmp_path)
    calendars.fetch(FIRST, MOVED, ENDED)
    calendars.fetch(renumbered)
    calendars.fetch(renumbered, later)
    assert calendars.starts() == [later.date] * 3


def test_refold_that_removes_a_version_reaches_a_subscription(tmp_path: Path) -> None:
    """The move is removed, comes back, and is removed again."""
    moved_at = MOVED.known_from
    calendars = Subscriptions(tmp_path)
    for versions, removed in (
        ([FIRST, MOVED], []),
        ([FIRST], [moved_at]),
        ([FIRST, MOVED], [moved_at]),
        ([FIRST], [moved_at, moved_at]),
    ):
        calendars.fetch(*versions, removed=removed)
        assert calendars.starts() == [versions[-1].date] * 3


def test_removal_that_is_not_known_yet_does_not_count_in_the_past(tmp_path: Path) -> None:
    query = FeedQuery(as_of=PULLED + timedelta(hours=1))
    with open_at(tmp_path, [FIRST]) as db:
        plain = write_feed(db, query)
    with open_at(tmp_path, [FIRST], removed=[("evt", MOVED.known_from)]) as db:
        assert write_feed(db, query) == plain
