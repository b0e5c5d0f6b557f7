"""Deliveries of the documented form: repeated, late, in any order, and beside the polls."""

from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from tests.history.stories.handmade import HandmadeHome, at, event


def moment(text: str) -> str:
    return f"{at(text):%Y-%m-%dT%H:%M:%SZ}"


def pushed(kind: str, changed: str, event_id: str = "a", **fields: Any) -> dict[str, Any]:
    """Return a delivery of a change, as it is sent two seconds later."""
    data = event(event_id, **{"updatedAt": moment(changed), **fields})
    if kind == "cancelled":
        data["cancelledAt"] = moment(changed)
    return {
        "id": f"evt_dlv_{kind}_{event_id}_{changed}",
        "type": f"events.{kind}",
        "apiVersion": "2025-10-01",
        "deliveredAt": f"{at(changed) + timedelta(seconds=2):%Y-%m-%dT%H:%M:%SZ}",
        "data": data,
    }


def history(story: HandmadeHome) -> list[list[tuple[Any, ...]]]:
    """Return everything that is known of the events, but not of the batches."""
    story.merge()
    assert story.rows("SELECT sum(rejected), sum(ignored) FROM batches") == [(0, 0)]
    return [
        story.rows("SELECT * EXCLUDE (published_seq) FROM event_versions ORDER BY 1, version"),
        story.rows("SELECT * FROM events ORDER BY event_id"),
        story.rows("SELECT * FROM event_absences ORDER BY ALL"),
    ]


def test_a_poll_in_the_minute_after_a_delivery_changes_nothing(story: HandmadeHome) -> None:
    """It shows the catalog as it was a minute before."""
    story.listed("01 09:00", event("a"), event("b"))
    story.pushed(
        ("01 10:00:32", pushed("updated", "01 10:00:30", title="Second a")),
        ("01 10:00:33", pushed("cancelled", "01 10:00:30", "b")),
    )
    before = history(story)
    story.listed("01 10:01:20", event("a"), event("b"))
    after = history(story)
    assert after[0] == before[0]
    assert story.rows("SELECT event_id, title, status FROM events ORDER BY 1") == [
        ("a", "Second a", "scheduled"),
        ("b", "First b", "cancelled"),
    ]
    story.listed(
        "01 10:01:35", event("a", title="Second a", updatedAt=moment("01 10:00:30")), event("c")
    )
    assert [row for row in history(story)[0] if "c" not in row] == before[0]


def test_a_delivery_older_than_what_is_held_changes_nothing(story: HandmadeHome) -> None:
    old = moment("01 08:30")
    late: list[dict[str, Any]] = [
        pushed("updated", "01 08:30", "a", title="Older"),
        pushed("cancelled", "01 08:30", "b"),
        pushed("high-impact", "01 08:30", "c", impact=9.0),
        {"type": "event.updated", "createdAt": old, "data": event("d", title="Older")},
        {"type": "event.updated", **event("e", title="Older", updatedAt=old)},
        {"type": "event.cancelled", **event("f", cancelledAt=old)},
        {"type": "event.updated", "deliveredAt": old, "data": event("g", updatedAt=None, impact=1)},
    ]
    story.listed("01 09:00", *(event(event_id) for event_id in "abcdefg"))
    before = history(story)
    story.pushed(*((f"01 11:00:{place:02}", body) for place, body in enumerate(late)))
    assert history(story) == before


def test_a_delivery_sent_again_after_a_year_changes_nothing(story: HandmadeHome) -> None:
    """Under its own id or another, whatever became of its event since."""
    ids = ("cancelled", "restored", "updated", "withdrawn")
    first = [pushed("updated", "01 10:00", event_id, title="Second") for event_id in ids]
    ending = pushed("cancelled", "02 11:00", "restored")
    story.listed("01 09:00", *(event(event_id) for event_id in ids))
    story.pushed(*(("01 10:00:02", body) for body in first))
    story.pushed(
        ("02 10:00:02", pushed("updated", "02 10:00", "updated", title="Third")),
        ("02 10:00:03", pushed("cancelled", "02 10:00", "cancelled", title="Second")),
        ("02 11:00:02", ending),
        ("02 12:00:02", pushed("updated", "02 12:00", "restored", title="Third")),
    )
    story.look_up("02 14:00", "withdrawn", 404)
    before = history(story)
    assert story.rows("SELECT event_id, title, status FROM events ORDER BY event_id") == [
        ("cancelled", "Second", "cancelled"),
        ("restored", "Third", "scheduled"),
        ("updated", "Third", "scheduled"),
        ("withdrawn", "Second", "withdrawn"),
    ]
    again = [*first, ending]
    renamed = [body | {"id": f"new_{place}"} for place, body in enumerate(again)]
    story.pushed(*(("2027-03-02 10:00", body) for body in again + renamed))
    assert history(story) == before


def test_a_cancellation_is_as_of_its_own_time_before_its_event(story: HandmadeHome) -> None:
    bare = pushed("cancelled", "01 10:00", "b")
    bare["data"] = {"id": "b", "cancelledAt": moment("01 10:00")}
    story.pushed(("01 12:00", pushed("cancelled", "01 10:00")), ("01 12:00:01", bare))
    story.merge()
    assert story.versions("a", "status, cancelled_at, known_from") == [
        ("cancelled", at("01 10:00"), at("01 12:00"))
    ]
    story.listed("01 10:30", event("a"), event("b"), true="01 09:59")
    story.merge()
    assert story.rows("SELECT event_id, status, cancelled_at FROM events ORDER BY 1") == [
        ("a", "cancelled", at("01 10:00")),
        ("b", "cancelled", at("01 10:00")),
    ]


def test_a_first_high_score_is_an_update(story: HandmadeHome) -> None:
    story.listed("01 09:00", event("a", impact=5.0))
    change = pushed("updated", "01 10:00", impact=8.0)
    story.pushed(
        ("01 10:00:02", change), ("01 10:00:03", pushed("high-impact", "01 10:00", impact=8.0))
    )
    story.merge()
    assert story.versions("a", "impact, change_kinds, known_from")[1:] == [
        (8.0, ["rescored"], at("01 10:00:02"))
    ]


def test_deliveries_before_the_first_export_are_a_home(story: HandmadeHome) -> None:
    story.pushed(
        ("01 10:00:02", pushed("created", "01 10:00", "new")),
        ("01 11:00:02", pushed("updated", "01 11:00", "old", title="Second old")),
        ("01 12:00:02", pushed("cancelled", "01 12:00", "gone")),
    )
    story.merge()
    known = story.rows("SELECT event_id, title, status FROM events ORDER BY 1")
    assert known == [
        ("gone", "First gone", "cancelled"),
        ("new", "First new", "scheduled"),
        ("old", "Second old", "scheduled"),
    ]
    versions = "SELECT event_id, title, status FROM event_versions WHERE version > 0 ORDER BY 1"
    before = story.rows(versions)
    # The snapshot of midnight knows none of it; the next one all.
    story.export("01 13:00", event("gone"), event("old"), true="01 00:05")
    story.export("02 06:00", event("new"), event("old", title="Second old"), true="02 00:05")
    story.merge()
    assert story.rows(versions) == before
    assert story.rows("SELECT event_id, title, status FROM events ORDER BY 1") == known


STORIES: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "cancelled": [
        ("created", "01 10:00", {"impact": 5.0}),
        ("updated", "01 11:00", {"title": "Second"}),
        ("updated", "01 12:00", {"title": "Third", "impact": 8.0}),
        ("high-impact", "01 12:00", {"title": "Third", "impact": 8.0}),
        ("cancelled", "01 13:00", {"title": "Third", "impact": 8.0}),
    ],
    "restored": [
        ("created", "01 10:00", {}),
        ("cancelled", "01 11:00", {}),
        ("updated", "01 12:00", {"title": "Second"}),
        ("updated", "01 13:00", {"title": "Third"}),
    ],
}


@pytest.mark.parametrize("name", STORIES)
def test_deliveries_in_any_order_end_in_the_same_state(story: HandmadeHome, name: str) -> None:
    """Every order is that of an event of its own; each delivery is received twice."""
    changes = STORIES[name]
    received: list[tuple[str, dict[str, Any]]] = []
    for number, order in enumerate(permutations(changes)):
        for place, (kind, changed, fields) in enumerate(order + order[:2]):
            body = pushed(kind, changed, f"e{number:03}", **({"title": "First"} | fields))
            received.append((f"02 {place:02}:00:{number % 60:02}", body))
    story.pushed(*sorted(received, key=lambda delivery: delivery[0]))
    story.merge()
    kind, changed, fields = changes[-1]
    status = "cancelled" if kind == "cancelled" else "scheduled"
    columns = "title, status, impact, cancelled_at, updated_at"
    ends = {
        (
            fields["title"],
            status,
            fields.get("impact", 5.0),
            at(changed) if status == "cancelled" else None,
            at(changed),
        )
    }
    assert set(story.rows(f"SELECT {columns} FROM events")) == ends
