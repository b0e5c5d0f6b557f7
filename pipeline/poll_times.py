"""When a unit is due again: at even times between one run of the day's job and the next.

The day's job begins at 00:20 and looks at everything, so a poll shortly before it is wasted.
Instants are aware UTC.
"""

from datetime import datetime, time, timedelta
from typing import Final

DAILY_AT: Final = time(0, 20)
DAILY_DONE_BY: Final = time(1, 0)
"""When the day's job has surely looked, and paid for it; else it was missed."""
MISSED_AFTER: Final = timedelta(minutes=40)
_AROUND: Final = timedelta(minutes=20)
"""A look so shortly before the day's job is as good as the job's: content is a minute old."""
_DAY: Final = timedelta(days=1)


def next_time(of_day: time, after: datetime) -> datetime:
    """Return the first instant after another at a time of day."""
    found = datetime.combine(after.date(), of_day, tzinfo=after.tzinfo)
    return found if found > after else found + _DAY


def due_at(looked_at: datetime, interval: timedelta, least: timedelta) -> datetime:
    """Return when to look again, about an interval later and never before the least.

    What is left until the day's job is parted evenly; where that is one part, the job does it, and
    a poll is due only if it was missed.
    """
    ahead = next_time(DAILY_AT, looked_at + _AROUND) - looked_at
    parts = round(ahead / interval)
    if parts <= 1:
        return looked_at + max(ahead + MISSED_AFTER, least)
    return looked_at + max(ahead / parts, least)
