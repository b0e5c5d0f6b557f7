"""A database as a handle: in other processes, with frames of the caller; what its errors say."""

import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from traceback import format_exception
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import almanac
from almanac.reading.query_limits import QueryLimits
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.warehouse.answers.handmade import Known

FIRST = datetime(2026, 3, 1, 6, tzinfo=UTC)
NOW = FIRST + timedelta(days=7)
COINS = [NamedCoin("bitcoin", "BTC", "Bitcoin", 1), NamedCoin("terra", "LUNA", "Terra")]
COINS += [NamedCoin("one-sun", "SUN", "One Sun"), NamedCoin("two-sun", "SUN", "Two Sun")]
VERSIONS = [
    Known(
        event_id=f"evt_{place}",
        known_from=FIRST,
        date=FIRST + timedelta(days=place),
        coins=("bitcoin",),
        categories=("Burn",),
    )
    for place in range(20)
]


def published(folder: Path, versions: list[Known] = VERSIONS) -> Path:
    pulls = [FIRST + timedelta(days=day) for day in range(7)]
    return publish_by_hand(folder / "warehouse.duckdb", versions, pulls=pulls, coins=COINS)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("home"))


@pytest.fixture
def db(file: Path) -> Iterator[almanac.Database]:
    with almanac.open(file, clock=clock) as opened:
        yield opened


def clock() -> datetime:
    return NOW


def count_events(db: almanac.Database) -> tuple[int, str]:
    with db:
        return len(db.events()), str(db.events()["first_seen_at"].dtype)


class TestPickle:
    def test_a_worker_that_is_spawned_has_the_same_database(self, file: Path) -> None:
        with almanac.open(file, tz="Asia/Tokyo") as db:
            expected = len(db.events()), "datetime64[us, Asia/Tokyo]"
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.map(count_events, [db, db]) == [expected, expected]

    def test_path_zone_limits_clock_and_frames_stay(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(file.parent)
        limits = QueryLimits(memory_bytes=300_000_000, threads=1)
        with almanac.open(".", tz="Asia/Tokyo", limits=limits, clock=clock) as db:
            db.register("mine", pd.DataFrame({"a": [1, 2]}))
            written = pickle.dumps(db)
            monkeypatch.chdir(tmp_path)
            with pickle.loads(written) as other:
                assert other.path == file and other.coverage().as_of == NOW
                assert str(other.reader.tz) == "Asia/Tokyo"
                assert other.sql("FROM mine").rows() == [{"a": 1}, {"a": 2}]
                setting = "SELECT current_setting('threads') AS threads"
                assert other.sql(setting).rows() == [{"threads": 1}]

    def test_one_that_keeps_its_publication_can_not_be_pickled(self, file: Path) -> None:
        with (
            almanac.open(file, follow=False) as db,
            pytest.raises(almanac.InvalidArgument, match="follow=False can't be pickled"),
        ):
            pickle.dumps(db)


def test_a_notebook_without_widgets_opens_a_database(file: Path) -> None:
    """DuckDB refuses there to set the progress bar; a kernel is known by these two names."""
    code = (
        "import sys, types; shell = types.SimpleNamespace(config={'IPKernelApp': {}}); "
        "sys.modules['IPython'] = types.SimpleNamespace(get_ipython=lambda: shell); "
        f"import almanac; print(len(almanac.open({str(file)!r}).events()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("20\n", 0), done.stderr


DAYS = pd.date_range("2026-03-01", periods=2, tz="UTC")


class TestRegister:
    @pytest.mark.parametrize(
        ("frame", "columns"),
        [
            (pd.DataFrame({"v": [1, 2]}, index=DAYS), ["ts", "v"]),
            (pd.DataFrame({"v": [1, 2]}, index=DAYS.rename("opened")), ["opened", "v"]),
            (pd.DataFrame({"v": [1, 2]}, index=["BTC", "ETH"]), ["index", "v"]),
            (pd.DataFrame({"v": [1, 2]}, index=pd.Index([3, 4], name="id")), ["id", "v"]),
            (pd.DataFrame({"v": [1, 2]}), ["v"]),
            (pd.DataFrame({"v": [1, 2, 3]})[lambda frame: frame["v"] > 1], ["v"]),
            (pd.DataFrame({"v": [1, 2]}).set_index([DAYS, ["a", "b"]]), ["ts", "level_1", "v"]),
            (
                pd.DataFrame({"c": ["a", "b"], "v": [1, 2]}).set_index([DAYS, "c"]),
                ["ts", "c", "v"],
            ),
            (pd.Series([1, 2], index=DAYS, name="v"), ["ts", "v"]),
            (pd.Series([1, 2]), ["value"]),
            (pl.DataFrame({"v": [1, 2]}), ["v"]),
            (pl.DataFrame({"v": [1, 2]}).lazy(), ["v"]),
            (pa.table({"v": [1, 2]}), ["v"]),
            (pa.table({"v": [1, 2]}).to_batches()[0], ["v"]),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else type(value).__name__,
    )
    def test_the_index_is_a_column_and_every_row_is_there(
        self, db: almanac.Database, frame: Any, columns: list[str]
    ) -> None:
        db.register("mine", frame)
        for _ in range(2):
            found = db.sql("FROM mine")
            assert (found.columns, len(found)) == (columns, 2)

    def test_what_can_be_read_once_is_there_for_every_query(self, db: almanac.Database) -> None:
        db.register("mine", pa.table({"v": [1, 2]}).to_reader())
        db.register("coin_labels", db.events())
        for _ in range(3):
            assert len(db.sql("FROM mine")) == 2 and len(db.sql("FROM coin_labels")) == 20
            db.resolve("bitcoin")  # It prepares a table of labels.

    @pytest.mark.parametrize(
        "frame",
        [
            pd.DataFrame([[1, 2]], columns=["close", "Close"]),
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            pd.DataFrame({"ts": [1, 2]}, index=DAYS),
            pa.table([[1], [2]], names=["a", "A"]),
            pl.DataFrame({"a": [1], "A": [2]}),
        ],
        ids=lambda frame: type(frame).__module__,
    )
    def test_columns_that_sql_does_not_tell_apart_are_refused(
        self, db: almanac.Database, frame: Any
    ) -> None:
        with pytest.raises(almanac.InvalidArgument, match="SQL does not tell them apart"):
            db.register("mine", frame)
        with pytest.raises(almanac.QueryRefused):
            db.sql("FROM mine")

    def test_two_columns_of_one_name_are_both_in_the_answer(self, db: almanac.Database) -> None:
        found = db.sql("SELECT 1 AS a, 2 AS a, 3 AS a_1")
        assert found.rows() == [{"a": 1, "a_2": 2, "a_1": 3}]


class TestWhatThereIs:
    def test_tables_are_listed_with_their_descriptions(self, db: almanac.Database) -> None:
        rows = {row["name"]: row for row in db.tables()}
        assert rows["events"] == {
            "name": "events",
            "kind": "view",
            "description": "one row per event, as now known",
        }
        assert rows["coins"]["kind"] == "table"
        assert rows["events_as_of(ts, basis)"]["kind"] == "macro"
        assert all(row["description"] for row in rows.values())

    def test_columns_are_listed_with_their_descriptions(self, db: almanac.Database) -> None:
        rows = db.tables("Event_Versions").rows()
        assert rows[0] == {
            "column": "event_id",
            "type": "VARCHAR",
            "description": "Identifier of the event.",
        }
        assert all(row["description"] for row in rows)
        with pytest.raises(almanac.UnknownName, match="Similar: event_versions"):
            db.tables("event_version")

    def test_coins_are_listed_by_rank(self, db: almanac.Database) -> None:
        assert db.coins()["slug"].tolist() == ["bitcoin", "one-sun", "terra", "two-sun"]

    def test_categories_are_listed_with_their_events(self, db: almanac.Database) -> None:
        (row,) = db.categories().rows()
        assert (row["category"], row["events"]) == ("Burn", 20)


class TestSqlErrors:
    @pytest.mark.parametrize(
        "query", ["SELECT * FROM my_df", "FROM my_df", "SELECT 1 FROM events JOIN my_df USING (a)"]
    )
    def test_a_frame_that_is_not_registered_is_told_how(
        self, db: almanac.Database, query: str
    ) -> None:
        my_df = pd.DataFrame({"a": [1]})
        with pytest.raises(almanac.QueryRefused, match=r'db\.register\("my_df", my_df\)') as error:
            db.sql(query)
        assert "pragma" not in str(error.value)
        db.register("my_df", my_df)
        assert len(db.sql("FROM my_df")) == 1

    @pytest.mark.parametrize(
        "times",
        [
            "(VALUES (TIMESTAMP '2026-03-05')) AS v(t)",
            "(SELECT known_from FROM event_versions) v(t)",
        ],
    )
    def test_an_internal_error_of_duckdb_is_one_line_with_what_to_use(
        self, db: almanac.Database, times: str
    ) -> None:
        with pytest.raises(almanac.QueryRefused, match=r"Use db\.attach_known") as error:
            db.sql(f"SELECT e.event_id FROM {times}, events_as_of(v.t) AS e")
        assert "\n" not in str(error.value)
        assert "Stack Trace" not in "".join(format_exception(error.value))
        mine = "FROM (VALUES (TIMESTAMP '2026-03-05')) AS mine(ts)"
        found = db.sql(f"SELECT ts, (SELECT count(*) FROM events_as_of(ts)) AS events {mine}")
        assert found["events"].tolist() == [20]

    def test_a_misspelled_table_names_similar_ones(self, db: almanac.Database) -> None:
        with pytest.raises(almanac.QueryRefused, match="Similar: event_versions"):
            db.sql("FROM event_version")

    @pytest.mark.parametrize("query", ["FROM 'mine.csv'", "FROM read_parquet('s3://b/x.parquet')"])
    def test_a_file_is_answered_with_what_to_do(self, db: almanac.Database, query: str) -> None:
        with pytest.raises(almanac.QueryRefused, match=r"SQL can't read .*db\.register"):
            db.sql(query)


def test_a_warehouse_without_a_pull_says_so(tmp_path: Path) -> None:
    before = FIRST - timedelta(hours=1)
    file = publish_by_hand(tmp_path / "warehouse.duckdb", VERSIONS, pulls=[FIRST], at=before)
    with almanac.open(file) as db:
        for ask in (db.events, db.upcoming, lambda: db.changes("2026-03-01")):
            with pytest.raises(almanac.QueryRefused, match="no pull of events was merged yet"):
                ask()
        assert len(db.coins()) == len(db.categories()) == 0
