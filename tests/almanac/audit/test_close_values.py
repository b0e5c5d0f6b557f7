"""Values in other forms than those of the warehouse: days as midnights, roundings, one category."""

from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_watched(tmp_path_factory.mktemp("close") / "warehouse.duckdb") as database:
        yield database


def verdicts(db: Database, rows: Any) -> list[str]:
    return [str(row["verdict"]) for row in db.audit(rows).verdicts]


def used(event_id: str, day: int, **values: Any) -> list[dict[str, Any]]:
    return [{"event_id": event_id, "ts": f"2026-03-{day:02}", **values}]


ROW = {"event_id": ["moved"], "ts": ["2026-03-04"]}
KOLKATA = timezone(timedelta(hours=5, minutes=30))
DAYS: dict[str, Callable[[datetime], Any]] = {
    "text": lambda day: {**ROW, "date": [f"{day:%Y-%m-%d}"]},
    "text of to_csv": lambda day: {**ROW, "date": [f"{day:%Y-%m-%d} 00:00:00"]},
    "text with fraction": lambda day: {**ROW, "date": [f"{day:%Y-%m-%d}T00:00:00.000"]},
    "text in UTC": lambda day: {**ROW, "date": [f"{day:%Y-%m-%d}T00:00:00Z"]},
    "text with an offset": lambda day: {**ROW, "date": [f"{day:%Y-%m-%d} 00:00+09:00"]},
    "datetime": lambda day: {**ROW, "date": [day]},
    "datetime with an offset": lambda day: {**ROW, "date": [day.replace(tzinfo=KOLKATA)]},
    "date": lambda day: {**ROW, "date": [day.date()]},
    "datetime64": lambda day: pd.DataFrame({**ROW, "date": pd.to_datetime([day])}),
    "datetime64 of UTC": lambda day: pd.DataFrame(
        {**ROW, "date": pd.to_datetime([day]).tz_localize("UTC")}
    ),
    "datetime64 of Tokyo": lambda day: pd.DataFrame(
        {**ROW, "date": pd.to_datetime([day]).tz_localize("Asia/Tokyo")}
    ),
    "midnight of UTC in New York": lambda day: pd.DataFrame(
        {**ROW, "date": pd.to_datetime([day]).tz_localize("UTC").tz_convert("America/New_York")}
    ),
    "objects": lambda day: pd.DataFrame({**ROW, "date": pd.Series([day], dtype=object)}),
    **{
        f"Polars {unit}": lambda day, unit=unit: pl.DataFrame({**ROW, "date": [day]}).cast(
            {"date": pl.Datetime(unit)}
        )
        for unit in ("ms", "us", "ns")
    },
    "Polars date": lambda day: pl.DataFrame({**ROW, "date": [day.date()]}),
    **{
        f"Arrow {unit}": lambda day, unit=unit: pa.table(
            {**ROW, "date": pa.array([day], pa.timestamp(unit))}
        )
        for unit in ("s", "ms", "us", "ns")
    },
    "Arrow date64": lambda day: pa.table({**ROW, "date": pa.array([day], pa.date64())}),
}


@pytest.mark.parametrize("form", DAYS)
@pytest.mark.parametrize(
    ("day", "verdict"), [(20, "outdated"), (22, "clean"), (24, "date_not_moved_yet")]
)
def test_a_midnight_that_is_the_day_of_a_version_is_a_day(
    db: Database, form: str, day: int, verdict: str
) -> None:
    """The date was the 20th at 14:00, then the 22nd at 14:00, and later the 24th, a day."""
    rows = DAYS[form](at(day).replace(tzinfo=None))
    if isinstance(rows, dict):
        rows = [{name: values[0] for name, values in rows.items()}]
    assert verdicts(db, rows) == [verdict]


def test_a_midnight_that_is_the_day_of_a_deadline_is_estimated_as_exact(db: Database) -> None:
    assert verdicts(db, used("period", 2, date="2026-03-31 00:00:00")) == ["estimated_as_exact"]
    assert verdicts(db, used("period", 2, date="2026-03-31 12:00")) == ["estimated_as_exact"]


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


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
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
        (used("edited", 5, categories=["ama"]), "close_to_known"),
    ],
    ids=str,
)
def test_a_value_close_to_a_later_one_alone_is_look_ahead(
    db: Database, rows: list[dict[str, Any]], verdict: str
) -> None:
    audit = db.audit(rows)
    assert list(audit.counts) == [verdict]
    assert audit.is_clean == (verdict == "close_to_known")


@pytest.mark.parametrize(
    ("date", "verdict"),
    [("18:04", "close_to_later"), ("12:05", "close_to_known"), ("15:00", "close_to_known")],
)
def test_a_time_within_an_hour_of_a_later_one_is_look_ahead(
    tmp_path: Path, date: str, verdict: str
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
        assert verdicts(db, used("event", 2, date=f"2026-03-20 {date}")) == [verdict]


def test_one_category_is_judged_by_membership_and_a_list_as_a_set(db: Database) -> None:
    """The categories were Exchange Listing, and from the 4th AMA and Meetup."""
    days = {"ama": ["edited_later", "clean"], "Exchange Listing": ["clean", "outdated"]}
    for name in ("category", "categories", "Category"):
        for value, expected in days.items():
            rows = [used("edited", day, **{name: value})[0] for day in (2, 5)]
            assert verdicts(db, rows) == expected
    lists = [["AMA", "Meetup"], ["Meetup", "AMA"], ["AMA"]]
    rows = [used("edited", 5, categories=value)[0] for value in lists]
    assert verdicts(db, rows) == ["clean", "clean", "close_to_known"]
    texts = [used("edited", 5, categories=value)[0] for value in ("AMA", "AMA; Meetup", "Meetup")]
    assert verdicts(db, texts) == ["clean"] * 3


@pytest.mark.parametrize(
    "coins",
    [
        *("bitcoin", "BTC", "Bitcoin", "bitcoin, terra", "BTC;terra", "['terra' 'BTC']"),
        *(["bitcoin", "terra"], ["terra", "BTC"]),
    ],
    ids=str,
)
def test_coins_are_slugs_tickers_or_names(db: Database, coins: Any) -> None:
    """Only bitcoin was linked, and from the 4th terra as well."""
    is_one = isinstance(coins, str) and "terra" not in coins
    assert verdicts(db, used("linked", 5, coins=coins)) == ["clean"]
    assert verdicts(db, used("linked", 2, coins=coins)) == ["clean" if is_one else "edited_later"]


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
    ("days", "verdict"),
    [
        (18 + 14 / 24, "clean"),
        (18, "clean"),
        ("18 days 14:00:00", "clean"),
        (timedelta(days=18, hours=14), "clean"),
        (None, "clean"),
        (18.6, "close_to_known"),
        (20, "date_not_moved_yet"),
        (20.0, "date_not_moved_yet"),
        (timedelta(days=20), "date_not_moved_yet"),
        (16 + 14 / 24, "outdated"),
        (50, "never_known"),
        ("soon", "unreadable"),
    ],
    ids=str,
)
def test_the_days_until_an_event_are_judged_by_the_date_known_at_the_decision(
    db: Database, days: Any, verdict: str
) -> None:
    assert verdicts(db, pd.DataFrame(used("moved", 4, days_until=days))) == [verdict]


def test_the_days_until_a_deadline_are_estimated_as_exact(db: Database) -> None:
    day = (date(2026, 3, 31) - date(2026, 3, 2)).days
    assert verdicts(db, used("period", 2, days_until=day)) == ["estimated_as_exact"]
