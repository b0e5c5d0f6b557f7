"""The log of a program: a file that is appended, and rotated by size.

Belongs here: the file and its lines, as text or one JSON object each. Does not: what is logged.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal

import msgspec

from almanac.forms import escaped_in_json

LogFormat = Literal["text", "json"]
MAX_BYTES: Final = 10_000_000
KEPT: Final = 4
"""Rotated files beside the current one: `<name>.log.1` is the newest."""
_COLOURS: Final = re.compile(rb"\x1b\[[0-9;]*m")


class ProgramLog:
    """The log file of one program; any thread may write to it."""

    def __init__(
        self,
        path: Path,
        *,
        log_format: LogFormat,
        now: Callable[[], datetime],
        also: Callable[[bytes], object] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path = path
        self.is_printed = also is not None
        """Whether `also` shows each line to a person or a program."""
        self.last_line = ""
        self._format = log_format
        self._now = now
        self._also = also or (lambda line: None)
        self._max_bytes = max_bytes
        self._lock = Lock()

    def write(self, line: bytes) -> None:
        """Append a line that a program printed.

        Raises:
            OSError: it can't be written.
        """
        plain = _COLOURS.sub(b"", line).rstrip(b"\n")
        last_line = plain.decode("utf-8", "replace").strip()
        if self._format == "json":
            fields = self._fields(plain)
            last_line = str(fields["message"]).strip()
            plain = escaped_in_json(msgspec.json.encode(fields).decode()).encode()
        self.last_line = last_line or self.last_line
        with self._lock:
            self._append(plain + b"\n")
        self._also(plain + b"\n")

    def say(self, message: str, *, level: str = "info") -> None:
        """Append a line of our own."""
        at = self._now().astimezone(UTC)
        if self._format == "json":
            fields = {"timestamp": at.isoformat(), "level": level, "event": message}
            self.write(msgspec.json.encode({**fields, "logger": "almanac"}))
        else:
            self.write(
                f"{at:%Y-%m-%d %H:%M:%S %z} - almanac - {level.upper()} - {message}".encode()
            )

    def _append(self, line: bytes) -> None:
        size = self.path.stat().st_size if self.path.exists() else 0
        if size and size + len(line) > self._max_bytes:
            self._rotate()
        with self.path.open("ab") as file:
            file.write(line)

    def _rotate(self) -> None:
        for number in range(KEPT - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))

    def _fields(self, line: bytes) -> dict[str, Any]:
        """Return a line as fields; of one that is no JSON object, it is the message."""
        fields: dict[str, Any] = {"timestamp": self._now().isoformat(), "level": "info"}
        try:
            logged = msgspec.json.decode(line)
        except msgspec.DecodeError:
            logged = None
        if isinstance(logged, dict):
            fields |= logged
            fields["message"] = fields.pop("event", "")
        else:
            fields["message"] = line.decode("utf-8", "replace")
        return {**fields, "program": self.path.stem}
