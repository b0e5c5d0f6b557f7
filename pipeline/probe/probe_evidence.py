"""The files of a probe: the responses as evidence, and settings in an env file."""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import SecretStr

from pipeline.probe.inquiry import Inquiry, Reply
from warehouse.files.storage import Storage, sync
from warehouse.landing.batches import KEY_MARK

_NAME: Final = re.compile(r"^\s*(?:export\s+)?(ALMANAC_[A-Z0-9_]+)\s*=")
_SAFE: Final = re.compile(r"[A-Za-z0-9._/+:-]+")


def keep_evidence(
    state: Path, inquiry: Inquiry, report: Mapping[str, Any], *, key: SecretStr, now: datetime
) -> Path:
    """Write each response and the report to a folder of the home, and return the folder.

    A file has the request without the key, the status, the headers and the body as received.
    """
    folder = state / "probe" / f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    storage, secret = Storage(folder), key.get_secret_value().encode()
    for reply in inquiry.sent:
        data = _as_text(reply).replace(secret, KEY_MARK.encode())
        storage.put(f"{reply.number:02}-{reply.question.name}.http", data)
    data = msgspec.json.format(msgspec.json.encode(report), indent=2)
    storage.put("report.json", data.replace(secret, KEY_MARK.encode()) + b"\n")
    return folder


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
    """Set these settings in an env file; other lines stay as they are.

    The file appears complete, with mode 600.

    Raises:
        ValueError: a value can't stand in a line. Nothing was written.
        OSError: the file can't be read or written.
    """
    lines = format_settings(settings)
    path = file.resolve()
    old = path.read_text("utf-8").splitlines() if path.exists() else []
    kept = [line for line in old if _name_in(line) not in settings]
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            written.write("\n".join((*kept, *lines)) + "\n")
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
    return "" if found is None else found[1]
