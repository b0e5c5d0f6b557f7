"""The generated lakes of the benchmarks can be published, and merged into."""

from pathlib import Path

from bench.warehouse.homes import generate_lake
from warehouse.history.change_log import ChangeLog
from warehouse.publish.publish import PublishReport, publish


def test_a_generated_lake_is_published_and_a_delivery_adds_one_version(tmp_path: Path) -> None:
    lake = generate_lake(tmp_path / "lake", events=40, versions=200, coins=10, days=5)
    log = ChangeLog(lake.storage, tmp_path / "state" / "change_log.json")

    def published() -> PublishReport:
        return publish(
            lake.storage, tmp_path / "warehouse.duckdb", chain=log.days(), state_folder=None
        )

    first = published()
    assert first.mode == "full"
    assert (first.rows["events"], first.rows["event_versions"]) == (40, 200)
    assert first.rows["coin_snapshots"] == 50
    lake.deliver()
    second = published()
    assert (second.mode, second.rows["event_versions"]) == ("delta", 201)
