"""Joins and audits of Spark frames on two executors equal those of one process."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

import almanac
from almanac import spark as almanac_spark
from tests.almanac.publications import publish_by_hand
from tests.almanac.steps.as_of_joins import count_differences, read_queries
from tests.almanac.steps.step_world import StepWorld
from tests.almanac.steps.test_event_steps import steps_of
from tests.lake.servers import spark_session
from tests.warehouse.answers.handmade import Known
from warehouse.home import Home

pytestmark = pytest.mark.lake
ROWS = 20_000


@pytest.fixture(scope="module")
def database(filled_home: Home) -> Iterator[almanac.Database]:
    with almanac.open(filled_home.warehouse) as opened:
        yield opened


@pytest.fixture(scope="module")
def given(database: almanac.Database, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Parquet file of rows with coins as slugs and as pairs, and rows without a coin."""
    file = tmp_path_factory.mktemp("given") / "rows.parquet"
    coins = database.sql("SELECT slug FROM coins ORDER BY slug LIMIT 50").df().slug.tolist()
    names = [*coins, None, "BTC/USDT"]
    last = last_known(database)
    pd.DataFrame(
        {
            "id": range(ROWS),
            "coin": [names[number % len(names)] for number in range(ROWS)],
            "ts": [last - timedelta(minutes=number % 5_000) for number in range(ROWS)],
        }
    ).astype({"ts": "datetime64[us, UTC]"}).to_parquet(file)
    return file


@pytest.fixture(scope="module")
def spark(spark_master: str) -> Iterator[Any]:
    """A session in a zone that is not UTC, with batches that are smaller than a slice."""
    options = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1500",
        "spark.sql.shuffle.partitions": "4",
    }
    with spark_session(spark_master, **options) as session:
        yield session


def last_known(database: almanac.Database) -> datetime:
    at: datetime = database.sql("SELECT max(known_from) AS at FROM event_versions").rows()[0]["at"]
    return at.astimezone(UTC)


def count_values(column: str, file: Path) -> int:
    with duckdb.connect() as connection:
        ((count,),) = connection.execute(f"SELECT count({column}) FROM '{file}'").fetchall()
    return int(count)


def assert_same_rows(found: str, expected: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for left, right in ((found, expected), (expected, found)):
            rows = f"(FROM '{left}') EXCEPT ALL (FROM '{right}')"
            assert not connection.execute(rows).fetchmany(3)
        names = [
            [row[0] for row in connection.execute(f"DESCRIBE FROM '{side}'").fetchall()]
            for side in (found, expected)
        ]
        assert names[0] == names[1]


def test_attach_known_equals_one_process(
    spark: Any, filled_home: Home, database: almanac.Database, given: Path, tmp_path: Path
) -> None:
    found, plain = tmp_path / "found", tmp_path / "plain.parquet"
    frame = spark.read.parquet(str(given)).repartition(4)
    joined = almanac_spark.attach_known(frame, filled_home.root, prefix="a_", horizon="14d")
    joined.write.parquet(str(found))
    assert database.attach_known(given, to=plain, prefix="a_", horizon="14d") == ROWS
    assert_same_rows(f"{found}/*.parquet", str(plain))
    assert count_values("a_next_event_id", plain) > 0


def test_audit_equals_one_process(
    spark: Any, filled_home: Home, database: almanac.Database, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.parquet"
    database.sql(
        """
        SELECT event_id, known_from - INTERVAL 1 HOUR * (version % 3) AS decided_at,
            date + INTERVAL 1 HOUR * (hash(event_id) % 2)::INT AS date, impact, title AS headline
        FROM event_versions
        ORDER BY event_id, version LIMIT 3000
        """
    ).to_parquet(rows)
    given = spark.read.parquet(str(rows)).repartition(3)
    found = almanac_spark.audit(given, filled_home.root)
    plain = database.audit(rows)
    assert plain.groups["leak"] > 0
    expected = plain.rows.arrow().drop_columns("row")
    assert found.columns == expected.column_names
    assert count_differences(expected, found.toArrow()) == (0, 0)


def test_unknown_coin_and_missing_column_are_refused_by_the_call(
    spark: Any, filled_home: Home, database: almanac.Database
) -> None:
    home, last = filled_home.root, last_known(database)
    unknown = spark.createDataFrame([("no-such-coin-x", last)], "coin string, ts timestamp")
    with pytest.raises(almanac.UnknownName, match="no-such-coin-x"):
        almanac_spark.attach_known(unknown, home)
    assert almanac_spark.attach_known(unknown, home, unknown="ignore").count() == 1
    with pytest.raises(almanac.InvalidArgument, match="symbol"):
        almanac_spark.attach_known(unknown, home, coin="symbol")
    with pytest.raises(TypeError, match="universe"):
        almanac_spark.audit(unknown, home, universe={"within": "7d"})  # type: ignore[call-arg]


def test_error_of_an_executor_has_the_text_of_almanac(spark: Any, filled_home: Home) -> None:
    from pyspark.errors import PythonException

    for ts, said in (("noon", "ts='noon'"), ("2100-01-01T00:00:00Z", "still to come")):
        frame = spark.createDataFrame([("bitcoin", ts)], "coin string, ts string")
        joined = almanac_spark.attach_known(frame, filled_home.root)
        with pytest.raises(PythonException, match=f"InvalidArgument: row 0 of the.*{said}"):
            joined.collect()


def test_a_frame_keeps_its_publication_and_the_next_call_has_the_next_one(
    spark: Any, tmp_path: Path
) -> None:
    """The file at the path is replaced between two calls, and both frames are used after that."""
    at = datetime(2026, 3, 1, tzinfo=UTC)
    known = Known(event_id="a", known_from=at, date=at + timedelta(days=2), coins=("bitcoin",))
    file = publish_by_hand(tmp_path / "warehouse.duckdb", [known], pulls=[at])
    frame = spark.createDataFrame(
        [("bitcoin", at + timedelta(minutes=n)) for n in range(1, 9)], "coin string, ts timestamp"
    ).repartition(2)
    options: dict[str, Any] = {"coins_are": "slug", "unknown": "ignore"}
    first = almanac_spark.attach_known(frame, file, **options)
    assert {row.next_event_id for row in first.collect()} == {"a"}
    later = Known(event_id="b", known_from=at, date=at + timedelta(days=1), coins=("bitcoin",))
    publish_by_hand(file, [known, later], pulls=[at])
    second = almanac_spark.attach_known(frame, file, **options)
    file.unlink()
    for joined, event_id in ((first, "a"), (second, "b"), (first, "a")):
        assert {row.next_event_id for row in joined.collect()} == {event_id}


def test_as_of_join_of_the_docs_equals_attach_known(spark: Any, tmp_path: Path) -> None:
    world = StepWorld(tmp_path / "world.duckdb", 36, events=400)
    rows = world.make_rows(50_000, 36)
    with world.open() as database:
        expected = database.attach_known(rows)
    for name, table in (("bars", rows), ("event_steps", steps_of(world))):
        pq.write_table(table, tmp_path / f"{name}.parquet")
        spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView(name)
    found = tmp_path / "found"
    spark.sql(read_queries()["Spark"]).write.parquet(str(found))
    assert count_differences(expected, pq.read_table(found)) == (0, 0)
    shutil.rmtree(found)
