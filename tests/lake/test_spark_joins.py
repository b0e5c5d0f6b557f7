"""Joins and audits of Spark frames on two executors equal those of one process."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

import almanac
from almanac import spark as almanac_spark
from tests.lake.servers import spark_session
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


def test_attach_known_on_two_executors_equals_one_process(
    spark: Any, database: almanac.Database, given: Path, tmp_path: Path
) -> None:
    found, plain = tmp_path / "found", tmp_path / "plain.parquet"
    frame = spark.read.parquet(str(given)).repartition(4)
    almanac_spark.attach_known(frame, database, prefix="a_").write.parquet(str(found))
    assert database.attach_known(given, to=plain, prefix="a_") == ROWS
    assert_same_rows(f"{found}/*.parquet", str(plain))
    assert count_values("a_next_event_id", plain) > 0


def test_features_of_a_frame_equal_features_of_one_process(
    spark: Any, database: almanac.Database, tmp_path: Path
) -> None:
    last = last_known(database)
    symbols = ["bitcoin", "ethereum", "stellar"]
    found, plain = tmp_path / "found", tmp_path / "plain.parquet"
    with almanac.open(database.path, clock=lambda: last) as at_last:
        now = at_last.reader.now()
        opens = pd.date_range(now - timedelta(days=3), now, freq="1h", tz="UTC").floor("h")
        rows = [(ts.to_pydatetime(), symbol) for ts in opens for symbol in symbols]
        frame = spark.createDataFrame(rows, "ts timestamp, symbol string").repartition(3)
        answer = almanac_spark.features(frame, at_last, "1h", coin="symbol", horizon="14d")
        answer.write.parquet(str(found))
        assert at_last.features(opens, "1h", symbols, horizon="14d", to=plain) == len(rows)
    assert_same_rows(f"{found}/*.parquet", str(plain))
    # The last bar has not closed.
    assert count_values("events_ahead", plain) == len(rows) - len(symbols)
    assert count_values("known_at", plain) == len(rows)


def test_audit_of_a_frame_equals_the_audit_of_one_process(
    spark: Any, database: almanac.Database, tmp_path: Path
) -> None:
    rows, found = tmp_path / "rows.parquet", tmp_path / "found"
    signals = database.sql(
        """
        SELECT event_id, known_from - INTERVAL 1 HOUR * (version % 3) AS decided_at,
            date + INTERVAL 1 HOUR * (hash(event_id) % 2)::INT AS date, impact, title AS headline
        FROM event_versions
        ORDER BY event_id, version LIMIT 3000
        """
    ).df()
    signals["id"] = range(len(signals))
    signals.to_parquet(rows)
    given = spark.read.parquet(str(rows)).repartition(3)
    audited = almanac_spark.audit(given, database)
    audited.rows.write.parquet(str(found))
    plain = database.audit(rows)
    summary = audited.summary
    assert plain.groups["leak"] > 0
    assert summary.summary.rows() == plain.summary.rows()
    for name in ("counts", "groups", "columns", "used", "naive", "other_basis", "is_clean"):
        assert getattr(summary, name) == getattr(plain, name), name
    assert len(summary) == len(plain) == len(signals)
    assert summary.suggestions == plain.suggestions
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("verdicts", plain.verdicts.arrow())
        connection.register("findings", plain.rows.arrow())
        connection.execute(f"CREATE VIEW found AS FROM '{found}/*.parquet'")
        each = "SELECT id, unnest(findings, recursive := true) FROM found"
        names = "field, verdict, used, known_then, knowable_from, reason"
        for left, right in (
            ("SELECT id, verdict FROM found", "SELECT row - 1, verdict FROM verdicts"),
            (f"SELECT id, {names} FROM ({each})", f"SELECT row - 1, {names} FROM findings"),
        ):
            assert connection.execute(f"({left}) EXCEPT ALL ({right})").fetchmany(3) == []
            assert connection.execute(f"({right}) EXCEPT ALL ({left})").fetchmany(3) == []


def test_audit_of_clean_rows_has_no_finding(spark: Any, database: almanac.Database) -> None:
    rows = database.sql("SELECT event_id, known_from AS ts FROM event_versions LIMIT 50").rows()
    values = [(row["event_id"], row["ts"] + timedelta(seconds=1)) for row in rows]
    frame = spark.createDataFrame(values, "event_id string, ts timestamp")
    audited = almanac_spark.audit(frame, database)
    assert audited.summary.is_clean
    assert audited.summary.counts == {"clean": 50}
    assert audited.rows.filter("verdict = 'clean' AND size(findings) = 0").count() == 50


def test_unknown_coin_and_future_timestamp_are_refused_before_the_job(
    spark: Any, database: almanac.Database
) -> None:
    last = last_known(database)
    unknown = spark.createDataFrame([("no-such-coin-x", last)], "coin string, ts timestamp")
    with pytest.raises(almanac.UnknownName, match="no-such-coin-x"):
        almanac_spark.attach_known(unknown, database)
    assert almanac_spark.attach_known(unknown, database, unknown="ignore").count() == 1
    future = datetime(2100, 1, 1, tzinfo=UTC)
    late = spark.createDataFrame([("bitcoin", future)], "coin string, ts timestamp")
    with pytest.raises(almanac.InvalidArgument, match="still to come"):
        almanac_spark.attach_known(late, database)
    with pytest.raises(almanac.InvalidArgument, match="symbol"):
        almanac_spark.attach_known(unknown, database, coin="symbol")
    with pytest.raises(almanac.InvalidArgument, match="universe"):
        almanac_spark.audit(unknown, database, universe={"within": "7d"})


def test_error_of_an_executor_has_the_text_of_almanac(
    spark: Any, database: almanac.Database
) -> None:
    from pyspark.errors import PythonException

    frame = spark.createDataFrame([("bitcoin", "noon")], "coin string, ts string")
    joined = almanac_spark.attach_known(frame, database)
    with pytest.raises(PythonException, match="InvalidArgument: row 0 of the frame: ts='noon'"):
        joined.collect()


def test_frame_keeps_its_publication_and_a_wrong_file_is_refused(
    spark: Any, filled_home: Home, given: Path, tmp_path: Path
) -> None:
    from pyspark.errors import PythonException

    file = tmp_path / "warehouse.duckdb"
    shutil.copy(filled_home.warehouse, file)
    frame = spark.read.parquet(str(given))
    sent = almanac_spark.attach_known(frame, file)
    shared = almanac_spark.attach_known(frame, file, send=False)
    assert shared.filter("next_event_id IS NOT NULL").count() > 0
    expected = sent.filter("next_event_id IS NOT NULL").count()
    file.unlink()
    assert sent.filter("next_event_id IS NOT NULL").count() == expected
    with pytest.raises(PythonException, match="WarehouseError: this worker has no file"):
        # A new session of Python workers has not opened the file before it was removed.
        fresh = spark.newSession()
        fresh.conf.set("spark.sql.execution.pyspark.udf.faulthandler.enabled", "true")
        shared.filter("next_event_id IS NOT NULL").repartition(7).count()
