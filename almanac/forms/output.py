"""Standard output whose encoding lacks characters: cp1252, ASCII, the C locale.

Belongs here: what becomes of a character that can't be encoded. Does not: characters that act on a
terminal (plain_text). Files, and rows that are written as bytes, are UTF-8 whatever the locale.
"""

import codecs
import io
import sys
from typing import Final

_ESCAPE: Final = "almanac.escape"
_DRAWN: Final = str.maketrans(
    {"─": "-", "━": "-", "│": "|", "…": "...", "–": "-", "—": "-", "→": "->", "×": "x"}
)


def accept_any_text() -> None:
    """Let standard output and errors take any text: no character ends a program.

    One that the encoding lacks becomes an escape of JSON, so that JSON has the same value.
    """
    codecs.register_error(_ESCAPE, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPE)


def fitted(text: str, encoding: str | None) -> str:
    """Return a text for people, with escapes for what an encoding lacks, and `-` for rules.

    Do so before columns are aligned.
    """
    if text.isascii() or not encoding or encoding.lower().startswith("utf"):
        return text
    codecs.register_error(_ESCAPE, _escape)
    return text.translate(_DRAWN).encode(encoding, _ESCAPE).decode(encoding)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    escapes = (f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    return "".join(escapes), error.end
