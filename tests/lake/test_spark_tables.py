"""Iceberg tables read through Spark equal those that one process reads."""

from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest

from almanac import spark as almanac_spark
from almanac.lake import open_lake
from tests.lake.servers import spark_session
from tests.lake.spark_rows import assert_same_rows
from tests.warehouse.iceberg.conftest import HISTORY, IcebergHome
from tests.warehouse.publish.small_lake import Op, Plan

pytestmark = pytest.mark.lake


@pytest.fixture(scope="module")
def spark(spark_master: str) -> Iterator[Any]:
    options = {
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "America/New_York",
    }
    with spark_session(spark_master, **options) as session:
        yield session


@pytest.fixture
def committed(tmp_path: Path) -> IcebergHome:
    home = IcebergHome(tmp_path)
    home.publish(HISTORY)
    home.commit()
    return home


def test_tables_of_a_home_are_read_at_one_publication(spark: Any, committed: IcebergHome) -> None:
    lake = open_lake(committed.root)
    pinned = lake.publication()
    before = lake.read("event_versions")
    frame = almanac_spark.read(spark, "event_versions", lake, publication=pinned)
    committed.publish([*HISTORY, Plan((Op(5, seed=9),), coins=3)])
    committed.commit()
    assert_same_rows(frame.toArrow(), before)
    newer = almanac_spark.read(spark, "event_versions", committed.root)
    assert_same_rows(newer.toArrow(), lake.read("event_versions"))
    assert newer.count() > before.num_rows


def test_columns_and_conditions_reduce_what_is_read(spark: Any, committed: IcebergHome) -> None:
    lake = open_lake(committed.root)
    expected = lake.read("event_versions")
    last = max(expected["known_from"].to_pylist()).astimezone(UTC)
    some = almanac_spark.read(spark, "event_versions", lake, columns=["event_id", "known_to"])
    assert_same_rows(some.toArrow(), expected.select(["event_id", "known_to"]))
    changes = almanac_spark.read(spark, "event_changes", lake)
    newest = changes.filter(changes.known_from >= last)
    every = lake.read("event_changes")
    assert newest.count() == sum(at >= last for at in every["known_from"].to_pylist()) > 0
    assert changes.filter(changes.known_from > last + timedelta(days=400)).count() == 0
    filtered = almanac_spark.read(spark, "event_changes", lake, row_filter="event_id = 'no-event'")
    assert filtered.count() == 0


def test_a_pushed_condition_leaves_files_out(committed: IcebergHome) -> None:
    from pyspark.sql.datasource import GreaterThan, LessThanOrEqual, StringContains

    from almanac.cluster.iceberg_source import FilteringReader, pin_scan, read_arrow_schema

    lake = open_lake(committed.root)
    last = max(lake.read("event_changes")["known_from"].to_pylist())
    scan = lake.scan("event_changes")
    pinned = pin_scan(scan, lake.table("event_changes").metadata_location)
    for given, is_read in (
        (GreaterThan(("known_from",), last), False),
        (LessThanOrEqual(("known_from",), last), True),
        (StringContains(("title",), "x"), True),
    ):
        reader = FilteringReader(pinned, read_arrow_schema(scan))
        assert list(reader.pushFilters([given])) == [given]
        assert bool(reader.partitions()) == is_read
