"""Sequences of pulls at the edges of the rules, each with the history that it must make."""

from typing import Any

import pytest

from tests.history.stories.handmade import HandmadeHome, at, coin, event


def test_a_pull_between_two_deliveries_of_a_batch_is_folded_there(story: HandmadeHome) -> None:
    story.listed("01 09:00", event("a"), event("b"))
    story.deliveries(
        ("01 10:00", "2026-03-01T09:59:00Z", event("a", title="Second a")),
        ("01 12:00", "2026-03-01T11:59:00Z", event("b", title="Third b")),
    )
    story.merge()
    story.listed("01 11:00", event("a", title="Second a"), event("b", title="Second b"))
    story.merge()
    versions = story.versions("b", "title, known_from")
    assert versions == [
        ("First b", at("01 09:00")),
        ("Second b", at("01 11:00")),
        ("Third b", at("01 12:00")),
    ]


def test_deliveries_before_the_last_merged_pull_are_folded_first(story: HandmadeHome) -> None:
    story.listed("01 09:00", event("a"), event("b"))
    story.listed("01 11:00", event("a", title="Second a"), event("b"))
    story.merge()
    story.deliveries(
        ("01 10:00", "2026-03-01T09:59:00Z", event("a", title="Delivered a")),
        ("01 12:00", "2026-03-01T11:59:00Z", event("b", title="Third b")),
    )
    story.merge()
    versions = story.versions("a", "title, known_from")
    assert versions == [
        ("First a", at("01 09:00")),
        ("Delivered a", at("01 10:00")),
        ("Second a", at("01 11:00")),
    ]


def test_withdrawn_events_are_not_expected_in_an_export(story: HandmadeHome) -> None:
    """Three of a hundred are withdrawn: an export of the others is complete."""
    events = [event(f"e{place:02}") for place in range(100)]
    story.listed("01 10:00", *events)
    for place in range(3):
        story.look_up(f"01 11:0{place}", f"e{place:02}", 404)
    story.export("02 06:00", *events[3:])
    story.export("03 06:00", *events[4:])
    story.merge()
    assert story.rows("SELECT DISTINCT flagged FROM batches") == [(None,)]
    missing = story.rows(
        "SELECT event_id, missing_since FROM events WHERE missing_since IS NOT NULL"
    )
    assert missing == [("e03", at("03 06:00"))]


def test_look_ups_that_find_nothing_are_not_equal(story: HandmadeHome) -> None:
    """A 404 on a plan with a horizon, a partial one, and a 410 of an earlier cancellation."""
    story.listed("05 06:00", event("gone"), event("hidden"), event("partial"))
    story.look_up("05 11:00", "hidden", 404, plan="standard")
    story.look_up("05 11:01", "partial", 404, why_incomplete="cut short")
    cancelled = {"id": "gone", "cancelledAt": "2026-03-05T00:00:00Z"}
    story.look_up("05 12:00", "gone", 410, cancelled)
    story.merge()
    assert story.rows("SELECT event_id, status, missing_since FROM events ORDER BY 1") == [
        ("gone", "cancelled", None),
        ("hidden", "scheduled", at("05 11:00")),
        ("partial", "scheduled", None),
    ]
    assert story.versions("gone", "status, known_from, cancelled_at")[1:] == [
        ("cancelled", at("05 12:00"), at("05 00:00"))
    ]


def test_one_complete_export_without_an_event_does_not_withdraw_it(story: HandmadeHome) -> None:
    events = [event(f"e{place:02}") for place in range(60)]
    story.export("01 06:00", *events)
    story.cancellations("01 07:00")
    story.export("02 06:00", *events[1:])
    story.merge()
    story.cancellations("02 07:00")
    story.merge()
    assert story.rows("SELECT status FROM events WHERE event_id = 'e00'") == [("scheduled",)]
    story.export("03 06:00", *events[1:])
    story.merge()
    assert story.rows("SELECT status FROM events WHERE event_id = 'e00'") == [("withdrawn",)]


@pytest.mark.parametrize("again", ["the same snapshot", "a newer snapshot"])
def test_one_snapshot_is_not_two_exports_without_an_event(story: HandmadeHome, again: str) -> None:
    events = [event(f"e{place:02}") for place in range(60)]
    story.export("01 06:00", *events)
    story.export("02 06:00", *events[1:], true="02 00:05")
    story.cancellations("02 07:00")
    newer = "02 00:05" if again == "the same snapshot" else "02 07:05"
    story.export("02 08:00", *events[1:], true=newer)
    story.merge()
    withdrawn = [("e00",)]
    found = story.rows("SELECT event_id FROM events WHERE status = 'withdrawn'")
    assert found == (withdrawn if again == "a newer snapshot" else [])
    assert story.rows("SELECT count(*) FROM coverage WHERE feed = 'export'") == [(3,)]
    story.export("03 06:00", *events[1:])
    story.merge()
    assert story.rows("SELECT event_id FROM events WHERE status = 'withdrawn'") == withdrawn


def test_a_later_gap_in_cancellations_is_harmless(story: HandmadeHome) -> None:
    """The first pull covered the absent event; a gap after it changes nothing."""
    events = [event(f"e{place:03}") for place in range(200)]
    story.export("01 06:00", *events)
    story.export("02 06:00", *events[1:])
    story.cancellations("02 07:00")
    story.merge()
    story.cancellations("02 12:00", since="02 11:00")
    story.export("03 06:00", *events[2:])
    story.merge()
    withdrawn = "SELECT event_id FROM events WHERE status = 'withdrawn'"
    assert story.rows(withdrawn) == [("e000",)]
    story.cancellations("03 07:00", since="03 06:00")
    story.export("04 06:00", *events[2:])
    story.merge()
    assert story.rows(withdrawn) == [("e000",)]


def test_without_updated_at_no_content_is_claimed(story: HandmadeHome) -> None:
    story.listed("10 06:00", event("a", updatedAt=...))
    story.merge()
    claimed = "SELECT title, impact FROM events_as_of('2026-02-01', basis := 'claimed')"
    assert story.rows(claimed) == [(None, None)]


def test_a_filter_counts_once_its_category_is_named(story: HandmadeHome) -> None:
    story.listed_by_category("01 10:00", ("7",), event("a"))
    story.merge()
    story.categories("01 11:00", c7="Listing")
    story.merge()
    created = "2026-03-01T20:00:00Z"
    story.listed("02 10:00", event("a"), event("b", createdAt=created, updatedAt=created))
    story.merge()
    assert story.versions("b", "change_kinds") == [(["created"],)]


def test_a_list_of_the_top_coins_does_not_watch_for_new_events(story: HandmadeHome) -> None:
    story.coins("01 09:00", coin("bitcoin"), plan="free")
    story.listed("01 10:00", plan="free")
    new = {"createdAt": "2026-03-01T20:00:00Z", "updatedAt": "2026-03-01T20:00:00Z"}
    story.listed("02 10:00", event("a", date="2026-03-05T00:00:00Z", **new))
    story.merge()
    assert story.versions("a", "change_kinds") == [(["revealed"],)]


def test_a_waiting_cancellation_of_the_same_time_can_be_undone(story: HandmadeHome) -> None:
    story.cancellations("01 10:00", a="2026-03-01T09:00:00Z")
    story.listed("01 10:01", event("a"), true="01 09:00")
    story.listed("01 12:00", event("a"))
    story.merge()
    assert story.versions("a", "status, change_kinds, known_from") == [
        ("cancelled", ["revealed", "cancelled"], at("01 10:01")),
        ("scheduled", ["restored"], at("01 12:00")),
    ]


@pytest.mark.parametrize("plan", ["free", "elite"])
def test_an_event_whose_coin_left_the_top_is_not_missing(plan: str, story: HandmadeHome) -> None:
    """On Free the coin is no longer in the list; on Elite it is missing everywhere."""
    of_tron = [{"slug": "tron", "symbol": "TRX", "name": "Tron"}]
    soon = event("a", coins=of_tron, date="2026-03-05T00:00:00Z")
    story.coins("01 10:00", coin("bitcoin"), coin("tron", rank=100), plan=plan)
    story.listed("01 11:00", soon, plan="free")
    story.coins("02 10:00", coin("bitcoin"), coin("solana", rank=100), plan=plan)
    story.listed("02 11:00", plan="free")
    story.merge()
    assert story.rows("SELECT missing_since FROM events") == [(None,)]
    if plan == "free":
        assert story.rows("SELECT rank FROM coins WHERE slug = 'tron'") == [(None,)]


def test_an_event_or_coin_whose_row_can_not_be_read_is_not_missing(story: HandmadeHome) -> None:
    """Also one whose raw text is cut."""
    story.coins("01 09:00", coin("bitcoin"), coin("ethereum"), coin("tron"))
    story.listed("01 10:00", *map(event, ("alpha", "beta", "gamma", "long")))
    story.coins("02 09:00", coin("bitcoin"), coin("ethereum", rank="first"))
    long = event("long", date="soon", description="y" * 70_000)
    story.listed("02 10:00", event("alpha"), event("beta", date="soon"), long)
    story.merge()
    missing = story.rows("SELECT event_id FROM events WHERE missing_since IS NOT NULL")
    assert missing == [("gamma",)]
    missing = story.rows("SELECT slug FROM coins WHERE missing_since IS NOT NULL")
    assert missing == [("tron",)]


def test_a_rejected_row_without_an_id_flags_its_batch(story: HandmadeHome) -> None:
    story.listed("01 10:00", event("alpha"), event("beta"))
    story.listed("02 10:00", event("alpha"), event("x", id=None))
    story.merge()
    missing = "SELECT event_id FROM events WHERE missing_since IS NOT NULL"
    assert story.rows(missing) == []
    (flagged,) = story.rows("SELECT flagged FROM batches WHERE rejected = 1")
    assert "1 rejected row names no event" in flagged[0]
    story.release_flagged()
    story.merge()
    assert story.rows(missing) == [("beta",)]


def test_a_row_counts_by_its_update_unless_that_is_in_the_future(story: HandmadeHome) -> None:
    def second(event_id: str, updated_at: str) -> dict[str, Any]:
        return event(event_id, title=f"Second {event_id}", updatedAt=updated_at)

    future = event("future", updatedAt="2199-12-31T23:59:59Z")
    hidden = event("hidden", updatedAt="2026-03-03T09:00:00Z")
    known = second("old", "2026-02-02T00:00:00Z")
    old = event("old", updatedAt="2026-02-01T00:00:00Z")
    story.listed("01 09:00", known, future, hidden)
    future = second("future", "2026-03-02T08:00:00Z")
    story.listed("02 12:00", old, future, event("hidden", updatedAt=...))
    story.listed("04 09:00", old, future, second("hidden", "2026-03-02T00:00:00Z"))
    story.merge()
    assert story.versions("old", "title") == [("Second old",)]
    assert story.versions("hidden", "title") == [("First hidden",), ("Second hidden",)]
    versions = story.versions("future", "title, known_from, updated_at")
    assert [version[:2] for version in versions] == [
        ("First future", at("01 09:00")),
        ("Second future", at("02 12:00")),
    ]
    assert versions[0][2].year > 2026


def test_times_in_the_future_count_as_the_time_of_receipt(story: HandmadeHome) -> None:
    future = "2030-01-01T00:00:00Z"
    story.listed("01 09:00", event("cancelled"), event("pushed"))
    story.cancellations("01 10:00", cancelled=future)
    story.deliveries(("01 10:00", future, event("pushed", title="Second")))
    pushed = event("pushed", title="Third")
    story.listed("02 09:00", event("cancelled"), pushed, event("created", createdAt=future))
    story.merge()
    statuses = [("scheduled",), ("cancelled",), ("scheduled",)]
    assert story.versions("cancelled", "status") == statuses
    versions = story.versions("pushed", "title, content_at")
    assert [title for title, _ in versions] == ["First pushed", "Second", "Third"]
    assert versions[1][1] == at("01 10:00")
    assert story.versions("created", "change_kinds") == [(["revealed"],)]


def test_a_displayed_period_that_contradicts_the_date_is_noted_until_it_is_corrected(
    story: HandmadeHome,
) -> None:
    dated = {"date": "2026-10-01T00:00:00Z", "dateType": "quarter", "isEstimated": True}
    story.listed("01 09:00", event("a", displayedDate="Q4 2026", **dated))
    story.listed("02 09:00", event("a", displayedDate="Q3 2026", **dated))
    story.merge()
    assert story.versions("a", "date_precision, earliest::DATE::VARCHAR, date_doubt") == [
        ("quarter", "2026-10-01", "displayed as Q4 2026, but the date is 2026-10-01 (quarter)"),
        ("quarter", "2026-07-01", None),
    ]
