"""Durations: units that mean one length everywhere, and those that are refused."""

from datetime import timedelta

import duckdb
import pytest

from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import read_duration
from tests.almanac.test_zones import at, attached, file
from warehouse.schema import ddl

__all__ = ["attached", "file"]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        *(("30s", timedelta(seconds=30)), ("5m", timedelta(minutes=5)), ("1W", timedelta(7))),
        *(("5Min", timedelta(0, 300)), ("2H", timedelta(hours=2)), ("1D", timedelta(1))),
        *(("1w 2d", timedelta(9)), ("1h30m", timedelta(hours=1.5)), ("2 days", timedelta(2))),
        ("1.5h", timedelta(hours=1.5)),
    ],
)
def test_a_unit_of_one_meaning_is_read(text: str, length: timedelta) -> None:
    assert read_duration(text, "bar") == length


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("2M", "write 2min for minutes. A month has no fixed length"),
        ("1h30M", "write 30min"),
        ("1M 2d", "write 1min"),
        ("1T", "write 1min for minutes"),
        ("240", "240 has no unit; write 240min"),
        ("1d12", "12 has no unit"),
        ("5ms", "write seconds, such as 0.5s"),
        *((f"1{unit}", "no fixed length") for unit in ("ME", "MS", "Q", "YE", "mo")),
        *((f"2 {unit}", "no fixed length") for unit in ("months", "quarter", "yr")),
        *((text, "is not a duration") for text in ("1B", "P1D", "00:30:00", "M", "", "-1d")),
    ],
)
def test_a_unit_of_several_meanings_is_refused_with_the_alternatives(
    text: str, advice: str
) -> None:
    with pytest.raises(InvalidArgument, match=advice) as error:
        read_duration(text, "bar")
    assert f"bar={text!r}" in str(error.value)


@pytest.mark.parametrize(
    "text", ["2M", "2 M", "1 day 2M", "2M 02:00:00", "240", "-3", "1.5", "2 days 12"]
)
def test_a_macro_refuses_what_duckdb_reads_as_minutes_or_seconds(
    attached: duckdb.DuckDBPyConnection, text: str
) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="The unit M is refused"):
        attached.execute("FROM known_before($lead)", {"lead": text}).fetchall()
    if not text.lstrip("-").replace(".", "").isdigit():  # A number is one of days there.
        with pytest.raises(duckdb.InvalidInputException, match="The unit M is refused"):
            attached.execute(
                "FROM slip_rates($at, $horizon)", {"at": at(2), "horizon": text}
            ).fetchall()


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2 months", "2 months"),
        ("7d", "7 days"),
        ("90 minutes", "90 minutes"),
        ("2m", "2 minutes"),
        ("12:30:00", "750 minutes"),
        ("1 day 02:00:00", "26 hours"),
    ],
)
def test_a_macro_reads_other_intervals(
    attached: duckdb.DuckDBPyConnection, text: str, same: str
) -> None:
    sql = f"SELECT _almanac.span($text) = INTERVAL '{same}'"
    assert attached.execute(sql, {"text": text}).fetchone() == (True,)


def test_the_macro_of_intervals_takes_an_interval_as_it_is() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA _almanac")
        connection.execute(ddl.create_macro("_almanac.span"))
        sql = "SELECT _almanac.span(INTERVAL 2 MONTHS) = INTERVAL '2 months', _almanac.span(NULL)"
        assert connection.execute(sql).fetchone() == (True, None)
