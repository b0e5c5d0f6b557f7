"""The figure of the event that was moved, as an SVG: what two loaders show in each session.

    python -m tests.almanac.adapters.moved_event > docs/moved-event.svg

Belongs here: the drawing, and the dates that zipline's `EventsLoader` shows, which
test_frameworks.py compares with zipline itself. Does not: what was known (stories).
"""

import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path

from almanac.adapters.zipline import baselines
from tests.almanac.adapters.stories import LATER, SESSIONS, opened, publish_moved

FIRST, LAST = date(2026, 6, 10), date(2026, 6, 24)
NEXT_BY_EVENTS_LOADER = {
    date(2026, 5, 21): FIRST,
    date(2026, 6, 11): LAST,
    date(2026, 6, 25): None,
}
"""From which session on `EventsLoader` shows which date as the next; before: none."""
PREVIOUS_BY_EVENTS_LOADER = {date(2026, 6, 11): FIRST, date(2026, 6, 25): LAST}
"""The same of the event before."""

_LEFT, _TOP, _DAY = 90, 40, 15
_HEIGHTS = {FIRST: 150, LAST: 60}
_TEXT = '<text x="{}" y="{}"{}>{}</text>'


def known_dates(path: Path) -> list[date | None]:
    """Return the next date in each session by `baselines`."""
    with opened(publish_moved(path), now=LATER) as db:
        found = baselines(db, SESSIONS, {1: "bitcoin"}, horizon="60d")["next_event_date"][1]
    return [None if moment != moment else moment.date() for moment in found]


def in_each_session(changes: dict[date, date | None]) -> list[date | None]:
    """Return the date in each session, of dates by the session in which each begins."""
    begun = [[day for day in changes if day <= session.date()] for session in SESSIONS]
    return [changes[max(days)] if days else None for days in begun]


def drawn(known: list[date | None]) -> str:
    """Return the SVG; a line has a step for each session."""
    shown = in_each_session(NEXT_BY_EVENTS_LOADER)
    wide = _LEFT + _DAY * len(SESSIONS) + 20
    wrong = [n for n, (a, b) in enumerate(zip(shown, known, strict=True)) if a != b and a and b]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} 220" font-size="12" '
        'font-family="sans-serif">',
        f'<rect width="{wide}" height="220" fill="white"/>',
        _TEXT.format(10, 22, ' font-weight="bold"', "The next event, as each session sees it"),
        f'<rect x="{_x(wrong[0])}" y="{_TOP}" width="{_DAY * len(wrong)}" height="150" '
        'fill="#f6d9d5"/>',
        _TEXT.format(_x(wrong[0]) + 12, 110, "", f"{len(wrong)} sessions: wrong"),
    ]
    for day, height in _HEIGHTS.items():
        lines.append(_TEXT.format(10, height + 4, "", f"{day:%d} {day:%b}"))
        lines.append(_TEXT.format(_x(_place(day)), 206, "", f"{day:%d} {day:%b}"))
    for day, text in ((date(2026, 5, 20), "20 May: announced"), (date(2026, 6, 1), "1 Jun: moved")):
        lines.append(_TEXT.format(_x(_place(day)), 206, ' fill="#555"', text))
    for dates, colour, shift, name in (
        (shown, "#c0392b", 4, "EventsLoader"),
        (known, "#1f618d", -4, "AlmanacEvents"),
    ):
        path = _path(dates, shift)
        lines.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="3"/>')
        height = 170 if shift > 0 else 48
        lines.append(_TEXT.format(_x(5 if shift > 0 else 26), height, f' fill="{colour}"', name))
    return "\n".join([*lines, "</svg>", ""])


def _place(day: date) -> int:
    return (day - SESSIONS[0].date()) // timedelta(days=1)


def _x(place: int) -> int:
    return _LEFT + _DAY * place


def _path(dates: list[date | None], shift: int) -> str:
    steps = []
    for place, day in enumerate(dates):
        if day is not None:
            height = _HEIGHTS[day] + shift
            steps.append(f"{'L' if steps else 'M'}{_x(place)} {height}L{_x(place + 1)} {height}")
    return "".join(steps)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(drawn(known_dates(Path(folder) / "warehouse.duckdb")))
