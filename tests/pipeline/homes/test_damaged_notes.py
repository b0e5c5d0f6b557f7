"""Damaged notes of deferrals, backfills and alerts are set aside, reported once and ignored."""

import json
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from pipeline.health.facts import read_sent_requests
from resources.calendar_backfill import OpenBackfill, read_open_backfill
from resources.request_log import DeferredPull, DeferredPulls, last_usage
from resources.service_clock import FILE, read_saved_clock
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.files.documents import put_note, read_note

NAMES: Final = ("deferred/daily-events.json", "backfill.json", "alerts.json")
DUE: Final = NOW - DAY


def noted(small: SmallHome) -> None:
    """Write a note of each kind whose work is due."""
    state = small.home.state_storage
    pull = DeferredPull(work="daily", feed="events", noted_at=DUE, resume_at=DUE, why="used up")
    put_note(state, pull.name, pull)
    days = {"first": date(2024, 1, 15), "last": date(2024, 6, 30)}
    times = {"started_at": DUE, "resumed_at": DUE, "resume_at": DUE}
    backfill = OpenBackfill(plan="elite", source="s", why="quota", **days, **times)
    put_note(state, "backfill.json", backfill)
    put_note(state, "alerts.json", {"disk": DUE})


def read(small: SmallHome) -> list[Any]:
    state = small.home.state_storage
    return [
        *DeferredPulls(state).all(),
        *(note for note in (read_open_backfill(state, NOW),) if note is not None),
        *(read_note(state, "alerts.json", dict[str, datetime]) or ()),
    ]


def without_hash(path: Path, old: str, new: str) -> None:
    """Change a note and remove its hash, as a person would write it."""
    note = json.loads(path.read_text())
    del note["sha256_of_the_rest"]
    text = json.dumps(note)
    assert old in text
    path.write_text(text.replace(old, new))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0x01
    path.write_bytes(data)


HARMS: Final[dict[str, Callable[[Path], object]]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "flipped": flip,
    "no UTF-8": lambda path: path.write_bytes(b'{"why": "\xff\xfe"}'),
    "a list": lambda path: path.write_bytes(b"[{}]"),
    "deep": lambda path: path.write_bytes(b'{"x": ' + b"[" * 100_000),
    "another year": lambda path: path.write_text(path.read_text().replace("2026", "2029")),
    "times without a zone": lambda path: without_hash(path, "Z", ""),
    "a value outside its kind": lambda path: without_hash(path, "20", "x"),
    "numbers for times": lambda path: without_hash(path, '"2026-', '"2026'),
}


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    return SmallHome(tmp_path / "home")


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_damaged_note_is_set_aside_named_once_and_counts_as_none(
    small: SmallHome, harm: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    noted(small)
    assert len(read(small)) == len(NAMES)
    for name in NAMES:
        harm(small.home.state / name)
    assert read(small) == read(small) == []
    messages = caplog.messages
    assert all(name in message for name, message in zip(NAMES, messages, strict=True)), messages
    noted(small)
    assert len(read(small)) == len(NAMES)


LINES: Final = (
    b"null",
    b"\x00" * 20,
    b'{"at": "2026-03-02T11:59:00", "status": 200}',
    b'{"at": "2026-03-02T11:59:00Z", "status": 1.5, "used": 1e400}',
    b'{"status": ' + b"[" * 100_000,
    b'{"at": "2026-03-02T11:5',
)


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_unreadable_lines_of_logs_are_skipped(small: SmallHome, line: bytes) -> None:
    state = small.home.state
    (state / "requests").mkdir(parents=True)
    sound = b'{"at": "2026-03-02T11:00:00Z", "status": 200, "used": 5}'
    for name in ("usage.jsonl", "requests/2026-03-02.jsonl"):
        (state / name).write_bytes(b"\n".join((sound, line)))
    usage = last_usage(state)
    assert usage is not None and usage.used == 5
    assert len(read_sent_requests(state, NOW)[0]) == 1
    (state / FILE).write_bytes(line)
    assert read_saved_clock(small.home.state_storage) is None
