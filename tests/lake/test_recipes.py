"""The recipes of docs/scale.md for Dask and Ray equal one process."""

import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import almanac
from tests.almanac.steps.as_of_joins import count_differences
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
    (code,) = re.findall(r"```python\n# Dask\n(.*?)```", page, re.DOTALL)
    function, call, dask = code.rpartition("known = ")
    (ray,) = re.findall(r"With Ray: `(.*?)`", page)
    code = function + call + {"Dask": dask, "Ray": ray}[name]
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
