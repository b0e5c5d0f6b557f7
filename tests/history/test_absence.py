"""What was missing at an instant, and what an absence proves."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.history.stories.handmade import HandmadeHome, at, event
from warehouse.history.merge import rebuild

SECOND = timedelta(seconds=1)


def missing_as_of(story: HandmadeHome, instant: datetime) -> list[tuple[str, datetime | None]]:
    text = f"'{instant.isoformat()}', basis := 'claimed'"
    return story.rows(
        f"SELECT event_id, missing_since FROM events_as_of({text}) WHERE version > 0 ORDER BY ALL"
    )


def statuses(story: HandmadeHome, event_id: str) -> list[str]:
    return [status for (status,) in story.versions(event_id, "status")]


class TestMissingAsOf:
    def test_an_event_is_missing_from_its_absence_to_its_return(self, story: HandmadeHome) -> None:
        story.home.claim("by hand")
        for when, *shown in (
            ("01 06:00", "a", "b"),
            ("01 12:00", "b"),
            ("02 06:00", "b"),
            ("03 06:00", "a", "b"),
            ("04 06:00", "b"),
        ):
            story.listed(when, *(event(event_id) for event_id in shown))
            if when in ("01 12:00", "02 06:00", "04 06:00"):
                story.merge()
        first, found, again = at("01 12:00"), at("03 06:00"), at("04 06:00")
        absences = "SELECT event_id, changed_at, missing_since FROM event_absences ORDER BY ALL"
        expected = [("a", first, first), ("a", found, None), ("a", again, again)]
        assert story.rows(absences) == expected
        for instant, since in (
            (first - SECOND, None),
            (first, first),
            (found - SECOND, first),
            (found, None),
            (again - SECOND, None),
            (again, again),
        ):
            assert missing_as_of(story, instant) == [("a", since), ("b", None)], instant
        assert missing_as_of(story, at("01 06:00") - SECOND) == []
        rebuild(story.home)
        assert story.rows(absences) == expected

    def test_the_last_of_changes_at_one_time_counts(self, story: HandmadeHome) -> None:
        story.listed("01 06:00", event("a"), event("b"), event("c"))
        story.listed("01 12:00", event("c"), true="01 11:00")
        story.merge()
        when = at("01 12:00")
        assert missing_as_of(story, when) == [("a", when), ("b", when), ("c", None)]
        story.deliveries(("01 12:00", "2026-03-01T11:30:00Z", event("a")))
        story.merge()
        assert missing_as_of(story, when) == [("a", None), ("b", when), ("c", None)]
        absences = story.rows("SELECT event_id, changed_at, missing_since FROM event_absences")
        assert absences == [("b", when, when)]
        rebuild(story.home)
        assert missing_as_of(story, when) == [("a", None), ("b", when), ("c", None)]

    def test_a_withdrawn_event_is_no_longer_missing(self, story: HandmadeHome) -> None:
        story.listed("01 06:00", event("a"), event("b"))
        story.listed("02 06:00", event("b"))
        story.look_up("03 06:00", "a", 404)
        story.merge()
        since = at("02 06:00")
        assert missing_as_of(story, at("02 12:00")) == [("a", since), ("b", None)]
        assert missing_as_of(story, at("03 06:00")) == [("a", None), ("b", None)]


class TestContentFromBeforeAnAbsence:
    """An export is made hours before it is downloaded, so it may show what was lost since."""

    @pytest.fixture
    def events(self) -> list[dict[str, Any]]:
        return [event("a"), *(event(f"e{place:02}") for place in range(60))]

    @pytest.fixture
    def lost(self, story: HandmadeHome, events: list[dict[str, Any]]) -> HandmadeHome:
        """Return a home whose list of 12:00 lacks `a`, which the export of 00:05 has."""
        story.export("01 06:00", *events, true="01 00:05")
        story.listed("01 12:00", *events[1:])
        story.merge()
        return story

    def looks(self, story: HandmadeHome) -> list[Any]:
        return [
            *story.rows("SELECT missing_since, last_seen_at FROM events WHERE event_id = 'a'"),
            *story.rows("SELECT changed_at, missing_since FROM event_absences ORDER BY 1"),
        ]

    def test_a_second_look_at_the_export_finds_nothing_that_was_lost_since(
        self, lost: HandmadeHome, events: list[dict[str, Any]]
    ) -> None:
        missing = [(at("01 12:00"), at("01 06:00")), (at("01 12:00"), at("01 12:00"))]
        assert self.looks(lost) == missing
        lost.export("01 13:00", *events, true="01 00:05")
        lost.merge()
        assert self.looks(lost) == missing
        lost.listed("01 14:00", *events)
        lost.merge()
        absences = [(at("01 12:00"), at("01 12:00")), (at("01 14:00"), None)]
        assert self.looks(lost) == [(None, at("01 14:00")), *absences]

    def test_new_content_from_before_an_absence_does_not_end_it_and_a_cancellation_explains_it(
        self, lost: HandmadeHome, events: list[dict[str, Any]]
    ) -> None:
        lost.export("01 13:00", event("a", title="Second a"), *events[1:], true="01 11:00")
        lost.merge()
        assert lost.versions("a", "title") == [("First a",), ("Second a",)]
        assert self.looks(lost)[0] == (at("01 12:00"), at("01 06:00"))
        lost.cancellations("01 14:00", a=at("01 11:30").isoformat())
        lost.merge()
        assert statuses(lost, "a") == ["scheduled", "scheduled", "cancelled"]
        assert self.looks(lost)[0] == (None, at("01 06:00"))
        assert self.looks(lost)[-1] == (at("01 14:00"), None)


class TestWithdrawals:
    def test_an_export_that_proves_nothing_is_not_one_of_two(self, story: HandmadeHome) -> None:
        events = [event(f"e{place:02}", date="2026-04-01T00:00:00Z") for place in range(100)]
        story.export("01 06:00", *events)
        story.export("02 06:00", *events[1:], plan="standard")
        story.cancellations("02 07:00")
        story.export("03 06:00", *events[1:])
        story.merge()
        assert statuses(story, "e00") == ["scheduled"]
        story.cancellations("03 07:00")
        story.export("04 06:00", *events[1:])
        story.merge()
        assert statuses(story, "e00") == ["scheduled", "withdrawn"]

    def test_a_cancellation_that_becomes_known_after_a_withdrawal_cancels(
        self, story: HandmadeHome
    ) -> None:
        """Unless it is from before the last content. Content from before restores nothing."""
        shown = [event(name) for name in ("late", "early", "other")]
        cancelled = {"late": at("05 09:00").isoformat(), "early": at("05 05:00").isoformat()}
        story.listed("05 06:00", *shown)
        story.look_up("05 12:00", "late", 404)
        story.look_up("05 12:00", "early", 404)
        story.merge()
        story.cancellations("06 07:00", **cancelled)
        story.listed("06 08:00", *shown, true="05 10:00")
        story.merge()
        story.cancellations("07 07:00", **cancelled)
        story.merge()
        assert statuses(story, "late") == ["scheduled", "withdrawn", "cancelled"]
        assert statuses(story, "early") == ["scheduled", "withdrawn"]

    def test_an_event_that_was_restored_stays_withdrawn(self, story: HandmadeHome) -> None:
        cancelled = {"a": at("05 07:00").isoformat()}
        story.listed("05 06:00", event("a"), event("b"))
        story.cancellations("05 08:00", **cancelled)
        story.listed("05 10:00", event("a"), event("b"))
        story.look_up("05 12:00", "a", 404)
        story.merge()
        story.cancellations("06 07:00", **cancelled)
        story.merge()
        assert statuses(story, "a") == ["scheduled", "cancelled", "scheduled", "withdrawn"]
