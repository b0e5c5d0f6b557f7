"""Joins of Dask frames and Ray datasets equal those of one process."""

from datetime import timedelta

import pandas as pd
import pyarrow as pa
import pytest

import almanac
from tests.lake.spark_rows import assert_same_rows
from warehouse.home import Home

pytestmark = pytest.mark.lake


@pytest.fixture
def rows(filled_home: Home) -> pd.DataFrame:
    with almanac.open(filled_home.warehouse) as database:
        coins = database.sql("SELECT slug FROM coins ORDER BY slug LIMIT 9").df().slug.tolist()
        last = database.sql("SELECT max(known_from) AS at FROM event_versions").df()["at"][0]
    minutes = [timedelta(minutes=number % 4_000) for number in range(6_000)]
    ts = [last.tz_convert("UTC") - minute for minute in minutes]
    return pd.DataFrame({"coin": [coins[n % len(coins)] for n in range(6_000)], "ts": ts})


def test_dask_frame_equals_one_process(rows: pd.DataFrame, filled_home: Home) -> None:
    pytest.importorskip("dask", reason="Dask is not installed: make lake-tools")
    from dask import dataframe

    from almanac.adapters import dask as almanac_dask

    with almanac.open(filled_home.warehouse) as database:
        expected = database.attach_known(rows)
        frame = dataframe.from_pandas(rows, npartitions=3)
        joined = almanac_dask.attach_known(frame, database)
        found = joined.compute(scheduler="processes", num_workers=2)
        assert list(joined.columns) == list(expected.columns)
    assert_same_rows(pa.Table.from_pandas(found), pa.Table.from_pandas(expected))
    assert expected.next_event_id.notna().any()


def test_ray_dataset_equals_one_process(
    rows: pd.DataFrame, filled_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ray would write a token to the home folder of the user.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray = pytest.importorskip("ray", reason="Ray is not installed: make lake-tools")
    from almanac.adapters import ray as almanac_ray

    with almanac.open(filled_home.warehouse) as database:
        expected = database.attach_known(rows.assign(id=range(len(rows))))
        try:
            ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100_000_000)
        except (RuntimeError, OSError, ConnectionError) as error:
            pytest.skip(f"Ray does not start here: {error}")
        try:
            given = ray.data.from_pandas(rows.assign(id=range(len(rows)))).repartition(3)
            found = ray.get(almanac_ray.attach_known(given, filled_home.warehouse).to_arrow_refs())
        finally:
            ray.shutdown()
    assert_same_rows(pa.concat_tables(found), pa.Table.from_pandas(expected))
