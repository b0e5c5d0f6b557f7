"""The journal of a pull keeps the pages already received, in order, when the pull is killed."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from tests.warehouse.test_landing import writing
from warehouse.errors import LandingError
from warehouse.files.storage import Storage
from warehouse.landing.batches import Scope
from warehouse.landing.journal import Intent, Journal, OpenPull, PageNote
from warehouse.landing.landing import Landing

AT = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
ROOT = Path(__file__).parent.parent.parent
INTENT = Intent(feed="events", scope=Scope(lower=AT), plan="pro", source="sandbox", started_at=AT)


def note(number: int, *, at: datetime = AT) -> PageNote:
    return PageNote(
        number=number,
        cursor_in=None if number == 1 else f"c{number - 1}",
        date=AT,
        received_at=at,
    )


def test_pages_are_read_back_in_order_with_their_bytes_and_cursors(tmp_path: Path) -> None:
    pull = Landing(tmp_path).journal.begin(INTENT)
    bodies = [b'{"data":[]}', b"line\nbreak\n", b"", b"\x00\xff"]
    for number, body in enumerate(bodies, start=1):
        pull.add(note(number), body)
    (reopened,) = Landing(tmp_path).journal.open_pulls()
    assert reopened.intent == INTENT
    assert [body for _, body in reopened.pages()] == bodies
    last = reopened.last_note()
    assert last is not None
    assert last.cursor_in == "c3"
    reopened.add(note(5), b"more")
    assert len(list(pull.pages())) == 5


def test_only_the_last_page_decides_whether_a_pull_may_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = Landing(tmp_path).journal.begin(INTENT)
    for number in range(1, 6):
        pull.add(note(number, at=AT + timedelta(minutes=number)), b"page")
    read: list[str] = []
    usual = Storage.read
    monkeypatch.setattr(Storage, "read", lambda self, name: read.append(name) or usual(self, name))
    assert pull.may_continue(AT + timedelta(minutes=20))
    assert [name.rpartition("/")[2] for name in read] == ["000005.page"]


def test_a_gap_or_a_repeated_page_is_refused_and_stored_pages_are_kept(tmp_path: Path) -> None:
    pull = Landing(tmp_path).journal.begin(INTENT)
    pull.add(note(1), b"one")
    for number in (1, 3, 0):
        with pytest.raises(LandingError, match="expected 2"):
            pull.add(note(number), b"other")
    assert [body for _, body in pull.pages()] == [b"one"]


@pytest.mark.parametrize(
    ("minutes", "may_continue"), [(0, True), (14, True), (15, True), (15.1, False), (-1, False)]
)
def test_a_pull_may_continue_within_fifteen_minutes_of_its_last_page(
    tmp_path: Path, minutes: float, may_continue: bool
) -> None:
    pull = Landing(tmp_path).journal.begin(INTENT)
    assert pull.may_continue(AT + timedelta(minutes=minutes)) == may_continue
    pull.add(note(1, at=AT + timedelta(hours=1)), b"")
    assert pull.may_continue(AT + timedelta(hours=1, minutes=minutes)) == may_continue


def test_a_discarded_pull_is_removed_and_others_stay(tmp_path: Path) -> None:
    journal = Landing(tmp_path).journal
    first = journal.begin(INTENT)
    other = Intent(feed="coins", scope=Scope(), plan="pro", source="sandbox", started_at=AT)
    journal.begin(other)
    first.discard()
    assert [pull.intent for pull in journal.open_pulls()] == [other]


def test_a_journal_folder_without_an_intent_is_removed(tmp_path: Path) -> None:
    (tmp_path / "journal" / "half").mkdir(parents=True)
    journal = Landing(tmp_path).journal
    assert journal.open_pulls() == []
    assert (tmp_path / "journal" / "half").exists()
    assert journal.recovered("half") is None
    assert not (tmp_path / "journal" / "half").exists()


def test_listing_a_pull_in_progress_changes_nothing(tmp_path: Path) -> None:
    pull = Landing(tmp_path).journal.begin(INTENT)
    pages, done = 200, threading.Event()

    def look() -> None:
        other = Landing(tmp_path).journal
        while not done.is_set():
            other.open_pulls()

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(1, pages + 1):
        pull.add(note(number), b"x" * 2_000)
    done.set()
    looking.join()
    assert [page.number for page, _ in pull.pages()] == list(range(1, pages + 1))


WRITER = """
from tests.warehouse.test_journal import INTENT, note
from warehouse.landing.landing import Landing

def write(folder, _, say):
    journal = Landing(folder).journal
    pulls = journal.open_pulls()
    pull = pulls[0] if pulls else journal.begin(INTENT)
    number = len(list(pull.pages()))
    while True:
        number += 1
        pull.add(note(number), b"%d" % number * 5000)
        say(number)
"""


def test_no_stored_page_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "landing"
    with writing(WRITER, folder, tmp_path / "said") as writers:
        for after_s in (0, 0.01, 0.02, 0.05, 0.03, 0.04):
            said = writers.write_until_killed(0, after_s=after_s)
            (pull,) = Landing(folder).journal.open_pulls()
            pages = list(pull.pages())
            assert [page.number for page, _ in pages] == list(range(1, len(pages) + 1))
            assert len(pages) in (said, said + 1)
            assert all(body == b"%d" % page.number * 5000 for page, body in pages)


def test_pages_are_compressed(tmp_path: Path) -> None:
    pull = Landing(tmp_path).journal.begin(INTENT)
    folder = tmp_path / "journal" / INTENT.pull_id
    body = b'{"data":[' + b'{"id":"event","title":"x"},' * 4_000 + b"{}]}"
    pull.add(note(1), body)
    assert (folder / "000001.page").stat().st_size < len(body) / 20
    assert list(pull.pages()) == [(note(1), body)]


def test_a_plain_page_is_dropped_and_requested_again(tmp_path: Path) -> None:
    pull = Landing(tmp_path).journal.begin(INTENT)
    folder = tmp_path / "journal" / INTENT.pull_id
    (folder / "000001.page").write_bytes(msgspec.json.encode(note(1)) + b"\nbody")
    reopened = Landing(tmp_path).journal.recovered(pull.intent.pull_id)
    assert reopened is not None
    assert list(reopened.pages()) == []


@pytest.mark.parametrize("harm", [lambda page: page[:-3], lambda page: page[:9], lambda _: b""])
def test_a_damaged_page_of_the_journal_is_a_landing_error(
    harm: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    pull = Landing(tmp_path).journal.begin(INTENT)
    pull.add(note(1), b"one" * 100)
    path = tmp_path / "journal" / INTENT.pull_id / "000001.page"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(LandingError, match="can't be read"):
        list(pull.pages())


class TestDamaged:
    def pull(self, storage: Storage) -> OpenPull:
        """Begin a pull and record three pages."""
        pull = Journal(storage).begin(INTENT)
        for number in (1, 2, 3):
            pull.add(note(number), b"page %d" % number)
        return pull

    @pytest.mark.parametrize("harm", ["flip", "empty", "delete"])
    def test_pages_are_kept_up_to_the_first_damaged_one_and_the_rest_is_requested_again(
        self, harm: str, tmp_path: Path
    ) -> None:
        storage = Storage(tmp_path)
        pull = self.pull(storage)
        path = next(tmp_path.rglob("000002.page"))
        held = bytearray(path.read_bytes())
        held[-6] ^= 1
        path.write_bytes(held if harm == "flip" else b"")
        if harm == "delete":
            path.unlink()
        found = Journal(storage).recovered(pull.intent.pull_id)
        assert found is not None
        assert found.intent == pull.intent
        assert [body for _, body in found.pages()] == [b"page 1"]
        found.add(note(2), b"again")
        assert [body for _, body in found.pages()] == [b"page 1", b"again"]

    def test_a_pull_whose_intent_was_changed_is_dropped(self, tmp_path: Path) -> None:
        storage = Storage(tmp_path)
        pull = self.pull(storage)
        path = next(tmp_path.rglob("pull.json"))
        path.write_bytes(path.read_bytes().replace(b'"pro"', b'"prp"', 1))
        assert Journal(storage).recovered(pull.intent.pull_id) is None
        assert Journal(storage).ids() == []
