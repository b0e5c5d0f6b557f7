"""The warehouse as a resource of Dagster."""

from pathlib import Path

import dagster as dg
import pytest

from almanac.adapters.dagster import Warehouse
from almanac.errors import InvalidArgument
from tests.almanac.adapters.stories import publish_moved


def test_an_asset_asks_the_published_warehouse_which_is_closed_afterwards(tmp_path: Path) -> None:
    publish_moved(tmp_path / "warehouse.duckdb")
    before = (tmp_path / "warehouse.duckdb").read_bytes()
    opened = []

    @dg.asset
    def titles(warehouse: Warehouse) -> dg.MaterializeResult[None]:
        with warehouse.open() as db:
            opened.append(db)
            frame = db.sql("SELECT title FROM events").df()
        return dg.MaterializeResult(metadata={"rows": len(frame), "file": str(warehouse.file)})

    done = dg.materialize([titles], resources={"warehouse": Warehouse(home=str(tmp_path))})
    metadata = done.asset_materializations_for_node("titles")[0].metadata
    assert metadata["rows"].value == 1
    assert metadata["file"].value == str(tmp_path / "warehouse.duckdb")
    with pytest.raises(InvalidArgument, match="closed"):
        opened[0].sql("SELECT 1")
    assert (tmp_path / "warehouse.duckdb").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["warehouse.duckdb"]


def test_a_folder_without_a_publication_fails_the_asset_and_says_what_was_expected(
    tmp_path: Path,
) -> None:
    @dg.asset
    def titles(warehouse: Warehouse) -> None:
        with warehouse.open():
            pass

    done = dg.materialize(
        [titles],
        resources={"warehouse": Warehouse(home=str(tmp_path))},
        raise_on_error=False,
    )
    (failed,) = done.get_step_failure_events()
    assert "has no warehouse.duckdb" in str(failed.step_failure_data.error)
