"""Text from outside, made safe for a terminal, a log and a page."""

import codecs
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from rich.cells import cell_len

_UNSEEN: Final = re.compile("[\u00ad\u180e\u200b-\u200d\u2060-\u2064\ufeff]")
"""Characters without a width: two different texts would look the same."""
_ACTING: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, with those that open a terminal's sequences
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # change the direction of what follows
    "\u2028\u2029\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
    "]"
)
_NO_JOINER: Final = re.compile(f"(?![\u200c\u200d])(?:{_UNSEEN.pattern}|{_ACTING.pattern})")
_ASCII: Final = re.compile(r"[ -~\t\n]*")


def plain(text: str) -> str:
    """Return a text without characters that act on a terminal; line ends and tabs stay.

    Control characters, direction marks, line separators and lone surrogates become visible escapes;
    characters without a width are removed.
    """
    if (text.isascii() and text.isprintable()) or _ASCII.fullmatch(text):
        return text
    return _ACTING.sub(_escaped, _UNSEEN.sub("", text))


def plain_with_joiners(text: str) -> str:
    """Return a text without the characters that `plain` removes or escapes, but with joiners, which
    make one emoji of several."""
    return _NO_JOINER.sub("", text)


def plain_line(text: str) -> str:
    """Return a text as `plain` does, on one line: each run of white space becomes one blank."""
    return plain(" ".join(text.split()))


def escape_characters(text: str) -> str:
    """Return a text as `plain` does, but with an escape for each character that `plain` removes."""
    return text if _ASCII.fullmatch(text) else _ACTING.sub(_escaped, _UNSEEN.sub(_escaped, text))


def escape_json(text: str) -> str:
    """Return JSON of the same value that is safe to print on a terminal."""
    return _ACTING.sub(_json_escaped, _UNSEEN.sub(_json_escaped, text))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


_ESCAPE: Final = "almanac.escape"
_DRAWN: Final = str.maketrans(
    {"─": "-", "━": "-", "│": "|", "…": "...", "–": "-", "—": "-", "→": "->", "×": "x"}
)


def open_missing_streams() -> None:
    """Read nothing from a standard stream that the caller closed, and discard what is written."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115


def accept_any_text() -> None:
    """Let standard output and standard error accept any text, so that no character ends a program.

    A character that the encoding lacks becomes a JSON escape, so that JSON has the same value.
    """
    codecs.register_error(_ESCAPE, _escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPE)


def fit_encoding(text: str, encoding: str | None) -> str:
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


def format_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a header, a rule and a line for each row. Nothing is cut; numbers are to the right."""
    lines = [
        [plain_line(name) for name in columns],
        *([format_cell(value) for value in r] for r in rows),
    ]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    right = [
        bool(values) and all(isinstance(value, int | float | Decimal | None) for value in values)
        for values in (list(column) for column in zip(*rows, strict=True))
    ] or [False] * len(columns)
    lines.insert(1, ["─" * width for width in widths])
    padded = (
        (
            f"{' ' * (width - cell_len(text))}{text}"
            if is_right
            else f"{text}{' ' * (width - cell_len(text))}"
            for text, width, is_right in zip(line, widths, right, strict=True)
        )
        for line in lines
    )
    return "\n".join("  ".join(line).rstrip() for line in padded)


def format_cell(value: object) -> str:
    """Return a value for people: numbers rounded, timestamps without their zone, which is UTC."""
    if value is None:
        return ""
    if isinstance(value, float | Decimal):
        return format_number(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(format_cell, value))
    if isinstance(value, dict):
        return ", ".join(
            f"{format_cell(name)}: {format_cell(inner)}" for name, inner in value.items()
        )
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return plain_line(text.removesuffix("+00:00"))


def count_noun(number: int, noun: str) -> str:
    """Return a number of things, such as `1 row` or `1,201 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_number(number: float | Decimal) -> str:
    """Return a number with three decimals, or three digits if it is below 1."""
    size = abs(float(number))
    if not isfinite(size) or size >= 1e15:
        return f"{number:.6g}"
    text = f"{number:.3f}" if size >= 1 else f"{number:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def shorten(text: str, width: int) -> str:
    """Return a text that takes at most `width` columns of a terminal, cut where it is longer."""
    if cell_len(text) <= width:
        return text
    found = text[: width - 1]
    while cell_len(found) > width - 1:
        found = found[:-1]
    return found + "…"


def cut_line(text: str, most: int = 200) -> str:
    line = plain_line(text)
    return line if len(line) <= most else line[: most - 1] + "…"


@cache
def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("almanac"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"line": cut_line, "number": "{:,}".format}
    return found


def render_html(template: str, **values: Any) -> str:
    """Return HTML from a template of this package. Every value is escaped, unless it is Markup."""
    return str(_templates().get_template(template).render(values)).lstrip()


_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>#|~&!@$]|(?<=www)\.|:(?=//))", re.IGNORECASE)
"""Characters that act inside a line; GitHub also links `www.` and `://`, and calls the person after
an @."""
_URL: Final = "!$&'*+,-./:;=?@_~%#"
_URL_MAX: Final = 1_000
"""The three characters that Slack's documentation says to escape; others can't be escaped."""


def escape_markdown(text: str) -> str:
    """Return a text as it is shown by Markdown inside a line, also by GitHub's."""
    return _MARKDOWN.sub(r"\\\1", plain_line(text))


def make_web_address(address: str | None) -> str | None:
    """Return an address that a page or chat may link, with all else percent-encoded, or None.

    Only http and https with a host are links: another scheme could run code.
    """
    if not address or len(address) > _URL_MAX:
        return None
    try:
        parts = urlsplit(address)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return None
    found = quote(address, safe=_URL)
    return found if is_web and len(found) <= _URL_MAX else None


def json_text(value: Any) -> str:
    """Return a value as JSON that is safe to print; timestamps are ISO 8601, in UTC with a Z."""
    text = json.dumps(value, ensure_ascii=False, default=_json_value, allow_nan=False)
    return escape_json(text)


def _json_value(value: Any) -> str:
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
