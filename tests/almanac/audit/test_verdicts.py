"""Each verdict of the look-ahead audit, on events whose versions are made by hand."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from almanac.audit.fields import FIELDS
from almanac.database import Database
from tests.almanac.audit.watched import at, audit_row, open_watched
from warehouse.schema.columns import CONTENT, DATING
from warehouse.schema.columns import FIELDS as EVENT_FIELDS

INSTANT = timedelta(microseconds=1)


HISTORIES: list[tuple[str, Any, dict[str, Any], str]] = [
    ("moved", at(2), {}, "clean"),
    ("moved", at(2), {"date": at(20, 14)}, "clean"),
    ("moved", at(2), {"date": at(22, 14)}, "date_not_moved_yet"),
    ("moved", at(2), {"date": at(24)}, "date_not_moved_yet"),
    ("moved", at(3, 6) - INSTANT, {"date": at(22, 14)}, "date_not_moved_yet"),
    ("moved", at(3, 6), {"date": at(22, 14)}, "clean"),
    ("moved", at(5, 6) - INSTANT, {"date": at(22, 14)}, "clean"),
    ("moved", at(5, 6), {"date": at(22, 14)}, "outdated"),
    ("moved", at(4), {"date": at(20, 14)}, "outdated"),
    ("moved", at(4), {"date": at(21)}, "never_known"),
    ("moved", at(8, 8), {"date": at(21)}, "after_last_pull"),
    ("moved", at(8, 8), {"date": at(24)}, "clean"),
    ("moved", at(8, 13), {"date": at(24)}, "after_last_pull"),
    ("new", at(2), {"impact": 5.0}, "not_announced"),
    ("new", at(3, 3), {}, "not_announced"),
    ("found", at(2), {}, "not_watched"),
    ("found", at(1) - timedelta(days=9), {}, "not_announced"),
    ("dawn", at(1, 5), {}, "not_watched"),
    ("scored", at(2), {"impact": 8.25}, "scored_later"),
    ("scored", at(2), {"impact": 5}, "clean"),
    ("scored", at(5), {"impact": "8.250"}, "clean"),
    ("off", at(2), {"status": "cancelled"}, "status_later"),
    ("off", at(2), {"status": "Scheduled"}, "clean"),
    ("edited", at(2), {"title": "Tea\nparty "}, "clean"),
    ("edited", at(2), {"title": "=Coffee"}, "edited_later"),
    ("edited", at(5), {"title": "'=Coffee"}, "clean"),
    ("edited", at(5), {"categories": "Meetup; AMA"}, "clean"),
    ("edited", at(5), {"categories": "['ama' 'meetup']"}, "clean"),
    ("edited", at(2), {"categories": '["AMA","Meetup"]'}, "edited_later"),
    ("redated", at(2), {"created_at": at(1, 2)}, "clean"),
    ("redated", at(2), {"created_at": at(1, 1)}, "edited_later"),
    ("redated", at(5), {"created_at": at(1, 2)}, "outdated"),
    ("period", at(2), {"date": "2026-03-31T23:59:59Z"}, "unknown_precision"),
    ("period", at(2), {"date": "2026-03-31"}, "unknown_precision"),
    ("period", at(2), {"date": "2026-03-31", "is_estimated": None}, "estimated_as_exact"),
    ("period", at(2), {"date": "2026-03-31", "is_estimated": False}, "date_not_moved_yet"),
    ("period", at(2), {"date": "2026-03-31", "is_estimated": True}, "clean"),
    ("period", at(2), {"date": "2026-03-31", "date_precision": "quarter"}, "clean"),
    ("period", at(2), {"date": "2026-03-20"}, "date_not_moved_yet"),
    ("period", at(2), {"displayed_date": "Q1 2026"}, "clean"),
    ("period", at(6), {"date": "2026-03-31"}, "outdated"),
    ("settled", at(2), {"date": "2026-03-31"}, "unknown_precision"),
    ("settled", at(2), {"date": "2026-03-31", "is_estimated": None}, "estimated_as_exact"),
    ("settled", at(5), {"date": "2026-03-31"}, "clean"),
    ("settled", at(2), {"is_estimated": "no"}, "date_not_moved_yet"),
    ("wavering", at(4), {"date": "2026-03-31T23:59:59Z"}, "unknown_precision"),
    ("wavering", at(4), {"date": "2026-03-31", "is_estimated": False}, "date_not_moved_yet"),
    ("wavering", at(4), {"date": "2026-03-31", "is_estimated": True}, "outdated"),
    ("wavering", at(6), {"date": at(30)}, "outdated"),
    ("back", at(4), {"impact": 5.0}, "outdated"),
    ("back", at(2), {"impact": 6.0}, "scored_later"),
    ("back", at(6), {"impact": 5.0}, "clean"),
    ("twice", at(2), {"impact": 6.0}, "never_known"),
    ("twice", at(2), {"impact": 7.0}, "scored_later"),
    ("twice", at(4, 6), {"impact": 7.0}, "clean"),
    ("hidden", at(2), {"impact": 9.0}, "unknown_field"),
    ("hidden", at(2), {"impact": None}, "clean"),
    ("hidden", at(5), {"impact": None}, "clean"),
    ("scored", at(2), {"impact": ""}, "clean"),
    ("hidden", at(5), {"impact": 9.0}, "clean"),
    ("nobody", at(2), {"impact": 9.0}, "unknown_event"),
    ("moved", at(2), {"impact": "high"}, "unreadable"),
    ("moved", "soon", {}, "unreadable"),
    ("moved", None, {}, "unreadable"),
    ("", at(2), {}, "unreadable"),
]
COINS: list[tuple[str, Any, Any, str]] = [
    ("bitcoin", at(22, 14), at(4), "clean"),
    ("BTC", "2026-03-22", at(4), "clean"),
    ("BTC", "2026-03-22", at(2), "date_not_moved_yet"),
    ("BTC", "2026-03-22", at(6), "outdated"),
    ("bitcoin", at(31, 5), at(4), "unknown_event"),
    ("terra", at(25), at(2), "edited_later"),
    ("terra", at(25), at(5), "clean"),
    ("sun", at(25), at(5), "unreadable"),
    ("moon", at(25), at(5), "unknown_event"),
    ("bitcoin", None, at(5), "unreadable"),
    ("bitcoin", "soon", at(5), "unreadable"),
]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def test_every_column_of_which_a_difference_makes_a_version_is_judged() -> None:
    makes_none = {field.name for field in EVENT_FIELDS if field.change is None}
    assert {column.name for column in (*CONTENT, *DATING)} - makes_none == FIELDS.keys()


MAY_LACK = {"date", "impact", "categories", "created_at"}
"""Fields of which a row without a value is clean."""


@pytest.mark.parametrize("others", sorted({tuple({*case[2]} - MAY_LACK) for case in HISTORIES}))
def test_a_row_has_the_verdict_that_its_history_gives(
    db: Database, others: tuple[str, ...]
) -> None:
    cases = [case for case in HISTORIES if tuple({*case[2]} - MAY_LACK) == others]
    rows = [
        {"event_id": event_id, "ts": _text(decided)}
        | {field: _text(used.get(field)) for field in {*MAY_LACK, *others}}
        for event_id, decided, used, _ in cases
    ]
    found = [row["verdict"] for row in db.audit(rows).verdicts]
    assert [(*case[:3], verdict) for case, verdict in zip(cases, found, strict=True)] == cases


def test_a_coin_and_a_date_mean_the_event_that_had_them(db: Database) -> None:
    rows = [{"coin": coin, "date": _text(date), "ts": ts} for coin, date, ts, _ in COINS]
    found = [row["verdict"] for row in db.audit(rows).verdicts]
    assert [(*case[:3], verdict) for case, verdict in zip(COINS, found, strict=True)] == COINS


def test_a_coin_beside_an_event_is_a_leak_if_it_was_linked_later(db: Database) -> None:
    """Any other coin may be the one that is traded, beside those of the event."""
    times = {"bitcoin": at(2), "terra": at(4, 5), "TERRA": at(4, 5), "Terra": at(4, 6)}
    times |= {coin: at(2) for coin in ("first-sun", "SUN", "my pair")}
    audit = db.audit([{"event_id": "linked", "coin": coin, "ts": ts} for coin, ts in times.items()])
    found = {row["row"]: (row["field"], row["knowable_from"]) for row in audit.rows}
    assert found == {2: ("coin", at(4, 6)), 3: ("coin", at(4, 6))}
    assert audit.counts == {"edited_later": 2, "clean": 5}


def test_a_finding_says_what_was_known_then_and_since_when_the_value_could_be_known(
    db: Database,
) -> None:
    audit = audit_row(db, {"event_id": "moved", "ts": at(2), "date": at(24), "impact": 5.0})
    (found,) = audit.rows.rows()
    assert found == {
        "row": 1,
        "event_id": "moved",
        "decided_at": at(2),
        "field": "date",
        "verdict": "date_not_moved_yet",
        "used": "2026-03-24T00:00:00Z",
        "known_then": "2026-03-20T14:00:00Z",
        "knowable_from": at(5, 6),
        "reason": None,
    }


def test_a_period_is_shown_as_it_is_displayed_and_says_when_the_date_became_exact(
    db: Database,
) -> None:
    row = {"event_id": "settled", "ts": at(2), "date": "2026-03-31", "date_precision": "day"}
    found = audit_row(db, row).rows.rows()[0]
    assert found["known_then"] == "Q1 2026 (quarter)"
    assert found["knowable_from"] == at(4, 6)


def test_of_several_events_of_a_coin_and_a_date_one_that_was_known_is_enough(
    db: Database,
) -> None:
    row = {"coin": "bitcoin", "date": at(20, 14), "ts": at(2)}
    # An event that nobody watched at first may be the one that was meant.
    later = {**row, "ts": at(3, 12), "impact": 8.25}
    rows = db.audit([{**row, "impact": None}, {**row, "impact": 8.25}, later]).verdicts
    assert [found["verdict"] for found in rows] == ["clean", "not_watched", "scored_later"]


def test_a_date_that_no_pull_covered_is_not_watched(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.duckdb"
    open_watched(path).close()
    path.chmod(0o600)
    with duckdb.connect(path) as connection:
        connection.execute("UPDATE batches SET upper = '2026-03-30 00:00:00+00'")
    with open_watched(path) as db:
        row = {"coin": "bitcoin", "ts": at(4)}
        assert audit_row(db, {**row, "date": at(29)}).counts == {"unknown_event": 1}
        assert audit_row(db, {**row, "date": at(31, 5)}).counts == {"not_watched": 1}


def test_the_basis_claimed_clears_what_the_service_says_existed(db: Database) -> None:
    row = {"event_id": "found", "ts": at(2), "impact": 5.0}
    observed, claimed = audit_row(db, row), audit_row(db, row, basis="claimed")
    assert observed.counts == {"not_watched": 1}
    assert claimed.counts == {"clean": 1}


def test_a_row_has_the_worst_verdict_of_its_fields(db: Database) -> None:
    row = {"event_id": "moved", "ts": at(4), "date": at(20, 14), "impact": 1.0, "status": "off"}
    audit = audit_row(db, row)
    assert audit.counts == {"never_known": 1}
    assert [(found["field"], found["verdict"]) for found in audit.rows] == [
        ("impact", "never_known"),
        ("status", "never_known"),
        ("date", "outdated"),
    ]
