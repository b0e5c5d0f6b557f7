"""The first and last rows of an answer: text for a terminal, HTML for a notebook.

Belongs here: which columns fit, what is left out and how that is said. Does not: reading the rows.
"""

from collections.abc import Sequence
from decimal import Decimal
from html import escape
from itertools import accumulate
from textwrap import fill
from typing import Final

from almanac.forms.text_table import cell, shortened, text_table, width_of

FIRST: Final = 10
LAST: Final = 5
_CELL_MAX: Final = 50
"""Characters of a cell; pandas shows as many."""
_CELL_MIN: Final = 24
"""An identifier of an event is not cut."""
_COLUMNS_MAX: Final = 40
_NAMED_MAX: Final = 3
_WIDTH_MIN: Final = 20

Rows = Sequence[Sequence[object]]


def preview_text(columns: Sequence[str], rows: Rows, count: int, width: int) -> str:
    """Return the rows as a table that is at most `width` wide, and how many there are.

    Columns that do not fit are left out, and the last line names them. `rows` are all of `count`,
    or the first `FIRST` and the last `LAST`.
    """
    width = max(_WIDTH_MIN, width)
    widths = [
        max(width_of(cell(value)) for value in (name, *(row[place] for row in rows)))
        for place, name in enumerate(columns)
    ]
    all_fit = (
        most
        for most in range(_CELL_MAX, _CELL_MIN, -1)
        if _fitting(widths, most, width) == len(widths)
    )
    cell_max = next(all_fit, min(width, max(_CELL_MIN, width // 3)))
    fitting = _fitting(widths, cell_max, width)
    names = [shortened(cell(name), cell_max) for name in columns[:fitting]]
    shown = [[_short(value, cell_max) for value in row[:fitting]] for row in rows]
    lines = text_table(names, shown).splitlines()
    if count > len(rows):
        lines.insert(2 + FIRST, "…")
    lines.append(fill(_note(columns, fitting, count), width))
    return "\n".join(lines)


def preview_html(columns: Sequence[str], rows: Rows, count: int) -> str:
    """Return the rows as a fragment of HTML with the look of the page; texts are escaped."""
    fitting = min(len(columns), _COLUMNS_MAX)
    sides = [
        "right"
        if rows and all(row[place] is None or _is_number(row[place]) for row in rows)
        else "left"
        for place in range(fitting)
    ]
    head = _cells("th", columns[:fitting], sides)
    body = [_cells("td", row[:fitting], sides) for row in rows]
    if count > len(rows):
        body.insert(FIRST, f'<td colspan="{fitting}" style="text-align:left">…</td>')
    # MathJax of the page would show a text between two dollars as a formula.
    return (
        '<div style="overflow-x:auto"><table class="dataframe tex2jax_ignore mathjax_ignore">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "".join(f"<tr>{row}</tr>\n" for row in body)
        + f"</tbody></table>\n<p>{_markup(_note(columns, fitting, count), 1_000)}</p></div>"
    )


def _fitting(widths: Sequence[int], cell_max: int, width: int) -> int:
    """Return how many of the first columns fit beside each other."""
    ends = accumulate(min(own, cell_max) + 2 for own in widths)
    return sum(end - 2 <= width for end in ends)


def _note(columns: Sequence[str], fitting: int, count: int) -> str:
    note = f"{_counted(count, 'row')} × {_counted(len(columns), 'column')}"
    if not (hidden := columns[fitting:]):
        return note
    named = ", ".join(cell(name) for name in hidden[:_NAMED_MAX])
    more = len(hidden) - _NAMED_MAX
    return f"{note}; not shown: {named}" + (f" and {more:,} more" if more > 0 else "")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _short(value: object, width: int) -> object:
    """Return a value, or its text if that is cut: a number keeps its place at the right."""
    text = cell(value)
    short = shortened(text, width)
    return value if short == text else short


def _cells(tag: str, values: Sequence[object], sides: Sequence[str]) -> str:
    return "".join(
        f'<{tag} style="text-align:{side};white-space:nowrap">{_markup(value)}</{tag}>'
        for value, side in zip(values, sides, strict=True)
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _markup(value: object, width: int = _CELL_MAX) -> str:
    return escape(shortened(cell(value), width))
