"""What had been pulled by an instant: what can be judged, and what nobody watched.

Belongs here: the pulls that cover a date as of an instant. That an event was not known then says
something only of dates that a pull had covered.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final

from almanac.errors import InvalidArgument
from almanac.instants import Duration, Instant, calendar_time, duration, instant
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements
from almanac.results import Result

_SQL = NamedStatements("almanac")
_EVENT_FEEDS: Final = ("export", "events")


@dataclass(frozen=True, slots=True)
class Coverage:
    """What had been pulled at an instant.

    Attributes:
        at: the instant, UTC.
        first_pull_at, last_pull_at: the first and the last pull of events by then, UTC; None if
            there was none: then nothing was known.
        windows: the last complete pull of each feed, plan, window and filters, as a Result.
        tz: the zone of the database, of which instants without a zone are.
    """

    at: datetime
    first_pull_at: datetime | None
    last_pull_at: datetime | None
    windows: Result = field(repr=False)
    tz: tzinfo = field(default=UTC, repr=False)

    def covers(self, date: Instant, *, within: Duration = "2d") -> bool:
        """Whether a pull at most `within` before the instant covered an event date, unfiltered.

        A date alone is a UTC day, as those of events are.

        Where it did not, that an event is not known says nothing. A pull of the plan Free shows the
        coins alone that were listed that day; `watched` of `attach_known` says it for a coin.
        """
        wanted, age_max = calendar_time(date, "date", self.tz), duration(within, "within")
        if wanted.time() != time():
            wanted = instant(date, "date", self.tz)
        return any(
            row["feed"] in _EVENT_FEEDS
            and not row["coins"]
            and not row["categories"]
            and (row["lower"] is None or row["lower"] <= wanted)
            and (row["upper"] is None or wanted <= row["upper"])
            and self.at - row["observed_at"].astimezone(UTC) <= age_max
            for row in self.windows.rows()
        )

    @property
    def age(self) -> timedelta | None:
        """The time from the last pull of events to the instant; None if there was none."""
        return None if self.last_pull_at is None else self.at - self.last_pull_at


def coverage_at(reader: Reader, at: Instant | None) -> Coverage:
    """Return what had been pulled by an instant, now by default. Before the first pull: nothing.

    Raises:
        InvalidArgument: it is no instant, or still to come.
    """
    with reader.pinned():
        now = reader.now()
        moment = now if at is None else instant(at, "at", reader.tz, now=now)
        if moment > now:
            raise InvalidArgument(
                f"at={at!r} is still to come: the time is {now.isoformat()}. Nobody knows yet what "
                "will have been pulled then."
            )
        values = {"at": moment}
        (pulls,) = reader.query(_SQL["pulls_of_events"], values).to_pylist()
        first, last = (
            None if found is None else found.astimezone(UTC)
            for found in (pulls["first_pull_at"], pulls["last_pull_at"])
        )
        # The macro refuses an instant before the first pull; no window was covered then.
        name = "no_coverage" if first is None else "coverage_at"
        windows = reader.result(_SQL[name], values if first else {})
    return Coverage(moment, first, last, windows, reader.tz)
