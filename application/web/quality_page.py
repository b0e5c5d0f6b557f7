"""The page of data quality: freshness, coverage, quota, rejected rows and warnings.

All but quota and warnings comes from the published file, as it was known at a time. Quota and
warnings are current, and need the home of the file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from threading import Lock
from typing import Any, Final

from almanac.errors import AlmanacError, QueryRefused
from almanac.events import check_observed
from almanac.reading.named_sql import NamedStatements
from application.web.charts import BarChart, BarSeries
from application.web.pages import PageFunction, SiteRequest, render
from pipeline.health.facts import DAILY_FEEDS, STALE_AFTER, FeedHealth, Gap, Health
from warehouse.home import describe_source

_SQL = NamedStatements("application.web")
_DAYS_DRAWN: Final = 30
_LISTED: Final = 20
_KEPT_FOR: Final = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class HomeState:
    """The health of the home behind the published file; `why_unknown` says why there is none."""

    health: Health | None = None
    why_unknown: str = ""


class HomeWatch:
    """Reads the health of a home, at most once in 15 seconds.

    `read` returns it; None is for a published file without its home.
    """

    def __init__(self, read: Callable[[], Health] | None) -> None:
        self._read = read
        self._lock = Lock()
        self._state = HomeState(
            why_unknown="This server has only the published file, not its home."
        )
        self._read_at: datetime | None = None

    def state(self, now: datetime) -> HomeState:
        """Return the state; an error is its reason, without paths of this machine."""
        if self._read is None:
            return self._state
        with self._lock:
            if self._read_at is None or abs(now - self._read_at) > _KEPT_FOR:
                self._state = _read_state(self._read)
                self._read_at = now
            return self._state


def _read_state(read: Callable[[], Health]) -> HomeState:
    try:
        health = read()
    except (AlmanacError, OSError) as error:
        kind = type(error).__name__  # Not its text: it may name folders of this machine.
        why = f"The home can't be read ({kind}): almanac status shows the reason."
        return HomeState(why_unknown=why)
    if health.source is None:
        return HomeState(why_unknown="No pull was made in this home yet.")
    return HomeState(health)


def quality_page(watch: HomeWatch) -> PageFunction:
    """Return the function of the page, for the home that is watched."""

    def show(request: SiteRequest) -> str:
        state = watch.state(request.now) if request.as_of is None else HomeState()
        return show_quality(request, state)

    return show


def show_quality(request: SiteRequest, state: HomeState) -> str:
    """Return the page of data quality at the time of knowledge; `state` is current."""
    at = {"at": request.moment}
    listed = {**at, "limit": _LISTED}
    reader = request.reader
    feeds = reader.rows(_SQL["list_pulled_feeds"], at)
    now = {} if state.health is None else {feed.feed: feed for feed in state.health.feeds}
    for feed in feeds:
        feed["age"] = format_age(request.moment - feed["observed_at"])
        feed["state"] = _feed_state(feed, now.get(feed["feed"]), request.moment)
    days = reader.rows(_SQL["list_pull_days"], at)
    gaps = _join_days(row["day"] for row in days[:-1] if not row["complete"])
    coverage = request.database.coverage(request.moment) if request.pulls.current else None
    windows = [] if coverage is None else coverage.windows.rows()
    for window in windows:
        window["age"] = format_age(timedelta(hours=window["age_hours"]))
    rejects = reader.rows(_SQL["list_rejects"], listed)
    suspects = reader.rows(_SQL["list_suspect_batches"], listed)
    missing = _list_missing(request, listed)
    (counts,) = reader.rows(_SQL["count_published"], at)
    return render(
        "quality.html",
        request,
        title="Data quality",
        health=state.health,
        why_unknown=state.why_unknown,
        feeds=feeds,
        gaps=gaps,
        gap_days=sum(gap.days for gap in gaps),
        days=len(days),
        chart=_draw_days(days) if days else None,
        windows=windows,
        rejects=rejects,
        suspects=suspects,
        missing=missing,
        counts=counts,
        sources=[describe_source(source) for source in counts["sources"] or ()],
        file_bytes=_file_bytes(request),
        megabytes=lambda size: f"{size / 1e6:,.1f} MB",
    )


def format_age(age: timedelta) -> str:
    """Return a time since a pull, in minutes, hours or days."""
    minutes = max(0, int(age.total_seconds() // 60))
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"


def _feed_state(feed: dict[str, Any], now: FeedHealth | None, moment: datetime) -> str:
    """Return `fresh`, `stale`, or the reason why no pull is expected every day."""
    if now is not None and not now.in_plan:
        return "not in the plan"
    if now is not None and now.refused:
        return "refused by the service"
    if feed["feed"] not in DAILY_FEEDS:
        return "not pulled daily"
    complete_at = feed["complete_at"]
    return "stale" if complete_at is None or complete_at + STALE_AFTER < moment else "fresh"


def _join_days(days: Iterable[date]) -> list[Gap]:
    gaps: list[Gap] = []
    for day in days:
        if gaps and gaps[-1].last == day - timedelta(days=1):
            gaps[-1] = Gap(gaps[-1].first, day)
        else:
            gaps.append(Gap(day, day))
    return gaps


def _list_missing(request: SiteRequest, values: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        check_observed(request.reader, request.moment, "as_of", request.moment)
    except QueryRefused:
        return []  # Nothing was known, so nothing was missing.
    return request.reader.rows(_SQL["list_missing_then"], values)


def _file_bytes(request: SiteRequest) -> int | None:
    if request.as_of is not None:
        return None
    try:
        return request.database.path.stat().st_size
    except OSError:
        return None  # It was moved; the page still has its contents.


def _draw_days(days: list[dict[str, Any]]) -> BarChart:
    shown = days[-_DAYS_DRAWN:]
    return BarChart(
        name="pulls",
        question="Was every day pulled?",
        description=f"Pulls of events by UTC day, the last {len(shown)} of {len(days)} days. A day "
        "without a bar is a gap: events that came and went that day are not known.",
        label="UTC day",
        labels=[f"{row['day']:%d %b}" for row in shown],
        series=[
            BarSeries("Complete", "c1", [row["complete"] for row in shown]),
            BarSeries("Partial", "c2", [row["partial"] for row in shown]),
        ],
    )
