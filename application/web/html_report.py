"""Reports of coming events, changes and data quality as one HTML file.

    state/reports.json    {name: ReportMark}, the period of the last report of each name

Under a lock, a mark is moved after the report was written. A failed report does not move
it. It is a place in the feed of changes, so a change that an import or a late delivery dates
before the last report is in the next one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Annotated, Final

import msgspec
from markupsafe import Markup

from almanac.database import Database
from almanac.digest import read_last_known
from almanac.events import check_observed, make_impact_values, read_known_at, resolve_categories
from almanac.reader import Reader
from application.web.changes_page import show_changes
from application.web.pages import Pages, ReportPart, SiteRequest, instant_text, render
from application.web.quality_page import HomeState, show_quality
from application.web.upcoming_page import show_upcoming
from pipeline.health.warnings import read_health
from pipeline.secrecy import remove_secrets
from pipeline.settings import Settings
from warehouse.files.documents import put_note, read_note
from warehouse.files.locks import hold_lock
from warehouse.home import Home

FIRST_PERIOD: Final = timedelta(days=7)
"""The period of the first report."""
REPORT: Final = "report"
"""Report series: their names begin so, and end with the filters. Each report continues where the
last one of its series ended."""
_NOTE: Final = "reports.json"
_FIRST_AHEAD: Final = ReportPart("Highest impact ahead", 12)
_UPCOMING: Final = ReportPart("Upcoming events", 500)
_CHANGES: Final = ReportPart("What changed", 300)
_QUALITY: Final = ReportPart("Data quality", 0)
_MOVES: Final = "rescheduled,made_exact,made_estimated,cancelled,withdrawn"
_LOCK_WAIT_S: Final = 60.0
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class ReportMark(msgspec.Struct, frozen=True, kw_only=True):
    """The period of a report, its places in a feed of changes, and when it was made."""

    since: _Time
    until: _Time
    at: _Time
    feed_id: str = ""
    after: int | None = None
    """None if the report had all changes of the period."""
    through: int = 0

    @property
    def places(self) -> tuple[int, int] | None:
        return None if self.after is None else (self.after, self.through)


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The contents of a report: its time of knowledge, None for now, its period, days and filters.

    `places` of the feed of changes are used in place of the period. The filters select coming
    events and changes; the data quality section covers all data.
    """

    since: datetime
    until: datetime
    places: tuple[int, int] | None = None
    as_of: datetime | None = None
    days: int = 14
    coins: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    min_impact: float | None = None


def read_marks(home: Home) -> dict[str, ReportMark]:
    """Return the periods of the last reports by name; an unreadable record counts as none."""
    return read_note(home.state_storage, _NOTE, dict[str, ReportMark]) or {}


@contextmanager
def next_report(home: Home, reader: Reader, name: str, now: datetime) -> Iterator[ReportRequest]:
    """Yield the request of the report after the last one of a name, and record it at the end.

    If nothing was published since the last report, its period is used again, so that a failed step
    can be repeated.

    Raises:
        WarehouseError: another report of this home takes too long.
        QueryRefused: nothing was pulled yet.
    """
    with hold_lock(home.state / "report.lock", "to write a report", wait_s=_LOCK_WAIT_S):
        marks, known = read_marks(home), read_last_known(reader)
        last = marks.get(name)
        since, until, after = known.at - FIRST_PERIOD, known.at, None
        if last is not None:
            is_same = last.feed_id == known.feed_id
            if until > last.until or (is_same and known.place > last.through):
                since, after = min(last.until, until), last.through if is_same else None
            else:
                since, until, after = last.since, last.until, last.after if is_same else None
        mark = ReportMark(
            since=since,
            until=until,
            at=now,
            feed_id=known.feed_id,
            after=after,
            through=known.place,
        )
        yield ReportRequest(since, until, mark.places)
        marks[name] = mark
        put_note(home.state_storage, _NOTE, marks)


def make_html(settings: Settings, home: Home, database: Database, request: ReportRequest) -> str:
    """Return the report as one HTML file: the pages of upcoming events, changes and quality.

    Raises:
        AlmanacError: a filter or the time can't be used, or the published file can't be read.
        WarehouseError: the home can't be read.
    """
    reader = database.reader
    with reader.pinned():
        pages, at = Pages(database), read_known_at(reader, request.as_of, "as_of")
        check_observed(reader, at, "as_of", request.as_of)
        make_impact_values(request.min_impact)
        names = resolve_categories(reader, request.categories or None)
        filters = {"coins": ",".join(request.coins), "categories": ",".join(names or ())}
        filters["min_impact"] = "" if request.min_impact is None else f"{request.min_impact:g}"
        ahead = {"from": f"{at:%Y-%m-%d}", "to": f"{at + timedelta(days=request.days):%Y-%m-%d}"}
        changed = {"since": instant_text(request.since), "until": instant_text(request.until)}
        health = HomeState()
        if request.as_of is None:
            found = read_health(settings, home, at)
            # The file leaves this machine; a text may repeat the error of a library.
            texts = [
                replace(each, text=remove_secrets(settings, each.text)) for each in found.warnings
            ]
            health = HomeState(replace(found, warnings=texts))
        page = replace(pages.read_request("/", {**filters, **ahead}), report=_UPCOMING)
        page = page if request.as_of is None else pages.move(page, request.as_of)
        changes = replace(page, path="/changes", report=_CHANGES)
        changes = replace(changes, parameters={**filters, **changed})
        most = {"min_impact": filters["min_impact"] or "High"}
        moves = ReportPart(f"Moved and cancelled, impact from {most['min_impact']}", 12)
        first = [
            show_upcoming(_limit(page, _FIRST_AHEAD, estimated="drop", sort="impact", **most)),
            show_changes(_limit(changes, moves, kinds=_MOVES, **most), request.places),
        ]
        rest = [
            show_upcoming(page),
            show_changes(changes, request.places),
            show_quality(replace(page, report=_QUALITY), health),
        ]
        return render(
            "report.html",
            page,
            title=f"Crypto events: report of {at:%d %B %Y}",
            period=f"{request.since:%d %b %Y %H:%M} to {request.until:%d %b %Y %H:%M} UTC",
            first=[Markup(part) for part in first],
            rest=[
                (part.heading, Markup(html))
                for part, html in zip((_UPCOMING, _CHANGES, _QUALITY), rest, strict=True)
            ],
            style=Markup(files("application.web").joinpath("static", "site.css").read_text()),
        )


def _limit(page: SiteRequest, part: ReportPart, **changed: str) -> SiteRequest:
    """Return the request of a short part, with other parameters."""
    return replace(page, report=part, parameters={**page.parameters, **changed})
