"""Landing and lake in a bucket: machines that take over, land together, and find it damaged."""

import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from almanac.lake import open_lake
from pipeline.health.bucket import check_bucket, read_bucket_health
from tests.lake.machines import Machines, files_in
from tests.warehouse.landed_days import history, land
from warehouse.errors import BucketUnusable, HomeRefused, ObjectDamaged, StaleWriter
from warehouse.history.merge import merge, replay
from warehouse.history.verify import verify
from warehouse.iceberg.publication_commit import read_iceberg_note
from warehouse.landing.batches import Scope
from warehouse.landing.journal import Intent, PageNote
from warehouse.shared.bucket import Bucket

pytestmark = pytest.mark.lake
NOW = datetime(2026, 4, 1, tzinfo=UTC)


@pytest.fixture
def machines(tmp_path: Path, bucket: str, postgres: str) -> Machines:
    return Machines(tmp_path, bucket, postgres)


def test_an_empty_machine_continues_from_the_bucket(machines: Machines) -> None:
    first, alone = machines.home("first"), machines.alone()
    for home in (first, alone):
        home.claim("s")
        for day in range(3):
            land(home, day)
        merge(home)
    second = machines.home("second")
    second.catch_up()
    assert second.stamp() == first.stamp()
    shared = ("landing", "lake", "home.json")
    assert files_in(second, *shared) == files_in(first, *shared)
    for home in (second, alone):
        land(home, 3)
        merge(home)
    assert history(second) == history(alone)
    first = machines.home("first")
    assert not merge(first).outcomes
    assert history(first) == history(alone)
    shared = ("landing", "lake/event_changes", "lake/head.json")
    assert files_in(second, *shared) == files_in(first, *shared)


def test_a_batch_of_a_machine_without_the_lease_is_merged_by_the_writer(
    machines: Machines,
) -> None:
    writer, receiver = machines.home("writer"), machines.home("receiver")
    writer.claim("s")
    land(writer, 0)
    merge(writer)
    receiver.claim("s")
    batch = land(receiver, 1)
    report = merge(writer)
    assert [outcome.manifest.batch_id for outcome in report.outcomes] == [batch.batch_id]
    receiver.catch_up()
    assert not receiver.landing.pending()


def test_a_home_that_existed_before_is_uploaded_and_is_complete_without_the_bucket(
    machines: Machines,
) -> None:
    before = machines.alone("first")
    before.claim("s")
    for day in range(3):
        land(before, day)
    merge(before)
    land(before, 3)
    merge(machines.home("first"))
    second = machines.home("second")
    merge(second)
    assert history(second) == history(before)
    offline = machines.alone("second")
    land(offline, 4)
    merge(offline)
    replay(offline)
    assert len(history(offline)[0]) == 5
    land(offline, 5)
    merge(offline)
    merge(machines.home("second"))
    third = machines.home("third")
    merge(third)
    assert len(history(third)[0]) == 6
    assert not replay(third).damaged
    assert files_in(third, "landing") == files_in(offline, "landing")


def test_batches_that_were_merged_without_the_bucket_are_merged_after_a_takeover(
    machines: Machines,
) -> None:
    first = machines.home("first")
    first.claim("s")
    land(first, 0)
    merge(first)
    offline = machines.alone("first")
    land(offline, 1)
    land(offline, 3)
    merge(offline)
    second = machines.home("second")
    land(second, 2)
    merge(second)
    first = machines.home("first")
    assert merge(first).outcomes
    assert len(history(first)[0]) == 4
    assert all(finding.holds for finding in verify(first))
    third = machines.home("third")
    merge(third)
    assert history(third) == history(first)


def test_a_machine_commits_its_publication_again_after_another_committed(
    machines: Machines,
) -> None:
    names = ("first", "second", "first")
    for day, name in enumerate(names):
        home = machines.home(name, iceberg=True)
        home.claim("s")
        land(home, day)
        merge(home)
    second = machines.home("second", iceberg=True)
    for _ in range(2):
        report = merge(second).iceberg
        assert report is not None and not report.why_failed
        lake = open_lake(machines.postgres)
        with closing(lake.catalog):
            assert lake.publication().id == report.note.publication
    assert all(finding.holds for finding in verify(second, deep=True))
    first = machines.home("first", iceberg=True)
    assert read_iceberg_note(first) != report.note
    merge(first)
    assert all(finding.holds for finding in verify(first, deep=True))


def test_a_home_that_joins_a_bucket_with_history_merges_its_own_batches_too(
    machines: Machines,
) -> None:
    first, joining = machines.home("first"), machines.alone("joining")
    for home, days in ((first, (0, 2)), (joining, (1, 3))):
        home.claim("s")
        for day in days:
            land(home, day)
        merge(home)
    joining = machines.home("joining")
    assert merge(joining).outcomes
    assert len(history(joining)[0]) == 4
    assert all(finding.holds for finding in verify(joining))
    merge(machines.home("first"))
    assert history(machines.home("first")) == history(joining)


def test_a_merge_that_was_not_committed_is_forgotten_after_a_takeover(machines: Machines) -> None:
    first = machines.home("first")
    first.claim("s")
    land(first, 0)
    merge(first)
    land(first, 1)
    # Killed before the commit: the lock of the merge ends with an error.
    merge_without_bucket = machines.alone("first")
    merge(merge_without_bucket)
    assert not merge_without_bucket.landing.pending()
    second = machines.home("second")
    assert len(merge(second).outcomes) == 1
    land(second, 2)
    merge(second)
    first = machines.home("first")
    merge(first)
    assert history(first) == history(second)
    shared = ("landing", "lake/event_changes", "lake/head.json")
    assert files_in(first, *shared) == files_in(second, *shared)


def test_a_stale_writer_commits_nothing(machines: Machines) -> None:
    first, second = machines.home("first"), machines.home("second")
    first.claim("s")
    land(first, 0)
    merge(first)
    with pytest.raises(StaleWriter), first.merge_lock():
        assert first.copy is not None and first.lease is not None
        stale, until = first.lease, "UPDATE almanac.writer_lease SET is_released = true"
        assert first.database is not None
        with first.database.connect() as connection:
            connection.execute(until)
        land(second, 1)
        merge(second)
        (first.root / "lake" / "stale.parquet").write_bytes(b"of a stale writer")
        first.copy.commit(stale)
    assert second.copy is not None
    assert "lake/stale.parquet" not in second.copy.index.files()
    merge(first)
    assert not (first.root / "lake" / "stale.parquet").exists()
    assert history(first) == history(second)


def test_pages_of_a_pull_are_continued_by_another_machine_but_not_while_it_runs(
    machines: Machines,
) -> None:
    from resources.ingest.context import lock_pull

    first, second = machines.home("first"), machines.home("second")
    first.claim("s")
    intent = Intent(feed="events", scope=Scope(), plan="elite", source="s", started_at=NOW)
    note = PageNote(
        number=1,
        cursor_in=None,
        cursor_out="c",
        rows=1,
        total=None,
        limit=1,
        date=NOW,
        received_at=NOW,
    )
    with lock_pull(first.landing, intent.pull_id) as is_locked:
        assert is_locked
        first.landing.journal.begin(intent).add(note, b"a page")
        second.catch_up()
        with lock_pull(second.landing, intent.pull_id) as is_locked_there:
            assert not is_locked_there
    with lock_pull(second.landing, intent.pull_id) as is_locked:
        assert is_locked
        pull = second.landing.journal.recovered(intent.pull_id)
        assert pull is not None and [body for _, body in pull.pages()] == [b"a page"]
        pull.discard()
    first.catch_up()
    assert first.landing.journal.ids() == []


def test_a_damaged_object_is_reported_and_restored_by_a_machine_that_has_the_file(
    machines: Machines,
) -> None:
    first = machines.home("first")
    first.claim("s")
    batch = land(first, 0)
    merge(first)
    copy = first.copy
    assert copy is not None and copy.problems() == []
    name = f"landing/bodies/{batch.sha256[:2]}/{batch.sha256}.zst"
    sha256 = copy.index.files()[name].sha256
    assert sha256 is not None
    copy.index.bucket.remove(sha256)
    with pytest.raises(ObjectDamaged, match=f"{batch.sha256}.zst can't be fetched: .* missing"):
        machines.home("second").catch_up()
    assert machines.home("second").stamp() is None
    (problem,) = copy.problems()
    assert (problem.name, problem.why) == (name, "is missing")
    (check,) = check_bucket(first, fix=False)
    assert not check.holds and "almanac doctor --fix stores it again" in check.found
    broken = [finding for finding in verify(first, deep=True) if not finding.holds]
    assert [finding.check for finding in broken] == ["the bucket has each file"]
    (check,) = check_bucket(first, fix=True)
    assert check.holds and "1 objects were stored again" in check.found
    assert all(finding.holds for finding in verify(first, deep=True))
    health = read_bucket_health(first)
    assert health is not None and health.address == machines.bucket and not health.is_lake_behind
    second = machines.home("second")
    merge(second)
    assert history(second) == history(first)


def test_a_lost_file_of_landing_is_fetched_by_a_replay(machines: Machines) -> None:
    first = machines.home("first")
    first.claim("s")
    batch = land(first, 0)
    land(first, 1)
    merge(first)
    body = first.landing.body_path(batch)
    body.write_bytes(b"damaged")
    assert not replay(first).damaged
    assert first.landing.body_path(batch).read_bytes() != b"damaged"


def test_unused_objects_are_pruned_after_some_days(machines: Machines) -> None:
    first = machines.home("first")
    first.claim("s")
    for day in range(2):
        land(first, day)
        merge(first)
    copy = first.copy
    assert copy is not None
    used, later = copy.index.hashes(), datetime.now(UTC) + timedelta(days=8)
    assert copy.prune(datetime.now(UTC) - timedelta(days=7), dry_run=False) == (0, 0)
    unused, size = copy.prune(later, dry_run=True)
    assert unused > 0 and size > 0
    assert copy.prune(later, dry_run=False) == (unused, size)
    assert {sha256 for sha256, _, _ in copy.index.bucket.objects()} == used
    second = machines.home("second")
    merge(second)
    assert history(second) == history(first)


def test_another_bucket_or_another_source_is_refused(machines: Machines) -> None:
    first = machines.home("first")
    first.claim("s")
    land(first, 0)
    other = Machines(machines.folder, machines.bucket + "x", machines.postgres)
    with pytest.raises(BucketUnusable, match="is not the bucket of this home"):
        other.home("second").catch_up()
    machines.alone("third").claim("another")
    land(machines.alone("third"), 0)
    with pytest.raises(HomeRefused, match=r"holds data of another, and the bucket .* data of s"):
        machines.home("third").catch_up()


def test_a_bucket_that_is_down_stops_a_landing_before_it_counts(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machines.home("first")
    first.claim("s")
    land(first, 0)
    first = machines.home("first")
    assert first.copy is not None
    first.copy.index.connect()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    down = machines.home("first")
    with pytest.raises(BucketUnusable, match=r"can't be read: .*Could not connect"):
        land(down, 1)
    assert len(down.landing.batch_ids()) == 1


@pytest.mark.parametrize("address", ["s3://key:secret@bucket/x", "/folder", "s3://b?key=1"])
def test_an_address_with_a_secret_or_without_a_scheme_is_refused(address: str) -> None:
    with pytest.raises(BucketUnusable, match="ALMANAC_BUCKET: expected") as raised:
        Bucket(address)
    assert "secret" not in str(raised.value)


def test_a_folder_serves_as_a_bucket(tmp_path: Path, postgres: str) -> None:
    machines = Machines(tmp_path, f"file://{tmp_path}/bucket", postgres)
    first = machines.home("first")
    first.claim("s")
    land(first, 0)
    merge(first)
    shutil.rmtree(first.root)
    merge(machines.home("first"))
    assert len(history(machines.home("first"))[0]) == 1
