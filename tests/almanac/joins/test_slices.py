"""Joins of rows that are read in batches: the same answers as for one frame."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import almanac
from almanac.core.errors import InvalidArgument, UnknownName
from almanac.database import Database
from almanac.frames import read_timestamp_column
from almanac.next_events import close_bars
from tests.almanac.joins.test_attach_known import ABSENCES, ADDED, COINS, NOW, PULLS, VERSIONS, at
from tests.almanac.publications import publish_by_hand

SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "ts": pa.timestamp("ns", "UTC"),
        "coin": pa.dictionary(pa.int32(), pa.string()),
        "nothing": pa.null(),
    }
)
ROW = st.fixed_dictionaries(
    {
        "n": st.integers(0, 100),
        "ts": st.sampled_from([at(day, hour) for day in (1, 5, 9, 13) for hour in (5, 6, 23)])
        | st.none(),
        "coin": st.sampled_from(["bitcoin", "BTC", "terra", "first-sun", "other-sun"]) | st.none(),
    }
)
ROWS = [
    {"n": number, "ts": at(1 + number % 19, number % 24), "coin": coin}
    for number, coin in enumerate(["BTC", "terra", "bitcoin", "other-sun", None] * 5)
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[almanac.Database]:
    path = tmp_path_factory.mktemp("home") / "warehouse.duckdb"
    publish_by_hand(path, VERSIONS, pulls=PULLS, absences=ABSENCES, coins=COINS)
    with almanac.open(path, clock=lambda: NOW) as opened:
        yield opened


def in_slices(db: Database, rows_max: int) -> Database:
    """Return the same database, which answers at most so many rows at a time."""
    found = Database(db.reader)
    found._rows_max = rows_max
    return found


def attached(db: almanac.Database, source: Any, rows_max: int = 1_000_000, **options: Any) -> Any:
    return in_slices(db, rows_max).attach_known(source, **options)


@settings(max_examples=settings.default.max_examples // 3)
@given(
    parts=st.lists(st.lists(ROW, max_size=6), max_size=5),
    rows_max=st.sampled_from([1, 2, 5, 1_000]),
    options=st.sampled_from([{}, {"min_impact": 5.0}, {"horizon": "1d", "prefix": "a_"}]),
)
def test_batches_of_any_size_give_the_answer_of_one(
    db: almanac.Database,
    parts: list[list[dict[str, Any]]],
    rows_max: int,
    options: dict[str, Any],
) -> None:
    batches = [pa.RecordBatch.from_pylist(part, SCHEMA) for part in parts]
    whole = pa.Table.from_batches(batches, SCHEMA)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches)
    expected = attached(db, whole, **options)
    found = attached(db, reader, rows_max=rows_max, **options)
    assert isinstance(found, pa.RecordBatchReader)
    assert found.schema == expected.schema
    assert found.read_all().to_pylist() == expected.to_pylist()
    for frame in (whole, whole.to_pandas(), pl.from_arrow(whole.drop_columns("nothing"))):
        whole_answer, sliced = (
            attached(db, frame, rows_max=size, **options) for size in (1_000, rows_max)
        )
        if isinstance(whole_answer, pd.DataFrame):
            pd.testing.assert_frame_equal(whole_answer, sliced)
        else:
            assert whole_answer.equals(sliced)


def test_files_datasets_and_readers_are_joined_as_their_table(
    db: almanac.Database, tmp_path: Path
) -> None:
    table = pa.Table.from_pylist(ROWS)
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(3):
        pq.write_table(table.slice(number * 9, 9), folder / f"{number}.parquet", row_group_size=2)
    whole = tmp_path / "whole.parquet"
    pq.write_table(table, whole, row_group_size=3)
    expected = db.attach_known(table).to_pylist()
    sources = [table.to_reader(2), ds.dataset(whole), pq.ParquetFile(whole), whole]
    sources += [str(folder), folder / "*.parquet"]
    for source in sources:
        assert attached(db, source, rows_max=4).read_all().to_pylist() == expected
    with duckdb.connect() as connection:
        connection.register("joined", db.attach_known(whole))
        counted = connection.execute("SELECT count(next_event_id) FROM joined").fetchall()
        assert counted == [(sum(row["next_event_id"] is not None for row in expected),)]


def test_a_csv_is_joined_as_texts(db: almanac.Database, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    pd.DataFrame(ROWS).assign(price="0123").to_csv(file, index=False)
    found = attached(db, file, rows_max=4).read_all()
    assert set(found["price"].to_pylist()) == {"0123"}
    assert found["coin"].to_pylist() == [row["coin"] for row in ROWS]
    expected = db.attach_known(pa.Table.from_pylist(ROWS))
    assert found.select(ADDED).equals(expected.select(ADDED))


def test_a_file_is_written_slice_by_slice(db: almanac.Database, tmp_path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(table, source)
    target.write_text("an older file")
    lines: list[str] = []
    rows = attached(db, source, to=target, rows_max=10, progress=lines.append)
    assert rows == len(ROWS)
    written = pq.ParquetFile(target)
    assert [written.metadata.row_group(n).num_rows for n in range(written.num_row_groups)] == [
        *(10, 10, 5)
    ]
    assert written.read().to_pylist() == db.attach_known(table).to_pylist()
    assert [line.partition(" rows")[0] for line in lines] == ["10 of 25", "20 of 25", "25 of 25"]
    assert sorted(tmp_path.iterdir()) == [source, target]


def test_a_frame_is_written_with_its_index(db: almanac.Database, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    assert db.attach_known(pd.DataFrame(ROWS).set_index("ts"), ts=None, to=target) == len(ROWS)
    written = pd.read_parquet(target)
    assert list(written.columns)[-len(ADDED) :] == ADDED
    assert written.index.name == "ts"


def test_a_failure_leaves_the_file_that_was_there(db: almanac.Database, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    pq.write_table(pa.table({"old": [1]}), target)
    rows = [*ROWS, {"n": 99, "ts": at(3), "coin": "nobody knows it"}]
    with pytest.raises(UnknownName, match="nobody knows it"):
        attached(db, pa.Table.from_pylist(rows).to_reader(), to=target, rows_max=10)
    assert pq.read_table(target).column_names == ["old"]
    assert list(tmp_path.iterdir()) == [target]


def test_errors_in_a_stream_name_the_row_of_the_whole(db: almanac.Database, tmp_path: Path) -> None:
    late = [*ROWS, {"n": 99, "ts": NOW + timedelta(days=1), "coin": "BTC"}]
    with pytest.raises(InvalidArgument, match="row 25 of the reader is at 2026-03-21"):
        attached(db, pa.Table.from_pylist(late).to_reader(), rows_max=10).read_all()
    texts = [{"ts": "2026-03-01", "coin": "BTC"}] * 7 + [{"ts": "yesterday-ish", "coin": "BTC"}]
    pq.write_table(pa.Table.from_pylist(texts), tmp_path / "texts.parquet")
    with pytest.raises(InvalidArgument, match="row 7 of the frame"):
        attached(db, tmp_path / "texts.parquet", rows_max=3).read_all()


def test_a_wrong_column_or_target_is_an_error_before_a_row_is_read(
    db: almanac.Database, tmp_path: Path
) -> None:
    source = tmp_path / "in.parquet"
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, source)

    def unread() -> Iterator[pa.RecordBatch]:
        raise AssertionError("it was read")
        yield

    reader = pa.RecordBatchReader.from_batches(table.schema, unread())
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (reader, {"ts": "time"}, "ts='time' is not a column; the frame has: n, ts, coin"),
        (source, {"ts": None}, "index of a pandas frame"),
        (source, {"to": tmp_path / "out.csv"}, "ends in .parquet"),
        (source, {"to": tmp_path / "gone" / "out.parquet"}, "there is no folder"),
        (source, {"to": source}, "is the file that is read"),
        (tmp_path / "gone.parquet", {}, "there is no file"),
        (tmp_path / "gone.csv", {}, "there is no file"),
        ("s3://bucket/rows.parquet", {}, "frame is an address"),
        (source, {"to": "s3://bucket/out.parquet"}, "to is an address"),
        (db, {}, "expected a pandas or Polars DataFrame"),
        (pl.LazyFrame(ROWS), {}, "sink_parquet"),
        (db.attach_known(table), {}, "already has next_event_id"),
        (db.attach_known(table).to_reader(), {}, "already has next_event_id"),
    ]
    for given_source, options, message in wrong:
        with pytest.raises(InvalidArgument, match=message):
            db.attach_known(given_source, **options)
    assert pq.read_table(source).equals(table)


def test_a_stream_without_rows_has_the_columns(db: almanac.Database, tmp_path: Path) -> None:
    empty = pa.Table.from_pylist(ROWS).slice(0, 0)
    found = db.attach_known(empty.to_reader()).read_all()
    assert found.schema == db.attach_known(empty).schema
    assert db.attach_known(empty.to_reader(), to=tmp_path / "out.parquet") == 0
    assert pq.read_schema(tmp_path / "out.parquet").names == [*empty.column_names, *ADDED]


@settings(max_examples=settings.default.max_examples // 3)
@given(
    opens=st.lists(st.sampled_from([at(day, 4) for day in (1, 5, 9, 20)]), max_size=7),
    symbols=st.sampled_from([["bitcoin"], {"BTC/USDT": "BTC", "LUNA": "terra"}]),
    rows_max=st.sampled_from([1, 3, 1_000]),
)
def test_features_in_slices_give_the_answer_of_one(
    db: almanac.Database,
    tmp_path_factory: pytest.TempPathFactory,
    opens: list[datetime],
    symbols: Any,
    rows_max: int,
) -> None:
    index = pd.DatetimeIndex(opens, tz=UTC)
    options: dict[str, Any] = {"bar": "12h", "symbols": symbols}
    expected, slices = db.features(index, **options), in_slices(db, rows_max)
    pd.testing.assert_frame_equal(slices.features(index, **options), expected)
    target = tmp_path_factory.mktemp("features") / "out.parquet"
    assert slices.features(index, to=target, **options) == len(expected)
    written = pq.read_table(target)
    assert written.column_names == ["ts", "symbol", *expected.columns]
    assert written["ts"].to_pylist() == [ts.to_pydatetime() for ts, _ in expected.index]
    assert written["symbol"].to_pylist() == [symbol for _, symbol in expected.index]
    ids = [None if pd.isna(event) else event for event in expected["next_event_id"]]
    assert written["next_event_id"].to_pylist() == ids


ZONES = (
    *("UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo"),
    *("Africa/Casablanca", "Asia/Kolkata", "Pacific/Apia", "America/Havana"),
)
BARS = ("30min", "1h", "4h", "12h", "1D", "7D")


@given(
    zone=st.sampled_from(ZONES),
    bar=st.sampled_from(BARS),
    day=st.dates(date(2016, 1, 1), date(2026, 1, 1)),
    count=st.integers(1, 60),
    cut=st.integers(0, 60),
    skipped=st.sampled_from(["NaT", "shift_forward"]),
)
@example("America/Sao_Paulo", "1D", date(2018, 11, 3), 4, 2, "shift_forward")
@example("Australia/Lord_Howe", "1h", date(2026, 10, 4), 5, 3, "shift_forward")
def test_a_bar_closes_by_itself_and_not_after_the_next_opens(
    zone: str, bar: str, day: date, count: int, cut: int, skipped: str
) -> None:
    """Bars of the local clock: some are shorter; a skipped open is no bar, or after the gap."""
    local = pd.date_range(day, periods=count, freq=bar)
    later = np.zeros(len(local), bool)
    opens = local.tz_localize(zone, ambiguous=later, nonexistent=skipped).dropna().unique()
    known = close(opens, bar)
    assert (close(opens[:cut], bar) == known[:cut]).all()
    assert (known > opens).all()
    assert (known <= opens + pd.Timedelta(bar)).all()
    assert (known[:-1] <= opens[1:]).all()
    by_clock = opens.tz_localize(None) + pd.Timedelta(bar)
    assert (known.tz_localize(None) <= by_clock + pd.Timedelta("1h")).all()


def close(opens: pd.DatetimeIndex, bar: str) -> pd.DatetimeIndex:
    """Return when bars close, as known live at the close of the last."""
    opened = read_timestamp_column(opens, "index", UTC)
    now = datetime(2036, 1, 1, tzinfo=UTC)
    known = close_bars(opened, pd.Timedelta(bar).to_pytimedelta(), opens.tz, now)
    return pd.DatetimeIndex(known.microseconds.view("datetime64[us]"), tz=UTC).tz_convert(opens.tz)
