"""The journal of a pull keeps the pages already received, in order, when the pull is killed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from warehouse.errors import LandingError
from warehouse.files.storage import Storage
from warehouse.landing.batches import Scope
from warehouse.landing.journal import Intent, Journal, OpenPull, PageNote
from warehouse.landing.landing import Landing

AT = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
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
    reopened = Landing(tmp_path).journal.recovered(INTENT.pull_id)
    assert reopened is not None
    assert reopened.intent == INTENT
    assert [body for _, body in reopened.pages()] == bodies
    last = reopened.last_note()
    assert last is not None
    assert last.cursor_in == "c3"
    reopened.add(note(5), b"more")
    assert len(list(pull.pages())) == 5


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
    assert journal.ids() == [other.pull_id]


def test_a_journal_folder_without_an_intent_is_removed(tmp_path: Path) -> None:
    (tmp_path / "journal" / "half").mkdir(parents=True)
    journal = Landing(tmp_path).journal
    assert (tmp_path / "journal" / "half").exists()
    assert journal.recovered("half") is None
    assert not (tmp_path / "journal" / "half").exists()


def open_pull(storage: Storage) -> OpenPull:
    """Begin a pull and record three pages."""
    pull = Journal(storage).begin(INTENT)
    for number in (1, 2, 3):
        pull.add(note(number), b"page %d" % number)
    return pull


@pytest.mark.parametrize("harm", ["flip", "empty", "cut", "delete"])
def test_pages_are_kept_up_to_the_first_damaged_one(harm: str, tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    pull = open_pull(storage)
    path = next(tmp_path.rglob("000002.page"))
    page = path.read_bytes()
    flipped = page[:-6] + bytes([page[-6] ^ 1]) + page[-5:]
    path.write_bytes({"flip": flipped, "cut": page[:-3]}.get(harm, b""))
    with pytest.raises(LandingError, match="can't be read"):
        list(pull.pages())
    if harm == "delete":
        path.unlink()
    found = Journal(storage).recovered(pull.intent.pull_id)
    assert found is not None
    assert found.intent == pull.intent
    assert [body for _, body in found.pages()] == [b"page 1"]
    found.add(note(2), b"again")
    assert [body for _, body in found.pages()] == [b"page 1", b"again"]


def test_a_pull_whose_intent_was_changed_is_dropped(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    pull = open_pull(storage)
    path = next(tmp_path.rglob("pull.json"))
    path.write_bytes(path.read_bytes().replace(b'"pro"', b'"prp"', 1))
    assert Journal(storage).recovered(pull.intent.pull_id) is None
    assert Journal(storage).ids() == []
