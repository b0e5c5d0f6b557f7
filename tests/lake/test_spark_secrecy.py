"""The password of the catalog stays in the driver's Python process."""

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from almanac.lake import Lake, open_lake
from tests.hangs import HANGS_AFTER_S
from tests.lake.spark_rows import assert_same_rows
from tests.lake.test_iceberg_shared import SharedHome
from tests.warehouse.iceberg.conftest import HISTORY

pytestmark = pytest.mark.lake


def test_password_of_the_catalog_does_not_reach_plan_or_event_log(
    spark_master: str, tmp_path: Path, postgres: str, bucket: str
) -> None:
    shared = SharedHome(tmp_path / "home", postgres, bucket)
    shared.publish(list(HISTORY))
    shared.commit()
    lake: Lake = open_lake(postgres)
    at = sorted(set(lake.read("event_versions")["known_from"].to_pylist()))[0]
    folder = tmp_path / "found"
    folder.mkdir()
    command = [sys.executable, "-m", "tests.lake.spark_reader", spark_master, postgres, str(folder)]
    subprocess.run([*command, at.isoformat()], check=True, timeout=HANGS_AFTER_S)
    for table in ("event_versions", "events", "coins", "cancellations"):
        with duckdb.connect() as connection:
            found = connection.sql(f"FROM '{folder}/{table}/*.parquet'").to_arrow_table()
        assert_same_rows(found, lake.read(table))
    with duckdb.connect() as connection:
        found = connection.sql(f"FROM '{folder}/valid/*.parquet'").to_arrow_table()
    assert_same_rows(found, lake.read("event_versions", as_of=at))
    written = [(folder / "plans.txt").read_bytes()]
    written += [file.read_bytes() for file in (folder / "log").rglob("*") if file.is_file()]
    assert len(written) > 1
    assert all(b"canary-password" not in text for text in written)
