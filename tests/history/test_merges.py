"""A merge: when it publishes, from which base it folds, and which checkpoints it keeps."""

import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
import pytest

from almanac.core.progress import listening
from tests.history.stories.disk import without_syncs
from tests.history.stories.handmade import HandmadeHome, at, event
from tests.history.test_rebuilds import assert_as_rebuild, assert_same, tables_of
from warehouse.files.documents import hash_file
from warehouse.history import checkpoints
from warehouse.history.merge import merge
from warehouse.history.warehouse_file import read_published


@pytest.fixture(scope="module")
def merged_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that merged a list on each of five days."""
    story = HandmadeHome(tmp_path_factory.mktemp("five-days"))
    with without_syncs():
        for number in range(1, 6):
            list_day(story, number)
            story.merge()
    return story.home.root


@pytest.fixture
def five_days(merged_days: Path, tmp_path: Path) -> HandmadeHome:
    """A copy of that home."""
    shutil.copytree(merged_days, tmp_path / "home")
    return HandmadeHome(tmp_path / "home")


def list_day(story: HandmadeHome, number: int, hour: int = 6) -> None:
    story.listed(f"{number:02} {hour:02}:00", event("a", title=f"Title {number} {hour}"))


def march(*days: int) -> list[date]:
    return [date(2026, 3, day) for day in days]


def change_file(path: Path, *statements: str) -> None:
    """Replace a file by a changed copy: a checkpoint may be another name of it."""
    copy = path.with_name("changed.duckdb")
    shutil.copyfile(path, copy)
    with duckdb.connect(str(copy)) as connection:
        for sql in statements:
            connection.execute(sql)
    copy.replace(path)


def stop_at(name: str, step: str) -> None:
    if step == name:
        raise KeyboardInterrupt


def test_changed_logs_are_published_without_an_incomplete_line(story: HandmadeHome) -> None:
    story.merge()
    log = story.home.state / "requests" / "2026-03-01.jsonl"
    log.parent.mkdir(parents=True)
    line = (
        b'{"at": "2026-03-01T06:00:00.5+00:00", "path": "/v2/events", "status": 200, '
        b'"seconds": 0.25, "bytes": 100, "attempt": 1, "key_fingerprint": "ab", "more": 1}\n'
    )
    log.write_bytes(line + b'{"at": "2026-03-01T06:00:01+00:00", "path": "/v2/caf\xc3')
    assert story.merge().is_published
    sent_at = datetime(2026, 3, 1, 6, 0, 0, 500_000, tzinfo=UTC)
    unsaid = (None, None, None, None)
    assert story.rows("FROM requests") == [
        (sent_at, "/v2/events", 200, 0.25, 100, 1, "ab", *unsaid)
    ]
    said = b'"quota": 50, "remaining": 49, "reset_at": "2026-03-17T00:00:00Z", "request_id": "r1"'
    log.write_bytes(line + line.replace(b'"more": 1', said))
    (story.home.state / "usage.jsonl").write_text(
        '{"at": "2026-03-01T06:00:00Z", "plan": "pro", "used": 5, "quota": null, '
        '"remaining": null, "reset_at": "2026-04-01T00:00:00Z"}\n'
        '{"at": "2026-03-02T06:00:00Z", "plan": "pro", "used": 6, "quota": 40, "rate": 0.5, '
        '"burst": 5, "period_start": "2026-02-17T00:00:00Z", "period_end": "2026-03-17T00:00:00Z"}'
    )
    assert story.merge().is_published
    start, end = (datetime(2026, month, 17, tzinfo=UTC) for month in (2, 3))
    of_month = "SELECT quota, remaining, reset_at, request_id FROM requests"
    assert story.rows(of_month) == [unsaid, (50, 49, end, "r1")]
    readings = "SELECT read_at, plan, used, quota, rate, burst, period_start, period_end FROM usage"
    assert story.rows(readings) == [
        (at("01 06:00"), "pro", 5, None, *unsaid),
        (at("02 06:00"), "pro", 6, 40, 0.5, 5, start, end),
    ]
    assert not story.merge().is_published


def test_views_that_differ_are_declared_anew_and_nothing_is_folded(story: HandmadeHome) -> None:
    list_day(story, 1)
    story.merge()
    change_file(
        story.home.warehouse,
        "UPDATE state.facts SET value = 'others' WHERE name = 'views'",
        "DROP VIEW today",
        "DROP MACRO TABLE slip_rates",
        "CREATE VIEW earlier AS SELECT 1",
    )
    report = story.merge()
    assert (report.is_published, report.rebuilt, report.outcomes) == (True, None, [])
    assert story.rows("SELECT count(*) FROM events, today") == [(0,)]
    macro = "FROM duckdb_functions() WHERE function_name = 'slip_rates'"
    assert len(story.rows(macro)) > 0
    assert story.rows("FROM duckdb_views() WHERE view_name = 'earlier'") == []


def test_a_file_with_other_tables_is_rebuilt_from_landing_with_its_places_and_feed(
    five_days: HandmadeHome, caplog: pytest.LogCaptureFixture
) -> None:
    list_day(five_days, 3, hour=12)
    five_days.merge()
    places = "SELECT version, published_seq FROM event_versions ORDER BY version"
    feed = "SELECT value FROM _almanac.facts WHERE name = 'feed_id'"
    before = tables_of(five_days.home), five_days.rows(places), five_days.rows(feed)
    assert [place for _, place in before[1]] != sorted(place for _, place in before[1])
    change_file(
        five_days.home.warehouse,
        "UPDATE state.facts SET value = 'others' WHERE name = 'tables'",
        "CREATE TABLE earlier AS SELECT * EXCLUDE (snapshot_url) FROM event_versions",
        "UPDATE earlier SET unknown_fields = ['title']",
        "DROP VIEW event_versions",
        "ALTER TABLE earlier RENAME TO event_versions",
        "DROP VIEW events",
    )
    report = five_days.merge()
    assert report.refolded == dict.fromkeys(march(1, 2, 3, 4, 5), (0, 0))
    assert [note for note in report.notes if "rebuilt from landing" in note] == report.notes != []
    assert [line for line in caplog.messages if "6 batches, in about" in line]
    assert_same(tables_of(five_days.home), before[0], "the rebuilt file")
    assert (five_days.rows(places), five_days.rows(feed)) == before[1:]
    assert not five_days.merge().is_published


def test_a_home_of_an_earlier_format_is_rebuilt(five_days: HandmadeHome) -> None:
    home, before = five_days.home, tables_of(five_days.home)
    shutil.rmtree(home.checkpoints.root)
    home.warehouse.unlink()
    with duckdb.connect(str(home.warehouse)) as connection:
        connection.execute("CREATE TABLE event_versions (event_id VARCHAR)")
        connection.execute("CREATE SCHEMA _almanac")
        connection.execute("CREATE TABLE _almanac.published (day DATE, versions INTEGER)")
    report = five_days.merge()
    assert len(report.outcomes) == 5
    assert "rebuilt from landing" in (report.rebuilt or "")
    assert_same(tables_of(home), before, "the rebuilt file")


def test_a_batch_before_the_last_refolds_from_a_checkpoint(five_days: HandmadeHome) -> None:
    list_day(five_days, 3, hour=12)
    report = five_days.merge()
    assert report.days == march(3, 4, 5)
    assert report.refolded == dict(zip(march(3, 4, 5), [(1, 0), (1, 1), (1, 1)], strict=True))
    kept = [read_published(checkpoints.restore(five_days.home, day)) for day in report.days]
    assert [len(file.batches) for file in kept if file is not None] == [4, 5, 6]
    assert_as_rebuild(five_days.home)


def test_a_merge_until_a_day_leaves_later_batches_for_the_next(story: HandmadeHome) -> None:
    for number in (1, 2, 3):
        list_day(story, number)
    assert merge(story.home, last_day=date(2026, 3, 2)).days == march(1, 2)
    report = merge(story.home)
    assert (report.days, report.refolded) == (march(3), {})
    assert_as_rebuild(story.home)


def test_checkpoints_are_of_the_last_seven_days_and_each_month(story: HandmadeHome) -> None:
    for day in ("2026-02-26", "2026-02-27", *(f"2026-03-{day:02}" for day in range(3, 12))):
        story.listed(f"{day} 06:00", event("a", title=day))
    story.merge()
    list_day(story, 12)
    story.merge()
    kept = [date(2026, 2, 26), *march(3, 6, 7, 8, 9, 10, 11, 12)]
    assert checkpoints.list_days(story.home) == kept
    assert checkpoints.checkpoint_path(story.home, kept[-1]).samefile(story.home.warehouse)
    list_day(story, 9, hour=12)
    assert story.merge().days == march(9, 10, 11, 12)
    assert checkpoints.list_days(story.home) == kept


def test_a_merge_leaves_published_files_and_checkpoints_alone(five_days: HandmadeHome) -> None:
    reader = five_days.home.root / "opened.duckdb"  # Keeps the file, as a reader's handle does.
    reader.hardlink_to(five_days.home.warehouse)
    files = [reader, *(checkpoints.restore(five_days.home, day) for day in march(3, 4, 5))]
    before = [hash_file(file) for file in files]
    list_day(five_days, 6)
    assert five_days.merge().is_published
    for day in march(3, 4, 5):
        checkpoints.restore(five_days.home, day)
    assert [hash_file(file) for file in files] == before
    assert not reader.samefile(five_days.home.warehouse)


def test_a_checkpoint_with_other_tables_is_no_base(five_days: HandmadeHome) -> None:
    path = checkpoints.restore(five_days.home, date(2026, 3, 2))
    change_file(path, "UPDATE state.facts SET value = 'others' WHERE name = 'tables'")
    list_day(five_days, 3, hour=12)
    assert five_days.merge().days == march(2, 3, 4, 5)


def test_a_checkpoint_that_lacks_a_batch_of_its_day_is_no_base(five_days: HandmadeHome) -> None:
    """A merge was killed after it published a batch, and before it renewed the checkpoint."""
    list_day(five_days, 5, hour=12)
    with (
        listening(phase=lambda name, *_: stop_at("keep checkpoints", name)),
        pytest.raises(KeyboardInterrupt),
    ):
        five_days.merge()
    list_day(five_days, 6, hour=18)
    five_days.merge()
    list_day(five_days, 6, hour=7)
    assert five_days.merge().days == march(5, 6)
    assert_as_rebuild(five_days.home)
