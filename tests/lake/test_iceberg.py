"""The push of a home to catalogs of a company: PostgreSQL, and Glue with S3."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog

from tests.hangs import HANGS_AFTER_S
from tests.lake.conftest import skip_without_postgres
from tests.test_cli import ROOT, environment
from tests.warehouse.test_iceberg import EQUAL, count_differences
from warehouse.home import Home
from warehouse.iceberg import TABLES

pytestmark = pytest.mark.lake


def push(home: Home, options: dict[str, str]) -> str:
    """Run the command with a catalog of the environment; return what it prints."""
    variables = {
        f"PYICEBERG_CATALOG__TEAM__{name.replace('.', '__').replace('-', '_').upper()}": value
        for name, value in options.items()
    }
    done = subprocess.run(
        [sys.executable, "-m", "warehouse.iceberg", str(home.root), "team"],
        cwd=ROOT,
        env={**environment(home.root), **variables},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def check(home: Home, options: dict[str, str]) -> Catalog:
    assert "cancellations" in push(home, options)
    assert "nothing is new" in push(home, options)
    catalog = load_catalog("team", **options)
    assert count_differences(home.warehouse, catalog) == EQUAL
    assert all(catalog.load_table(f"almanac.{name}").scan().count() for name in TABLES)
    return catalog


def test_a_postgresql_catalog(filled_home: Home, postgres: str, tmp_path: Path) -> None:
    skip_without_postgres()
    address = postgres.replace("postgresql://", "postgresql+psycopg://")
    check(filled_home, {"uri": address, "warehouse": f"file://{tmp_path}"})


def test_a_glue_catalog_with_s3(filled_home: Home, bucket: str, s3_server: str) -> None:
    options = {
        "type": "glue",
        "warehouse": bucket,
        "glue.endpoint": s3_server,
        "glue.region": "us-east-1",
        "s3.endpoint": s3_server,
        "s3.region": "us-east-1",
        **{f"{part}.access-key-id": "test" for part in ("s3", "glue")},
        **{f"{part}.secret-access-key": "test" for part in ("s3", "glue")},
    }
    catalog = check(filled_home, options)
    location = catalog.load_table("almanac.events").location()
    assert location.startswith(bucket), json.dumps(location)
