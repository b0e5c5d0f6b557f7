"""Commands and Dagster show the publication and the snapshots of the Iceberg tables."""

import json
from pathlib import Path

import dagster as dg
import pytest

from almanac.lake import open_lake
from assets.layout import Layout
from assets.published import published_tables
from pipeline.build import build_resources
from pipeline.instance import instance_of
from tests.pipeline.conftest import Almanac
from tests.pipeline.homes_in_days import settings_of
from tests.pipeline.small_home import SmallHome
from tests.warehouse.normalise.catalog_bodies import csv_body, plain
from warehouse.clock import utc_now
from warehouse.home import Home

ON = {"iceberg": "1"}


@pytest.fixture
def merged(almanac: Almanac, tmp_path: Path) -> Path:
    file = tmp_path / "export.csv"
    file.write_bytes(csv_body([plain(id="e1"), plain(id="e2")]))
    almanac("import", str(file), "--content-at", "2026-03-01T06:00:00Z")
    done = json.loads(almanac("merge", "--json", **ON).stdout)
    assert done["iceberg"]["why_failed"] == ""
    assert {"events", "event_changes"} <= {*done["iceberg"]["changed"]}
    return tmp_path / "data"


def test_status_shows_the_publication_and_the_snapshots(almanac: Almanac, merged: Path) -> None:
    publication = open_lake(merged).publication()
    found = json.loads(almanac("status", "--json", **ON).stdout)["iceberg"]
    assert found["publication"] == publication.id
    assert found["snapshots"] == dict(publication.snapshots)
    assert found["lag_s"] == 0
    text = almanac("status", **ON).stdout
    assert "up to date" in text
    assert str(publication.snapshots["events"]) in text
    assert json.loads(almanac("status", "--json").stdout)["iceberg"] is None


def test_a_failed_commit_is_a_warning_until_a_merge_commits(almanac: Almanac, merged: Path) -> None:
    catalog = merged / "iceberg" / "catalog.sqlite"
    catalog.rename(catalog.with_name("aside"))
    catalog.mkdir()
    (merged.parent / "more.csv").write_bytes(csv_body([plain(id=f"e{n}") for n in range(1, 5)]))
    almanac("import", "more.csv", "--content-at", "2026-03-02T06:00:00Z")
    done = json.loads(almanac("merge", "--json", **ON).stdout)
    assert done["versions"] == 2
    assert done["iceberg"]["why_failed"]
    health = json.loads(almanac("status", "--json", **ON).stdout)
    assert health["iceberg"]["lag_s"] > 0
    assert "iceberg" in {warning["kind"] for warning in health["warnings"]}
    assert "lack the publication" in almanac("merge", **ON).stdout
    almanac("verify", code=1, **ON)
    catalog.rmdir()
    catalog.with_name("aside").rename(catalog)
    almanac("merge", **ON)
    health = json.loads(almanac("status", "--json", **ON).stdout)
    assert health["iceberg"]["lag_s"] == 0
    assert "iceberg" not in {warning["kind"] for warning in health["warnings"]}
    almanac("verify", "--deep", **ON)


def test_prune_lists_files_of_expired_snapshots(almanac: Almanac, merged: Path) -> None:
    done = json.loads(almanac("prune", "--dry-run", "--json", **ON).stdout)
    assert "files of expired Iceberg snapshots" in json.dumps(done)


def test_materialised_tables_have_the_snapshot_in_their_metadata(tmp_path: Path) -> None:
    small = SmallHome(tmp_path)
    small.land()
    layout = Layout()
    with instance_of(Home(tmp_path)) as instance:
        done = dg.materialize(
            [published_tables(layout)],
            resources=build_resources(layout, settings_of(tmp_path, iceberg=True), clock=utc_now),
            instance=instance,
        )
    publication = open_lake(tmp_path).publication()
    metadata = {
        event.asset_key.to_user_string(): event.materialization.metadata
        for event in done.all_events
        if event.is_step_materialization and event.asset_key is not None
    }
    assert metadata["coins"]["iceberg publication"].value == publication.id
    assert metadata["coins"]["iceberg snapshot"].value == str(publication.snapshots["coins"])
    assert "iceberg snapshot" not in metadata["batches"]


def test_a_home_whose_path_has_a_number_sign_is_refused(almanac: Almanac, tmp_path: Path) -> None:
    home = str(tmp_path / "a#b")
    done = almanac("merge", code=2, home=home, **ON)
    assert "contains '#'" in done.output
