"""Landing stores bytes as received, once, and writes the manifest last, even across kills."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import msgspec
import pytest

from warehouse.errors import DamagedBatch, LandingError
from warehouse.files.storage import Storage
from warehouse.landing.batches import RANK, Manifest, Pull, Scope
from warehouse.landing.landing import Landing

AT = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)


def pull(**changes: object) -> Pull:
    plain = Pull(
        feed="events",
        scope=Scope(lower=AT, upper=AT + timedelta(days=30)),
        plan="pro",
        source="sandbox seed=1 pace=1",
        observed_at=AT,
        content_at=AT - timedelta(seconds=61),
        landed_at=AT + timedelta(seconds=1),
        requests=2,
        rows_claimed=3,
    )
    return msgspec.structs.replace(plain, **changes)


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_bodies_are_read_back_as_received_page_by_page(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    bodies = [b'{"data":[1]}', b"", b"\x00\xff not even text", b"x" * 3_000_000]
    manifest = landing.land(pull(), [(body, None) for body in bodies])
    assert [body for _, body in landing.pages(manifest)] == bodies
    assert b"".join(landing.body(manifest)) == b"".join(bodies)
    assert landing.manifest(manifest.batch_id) == manifest
    assert landing.batch_ids() == landing.pending() == [manifest.batch_id]
    assert manifest.bytes == sum(map(len, bodies))


def test_a_pull_with_the_same_bytes_stores_them_once(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    later = pull(observed_at=AT + timedelta(hours=1), content_at=AT + timedelta(minutes=59))
    first, second = (landing.land(item, [(b"same", None)]) for item in (pull(), later))
    assert first.batch_id != second.batch_id
    assert len([name for name in files(tmp_path) if name.startswith("bodies/")]) == 1
    assert landing.batch_ids() == [first.batch_id, second.batch_id]


def test_landing_a_pull_again_is_the_same_batch_without_a_marker(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    first = landing.land(pull(), [(b"body", None)])
    landing.clear_pending(first.batch_id)
    landed_again = landing.land(pull(landed_at=AT + timedelta(days=1)), [(b"body", None)])
    assert landed_again == first
    assert landing.pending() == []


def test_batches_are_found_by_observed_day(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    ids = [
        landing.land(pull(observed_at=AT + timedelta(days=day)), [(b"", None)]).batch_id
        for day in (2, 0, 1)
    ]
    assert landing.batch_ids() == sorted(ids)
    assert landing.batch_ids(day=(AT + timedelta(days=1)).date()) == [ids[2]]
    assert landing.batch_ids(day=datetime(2000, 1, 1, tzinfo=UTC).date()) == []


def test_a_file_is_stored_complete_and_duckdb_reads_it_directly(tmp_path: Path) -> None:
    export = tmp_path / "export.csv"
    export.write_text("id,title\r\n" + "".join(f"{n},title {n}\r\n" for n in range(200_000)))
    landing = Landing(tmp_path / "landing")
    manifest = landing.land_file(pull(feed="export"), export)
    assert b"".join(landing.body(manifest)) == export.read_bytes()
    path = landing.body_path(manifest)
    count = duckdb.sql(f"select count(*) from read_csv('{path}', compression='zstd')").fetchall()
    assert count == [(200_000,)]


def test_damaged_bytes_are_detected_and_named(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    manifest = landing.land(pull(), [(b"body" * 1000, None)])
    path = landing.body_path(manifest)
    whole = path.read_bytes()
    other = landing.land(pull(requests=9, plan="elite"), [(b"other", None)])
    for damaged in (
        whole[:-3],
        whole[:10] + b"\xff" + whole[11:],
        b"",
        landing.body_path(other).read_bytes(),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DamagedBatch, match=manifest.batch_id):
            list(landing.body(manifest))
    path.unlink()
    with pytest.raises(DamagedBatch, match="can't be read"):
        list(landing.body(manifest))


def test_an_unknown_batch_and_an_invalid_id_have_clear_errors(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    for batch_id in ("20260302T060000Z-events-000000000000", "../../etc/passwd", "", "x"):
        with pytest.raises(LandingError):
            landing.manifest(batch_id)


def test_a_manifest_without_a_timezone_or_a_reason_is_refused(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    with pytest.raises(LandingError, match="no timezone"):
        landing.land(pull(content_at=AT.replace(tzinfo=None)), [(b"", None)])
    partial = landing.land(pull(why_incomplete="the quota ran out"), [(b"", None)])
    assert not partial.complete
    with pytest.raises(LandingError, match="one of them is wrong"):
        msgspec.structs.replace(partial, complete=True)


def test_history_is_folded_by_observation_then_content_then_feed(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    hour = timedelta(hours=1)
    made = [
        landing.land(item, [(b"", None)])
        for item in (
            pull(observed_at=AT + hour),
            pull(feed="deliveries"),
            pull(feed="export", content_at=AT - 6 * hour),
            pull(feed="events"),
            pull(feed="export"),
        )
    ]
    ordered = sorted(made, key=Manifest.fold_key)
    assert [item.feed for item in ordered] == ["export", "export", "events", "deliveries", "events"]
    assert list(RANK)[:5] == ["export", "events", "event", "cancellations", "deliveries"]


def test_names_can_not_leave_the_folder(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "root")
    for name in ("../x", "/etc/x", "a/../../x", "", "a//b", "."):
        with pytest.raises(ValueError, match="is not a valid name"):
            storage.put(name, b"")


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    storage.put("a/b", b"before")
    with pytest.raises(RuntimeError), storage.writing("a/b") as path:
        path.write_bytes(b"half")
        raise RuntimeError
    assert storage.read("a/b") == b"before"
    assert files(tmp_path) == ["a/b"]


def test_a_marker_without_a_batch_is_not_pending_and_removed_when_old(tmp_path: Path) -> None:
    """A process that is killed between marker and manifest leaves only the marker."""
    landing = Landing(tmp_path)
    marker = "pending/20260302T120000Z-events-0123456789ab.json"
    landing.storage.put(marker, b"{}")
    landing.storage.put("pending/of-nobody.json", b"{}")
    assert landing.pending() == []
    assert landing.never_landed(older_than_s=60) == []
    path = landing.storage.path(marker)
    os.utime(path, (0, 0))
    assert landing.never_landed(older_than_s=60) == [path]
