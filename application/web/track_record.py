"""How reliable dates are: what earlier events of a category did, as known at a time."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from almanac.core.statements import Statements
from almanac.core.text import cut_line
from almanac.digest import show_days
from application.web.filters import is_of_now
from application.web.pages import SiteRequest

_SQL = Statements("application.web")
LEAST: Final = 20
"""No figure is shown of fewer events."""
_SPAN: Final = timedelta(days=30)
_STEPS: Final = (0.1, 0.25, 0.5)
"""Shares of slipped dates at which the dot of a list is darker."""
_KINDS: Final = {
    "instant": "an exact time",
    "day": "an exact day",
    "month": "a month",
    "quarter": "a quarter",
    "year": "a year",
    "deadline": "a deadline",
}


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """The share of events of a category (None: all) and a precision that moved within some days.

    They were upcoming before. Shares are from 0 to 1; `days` is the median of a slip.
    """

    category: str | None
    date_precision: str
    events: int
    slipped: float
    pulled_in: float
    cancelled: float
    held: float
    days: float | None
    within: int

    @property
    def step(self) -> int:
        """The shade of the share that slipped, from 1 to 4."""
        return 1 + sum(self.slipped >= step for step in _STEPS)

    @property
    def shares(self) -> list[tuple[str, float]]:
        """The shares with their labels."""
        return [
            ("Held", self.held),
            ("Slipped", self.slipped),
            ("Earlier", self.pulled_in),
            ("Cancelled", self.cancelled),
        ]

    def __str__(self) -> str:
        by = f", by {show_days(round(self.days, 1))} in the median" if self.days else ""
        return (
            f"{cut_line(self.category or 'All events', 60)} with "
            f"{_KINDS.get(self.date_precision, self.date_precision)}: {self.slipped:.0%} of "
            f"{self.events:,} slipped within {show_days(self.within)}{by}"
        )


def read_records(request: SiteRequest) -> dict[tuple[str | None, str], TrackRecord]:
    """Return the records by category and precision, of at least 20 events, over the 30 days
    before the last complete pull by the time, or as many as were observed."""
    reader = request.reader

    def read_span() -> dict[str, Any]:
        (span,) = reader.rows(_SQL["observed_span"], {"at": request.moment})
        return span

    span = reader.once("observed span", read_span) if is_of_now(request) else read_span()
    if span["first_at"] is None:
        return {}
    until = span["last_at"]
    since = max(span["first_at"], until - _SPAN)
    within = (until - since).days
    if within < 1:
        return {}

    def read() -> dict[tuple[str | None, str], TrackRecord]:
        rows = reader.rows(_SQL["track_records"], {"since": since, "until": until})
        records = [TrackRecord(**row, within=within) for row in rows if row["events"] >= LEAST]
        return {(each.category, each.date_precision): each for each in records}

    return reader.once(f"track records {until}", read)


def find_record(
    records: dict[tuple[str | None, str], TrackRecord],
    categories: Iterable[str] | None,
    date_precision: str | None,
) -> TrackRecord | None:
    """Return the record of the smallest category that has one; of all events if none has."""
    keys = [(name, date_precision or "") for name in categories or ()]
    found = [records[key] for key in keys if key in records]
    return min(found, key=lambda record: record.events, default=None) or records.get(
        (None, date_precision or "")
    )
