"""The files of a probe: the responses as evidence, and settings in an env file."""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import SecretStr

from pipeline.probe.inquiry import Reply
from warehouse.files.storage import Storage, sync
from warehouse.landing.batches import KEY_MARK

_NAME: Final = re.compile(r"^\s*(?:export\s+)?(ALMANAC_[A-Z0-9_]+)\s*=", re.IGNORECASE)
_OPEN_QUOTE: Final = re.compile(r"""=\s*(["'])(?:(?!\1).)*$""")
_SAFE: Final = re.compile(r"[A-Za-z0-9._/+:-]+")


class EvidenceFolder:
    """A folder of the home with each response of a probe, and its report. The key is masked."""

    def __init__(self, state: Path, *, key: SecretStr, now: datetime) -> None:
        self.path = state / "probe" / f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        self._storage = Storage(self.path)
        self._secret = key.get_secret_value().encode()

    def keep_reply(self, reply: Reply) -> None:
        """Write the request, the status, the headers and the body as received."""
        self._put(f"{reply.number:02}-{reply.question.name}.http", _as_text(reply))

    def keep_report(self, report: Mapping[str, Any]) -> None:
        data = msgspec.json.format(msgspec.json.encode(report), indent=2)
        self._put("report.json", data + b"\n")

    def _put(self, name: str, data: bytes) -> None:
        self._storage.put(name, data.replace(self._secret, KEY_MARK.encode()))


def _as_text(reply: Reply) -> bytes:
    query = "&".join(f"{name}={value}" for name, value in reply.params.items())
    lines = [f"GET {reply.path}{'?' if query else ''}{query}"]
    lines += [f"{name}: {value}" for name, value in reply.question.headers.items()]
    lines += ["", f"{reply.status or 'no response'}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    if reply.fault:
        lines.append(f"(fault: {reply.fault})")
    if reply.is_cut:
        lines.append("(the body is cut here)")
    return "\n".join((*lines, "", "")).encode() + reply.body


def write_settings(file: Path, settings: Mapping[str, str]) -> None:
    """Set these settings in an env file; other lines stay as they are, with their line ends.

    The file appears complete, with mode 600.

    Raises:
        ValueError: a value can't stand in a line, or the file has a value of several lines. Nothing
            was written.
        OSError: the file can't be read or written.
    """
    lines = format_settings(settings)
    path = file.resolve()
    old = path.read_bytes().decode("utf-8").splitlines(keepends=True) if path.exists() else []
    if any(_OPEN_QUOTE.search(line.rstrip("\r\n")) for line in old):
        raise ValueError(f"{file} has a value of several lines; set {', '.join(settings)} there")
    kept = [line for line in old if _name_in(line) not in settings]
    if kept and not kept[-1].endswith("\n"):
        kept[-1] += "\n"
    end = "\r\n" if kept and kept[0].endswith("\r\n") else "\n"
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as written:
            written.write("".join([*kept, *(line + end for line in lines)]).encode())
        sync(staged)
        staged.replace(path)
        sync(path.parent)
    finally:
        staged.unlink(missing_ok=True)


def format_settings(settings: Mapping[str, str]) -> list[str]:
    """Return a line for each setting. Raises ValueError: a value can't stand in a line."""
    for name, value in settings.items():
        if not _SAFE.fullmatch(value):
            raise ValueError(f"{name} can't be {value!r}; set it yourself after a look")
    return [f"{name}={value}" for name, value in settings.items()]


def _name_in(line: str) -> str:
    found = _NAME.match(line)
    return "" if found is None else found[1].upper()
