"""Strict JSON of DuckDB's, which writes NaN and infinities bare: they become null."""

import re
from pathlib import Path
from typing import Final

_SUSPECT: Final = re.compile(rb"NaN|Infinity", re.IGNORECASE)
_TEXT_OR_BARE: Final = re.compile(rb'("(?:[^"\\]|\\.)*")|-?(?:NaN|Infinity)', re.IGNORECASE)


def without_bare_numbers(path: Path) -> None:
    """Write a file again in which no number is bare text. DuckDB gives each row a line."""
    mended = path.with_name(path.name + ".strict")
    try:
        with path.open("rb") as given, mended.open("wb") as strict:
            for line in given:
                strict.write(_strict(line) if _SUSPECT.search(line) else line)
        mended.replace(path)
    finally:
        mended.unlink(missing_ok=True)


def _strict(line: bytes) -> bytes:
    return _TEXT_OR_BARE.sub(lambda found: found[1] or b"null", line)
