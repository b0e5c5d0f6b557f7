"""The files of the inbox are deleted, cut or replaced while the real receiver runs: nothing is
acknowledged that is not in the file at the path."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from resources.inbox.inbox_file import (
    Arrival,
    InboxReader,
    InboxWriter,
    inbox_path,
    lock_path,
)
from tests.hangs import HANGS_AFTER_S, wait_for
from tests.pipeline.receiver.programs import ReceiveProgram
from tests.pipeline.receiver.served import Served
from tests.resources.inbox.deliveries import Clock, delivery
from warehouse.home import Home

OTHERS = 100


class Attacked:
    """A receiver as a program, and what it acknowledged."""

    def __init__(self, program: ReceiveProgram) -> None:
        self.program = program
        self.home = program.home
        self.file = inbox_path(self.home)
        self.folder = self.file.parent
        self.acknowledged: set[str] = set()
        self._client = Served(self.home, Clock())
        self._client.port = program.port

    def post(self, number: int) -> int:
        status = self._client.post(delivery(number)).status
        if status == 204:
            self.acknowledged.add(f"evt_dlv_{number}")
        return status

    def health(self) -> int:
        url = self.program.url.replace("webhooks", "healthz")
        return httpx.get(url, trust_env=False, timeout=HANGS_AFTER_S).status_code

    def forget(self) -> None:
        """Leave out what was acknowledged before its file was lost."""
        self.acknowledged.clear()

    def lost(self) -> set[str]:
        """Kill the receiver, and return what it acknowledged and did not keep."""
        self.program.kill()
        if not self.acknowledged:
            return set()  # The file may be none that can be read.
        return self.acknowledged - {found.delivery_id for found in self._client.stored()}


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Attacked]:
    program = ReceiveProgram(tmp_path / "home")
    program.start()
    try:
        found = Attacked(program)
        assert [found.post(number) for number in range(5)] == [204] * 5
        yield found
    finally:
        program.close()


def other_inbox(tmp_path: Path) -> Path:
    """Return the file of a whole inbox with deliveries of its own."""
    home = Home(tmp_path / "other", wait_s=0)
    with InboxWriter.open(home, Clock().now) as writer:
        writer.store([Arrival(delivery(1_000 + number)) for number in range(OTHERS)])
    return inbox_path(home)


def cut(path: Path) -> None:
    os.truncate(path, 0)


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwrite(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"something else")
    other.replace(path)


@pytest.mark.parametrize(
    ("harm", "end"),
    [
        (delete, ""),
        (cut, ""),
        *(
            pytest.param(harm, end, marks=pytest.mark.long)
            for harm, end in (
                *((replace, ""), (halve, ""), (overwrite, ""), (delete, "-wal"), (replace, "-wal")),
                *((cut, "-wal"), (halve, "-wal"), (overwrite, "-wal")),
                *((delete, "-shm"), (replace, "-shm")),
            )
        ),
    ],
)
def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    attacked: Attacked, harm: Callable[[Path], None], end: str
) -> None:
    attacked.forget()
    harm(Path(f"{attacked.file}{end}"))
    statuses = [attacked.post(number) for number in range(5, 10)]
    if end == "" or harm in (cut, halve, overwrite):
        assert statuses == [503] * 5
        assert attacked.health() == 503
    assert attacked.lost() == set()


def test_a_lost_log_is_made_again_and_loses_nothing(attacked: Attacked) -> None:
    Path(f"{attacked.file}-wal").unlink()
    assert attacked.post(5) == 204
    assert attacked.health() == 200
    assert len(attacked.acknowledged) == 6
    assert attacked.lost() == set()


def test_a_folder_that_is_deleted_is_503_also_without_a_delivery(attacked: Attacked) -> None:
    shutil.rmtree(attacked.folder)
    assert attacked.health() == 503
    attacked.forget()
    assert attacked.post(5) == 503
    attacked.folder.mkdir()
    assert attacked.post(6) == 503
    _, _, errors = attacked.program.end()
    assert "restart `almanac receive`" in errors
    assert "Traceback" not in errors


@pytest.mark.long
def test_files_that_are_not_in_place_are_logged_once(attacked: Attacked) -> None:
    shutil.rmtree(attacked.folder)
    assert attacked.program.process.stderr is not None
    line = attacked.program.process.stderr.readline()
    assert "no delivery can be stored" in line
    time.sleep(7)
    _, _, errors = attacked.program.end()
    assert "no delivery can be stored" not in errors


@pytest.mark.long
def test_a_folder_that_is_moved_away_and_back_is_used_again(attacked: Attacked) -> None:
    moved = attacked.folder.with_name("moved")
    attacked.folder.rename(moved)
    assert attacked.post(5) == 503
    moved.rename(attacked.folder)
    assert attacked.post(6) == 204
    wait_for(lambda: attacked.health() == 200)
    assert len(attacked.acknowledged) == 6
    assert attacked.lost() == set()


def test_a_whole_inbox_that_replaces_the_file_is_used_and_the_old_file_keeps_its_own(
    attacked: Attacked, tmp_path: Path
) -> None:
    other = other_inbox(tmp_path)
    old = attacked.file.with_name("old")
    os.link(attacked.file, old)
    other.replace(attacked.file)
    before = set(attacked.acknowledged)
    attacked.forget()
    assert attacked.post(5) == 204
    assert attacked.health() == 200
    assert attacked.lost() == set()
    assert InboxReader(attacked.home).last() is not None
    assert len(InboxReader(attacked.home).newest(1_000)) == OTHERS + 1
    old.replace(attacked.file)
    Path(f"{attacked.file}-wal").unlink()
    assert before == {found.delivery_id for found in InboxReader(attacked.home).newest(1_000)}


@pytest.mark.long
def test_an_inbox_that_is_copied_over_the_file_is_503(attacked: Attacked, tmp_path: Path) -> None:
    attacked.forget()
    shutil.copyfile(other_inbox(tmp_path), attacked.file)
    assert [attacked.post(number) for number in range(5, 10)] == [503] * 5
    assert attacked.health() == 503


@pytest.mark.long
def test_a_file_is_not_opened_beside_a_second_receiver(attacked: Attacked, tmp_path: Path) -> None:
    other = other_inbox(tmp_path)
    attacked.folder.rename(attacked.folder.with_name("moved"))
    attacked.folder.mkdir()
    other.replace(attacked.file)
    lock_path(attacked.home).touch()
    attacked.forget()
    assert attacked.post(5) == 503
