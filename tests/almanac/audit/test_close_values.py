"""Values in other forms than those of the warehouse: days as midnights, roundings, one category."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from almanac.database import Database
from tests.almanac.audit.watched import NOW, PULLS, at, open_watched
from tests.almanac.publications import publish_by_hand
from tests.warehouse.answers.handmade import Known


def verdicts(db: Database, rows: Any) -> list[str]:
    return [str(row["verdict"]) for row in db.audit(rows).verdicts]


def used(event_id: str, day: int, **values: Any) -> list[dict[str, Any]]:
    return [{"event_id": event_id, "ts": f"2026-03-{day:02}", **values}]


KOLKATA = timezone(timedelta(hours=5, minutes=30))
NEW_YORK = "America/New_York"
TEXTS = ("%Y-%m-%d", "%Y-%m-%d 00:00:00", "%Y-%m-%dT00:00:00.000", "%Y-%m-%dT00:00:00Z")
TEXTS += ("%Y-%m-%d 00:00+09:00",)
ROWS = {"event_id": ["moved"] * 3, "ts": ["2026-03-04"] * 3}
MIDNIGHTS: dict[str, Callable[[list[datetime]], Any]] = {
    "datetimes with an offset": lambda days: [day.replace(tzinfo=KOLKATA) for day in days],
    "dates": lambda days: [day.date() for day in days],
    "datetime64": pd.to_datetime,
    "of Tokyo": lambda days: pd.to_datetime(days).tz_localize("Asia/Tokyo"),
    "midnights of UTC in New York": lambda days: (
        pd.to_datetime(days).tz_localize("UTC").tz_convert(NEW_YORK)
    ),
    "objects": lambda days: pd.Series(days, dtype=object),
    "Polars dates": lambda days: pl.Series([day.date() for day in days]),
    "Arrow ns": lambda days: pa.array(days, pa.timestamp("ns")),
    "Arrow date64": lambda days: pa.array(days, pa.date64()),
}
FRAMES = {"Polars": pl.DataFrame, "Arrow": pa.table}


@pytest.mark.parametrize("form", MIDNIGHTS)
def test_a_midnight_that_is_the_day_of_a_version_is_a_day(db: Database, form: str) -> None:
    """The date was the 20th at 14:00, then the 22nd at 14:00, and later the 24th, a day."""
    days = [at(day).replace(tzinfo=None) for day in (20, 22, 24)]
    make = FRAMES.get(form.partition(" ")[0], pd.DataFrame)
    rows = make({**ROWS, "date": MIDNIGHTS[form](days)})
    assert verdicts(db, rows) == ["outdated", "clean", "date_not_moved_yet"]


def test_the_text_of_a_midnight_that_is_the_day_of_a_version_is_a_day(db: Database) -> None:
    rows = [
        used("moved", 4, date=at(day).strftime(form))[0] for form in TEXTS for day in (20, 22, 24)
    ]
    assert verdicts(db, rows) == ["outdated", "clean", "date_not_moved_yet"] * len(TEXTS)


def test_a_midnight_that_is_the_day_of_a_deadline_is_judged_as_the_deadline(db: Database) -> None:
    rows = [used("period", 2, date=f"2026-03-31 {time}")[0] for time in ("00:00:00", "12:00")]
    assert verdicts(db, rows) == ["unknown_precision"] * 2
    rows = [{**row, "is_estimated": None} for row in rows]
    assert verdicts(db, rows) == ["estimated_as_exact"] * 2


def test_a_midnight_that_only_a_later_version_has_exactly_is_look_ahead(tmp_path: Path) -> None:
    """The time of day was known, and later only the day."""
    versions = [
        Known(event_id="event", known_from=at(1, 6), date=at(20, 14)),
        Known(event_id="event", version=2, known_from=at(4, 6), date=at(20)),
    ]
    path = publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=PULLS, at=NOW)
    with open_watched(path) as db:
        assert verdicts(db, used("event", 2, date="2026-03-20 00:00")) == ["date_not_moved_yet"]
        assert verdicts(db, used("event", 5, date="2026-03-20 00:00")) == ["clean"]


def test_a_decision_at_midnight_stays_an_instant(db: Database) -> None:
    """The date moved at 06:00 of the 3rd."""
    assert verdicts(db, used("moved", 3, date="2026-03-22")) == ["date_not_moved_yet"]


CLOSE = [
    (used("scored", 2, impact=8.2), "close_to_later"),
    (used("scored", 2, impact=8.3), "close_to_later"),
    (used("scored", 2, impact="8"), "close_to_later"),
    (used("scored", 2, impact="8,2"), "close_to_later"),
    (used("scored", 5, impact=8.2), "close_to_known"),
    (used("scored", 2, impact=5.004), "close_to_known"),
    (used("scored", 2, impact=6.6), "never_known"),
    (used("edited", 2, title="COFFEE!"), "close_to_later"),
    (used("edited", 2, title="tea  party."), "close_to_known"),
    (used("edited", 2, title="Cocoa"), "never_known"),
    (used("off", 2, status="Canceled"), "close_to_later"),
    (used("off", 5, status="canceled"), "close_to_known"),
    (used("moved", 4, date="2026-03-24 10:00"), "close_to_later"),
    (used("moved", 4, date="2026-03-23T20:00Z"), "close_to_later"),
    (used("moved", 4, date="2026-03-22 16:00"), "close_to_known"),
    (used("moved", 4, date="2026-03-27"), "never_known"),
    (used("edited", 2, categories="meet-up"), "close_to_later"),
]


@pytest.mark.parametrize("other", [None, "title", "status"])
def test_a_value_close_to_a_later_one_alone_is_look_ahead(db: Database, other: str | None) -> None:
    mine = [case for case in CLOSE if {*case[0][0]} & {"title", "status"} == {other} - {None}]
    names = dict.fromkeys(["impact", "date", "categories"])
    audit = db.audit(pd.DataFrame([{**names, **rows[0]} for rows, _ in mine], dtype=object))
    expected = [verdict for _, verdict in mine]
    assert [row["verdict"] for row in audit.verdicts] == expected
    assert audit.groups["leak"] == expected.count("close_to_later") > 0


def test_a_time_within_an_hour_of_a_later_one_is_look_ahead(
    tmp_path: Path,
) -> None:
    """The event was known for 12:05:30, and later for 18:04:45 of the same day."""
    first = Known(
        event_id="event",
        known_from=at(1, 6),
        date=at(20, 12, 5) + timedelta(seconds=30),
    )
    moved = at(20, 18, 4) + timedelta(seconds=45)
    versions = [first, replace(first, version=2, known_from=at(4, 6), date=moved)]
    path = publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=PULLS, at=NOW)
    with open_watched(path) as db:
        times = ("18:04", "12:05", "15:00")
        rows = [used("event", 2, date=f"2026-03-20 {time}")[0] for time in times]
        assert verdicts(db, rows) == ["close_to_later", "close_to_known", "close_to_known"]


def test_one_category_is_judged_by_membership_and_a_list_as_a_set(db: Database) -> None:
    """The categories were Exchange Listing, and from the 4th AMA and Meetup."""
    values = ("ama", "Exchange Listing")
    for name in ("category", "categories"):
        rows = [used("edited", day, **{name: value})[0] for value in values for day in (2, 5)]
        assert verdicts(db, rows) == ["edited_later", "clean", "clean", "outdated"]
    lists = [["AMA", "Meetup"], ["Meetup", "AMA"], ["AMA"]]
    rows = [used("edited", 5, categories=value)[0] for value in lists]
    assert verdicts(db, rows) == ["clean", "clean", "close_to_known"]


def test_a_category_may_have_a_comma_in_its_name(tmp_path: Path) -> None:
    name = "Token Supply (Lock, Burn)"
    versions = [
        Known(event_id="event", known_from=at(1, 6), categories=("AMA",)),
        Known(event_id="event", version=2, known_from=at(4, 6), categories=(name, "AMA")),
    ]
    path = publish_by_hand(tmp_path / "warehouse.duckdb", versions, pulls=PULLS, at=NOW)
    with open_watched(path) as db:
        for column in ("category", "categories"):
            rows = [used("event", day, **{column: name})[0] for day in (2, 5)]
            assert verdicts(db, rows) == ["edited_later", "clean"]
        assert verdicts(db, used("event", 5, categories=f"{name}; AMA")) == ["clean"]


@pytest.mark.parametrize(
    "cases",
    [
        {
            **{18 + 14 / 24: "clean", 18: "clean", None: "clean", 18.6: "close_to_known"},
            **{20: "date_not_moved_yet", 16 + 14 / 24: "outdated", 50: "never_known"},
        },
        {"18 days 14:00:00": "clean", "20": "date_not_moved_yet", "soon": "unreadable"},
        {timedelta(18, hours=14): "clean", timedelta(20): "date_not_moved_yet"},
    ],
    ids=["numbers", "texts", "timedeltas"],
)
def test_the_days_until_an_event_are_judged_by_the_date_known_at_the_decision(
    db: Database, cases: dict[Any, str]
) -> None:
    rows = pd.DataFrame({"event_id": "moved", "ts": "2026-03-04", "days_until": [*cases]})
    assert verdicts(db, rows) == [*cases.values()]


def test_the_days_until_a_deadline_are_judged_as_the_deadline(db: Database) -> None:
    row = {"days_until": (date(2026, 3, 31) - date(2026, 3, 2)).days}
    assert verdicts(db, used("period", 2, **row)) == ["unknown_precision"]
    assert verdicts(db, used("period", 2, **row, is_estimated=None)) == ["estimated_as_exact"]
