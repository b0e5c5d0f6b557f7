"""Damaged notes of deferrals, backfills and alerts are set aside, reported once and ignored."""

import json
import logging
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
from dagster import build_sensor_context

from pipeline.build import build_definitions
from pipeline.health.facts import read_sent_requests
from pipeline.health.warnings import read_health
from resources.calendar_backfill import OpenBackfill, read_open_backfill
from resources.request_log import DeferredPull, DeferredPulls, last_usage
from resources.service_clock import FILE, read_saved_clock
from tests.pipeline.small_home import DAY, NOW, SmallHome
from warehouse.files.documents import put_note, read_note
from warehouse.files.storage import Storage

NAMES: Final = (
    "deferred/daily-events.json",
    "backfill.json",
    "alerts.json",
)
DUE: Final = NOW - DAY
Harm = Callable[[Path], object]


def noted(small: SmallHome) -> None:
    """Write a note of each kind whose work is due."""
    state = small.home.state_storage
    DeferredPulls(state).note(
        DeferredPull(work="daily", feed="events", noted_at=DUE, resume_at=DUE, why="used up")
    )
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


def cut(part: float) -> Harm:
    return lambda path: path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])


def flipped(place: float) -> Harm:
    def harm(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(len(data) * place)] ^= 0x01
        path.write_bytes(data)

    return harm


def holding(data: bytes) -> Harm:
    return lambda path: path.write_bytes(data)


def changed(change: Callable[[str], str]) -> Harm:
    return lambda path: path.write_text(change(path.read_text()))


def unsealed(change: Callable[[str], str]) -> Harm:
    """Change a note and remove its hash, as a person or an earlier version would write it."""

    def harm(path: Path) -> None:
        note = json.loads(path.read_text())
        del note["sha256_of_the_rest"]
        text = json.dumps(note)
        assert change(text) != text
        path.write_text(change(text))

    return harm


def a_folder(path: Path) -> None:
    path.unlink()
    (path / "in it").mkdir(parents=True)


HARMS: Final[dict[str, Harm]] = {
    **{f"cut at {part}": cut(part) for part in (0.0, 0.2, 0.5, 0.9)},
    **{f"flipped at {place}": flipped(place) for place in (0.05, 0.1, 0.25, 0.3, 0.4)},
    "foreign text": holding(b"mine\n"),
    "html": holding(b"<!doctype html><p>502"),
    "zeros": holding(bytes(300)),
    "no UTF-8": holding(b'{"why": "\xff\xfe"}'),
    "null": holding(b"null"),
    "a list": holding(b"[{}]"),
    "a number": holding(b"7"),
    "deep": holding(b'{"x": ' + b"[" * 100_000),
    "another year": changed(lambda text: text.replace("2026", "2029")),
    "more at the end": changed(lambda text: text.rstrip("}\n") + ', "more": {}'),
    "instants without a zone": unsealed(lambda text: text.replace("Z", "")),
    "numbers for instants": unsealed(lambda text: text.replace('"2026-', '"2026')),
}


@pytest.fixture
def small(tmp_path: Path) -> SmallHome:
    return SmallHome(tmp_path / "home")


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_damaged_note_is_set_aside_named_once_and_counts_as_none(
    small: SmallHome, harm: Harm, caplog: pytest.LogCaptureFixture
) -> None:
    noted(small)
    assert len(read(small)) == len(NAMES)
    for name in NAMES:
        harm(small.home.state / name)
    assert read(small) == []
    assert [name in message for name, message in zip(NAMES, caplog.messages, strict=True)] == [
        True
    ] * len(NAMES)
    assert read(small) == []
    assert len(caplog.messages) == len(NAMES)
    noted(small)
    assert len(read(small)) == len(NAMES)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (NAMES[0], '"daily"|"backfill"'),
        (NAMES[0], '"daily"|"nightly"'),
        (NAMES[0], '"events"|"export"'),
        (NAMES[1], '"first"|"fist"'),
        (NAMES[1], '"2024-01-15"|"2024-01"'),
    ],
)
def test_a_note_with_a_value_outside_its_kind_is_damaged(
    small: SmallHome, name: str, other: str
) -> None:
    noted(small)
    unsealed(lambda text: text.replace(*other.split("|")))(small.home.state / name)
    assert len(read(small)) == len(NAMES) - 1
    assert (small.home.state / f"{name}.damaged").exists()


def test_a_folder_in_place_of_a_note_does_not_prevent_a_new_one(small: SmallHome) -> None:
    noted(small)
    for name in NAMES:
        a_folder(small.home.state / name)
    assert read(small) == []
    noted(small)
    assert len(read(small)) == len(NAMES)


def test_a_file_in_place_of_the_folder_of_notes_is_set_aside(small: SmallHome) -> None:
    Storage(small.home.state).put("deferred", b"mine")
    assert read(small) == []
    noted(small)
    assert len(read(small)) == len(NAMES)


def test_a_note_of_an_earlier_version_is_read(small: SmallHome) -> None:
    noted(small)
    for name in NAMES:
        unsealed(lambda text: text + "\n")(small.home.state / name)
    assert len(read(small)) == len(NAMES)


def test_status_and_the_sensor_ignore_damaged_notes(
    small: SmallHome, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    small.land()
    definitions = build_definitions(small.settings, clock=lambda: NOW)
    sensor = definitions.resolve_sensor_def("quota")
    with dg.DagsterInstance.ephemeral() as instance:
        for harm in ("instants without a zone", "no UTF-8"):
            for status_first in (True, False):
                noted(small)
                for name in NAMES:
                    HARMS[harm](small.home.state / name)
                if status_first:
                    health = read_health(small.settings, small.home, NOW + timedelta(hours=1))
                    assert list(health.deferred) == []
                result = sensor(build_sensor_context(instance=instance, definitions=definitions))
                assert isinstance(result, dg.SensorResult)
                assert result.skip_reason == dg.SkipReason("Nothing is deferred.")


LINES: Final = (
    b"mine",
    b"null",
    b"[7]",
    b"\x00" * 20,
    b'{"at": "2026-03-02T11:59:00", "status": 200}',
    b'{"at": 7, "status": 200}',
    b'{"at": "2026-03-02T11:59:00Z", "status": "\xff", "plan": "\xff"}',
    b'{"at": "2026-03-02T11:59:00Z", "status": 1.5, "used": 1e400}',
    b'{"status": ' + b"[" * 100_000,
    b'{"at": "2026-03-02T11:59:00Z", "reset_at": "2026-04-01T00:00:00", "status": "x"}',
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
    assert usage is not None
    assert usage.used == 5
    assert len(read_sent_requests(state, NOW)[0]) == 1
    (state / FILE).write_bytes(line)
    assert read_saved_clock(small.home.state_storage) is None


def test_folders_in_place_of_logs_are_no_logs(small: SmallHome) -> None:
    for name in ("usage.jsonl", "requests/2026-03-02.jsonl", FILE):
        (small.home.state / name).mkdir(parents=True)
    assert last_usage(small.home.state) is None
    assert read_sent_requests(small.home.state, NOW)[0] == []
    assert read_saved_clock(small.home.state_storage) is None
