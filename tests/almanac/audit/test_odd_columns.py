"""Columns of odd types: each door reads them right, or refuses them with one clear error."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from almanac.audit.command import audit as audit_command
from almanac.audit.user_rows import read_signals
from almanac.core.errors import AlmanacError, InvalidArgument
from almanac.database import Database
from almanac.frames import read_timestamp_column
from almanac.study.prices import read_prices
from almanac.study.selection import read_given_events
from tests.almanac.audit.watched import at

DAYS = [at(2), at(4), at(6)]
TEXTS = [day.isoformat() for day in DAYS]
PERIODS = pd.period_range("2026-03-02", periods=3)
FAR = [2**62, -(2**62), None]
ODD: dict[str, Callable[[], Any]] = {
    "intervals": lambda: pd.interval_range(0, 3),
    "categories of timestamps": lambda: pd.Categorical(pd.to_datetime(DAYS)),
    "complex numbers": lambda: np.array([1 + 1j, 2, 3]),
    "decimals": lambda: [Decimal("1.5"), None, Decimal("NaN")],
    "timedeltas": lambda: np.array([1, 2, 3], "m8[ns]"),
    "times": lambda: [time(1), time(2), None],
    "bytes": lambda: [b"2026-03-02", b"\xff", None],
    "objects": lambda: [object(), object(), None],
    "mixed": lambda: [1, "2026-03-02", DAYS[0]],
    "mixed with bytes": lambda: [b"x", 1.5, None],
    "large integers": lambda: [10**30, 1, 2],
    "nullable integers": lambda: pd.array([1, None, 3], dtype="Int64"),
    "nothing": lambda: [None, None, None],
    "infinity": lambda: [np.inf, 1, 2],
    "sparse": lambda: pd.arrays.SparseArray([1.5, np.nan, 2]),
    "years of datetime64": lambda: np.array(["0001-01-01", "9999-12-31", "2026-03-02"], "M8[s]"),
    "Arrow months": lambda: pa.array([(1, 2, 3)] * 3, pa.month_day_nano_interval()),
    "Arrow durations": lambda: pa.array(FAR, pa.duration("s")),
    "Arrow seconds": lambda: pa.array(FAR, pa.timestamp("s", "UTC")),
    "Arrow microseconds": lambda: pa.array(FAR, pa.timestamp("us")),
    "Arrow dates": lambda: pa.array([2**31 - 1, None, 0], pa.date32()),
    "Arrow zone": lambda: pa.array(DAYS, pa.timestamp("us", "Nowhere/Land")),
    "Arrow binary views": lambda: pa.array([b"a", None, b"b"], pa.binary_view()),
    "Arrow string views": lambda: pa.array(TEXTS, pa.string_view()),
    "Arrow lists": lambda: pa.array([["a"]] * 3, pa.list_(pa.string(), 1)),
    "Arrow maps": lambda: pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    "Arrow runs": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), TEXTS[:1]),
    "Arrow halves": lambda: pa.array(np.array([1, 2, 3], np.float16)),
    "Arrow unsigned": lambda: pa.array([2**64 - 1, 1, None], pa.uint64()),
    "Polars durations": lambda: pl.Series([timedelta(1)] * 3),
    "Polars times": lambda: pl.Series([time(1)] * 3),
    "Polars enums": lambda: pl.Series(TEXTS, dtype=pl.Enum(TEXTS)),
    "Polars objects": lambda: pl.Series([object()] * 3, dtype=pl.Object),
    "Polars 128 bits": lambda: pl.Series([10**20, 1, 2], dtype=pl.Int128),
}


def make_frame(column: str, values: Any, **others: Any) -> Any:
    if isinstance(values, pa.Array):
        return pa.table(
            {name: pa.array(other) for name, other in others.items()} | {column: values}
        )
    return (pl if isinstance(values, pl.Series) else pd).DataFrame({**others, column: values})


def read_events(db: Database, frame: Any, **options: Any) -> Any:
    return read_given_events(db.reader, frame, ("BTC",), None, timedelta(1), **options)[0].rows


def read_values(frame: Any) -> Any:
    return [*read_signals(frame, decided_at=None, fields=None).batches]


def register(db: Database, frame: Any) -> Any:
    db.register("mine", frame)
    return db.sql("SELECT count(x) FROM mine")


IDS = ["moved"] * 3
DOORS: dict[str, Callable[[Database, Any], Any]] = {
    "attach_known ts": lambda db, x: db.attach_known(make_frame("ts", x, coin=["BTC"] * 3)),
    "attach_known coin": lambda db, x: db.attach_known(make_frame("coin", x, ts=TEXTS)),
    "features": lambda db, x: db.features(make_frame("ts", x)["ts"], "1d", "BTC"),
    "audit ts": lambda db, x: db.audit(make_frame("ts", x, event_id=IDS)),
    "audit values": lambda db, x: read_values(
        make_frame("categories", x, event_id=IDS, ts=TEXTS, impact=x, days_until=x)
    ),
    "prices ts": lambda db, x: read_prices(make_frame("ts", x, BTC=[1.0, 2.0, 3.0])),
    "prices close": lambda db, x: read_prices(make_frame("close", x, coin=["BTC"] * 3, ts=DAYS)),
    "prices coin": lambda db, x: read_prices(make_frame("coin", x, close=[1.0, 2, 3], ts=DAYS)),
    "events date": lambda db, x: read_events(
        db, make_frame("date", x, event_id=["a", "b", "c"], coin=["BTC"] * 3)
    ),
    "events impact": lambda db, x: read_events(
        db, make_frame("impact", x, event_id=["a", "b", "c"], coin=["BTC"] * 3, date=TEXTS)
    ),
    "events id": lambda db, x: read_events(
        db, make_frame("event_id", x, coin=["BTC"] * 3, date=TEXTS)
    ),
    "register": lambda db, x: register(db, make_frame("x", x)),
}
READERS = {"prices ts", "prices close", "prices coin", "audit values", "register"}
"""The readers of timestamps, numbers, texts and fields, and DuckDB's own."""
SOME = ("mixed with bytes", "Arrow microseconds", "Polars 128 bits")


@pytest.mark.parametrize("door", DOORS)
def test_a_column_of_any_type_is_read_or_refused_by_an_error_of_the_package(
    db: Database, door: str
) -> None:
    """The doors share one reader: one of each kind of value reads all types, the others three."""
    for name in ODD if door in READERS else SOME:
        with suppress(AlmanacError):
            DOORS[door](db, ODD[name]())


FORMS: dict[str, Callable[[], Any]] = {
    "a Series": lambda: pd.Series(PERIODS),
    "objects": lambda: pd.Series(list(PERIODS), dtype=object),
    "categories": lambda: pd.Series(pd.Categorical(PERIODS)),
    "Arrow": lambda: pa.array(PERIODS),
}


TIMES = sorted(set(DOORS) - {"prices close", "prices coin"})


@pytest.mark.parametrize("door", [*TIMES, "an index"])
def test_periods_have_one_message_at_every_door(db: Database, door: str) -> None:
    for make in FORMS.values():
        with pytest.raises(InvalidArgument, match=r"holds periods, and .* Convert periods"):
            if door in DOORS:
                DOORS[door](db, make())
            else:
                read_prices(pd.DataFrame({"BTC": [1.0, 2.0, 3.0]}, index=PERIODS))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_duration_of_any_unit_is_a_number_of_days(db: Database, unit: str) -> None:
    """On the 4th the date was 18 days and 14 hours ahead."""
    length = np.array([18 * 24 + 14], "m8[h]").astype(f"m8[{unit}]")
    if unit == "ns":
        length += 1
    columns = [pd.Series(length), pa.array(length), pl.Series(length if unit != "s" else [1e0])]
    for values in columns[: 2 if unit == "s" else 3]:
        rows = make_frame("days_until", values, event_id=["moved"], ts=["2026-03-04"])
        assert [row["verdict"] for row in db.audit(rows).verdicts] == ["clean"]


def test_decimals_are_prices(tmp_path: Path) -> None:
    days = [*DAYS, at(8)]
    values = [Decimal("1.10"), Decimal("2.20"), None, Decimal("5.80")]
    duckdb.sql(
        "COPY (SELECT unnest([TIMESTAMP '2026-03-02', '2026-03-04', '2026-03-06', '2026-03-08']) "
        "AS ts, unnest([1.10::DECIMAL(10, 2), 2.2, NULL, 5.8]) AS BTC) "
        f"TO '{tmp_path / 'p.parquet'}'"
    )
    frames: list[Any] = [
        pd.DataFrame({"ts": days, "BTC": values}),
        pa.table({"ts": days, "BTC": pa.array(values, pa.decimal128(10, 2))}),
        pl.DataFrame({"ts": days, "BTC": values}),
        tmp_path / "p.parquet",
    ]
    long = [frame.assign(coin="BTC", close=frame.pop("BTC")) for frame in (frames[0].copy(),)]
    for frame in frames + long:
        np.testing.assert_array_equal(read_prices(frame).close[:, 0], [1.1, 2.2, np.nan, 5.8])


COUNT = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""How many of a unit a second has."""
NUMBERS: dict[str, Callable[[list[int]], Any]] = {
    "integers": lambda given: given,
    "floats": lambda given: [*map(float, given)],
    "unsigned": lambda given: np.array(given, np.uint64),
    "objects": lambda given: np.array(given, object),
    "decimals": lambda given: [*map(Decimal, given)],
    "texts": lambda given: [f" {number}" for number in given],
    "Arrow texts": lambda given: pa.array(map(str, given)),
    "Polars": lambda given: pl.Series(given),
    "a text in ISO 8601 among texts": lambda given: [str(given[0]), TEXTS[1], str(given[2])],
}
UNITS = [("s", "integers"), ("us", "Arrow texts"), ("ms", "objects")]
TIMED: dict[str, tuple[str, dict[str, Any]]] = {
    "attach_known": ("ts", {"coin": ["BTC"] * 3}),
    "audit": ("ts", {"event_id": IDS}),
    "prices": ("ts", {"BTC": [1.0, 2.0, 3.0]}),
    "events": ("date", {"event_id": ["a", "b", "c"], "coin": ["BTC"] * 3}),
    "features": ("ts", {}),
}


def ask(db: Database, door: str, given: Any, **options: Any) -> list[Any]:
    """Return the answer of a door to a frame or file."""
    match door:
        case "attach_known":
            known = db.attach_known(given, horizon="20d", **options)
            known = known.read_all() if hasattr(known, "read_all") else known
            return [str(each) for each in np.array(known["days_until"])]
        case "audit":
            found = db.audit(given, **options)
            return [(row["decided_at"], row["verdict"]) for row in found.verdicts]
        case "prices":
            return [*read_prices(given, tz=UTC, **options).starts]
        case "events":
            return [*read_events(db, given, **options)["date"]]
    known = db.features(given["ts"], "1d", "BTC", horizon="20d", **options)
    return [*map(str, known["days_until"])]


@pytest.mark.parametrize("door", TIMED)
def test_numbers_are_timestamps_with_a_unit_and_refused_without(
    db: Database, door: str, tmp_path: Path
) -> None:
    column, others = TIMED[door]
    right = ask(db, door, make_frame(column, TEXTS, **others))
    assert len({*right}) > 1
    for unit, form in UNITS:
        given = NUMBERS[form]([int(day.timestamp()) * COUNT[unit] for day in DAYS])
        frame = make_frame(column, given, **others)
        assert ask(db, door, frame, unit=unit) == right
        with pytest.raises(InvalidArgument, match=f"name their unit: unit='{unit}'"):
            ask(db, door, frame)
        with pytest.raises(InvalidArgument, match=f"2000 to 2200.*unit='{unit}'"):
            ask(db, door, frame, unit="us" if unit == "s" else "s")
    with pytest.raises(InvalidArgument, match="20260302 fits no unit since 1970; a day is a"):
        ask(db, door, make_frame(column, [20260302] * len(DAYS), **others))
    frame = make_frame(column, [int(day.timestamp()) * 1_000 for day in DAYS], **others)
    if door != "features":
        pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
        frame.to_csv(tmp_path / "rows.csv", index=False)
        for file in tmp_path.iterdir():
            assert ask(db, door, file, unit="ms") == right
            with pytest.raises(InvalidArgument, match="name their unit: unit='ms'"):
                ask(db, door, file)
        days = make_frame(column, [f"{day:%Y%m%d}" for day in DAYS], **others)
        days.to_csv(tmp_path / "rows.csv", index=False)
        assert ask(db, door, tmp_path / "rows.csv") == ask(db, door, days)
        assert ask(db, door, days) == ask(db, door, make_frame(column, DATES, **others))


DATES = [day.date() for day in DAYS]


def test_the_audit_command_takes_the_unit(
    watched_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("event_id,ts\nmoved,1772409600\n")
    audit_command(tmp_path / "rows.csv", home=watched_file, unit="s")
    assert "clean          1" in capsys.readouterr().out
    with pytest.raises(InvalidArgument, match="unit='s'"):
        audit_command(tmp_path / "rows.csv", home=watched_file)


@pytest.mark.parametrize("unit", COUNT)
@pytest.mark.parametrize("form", NUMBERS)
def test_a_number_of_any_type_and_unit_is_its_timestamp(unit: str, form: str) -> None:
    given = NUMBERS[form]([int(day.timestamp()) * COUNT[unit] for day in DAYS])
    values: Any = given if isinstance(given, pa.Array | pl.Series) else pd.Series(given)
    found = read_timestamp_column(values, "ts", UTC, unit=unit)  # type: ignore[arg-type]
    assert found.microseconds.tolist() == [int(day.timestamp()) * 1_000_000 for day in DAYS]
    with pytest.raises(InvalidArgument, match=r"name their unit|not a timestamp"):
        read_timestamp_column(values, "ts", UTC)


def test_a_fraction_of_a_second_is_kept_and_a_nanosecond_cut() -> None:
    for numbers, unit, rest in (([1772409600.25], "s", 250_000), ([1772409600000001999], "ns", 1)):
        found = read_timestamp_column(pd.Series(numbers), "ts", UTC, unit=unit)
        assert found.microseconds.tolist() == [1_772_409_600_000_000 + rest]
