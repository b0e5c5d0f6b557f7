"""A calendar that subscribed sees each move, cancellation and return."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import icalendar
import pytest

from almanac.calendar.feed import FeedQuery, write_feed
from tests.almanac.calendar.test_feed import DAY, NOW, PULLED, events_in, open_at
from tests.warehouse.answers.handmade import Known

FIRST = Known(event_id="evt", known_from=PULLED, date=NOW + DAY)
MOVED = replace(FIRST, version=2, known_from=PULLED + DAY, date=NOW + 3 * DAY)
ENDED = replace(MOVED, version=3, known_from=PULLED + 2 * DAY, status="cancelled")
RESTORED = replace(MOVED, version=4, known_from=PULLED + 3 * DAY)
OTHER = Known(event_id="other", known_from=PULLED, date=NOW)


class Subscription:
    """A program that is stricter than Google Calendar, Outlook and Apple Calendar.

    It takes a change of an event only with a greater SEQUENCE.
    """

    def __init__(self, path: Path, query: FeedQuery | None = None) -> None:
        self._path = path
        self._query = query or FeedQuery()
        self._known: dict[str, Any] = {}

    def fetch(self, *versions: Known, removed: Sequence[datetime] = ()) -> None:
        """Publish the versions, and read the feed. What it lacks is removed."""
        gone = [("evt", moment) for moment in removed]
        with open_at(self._path, [*versions, OTHER], removed=gone) as db:
            content = write_feed(db, self._query).content
        assert str(icalendar.Calendar.from_ical(content)["method"]) == "PUBLISH"
        found = events_in(content)
        for uid, event in found.items():
            before = self._known.get(uid)
            if before is not None and event["sequence"] <= before["sequence"]:
                found[uid] = before
        self._known = found

    def shown(self) -> tuple[Any, str, str] | None:
        """Return start, title and status of the event."""
        event = self._known.get("evt")
        if event is None:
            return None
        return event["dtstart"].dt, str(event["summary"]), str(event["status"])


@pytest.mark.parametrize(("status", "cancelled"), [("cancelled", "show"), ("withdrawn", "drop")])
def test_move_and_end_reach_a_subscription(status: str, cancelled: Any, tmp_path: Path) -> None:
    calendar = Subscription(tmp_path, FeedQuery(cancelled=cancelled))
    versions = [FIRST, MOVED, replace(ENDED, status=status), RESTORED]
    calendar.fetch(*versions[:1])
    assert calendar.shown() == (FIRST.date, "title", "CONFIRMED")
    calendar.fetch(*versions[:2])
    assert calendar.shown() == (MOVED.date, "title", "CONFIRMED")
    calendar.fetch(*versions[:3])
    ended = (MOVED.date, f"{status.capitalize()}: title", "CANCELLED")
    assert calendar.shown() == (ended if cancelled == "show" else None)
    calendar.fetch(*versions)
    assert calendar.shown() == (MOVED.date, "title", "CONFIRMED")


def test_changes_within_one_second_reach_a_subscription(tmp_path: Path) -> None:
    moved = replace(MOVED, known_from=PULLED + timedelta(milliseconds=300))
    calendar = Subscription(tmp_path)
    calendar.fetch(FIRST)
    calendar.fetch(FIRST, moved)
    assert calendar.shown() == (moved.date, "title", "CONFIRMED")


def test_refold_that_numbers_versions_anew_hides_no_later_change(tmp_path: Path) -> None:
    """Version 3 becomes version 1, and the next change is then version 2."""
    renumbered = replace(ENDED, version=1)
    later = replace(RESTORED, version=2, date=NOW + 9 * DAY)
    calendar = Subscription(tmp_path)
    calendar.fetch(FIRST, MOVED, ENDED)
    calendar.fetch(renumbered)
    calendar.fetch(renumbered, later)
    assert calendar.shown() == (later.date, "title", "CONFIRMED")


def test_refold_that_removes_a_version_reaches_a_subscription(tmp_path: Path) -> None:
    """The move is removed, comes back, and is removed again."""
    moved_at = MOVED.known_from
    calendar = Subscription(tmp_path)
    for versions, removed in (
        ([FIRST, MOVED], []),
        ([FIRST], [moved_at]),
        ([FIRST, MOVED], [moved_at]),
        ([FIRST], [moved_at, moved_at]),
    ):
        calendar.fetch(*versions, removed=removed)
        assert calendar.shown() == (versions[-1].date, "title", "CONFIRMED")


def test_removal_that_is_not_known_yet_does_not_count_in_the_past(tmp_path: Path) -> None:
    query = FeedQuery(as_of=PULLED + timedelta(hours=1))
    with open_at(tmp_path, [FIRST]) as db:
        plain = write_feed(db, query)
    with open_at(tmp_path, [FIRST], removed=[("evt", MOVED.known_from)]) as db:
        assert write_feed(db, query) == plain
