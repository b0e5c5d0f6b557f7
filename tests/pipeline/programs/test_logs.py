"""The logs of the programs: appended, rotated by size, and one JSON object a line if wanted."""

import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.ui import _print_log
from pipeline.ui.logs import KEPT, LogFormat, ProgramLog

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def log_of(folder: Path, log_format: LogFormat = "text", *, max_bytes: int = 1000) -> ProgramLog:
    return ProgramLog(
        folder / "daemon.log", log_format=log_format, now=lambda: NOW, max_bytes=max_bytes
    )


def test_a_new_start_keeps_the_lines_of_the_last_one(tmp_path: Path) -> None:
    for line in (b"first\n", b"second\n"):
        log_of(tmp_path).write(line)
    assert (tmp_path / "daemon.log").read_text() == "first\nsecond\n"


def test_a_full_file_is_rotated_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    log = log_of(tmp_path, max_bytes=30)
    for number in range(20):
        log.write(b"a line of text, number %02d\n" % number)
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(files) == {"daemon.log", *(f"daemon.log.{number}" for number in range(1, KEPT + 1))}
    assert "number 19" in files["daemon.log"]
    assert "number 18" in files["daemon.log.1"]
    assert all(len(text) <= 30 for text in files.values())


def test_a_line_longer_than_a_file_is_written_all_the_same(tmp_path: Path) -> None:
    log_of(tmp_path, max_bytes=5).write(b"longer than five\n")
    assert (tmp_path / "daemon.log").read_text() == "longer than five\n"


def test_colours_are_removed(tmp_path: Path) -> None:
    log_of(tmp_path).write(b"\x1b[32m2026\x1b[0m - \x1b[34mINFO\x1b[0m - well\n")
    assert (tmp_path / "daemon.log").read_text() == "2026 - INFO - well\n"


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        (
            b'{"event": "Sensor polls skipped", "logger": "dagster.daemon"}\n',
            "Sensor polls skipped",
        ),
        (b"Traceback (most recent call last):\n", "Traceback (most recent call last):"),
        (b"[1, 2]\n", "[1, 2]"),
        (b'{"event": "cut off\n', '{"event": "cut off'),
        (b"not UTF-8: \xff\n", "not UTF-8: \ufffd"),
        (b"\n", ""),
    ],
)
def test_each_line_is_one_json_object(tmp_path: Path, printed: bytes, message: str) -> None:
    log = log_of(tmp_path, "json")
    log.write(printed)
    log.say("started again", level="warning")
    first, second = map(json.loads, (tmp_path / "daemon.log").read_text().splitlines())
    assert (first["message"], first["program"], first["level"]) == (message, "daemon", "info")
    assert datetime.fromisoformat(first["timestamp"]) == NOW
    assert (second["message"], second["level"]) == ("started again", "warning")
    assert log.last_line == "started again"


def test_fields_of_the_program_are_kept(tmp_path: Path) -> None:
    log = log_of(tmp_path, "json")
    at = "2026-04-30T00:00:00Z"
    log.write(json.dumps({"event": "x", "level": "error", "timestamp": at, "run": 7}).encode())
    (line,) = map(json.loads, (tmp_path / "daemon.log").read_text().splitlines())
    assert (line["level"], line["timestamp"], line["run"]) == ("error", at, 7)


def test_a_printed_line_is_not_kept_in_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(RawBytes(printed))))
    _print_log(b"a line\n")
    assert printed.getvalue() == b"a line\n"


class RawBytes(io.RawIOBase):
    """An unbuffered stream, such as a pipe."""

    def __init__(self, written: io.BytesIO) -> None:
        self._written = written

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        return self._written.write(data)
