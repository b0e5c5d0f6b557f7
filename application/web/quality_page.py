"""The page of data quality: freshness, coverage, quota, rejected rows and warnings.

All but quota and warnings comes from the published file, as it was known at a time. Quota and
warnings are current, and need the home of the file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from threading import Lock
from typing import Any, Final

from starlette.responses import Response

from almanac.core.errors import AlmanacError
from almanac.core.statements import Statements
from almanac.events import is_stale
from application.web.filters import read_events
from application.web.pages import PageFunction, SiteRequest, format_age, render, table_file
from pipeline.health.facts import DAILY_FEEDS, FeedHealth, Gap, Health
from warehouse.home import describe_source

_SQL = Statements("application.web")
_LISTED: Final = 20
_KEPT_FOR: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class HomeState:
    """The health of the home behind the published file; `why_unknown` says why there is none."""

    health: Health | None = None
    why_unknown: str = ""


class HomeWatch:
    """Reads the health of a home, at most once a minute, as long as a page has one tag.

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

    def show(request: SiteRequest) -> str | Response:
        state = watch.state(request.now) if request.as_of is None else HomeState()
        return show_quality(request, state)

    return show


def show_quality(request: SiteRequest, state: HomeState) -> str | Response:
    """Return the page of data quality at the time of knowledge; `state` is current."""
    feeds = _rows(request, "list_pulled_feeds")
    now = {} if state.health is None else {feed.feed: feed for feed in state.health.feeds}
    for feed in feeds:
        feed["age"] = format_age(request.moment - feed["observed_at"])
        feed["state"] = _feed_state(feed, now.get(feed["feed"]), request.moment)
    days = _rows(request, "list_pull_days")
    gaps = _join_days(row["day"] for row in days[:-1] if not row["complete"])
    windows = _rows(request, "list_windows") if request.pulls.current else []
    for window in windows:
        window["age"] = format_age(request.moment - window["observed_at"])
    (counts,) = _rows(request, "count_published")
    missing: list[dict[str, Any]] = []
    if request.pulls.current:
        values = {"at": request.moment, "limit": _LISTED}
        missing = read_events(request, _SQL["list_missing_then"], values)
    facts: dict[str, Any] = {
        "windows": windows,
        "rejects": _rows(request, "list_rejects", limit=_LISTED),
        "suspects": _rows(request, "list_suspect_batches", limit=_LISTED),
        "missing": missing,
        "counts": counts,
    }
    if form := request.text("format"):
        return table_file(request, form, "quality", feeds, {**facts, "days": days})
    return render(
        "quality.html",
        request,
        title="Data quality",
        health=state.health,
        why_unknown=state.why_unknown,
        feeds=feeds,
        gaps=gaps,
        gap_days=sum(gap.days for gap in gaps),
        days=days,
        **facts,
        sources=[describe_source(source) for source in counts["sources"] or ()],
        file_bytes=_file_bytes(request),
        megabytes=lambda size: f"{size / 1e6:,.1f} MB",
    )


def _rows(request: SiteRequest, name: str, **values: Any) -> list[dict[str, Any]]:
    """Return the rows of a statement at the time; those of now are read once a day for a
    publication, unless the clock is behind its last pull."""

    def read() -> list[dict[str, Any]]:
        return request.reader.rows(_SQL[name], {"at": request.moment, **values})

    last = request.reader.publication().last_pull_at
    if request.as_of is not None or last is None or last > request.moment:
        return read()
    return request.reader.once(f"{name} {request.moment:%Y-%m-%d}", read)


def _feed_state(feed: dict[str, Any], now: FeedHealth | None, moment: datetime) -> str:
    """Return `fresh`, `stale`, or the reason why no pull is expected every day."""
    if now is not None and not now.in_plan:
        return "not in the plan"
    if now is not None and now.refused:
        return "refused by the service"
    if feed["feed"] not in DAILY_FEEDS:
        return "not pulled daily"
    return "stale" if is_stale(feed["complete_at"], moment) else "fresh"


def _join_days(days: Iterable[date]) -> list[Gap]:
    gaps: list[Gap] = []
    for day in days:
        if gaps and gaps[-1].last == day - timedelta(days=1):
            gaps[-1] = Gap(gaps[-1].first, day)
        else:
            gaps.append(Gap(day, day))
    return gaps


def _file_bytes(request: SiteRequest) -> int | None:
    if request.as_of is not None:
        return None
    try:
        return request.database.path.stat().st_size
    except OSError:
        return None  # It was moved; the page still has its contents.
