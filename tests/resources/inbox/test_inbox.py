"""The inbox: durable, in order of receipt, each id once, landed once."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from resources.inbox.deliveries import land_deliveries, waiting_deliveries
from resources.inbox.inbox_file import ID_REUSED, Arrival, InboxReader, InboxWriter, inbox_path
from resources.inbox.progress import ProgressFile, read_progress, using
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse.errors import InboxUnusable, LockHeld
from warehouse.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home", wait_s=0)
    home.claim("sandbox:1")
    return home


@pytest.fixture
def clock() -> Clock:
    return Clock()


def store(home: Home, clock: Clock, *bodies: bytes) -> list[str]:
    with InboxWriter.open(home, clock.now) as writer:
        return list(writer.store([Arrival(body) for body in bodies]))


def landed(home: Home) -> list[tuple[str, list[bytes]]]:
    """Return the landed batches: their day, and their bodies."""
    found = []
    for batch_id in home.landing.batch_ids():
        manifest = home.landing.manifest(batch_id)
        bodies = [body for _, body in home.landing.pages(manifest)]
        found.append((manifest.observed_at.date().isoformat(), bodies))
    return found


def test_an_inbox_that_was_never_written_is_empty(home: Home, clock: Clock) -> None:
    assert InboxReader(home).last() is None
    assert waiting_deliveries(home).count == 0
    assert land_deliveries(home, clock.now).manifests == ()
    assert not inbox_path(home).exists()


def test_a_delivery_that_came_again_is_stored_once(home: Home, clock: Clock) -> None:
    assert store(home, clock, delivery(1), delivery(2)) == ["stored", "stored"]
    clock.advance(days=400)
    assert store(home, clock, delivery(2), delivery(1)) == ["duplicate", "duplicate"]
    assert [found.delivery_id for found in InboxReader(home).newest(9)] == [
        "evt_dlv_2",
        "evt_dlv_1",
    ]


def test_two_of_one_group_with_one_id_are_stored_once(home: Home, clock: Clock) -> None:
    assert store(home, clock, delivery(1), delivery(1)) == ["stored", "duplicate"]


def test_without_an_id_the_body_identifies_a_delivery(home: Home, clock: Clock) -> None:
    body = b'{"type": "events.created", "data": {"id": "evt_1"}}'
    assert store(home, clock, body, body, body + b" ") == ["stored", "duplicate", "stored"]


def test_an_id_that_comes_with_another_body_is_a_dead_letter(home: Home, clock: Clock) -> None:
    assert store(home, clock, delivery(1), delivery(1, title="Other")) == ["stored", "set aside"]
    (letter,) = InboxReader(home).in_trouble(9)
    assert letter.trouble == ID_REUSED
    assert land_deliveries(home, clock.now).deliveries == 1


def test_signed_bytes_that_are_no_delivery_are_dead_letters_and_never_landed(
    home: Home, clock: Clock
) -> None:
    assert store(home, clock, b"\xff\x00", b"[]", delivery(1)) == ["set aside"] * 2 + ["stored"]
    assert land_deliveries(home, clock.now).deliveries == 1
    assert landed(home) == [("2026-03-01", [delivery(1)])]
    assert waiting_deliveries(home).count == 0


def test_deliveries_are_landed_by_day_of_receipt_and_once(home: Home, clock: Clock) -> None:
    store(home, clock, delivery(1), delivery(2))
    clock.advance(hours=13)
    store(home, clock, delivery(3))
    assert waiting_deliveries(home).count == 3
    assert land_deliveries(home, clock.now).deliveries == 3
    assert land_deliveries(home, clock.now).deliveries == 0
    assert landed(home) == [
        ("2026-03-01", [delivery(1), delivery(2)]),
        ("2026-03-02", [delivery(3)]),
    ]


def test_a_range_that_a_crash_left_is_landed_as_the_same_batches(
    home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, clock, delivery(1), delivery(2))

    def killed(self: ProgressFile, landed_to: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ProgressFile, "set_landed", killed)
        land_deliveries(home, clock.now)
    before = landed(home)
    clock.advance(seconds=1)
    store(home, clock, delivery(3))
    land_deliveries(home, clock.now)
    assert landed(home)[: len(before)] == before
    assert [bodies for _, bodies in landed(home)] == [[delivery(1), delivery(2)], [delivery(3)]]


def test_a_long_backlog_is_landed_in_ranges_of_bounded_size(
    home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [delivery(number) for number in range(7)]
    store(home, clock, *bodies)
    monkeypatch.setattr("resources.inbox.deliveries.BYTES_AT_ONCE", 2 * len(bodies[0]) + 1)
    land_deliveries(home, clock.now)
    assert sorted(len(found) for _, found in landed(home)) == [1, 2, 2, 2]
    assert sorted(body for _, found in landed(home) for body in found) == sorted(bodies)


def test_a_failed_attempt_is_recorded_and_the_next_success_forgets_it(
    home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(home, clock, delivery(1))
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        full = OSError(28, "No space left on device")
        patched.setattr("warehouse.landing.landing.Landing.land", _raising(full))
        land_deliveries(home, clock.now)
    assert read_progress(home).failures == 1
    assert land_deliveries(home, clock.now).deliveries == 1
    assert read_progress(home).failures == 0


def test_a_dead_letter_that_a_person_replays_is_landed(home: Home, clock: Clock) -> None:
    store(home, clock, delivery(1))
    clock.advance(seconds=1)
    store(home, clock, delivery(1, title="Other"))
    land_deliveries(home, clock.now)
    (letter,) = InboxReader(home).in_trouble(9)
    with ProgressFile.open(home) as file:
        file.settle([letter.seq], "replayed")
    assert land_deliveries(home, clock.now).deliveries == 1
    assert land_deliveries(home, clock.now).deliveries == 0
    assert landed(home)[-1] == ("2026-03-01", [delivery(1, title="Other")])


def test_bodies_of_landed_deliveries_are_cleared_and_still_known(home: Home, clock: Clock) -> None:
    store(home, clock, delivery(1), b"unreadable")
    land_deliveries(home, clock.now)
    clock.advance(days=31)
    with InboxWriter.open(home, clock.now) as writer:
        writer.store([Arrival(delivery(2))])
        progress = read_progress(home)
        assert writer.clear_bodies(before=clock.now(), landed_to=progress.landed_to) == 1
        assert writer.clear_bodies(before=clock.now(), landed_to=progress.landed_to) == 0
        assert writer.store([Arrival(delivery(1))]) == ["duplicate"]
    bodies = [InboxReader(home).by_seq(seq).body for seq in (1, 2, 3)]  # type: ignore[union-attr]
    assert bodies == [None, b"unreadable", delivery(2)]


def test_a_second_writer_is_refused_and_readers_are_not(home: Home, clock: Clock) -> None:
    with InboxWriter.open(home, clock.now) as writer:
        writer.store([Arrival(delivery(1))])
        with pytest.raises(LockHeld), InboxWriter.open(home, clock.now):
            pass
        assert InboxReader(home).last() == (1, clock.now())


def test_a_file_of_another_program_is_refused_and_unchanged(home: Home, clock: Clock) -> None:
    inbox_path(home).parent.mkdir(parents=True)
    with sqlite3.connect(inbox_path(home)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = inbox_path(home).read_bytes()
    with pytest.raises(InboxUnusable, match="another program"), InboxWriter.open(home, clock.now):
        pass
    inbox_path(home).write_bytes(b"not SQLite at all" * 100)
    with pytest.raises(InboxUnusable), InboxWriter.open(home, clock.now):
        pass
    with pytest.raises(InboxUnusable):
        InboxReader(home).last()
    assert len(before) > 0


def _raising(error: Exception) -> object:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    return fail


def test_an_older_file_of_deliveries_beside_the_progress_is_refused(
    home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1))
    older = inbox_path(home).read_bytes()
    store(home, clock, delivery(2))
    land_deliveries(home, clock.now)
    for restored in (older, None):
        inbox_path(home).unlink()
        if restored is not None:
            inbox_path(home).write_bytes(restored)
        for used in (waiting_deliveries, lambda home: land_deliveries(home, clock.now)):
            with pytest.raises(InboxUnusable, match=r"do not belong together: .* 2 are landed"):
                used(home)


def test_a_file_whose_maker_was_killed_is_an_empty_inbox(home: Home, clock: Clock) -> None:
    inbox_path(home).parent.mkdir(parents=True)
    inbox_path(home).touch()
    assert waiting_deliveries(home).count == 0
    assert InboxReader(home).last_receipts(["evt_1"]) == {}
    assert InboxReader(home).received_since(clock.now(), gap=timedelta(days=1)) is None
    assert store(home, clock, delivery(1)) == ["stored"]


def test_the_inbox_of_a_stopped_receiver_can_be_read_without_leave_to_write(
    home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1))
    with _reading_only(home):
        assert InboxReader(home).last() == (1, clock.now())
        assert waiting_deliveries(home).count == 1
    assert sorted(path.name for path in inbox_path(home).parent.iterdir()) == [
        "deliveries.sqlite",
        "receiver.lock",
    ]


def test_the_log_of_a_receiver_that_runs_is_read_without_leave_to_write(
    home: Home, clock: Clock
) -> None:
    store(home, clock, delivery(1))
    inbox_path(home).chmod(0o644)  # The log gets the same mode.
    with InboxWriter.open(home, clock.now) as writer:
        writer.store([Arrival(delivery(2))])
        with _reading_only(home):
            assert InboxReader(home).last() == (2, clock.now())


def test_only_a_damaged_inbox_is_to_be_moved_away(home: Home, clock: Clock) -> None:
    store(home, clock, delivery(1))
    inbox_path(home).chmod(0o000)
    with _as_another_user(home), pytest.raises(InboxUnusable, match="permissions") as refused:
        InboxReader(home).last()
    inbox_path(home).chmod(0o600)
    full = sqlite3.connect(inbox_path(home))
    full.execute("PRAGMA max_page_count = 1")
    with pytest.raises(InboxUnusable, match="Free space") as filled, using(inbox_path(home)):
        full.execute("CREATE TABLE more AS SELECT * FROM deliveries")
    full.close()
    assert "move" not in f"{refused.value} {filled.value}"
    inbox_path(home).write_bytes(b"not SQLite at all" * 100)
    with pytest.raises(InboxUnusable, match="move the folder away"):
        InboxReader(home).last()


@contextmanager
def _reading_only(home: Home) -> Iterator[None]:
    """Be a user who may read the inbox and not write there, as a member of the group may."""
    inbox_path(home).chmod(0o644)
    with _as_another_user(home):
        yield


@contextmanager
def _as_another_user(home: Home) -> Iterator[None]:
    """Be a user who may enter the folders of the inbox, and not write there."""
    folders, user = inbox_path(home).parents, os.geteuid()
    modes = {folder: stat.S_IMODE(folder.stat().st_mode) for folder in folders}
    closed = {folder: mode for folder, mode in modes.items() if mode & 0o005 != 0o005}
    for folder, mode in closed.items():
        folder.chmod(mode | 0o055)
    folders[0].chmod(0o555)
    try:
        if user == 0:  # Who may write everywhere.
            os.seteuid(65_534)
        yield
    finally:
        os.seteuid(user)
        for folder, mode in {**closed, folders[0]: modes[folders[0]]}.items():
            folder.chmod(mode)


def test_a_delivery_without_an_id_that_comes_later_again_is_a_duplicate(
    home: Home, clock: Clock
) -> None:
    body = b'{"type": "events.created", "data": {"id": "evt_1"}}'
    assert store(home, clock, body) == ["stored"]
    clock.advance(days=400)
    assert store(home, clock, body) == ["duplicate"]


def test_every_commit_waits_for_the_disk(
    home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def recorded(*given: Any, **options: Any) -> sqlite3.Connection:
        connections.append(connect(*given, **options))
        return connections[-1]

    monkeypatch.setattr(sqlite3, "connect", recorded)
    with InboxWriter.open(home, clock.now), ProgressFile.open(home):
        levels = [opened.execute("PRAGMA synchronous").fetchone()[0] for opened in connections]
    assert len(levels) == 2
    assert min(levels) >= 2, "FULL: in WAL mode NORMAL does not sync a commit"


def test_a_reader_leaves_the_log_of_the_writer_as_it_is(
    home: Home, clock: Clock, tmp_path: Path
) -> None:
    killed = Home(tmp_path / "killed")
    with InboxWriter.open(home, clock.now) as writer:
        writer.store([Arrival(delivery(1))])
        # As a killed writer leaves it: the delivery is in the log alone.
        shutil.copytree(inbox_path(home).parent, inbox_path(killed).parent)
    log = inbox_path(killed).with_name(f"{inbox_path(killed).name}-wal")
    before = log.read_bytes()
    assert len(InboxReader(killed).newest(9)) == 1
    assert log.read_bytes() == before
