"""Rows as a table of plain text, for people.

Belongs here: a value as a cell, columns side by side. Does not: the width of a terminal, forms for
programs (answer_forms).
"""

import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from math import isfinite
from typing import Final

from almanac.forms.plain_text import plain_line

_GAP: Final = "  "


def text_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a header, a rule and a line for each row. Nothing is cut; numbers are to the right."""
    lines = [[plain_line(name) for name in columns], *([cell(value) for value in r] for r in rows)]
    widths = [max(map(width_of, column)) for column in zip(*lines, strict=True)]
    right = [
        bool(values) and all(isinstance(value, int | float | Decimal | None) for value in values)
        for values in (list(column) for column in zip(*rows, strict=True))
    ] or [False] * len(columns)
    lines.insert(1, ["─" * width for width in widths])
    return "\n".join(
        _GAP.join(
            _padded(text, width, on_the_left=is_right)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def cell(value: object) -> str:
    """Return a value for people: numbers rounded, instants without their zone, which is UTC."""
    if value is None:
        return ""
    if isinstance(value, float | Decimal):
        return rounded(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    if isinstance(value, dict):
        return ", ".join(f"{cell(name)}: {cell(inner)}" for name, inner in value.items())
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return plain_line(text.removesuffix("+00:00"))


def rounded(number: float | Decimal) -> str:
    """Return a number with three decimals, or three digits if it is below 1."""
    size = abs(float(number))
    if not isfinite(size) or size >= 1e15:
        return f"{number:.6g}"
    text = f"{number:.3f}" if size >= 1 else f"{number:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def shortened(text: str, width: int) -> str:
    """Return a text that takes at most `width` columns of a terminal, cut where it is longer."""
    if width_of(text) <= width:
        return text
    found = text[: width - 1]
    while width_of(found) > width - 1:
        found = found[:-1]
    return found + "…"


def _padded(text: str, width: int, *, on_the_left: bool) -> str:
    blanks = " " * (width - width_of(text))
    return blanks + text if on_the_left else text + blanks


def width_of(text: str) -> int:
    """Return the columns that a text takes on a terminal: wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(item) else 1 + (unicodedata.east_asian_width(item) in "WF")
        for item in text
    )
