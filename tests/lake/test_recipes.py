"""The recipes of docs/scale.md for Spark, Dask and Ray equal one process."""

import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import almanac
from tests.almanac.steps.as_of_joins import count_differences, read_queries
from tests.almanac.steps.step_world import StepWorld
from tests.almanac.steps.test_event_steps import steps_of
from tests.lake.servers import spark_session
from tests.test_cli import ROOT
from warehouse.home import Home

pytestmark = pytest.mark.lake


@pytest.fixture
def rows(filled_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Rows, in a folder with a copy of the published file."""
    shutil.copy(filled_home.warehouse, tmp_path / "copy.duckdb")
    monkeypatch.chdir(tmp_path)
    with almanac.open("copy.duckdb") as database:
        coins = database.sql("SELECT slug FROM coins ORDER BY slug LIMIT 9").df().slug.tolist()
        last = database.sql("SELECT max(known_from) AS at FROM event_versions").df()["at"][0]
    minutes = [timedelta(minutes=number % 4_000) for number in range(6_000)]
    ts = [last.tz_convert("UTC") - minute for minute in minutes]
    return pd.DataFrame({"coin": [coins[n % len(coins)] for n in range(6_000)], "ts": ts})


def run_recipe(name: str, **names: Any) -> Any:
    """Run the code of the page, and return its `known`."""
    page = (ROOT / "docs" / "scale.md").read_text("utf-8")
    block = "Dask" if name == "Ray" else name
    (code,) = re.findall(rf"```python\n# {block}\n(.*?)```", page, re.DOTALL)
    if name == "Ray":
        (ray,) = re.findall(r"With Ray: `(.*?)`", page)
        code = "".join(code.rpartition("known = ")[:2]) + ray
    found = dict(names)
    # An absolute path, since workers have folders of their own.
    exec(code.replace('"copy.duckdb"', repr(str(Path("copy.duckdb").resolve()))), found)
    return found["known"]


def expected_of(rows: pd.DataFrame) -> pa.Table:
    with almanac.open("copy.duckdb", coins_are="slug") as database:
        expected = database.attach_known(rows, horizon="14d")
    assert expected.next_event_id.notna().any()
    return pa.Table.from_pandas(expected, preserve_index=False)


def test_dask_recipe_equals_one_process(rows: pd.DataFrame) -> None:
    pytest.importorskip("dask", reason="Dask is not installed: make lake-tools")
    from dask import dataframe

    known = run_recipe("Dask", frame=dataframe.from_pandas(rows, npartitions=3))
    found = known.compute(scheduler="threads", num_workers=2)
    assert list(known.columns) == list(found.columns)
    found = pa.Table.from_pandas(found, preserve_index=False)
    assert count_differences(expected_of(rows), found) == (0, 0)


def test_ray_recipe_equals_one_process(rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ray would write a token to the home folder of the user.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray = pytest.importorskip("ray", reason="Ray is not installed: make lake-tools")
    try:
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000)
    except (RuntimeError, OSError, ConnectionError) as error:
        pytest.skip(f"Ray does not start here: {error}")
    try:
        known = run_recipe("Ray", dataset=ray.data.from_pandas(rows).repartition(3))
        found = pa.concat_tables(ray.get(known.to_arrow_refs()))
    finally:
        ray.shutdown()
    assert count_differences(expected_of(rows), found) == (0, 0)


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


def test_spark_recipe_equals_one_process(spark: Any, rows: pd.DataFrame) -> None:
    table = pa.Table.from_pandas(rows, preserve_index=False)
    frame = spark.createDataFrame(table).repartition(4)
    found = run_recipe("Spark", frame=frame, spark=spark).toArrow()
    expected = expected_of(rows)
    assert found.column_names == expected.column_names
    assert count_differences(expected, found) == (0, 0)


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
