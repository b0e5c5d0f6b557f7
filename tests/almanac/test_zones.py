"""Zones: which a text may name, and that Python and SQL read a text alike."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import almanac
from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import read_timestamp, read_zone
from application.cli.options import instant_option
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, tzinfo=UTC)


NOW = at(9)
ABBREVIATED = [
    *("CST", "PST", "AST", "BST", "IST", "EST", "MST", "EDT", "PDT", "CET", "JST", "HST", "ACT"),
    *("cst", "Pst", "EST5EDT", "Japan", "GB", "PRC", "Zulu", "UTC+2", "GMT+8", "GMT0", "PM"),
]
SAME = [
    "2026-03-05 06:00Z",
    "2026-03-05T06:00:00 gmt",
    "2026-03-05 00:00:00-06",
    "2026-03-05 06:00",
]
SAME += ["2026-03-05 00:00:00 America/Chicago", "2026-03-04 22:00 Etc/GMT+8", "2026-03-05 06:00UTC"]
SAME += ["2026-03-05 11:30+0530", "2026-03-05T11:30:00.000+05:30"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    coins = [NamedCoin("bitcoin", "BTC", "Bitcoin", 1)]
    versions = [Known(event_id="one", known_from=at(1), date=at(12), coins=("bitcoin",))]
    path = tmp_path_factory.mktemp("zones") / "warehouse.duckdb"
    return publish_by_hand(path, versions, pulls=[at(1), at(5, 6), at(8)], coins=coins)


@pytest.fixture(scope="module")
def db(file: Path) -> Iterator[almanac.Database]:
    with almanac.open(file, clock=lambda: NOW) as opened:
        yield opened


@pytest.fixture(scope="module")
def attached(file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Another program, in a zone of its own."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        connection.execute(f"ATTACH '{file}' AS warehouse (READ_ONLY)")
        connection.execute("USE warehouse")
        yield connection


def test_an_abbreviated_zone_is_refused_by_every_question_in_python(db: almanac.Database) -> None:
    text = "2026-03-05 12:00:00 CST"
    frame = pd.DataFrame({"ts": [text], "coin": ["bitcoin"]})
    questions: list[Any] = [
        lambda: db.events(as_of=text),
        lambda: db.events(window=(text, None)),
        lambda: db.changes(text),
        lambda: db.coverage(text),
        lambda: db.attach_known(frame),
        lambda: db.blackouts(as_of=text, min_impact=None),
        lambda: db.sql("SELECT $at::TIMESTAMPTZ AS at", at=text),
        lambda: db.sql("SELECT unnest($at)::TIMESTAMPTZ AS at", at=[text]),
    ]
    for question in questions:
        with pytest.raises(InvalidArgument, match=r"ends in '.*An abbreviation such as CST"):
            question()
    for name in ABBREVIATED:
        with pytest.raises(InvalidArgument, match=r"ends in '.*An abbreviation such as CST"):
            read_timestamp(f"2026-03-05 12:00:00 {name}", "at")
        with pytest.raises(InvalidArgument, match="an abbreviation, which may mean several"):
            read_zone(name)


@pytest.mark.parametrize(
    "macro",
    [
        *("events_as_of($at)", "upcoming_as_of($at)", "event_coins_as_of($at)"),
        *("changes_since($at)", "coverage_at($at)", "slip_rates($at, 1)"),
        "date_survival($at)",
    ],
)
def test_an_abbreviated_zone_is_refused_by_every_macro(
    attached: duckdb.DuckDBPyConnection, macro: str
) -> None:
    text = "2026-03-05 12:00:00 EST5EDT"
    with pytest.raises(duckdb.InvalidInputException, match="An abbreviation such as CST"):
        attached.execute(f"FROM {macro}", {"at": text}).fetchall()
    with pytest.raises(duckdb.InvalidInputException, match="An abbreviation such as CST"):
        attached.execute("FROM " + macro.replace("$at", f"'{text}'")).fetchall()


@pytest.mark.parametrize("text", SAME)
def test_named_zones_and_offsets_are_read_alike_in_python_and_sql(
    db: almanac.Database, attached: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert read_timestamp(text, "at") == at(5, 6)
    sql = "SELECT epoch_us(max(last_pull_at)) FROM events_as_of($at)"
    assert attached.execute(sql, {"at": text}).fetchone() == (at(5, 6).timestamp() * 1e6,)
    assert db.coverage(text).as_of == at(5, 6)


LOCAL = (at(1).replace(year=2000, tzinfo=None), at(1).replace(year=2030, tzinfo=None))


@given(
    local=st.datetimes(LOCAL[0], LOCAL[1]),
    gap=st.sampled_from(["", " "]),
    name=st.sampled_from(
        [
            *("", "Z", "utc", "+05:30", "-0330", "+14", "-12:00", "Europe/Berlin", "Asia/Kolkata"),
            *("America/New_York", "Australia/Lord_Howe", "Etc/GMT-5", "CST", "Mars/Base", "+16"),
        ]
    ),
)
def test_python_and_sql_read_any_text_alike(
    attached: duckdb.DuckDBPyConnection, local: datetime, gap: str, name: str
) -> None:
    text = f"{local.isoformat(' ')}{gap if name else ''}{name}"
    try:
        expected: datetime | None = read_timestamp(text, "at")
    except InvalidArgument:
        expected = None
    sql = "SELECT epoch_us(_almanac.instant($at))"
    (found,) = attached.execute(sql, {"at": text}).fetchone() or ()
    if expected is not None and found is not None and "/" in name:
        # A time that no clock shows: each takes an instant of the hour before the change.
        assert (
            timedelta()
            <= expected - datetime.fromtimestamp(0, UTC) - timedelta(microseconds=found)
            < timedelta(hours=1)
        )
        shown = expected.astimezone(read_zone(name)).replace(tzinfo=None)
        if shown != local:
            return
    assert found == (None if expected is None else round(expected.timestamp() * 1e6))


def test_a_zone_after_a_date_alone_is_refused(
    db: almanac.Database, attached: duckdb.DuckDBPyConnection
) -> None:
    for text in ("2026-03-05+05:00", "2026-03-05Z", "2026-03-05 UTC"):
        with pytest.raises(InvalidArgument, match="is not a timestamp"):
            db.events(as_of=text)
        with pytest.raises(duckdb.InvalidInputException, match="is not a timestamp"):
            attached.execute("FROM events_as_of($at)", {"at": text}).fetchall()


def test_a_time_that_clocks_show_twice_is_the_first(attached: duckdb.DuckDBPyConnection) -> None:
    text = "2026-10-25 02:30:00 Europe/Berlin"
    first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert read_timestamp(text, "at") == first
    (found,) = attached.execute(f"SELECT epoch(_almanac.instant('{text}'))").fetchone() or ()
    assert found == first.timestamp()


def test_an_audit_can_not_read_a_row_with_an_abbreviated_zone(db: almanac.Database) -> None:
    times = [f"2026-03-05 12:00:00 {name}" for name in [*ABBREVIATED, "Mars/Base"]]
    frame = pd.DataFrame({"event_id": "one", "decided_at": [*times, *SAME], "date": "2026-03-12"})
    expected = ["unreadable"] * len(times) + ["clean"] * len(SAME)
    assert [row["verdict"] for row in db.audit(frame).verdicts] == expected
    row = {"event_id": "one", "decided_at": "2026-03-05 12:00Z", "date": "2026-03-12 00:00 CST"}
    assert [found["verdict"] for found in db.audit([row]).verdicts] == ["unreadable"]


def test_an_option_of_the_application_takes_an_age_and_no_abbreviated_zone() -> None:
    assert instant_option("--observed-at", "2026-03-05 00:00 America/Chicago") == at(5, 6)
    assert instant_option("--since", "7d") < instant_option("--since", "167h")
    with pytest.raises(InvalidArgument, match="An abbreviation such as CST"):
        instant_option("--observed-at", "2026-03-05 12:00 CST")


def test_a_zone_is_utc_or_an_iana_name_with_its_region() -> None:
    assert read_zone("gmt") is read_zone("Z") is read_zone("UTC") is UTC
    assert read_timestamp("2026-03-05", "at", read_zone("Etc/GMT+8")) == at(5, 8)
    for wrong in ("", "+02:00", "../x", "EST", timezone(timedelta(hours=2))):
        with pytest.raises(InvalidArgument, match="no such time zone"):
            read_zone(wrong)


DAYS = [at(day) for day in range(2, 29)]
ZONES = ["Etc/GMT+12", "UTC", "Etc/GMT-14"]


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An event on each day, two with a time of day, one that ends on a later day, and a month."""
    versions = [
        Known(event_id=f"day-{day:%d}", known_from=at(1), date=day, coins=("bitcoin",), title="Day")
        for day in DAYS
    ]
    versions += [
        Known(event_id="night", known_from=at(1), date=at(10, 3), coins=("bitcoin",)),
        Known(event_id="evening", known_from=at(1), date=at(10, 22), coins=("bitcoin",)),
        Known(event_id="long", known_from=at(1), date=at(3), date_end=at(6)),
        Known(
            event_id="month",
            known_from=at(1),
            date=at(31),
            date_type="month",
            is_estimated=True,
        ),
    ]
    coins = [NamedCoin("bitcoin", "BTC", "Bitcoin", 1)]
    path = tmp_path_factory.mktemp("days") / "warehouse.duckdb"
    return publish_by_hand(path, versions, pulls=[at(1), at(8)], coins=coins)


@pytest.mark.parametrize("tz", ZONES)
def test_a_date_of_a_day_is_the_utc_day_in_every_zone(dated: Path, tz: str) -> None:
    expected = [f"{day:%Y-%m-%d}" for day in DAYS]

    def shown(frame: pd.DataFrame, column: str, prefix: str = "day-") -> list[str]:
        rows = frame[frame["event_id"].str.startswith(prefix)]
        return sorted(rows[column].dt.strftime("%Y-%m-%d"))

    with almanac.open(dated, tz=tz, clock=lambda: NOW) as db:
        frame = db.events(as_of=at(2)).df()
        assert shown(frame, "date") == shown(frame, "earliest") == expected
        assert [str(row["date"].date()) for row in db.history("day-05")] == ["2026-03-05"]
        assert str(db.first_release("day-05")["date"].date()) == "2026-03-05"
        assert shown(db.known_before("1d").df(), "date_final") == expected[:9]
        assert shown(db.upcoming(within="30d", as_of=at(1)).df(), "date_exact") == expected
        days = pd.date_range("2026-03-02 12:00", periods=6, tz="UTC")
        trades = pd.DataFrame({"ts": days, "coin": "BTC"})
        joined = db.attach_known(trades)
        assert [f"{date:%Y-%m-%d}" for date in joined["next_event_date"]] == expected[:6]
        assert list(joined["days_until"]) == [0] * 6
        # What is no date of an event is in the zone of the database.
        assert str(frame["first_seen_at"].dt.tz) == tz


@pytest.mark.parametrize("tz", ZONES)
def test_a_window_of_days_has_the_events_of_these_days_in_every_zone(dated: Path, tz: str) -> None:
    with almanac.open(dated, tz=tz, clock=lambda: NOW) as db:

        def found(lower: str | None, upper: str | None) -> set[str]:
            return {row["event_id"] for row in db.events(window=(lower, upper))}

        # The tenth in the zone has those of the events at 3:00 and 22:00 UTC that lie in it.
        local = {"night": at(10, 3), "evening": at(10, 22)}
        day = at(10).date()
        timed = {
            name for name, date in local.items() if date.astimezone(read_zone(tz)).date() == day
        }
        assert found("2026-03-10", "2026-03-10") == {"day-10", "month"} | timed
        assert found("2026-03-05", "2026-03-06") == {"day-05", "day-06", "long", "month"}
        assert found(None, "2026-03-02") == {"day-02", "month"}
        assert found("2026-03-28", None) == {"day-28", "month"}
        assert found("2026-04-01", None) == set()
        days = ("2026-03-05", "2026-03-06")
        for form in (
            date.fromisoformat,
            np.datetime64,
            lambda day: pa.scalar(date.fromisoformat(day)),
        ):
            same = db.events(window=tuple(form(day) for day in days))
            assert {row["event_id"] for row in same} == found(*days)
        # A bound with a time is exclusive, also at midnight.
        for form in (pd.Timestamp, datetime.fromisoformat, "{}T00:00".format):
            same = db.events(window=(days[0], form("2026-03-07")))
            assert {row["event_id"] for row in same} == found(*days)
        assert found("2026-03-28", "9999-12-31") == found("2026-03-28", None)


def test_a_window_with_zones_is_compared_as_instants(dated: Path) -> None:
    with almanac.open(dated, tz="America/New_York", clock=lambda: NOW) as db:
        window = ("2026-03-10T02:00Z", "2026-03-10T04:00Z")
        assert {row["event_id"] for row in db.events(window=window)} == {"day-10", "night", "month"}
        window = ("today", "today")
        assert {row["event_id"] for row in db.events(window=window)} == {"day-08", "month"}
