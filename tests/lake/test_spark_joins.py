"""Joins on Spark frames equal the joins of one process."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

import almanac
from almanac import spark as almanac_spark
from tests.lake.servers import spark_session
from warehouse.home import Home

pytest_plugins = ["tests.mirror.conftest"]
pytestmark = pytest.mark.lake


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_attach_known_on_two_executors_equals_one_process(
    spark_master: str, filled_home: Home, tmp_path: Path, zone: str
) -> None:
    database = almanac.open(filled_home.warehouse)
    coins = database.sql("SELECT slug FROM coins ORDER BY slug LIMIT 50").df().slug.tolist()
    last = database.sql("SELECT max(known_from) AS at FROM event_versions").rows()[0]["at"]
    given, found = str(tmp_path / "given"), str(tmp_path / "found")
    with spark_session(spark_master, **{"spark.sql.session.timeZone": zone}) as spark:
        rows = [
            (coins[number % len(coins)], number, last - timedelta(minutes=number % 5_000))
            for number in range(20_000)
        ]
        spark.createDataFrame(rows, "coin string, id int, ts timestamp").write.parquet(given)
        frame = spark.read.parquet(given).repartition(4)
        almanac_spark.attach_known(frame, database).write.parquet(found)
    plain = tmp_path / "plain.parquet"
    assert database.attach_known(f"{given}/*.parquet", to=plain) == 20_000
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        one, other = f"FROM '{found}/*.parquet'", f"FROM '{plain}'"
        for left, right in ((one, other), (other, one)):
            assert not connection.execute(f"({left}) EXCEPT ALL ({right})").fetchall()
        assert connection.execute(f"SELECT count(next_event_id) {other}").fetchall()[0][0] > 0
    assert last.tzinfo is not None and last > datetime(2017, 1, 1, tzinfo=UTC)
