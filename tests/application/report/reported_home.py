"""A home whose published history is made by hand, and reports of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from almanac.database import open_database
from application.web.html_report import ReportRequest, make_html
from tests.almanac.publications import NamedCoin, publish_by_hand
from tests.pipeline.small_home import DAY, SmallHome
from tests.warehouse.answers.handmade import Absence, Known

NOW = datetime(2026, 3, 18, 12, tzinfo=UTC)
PULLS = tuple(NOW - DAY * n - timedelta(hours=1) for n in reversed(range(21)))
"""A pull a day for three weeks; the last is an hour old."""
COINS = (NamedCoin("bitcoin", "BTC", "Bitcoin", 1), NamedCoin("ethereum", "ETH", "Ethereum", 2))


def known(event_id: str, day: int, date: datetime | None, **given: Any) -> Known:
    """Return a version that became known by the pull of a day, 0 being the first."""
    given.setdefault("title", f"Event {event_id}")
    given.setdefault("displayed_date", "no date" if date is None else f"{date:%d %b %Y}")
    given.setdefault("created_at", PULLS[0] - 30 * DAY)
    return Known(event_id=event_id, known_from=PULLS[day], date=date, **given)


def moved(event_id: str, day: int, version: int, date: datetime, **given: Any) -> Known:
    given.setdefault("change_kinds", ("rescheduled",))
    given.setdefault("changed_fields", ("date", "displayed_date"))
    return known(event_id, day, date, version=version, **given)


MIDNIGHT = NOW.replace(hour=0)
UNLOCK: dict[str, Any] = {"categories": ("Token Unlock",), "coins": ("bitcoin",)}
LISTING: dict[str, Any] = {"categories": ("Exchange Listing",), "coins": ("ethereum",)}
VERSIONS: tuple[Known, ...] = (
    known("soon", 0, MIDNIGHT + 2 * DAY, impact=9.0, **UNLOCK),
    known("timed", 15, NOW + 5 * DAY, impact=4.0, change_kinds=("created",), **LISTING),
    known("far", 0, MIDNIGHT + 40 * DAY, **UNLOCK),
    known("slips", 0, MIDNIGHT - 8 * DAY, impact=6.0, **UNLOCK),
    moved("slips", 5, 2, MIDNIGHT + 3 * DAY, impact=6.0, **UNLOCK),
    moved("slips", 20, 3, MIDNIGHT + 4 * DAY, impact=6.0, **UNLOCK),
    known("earlier", 0, MIDNIGHT + 9 * DAY, **LISTING),
    moved("earlier", 19, 2, MIDNIGHT + 6 * DAY, **LISTING),
    known("dropped", 0, MIDNIGHT - 2 * DAY, impact=7.5, **LISTING),
    known(
        "dropped",
        18,
        MIDNIGHT - 2 * DAY,
        version=2,
        status="cancelled",
        impact=7.5,
        change_kinds=("cancelled",),
        changed_fields=("status",),
        **LISTING,
    ),
    known("held", 0, MIDNIGHT - 5 * DAY, **UNLOCK),
    known(
        "quarter",
        0,
        datetime(2026, 3, 31, tzinfo=UTC),
        date_type="quarter",
        is_estimated=True,
        displayed_date="Q1 2026",
        impact=8.0,
        **LISTING,
    ),
    known("absent", 0, MIDNIGHT + 20 * DAY, impact=3.0, **UNLOCK),
)
ABSENCES = (Absence("absent", PULLS[16], PULLS[16]),)


@dataclass
class ReportedHome:
    """A home, and the reports of it."""

    small: SmallHome

    @property
    def file(self) -> Path:
        return self.small.home.warehouse

    def publish(self, versions: Sequence[Known] = VERSIONS, *, days: int = len(PULLS)) -> None:
        """Publish what was known by the pull of a day."""
        by_then = [version for version in versions if version.known_from <= PULLS[days - 1]]
        publish_by_hand(self.file, by_then, pulls=PULLS[:days], absences=ABSENCES, coins=COINS)

    def report(self, *, now: datetime = NOW, **given: Any) -> str:
        """Return the HTML of a report of the last 20 days, or as `given`."""
        request = ReportRequest(**{"since": PULLS[0], "until": PULLS[-1], **given})
        with open_database(self.file, clock=lambda: now) as database:
            return make_html(self.small.settings, self.small.home, database, request)


def make_reported_home(root: Path, **settings: Any) -> ReportedHome:
    """Return a home with VERSIONS, published by all pulls."""
    made = ReportedHome(SmallHome(root, **settings))
    made.small.land(at=PULLS[-1])
    made.publish()
    return made
