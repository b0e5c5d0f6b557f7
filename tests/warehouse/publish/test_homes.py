"""The generated lakes of the benchmarks can be published, and merged into."""

from pathlib import Path

from warehouse.history.change_log import ChangeLog
from warehouse.publish.publish import PublishReport, publish

from bench.warehouse.homes import generate_lake
from bench.warehouse.year_five import deliver, make_home
from warehouse.files import lake_paths
from warehouse.history.merge import merge
from warehouse.home import Home


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


def test_a_checkpoint_of_an_older_version_is_continued_and_later_ones_share_its_content(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    make_home(home, events=40, versions=200, coins=10, days=5)
    contents: list[bytes] = []
    for number in range(3):
        before = ChangeLog.of(home).days()[-1].head.checkpoint
        deliver(home, number)
        report = merge(home)
        newest = ChangeLog.of(home).days()[-1].head.checkpoint
        assert (report.rebuilt, len(report.days)) == ([], 1)
        assert report.published is not None
        assert report.published.rows["events"] == 41 + number
        assert report.published.rows["event_versions"] == 201 + number
        contents.append(home.lake.read(lake_paths.checkpoint_table(str(newest), "content")))
        assert before != newest
    assert contents == [contents[0]] * 3
