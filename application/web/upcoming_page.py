"""The first page: the events to come, by day, with filters.

An estimated event is never under a day: it is listed apart, under its month, quarter, year or
deadline.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from itertools import groupby
from math import ceil
from typing import Any, Final

from almanac.errors import InvalidArgument
from almanac.events import BANDS, make_impact_values
from almanac.reading.named_sql import NamedStatements
from almanac.safe_text import cut_line
from application.web.charts import BarChart, BarSeries
from application.web.pages import PageProblem, SiteRequest, read_coin_filter, render

_SQL = NamedStatements("application.web")
PARAMETERS: Final = (*("when", "from", "to", "coin", "category", "impact", "dates", "q", "page"),)
ON_A_PAGE: Final = 60
_IN_A_REPORT: Final = 500
_OPEN_SHOWN: Final = 10
"""Events without an exact date that are shown below the days, before a link to all."""
_CHIPS_MAX: Final = 10
_RECENT: Final = timedelta(days=7)
"""How long an event is marked as moved or new."""
_WHEN: Final = {
    "today": "Today",
    "this-week": "This week",
    "next-week": "Next week",
    "7d": "Next 7 days",
    "14d": "Next 14 days",
    "30d": "Next 30 days",
    "90d": "Next 90 days",
    "365d": "Next 365 days",
    "all": "Any time",
}
_WHEN_DEFAULT: Final = "30d"
_DATES: Final = {"all": "Exact and estimated", "exact": "Exact only", "estimated": "Estimated only"}
_PERIODS: Final = {
    "month": "Some time in a month",
    "quarter": "Some time in a quarter",
    "year": "Some time in a year",
    "deadline": "Any time up to a deadline",
}
_LEFT: Final = {
    "cancelled": "cancelled",
    "withdrawn": "withdrawn",
    "missing": "missing from complete pulls",
    "moved": "moved away",
}
"""Texts for the reasons why an event left the shown days."""
_LEFT_SHOWN: Final = 50
"""Events of each kind that left the shown days, before a link to the changes."""
_FAR: Final = datetime(9999, 1, 1, tzinfo=UTC)
_WEEKS_MAX: Final = 26
_BAND_COLOURS: Final = {
    "critical": ("Critical", "c2"),
    "high": ("High", "c4"),
    "mid": ("Mid", "c1"),
    "low": ("Low", "c3"),
    "unscored": ("No score", "c5"),
}
"""Names and colours of the bands of impact in the plot of weeks."""


@dataclass(frozen=True, slots=True)
class DayRange:
    """The UTC days of a list of events: from the first day until `ends`, exclusive."""

    starts: datetime
    ends: datetime

    def __str__(self) -> str:
        first, last = self.starts, self.ends - timedelta(days=1)
        if self.ends >= _FAR:
            return f"from {first:%d %b %Y} on"
        return f"{first:%d %b %Y}" if first == last else f"{first:%d %b %Y} to {last:%d %b %Y}"


def show_upcoming(request: SiteRequest) -> str:
    """Return the page of the events that were to come at the time of knowledge."""
    days = _without_past(_read_days(request), request.moment)
    dates = read_choice(request, "dates", _DATES, "all")
    page = read_page(request)
    on_a_page = _IN_A_REPORT if request.is_report else ON_A_PAGE
    places = (page - 1) * on_a_page + 1, page * on_a_page
    none = 1, 0
    filters = {
        "at": request.moment,
        "starts": days.starts,
        "ends": days.ends,
        "coins": read_coin_filter(request),
        "words": None if (words := request.text("q")) is None else words.lower(),
        **make_impact_values(read_impact(request)),
    }
    exact = none if dates == "estimated" else places
    shortened = (1, _OPEN_SHOWN) if page == 1 else none
    open_dates = {"all": shortened, "exact": none, "estimated": places}[dates]
    category = request.text("category")
    rows = request.reader.rows(
        _SQL["upcoming_page"],
        {
            **filters,
            "categories": None if category is None else [category.lower()],
            "is_exact": {"all": None, "exact": True, "estimated": False}[dates],
            **dict(zip(("exact_from", "exact_to"), exact, strict=True)),
            **dict(zip(("open_from", "open_to"), open_dates, strict=True)),
        },
    )
    facets = rows[0]["facets"] or []
    category = read_category(request, [row["category"] for row in facets])
    events = prepare_events(request, [row for row in rows if row["event_id"] is not None])
    paged = [event for event in events if event["is_exact"] == (dates != "estimated")]
    total = paged[0]["total"] if paged else 0
    if page > 1 and not paged:
        raise InvalidArgument(f"page={page}: there are fewer pages. Begin with the first.")
    opened = [event for event in events if not event["is_exact"]]
    weeks = rows[0]["weeks"] or []
    left = _find_left(request, filters, category, dates) if page == 1 else []
    totals = {row["what"]: row["total"] for row in left}
    return render(
        "upcoming.html",
        request,
        title="Upcoming events",
        days=_by_day([event for event in events if event["is_exact"]], filters["starts"]),
        periods=_by_period(opened),
        open_total=opened[0]["total"] if opened else 0,
        total=total,
        page=page,
        pages=ceil(total / on_a_page),
        range=days,
        when=None if _has_days(request) else request.text("when") or _WHEN_DEFAULT,
        whens=_WHEN,
        dates=dates,
        dates_choices=_DATES,
        category=category,
        categories=_categories(request, facets, category),
        chips=_chips(facets, category),
        bands=BANDS,
        least_impact=read_impact(request),
        left=left,
        left_counts=[(totals[what], text) for what, text in _LEFT.items() if what in totals],
        chart=_draw_weeks(weeks) if page == 1 and dates != "estimated" else None,
        has_more=any(request.text(n) for n in ("impact", "from", "to", "dates", "q")),
        has_filter=any(request.text(n) for n in ("coin", "category", "impact", "q", "dates")),
    )


def _find_left(
    request: SiteRequest, filters: Mapping[str, Any], category: str | None, dates: str
) -> list[dict[str, Any]]:
    """Return the events that were in the shown days in the last week, and no longer are."""
    values = {
        **filters,
        "categories": None if category is None else [category.lower()],
        "is_exact": {"exact": True, "estimated": False}.get(dates),
        "since": request.moment - _RECENT,
        "limit": _LEFT_SHOWN,
    }
    return request.reader.rows(_SQL["left_upcoming"], values)


def midnight(moment: datetime) -> datetime:
    """Return the start of a UTC day."""
    return datetime.combine(moment.astimezone(UTC).date(), time(), tzinfo=UTC)


def read_page(request: SiteRequest) -> int:
    """Return the number of a page of a list, from 1.

    Raises:
        InvalidArgument: it is not such a number.
    """
    given = request.text("page") or "1"
    if not (given.isascii() and given.isdigit() and len(given) < 7 and int(given) >= 1):
        raise InvalidArgument(f"page={cut_line(given, 40)!r}; expected a number from 1 on")
    return int(given)


def prepare_events(request: SiteRequest, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a list of events, with the names of coins and the marks moved and new."""
    events = list(rows)
    if not events:
        return []
    ids = [event["event_id"] for event in events]
    values = {"event_ids": ids, "since": request.moment - _RECENT, "at": request.moment}
    marks = {row["event_id"]: row for row in request.reader.rows(_SQL["recent_marks"], values)}
    slugs = {coin for event in events for coin in event["coins"] or ()}
    labels = find_coin_labels(request, slugs)
    for event in events:
        mark = marks.get(event["event_id"], {})
        moved_at = mark.get("moved_at")
        event["moved_ago"] = None if moved_at is None else _days_ago(request.moment - moved_at)
        event["moved_from"] = mark.get("moved_from")
        created_at = mark.get("created_at")
        event["new_ago"] = None if created_at is None else _days_ago(request.moment - created_at)
        event["coin_labels"] = [(coin, labels.get(coin, coin)) for coin in event["coins"] or ()]
    return events


def find_coin_labels(request: SiteRequest, slugs: Iterable[str]) -> dict[str, str]:
    """Return the ticker of each coin that has one, in capitals; with the name if it is shared."""
    rows = request.reader.rows(_SQL["coin_labels"], {"coins": sorted(slugs)})
    tickers = ((row, row["symbol"].upper()) for row in rows if row["symbol"])
    return {
        row["coin"]: f"{ticker} ({row['name'] or row['coin']})" if row["is_shared"] else ticker
        for row, ticker in tickers
    }


def _days_ago(age: timedelta) -> str:
    if age < timedelta(hours=24):
        return "today" if age < timedelta(hours=1) else f"{age.seconds // 3600} h ago"
    return "1 day ago" if age.days == 1 else f"{age.days} days ago"


def _without_past(days: DayRange, moment: datetime) -> DayRange:
    """Return the days that are not over: this page shows events to come."""
    today = midnight(moment)
    if days.ends <= today:
        raise InvalidArgument(
            f"the days {days} are over, and this page shows events to come. To see the events that "
            "were expected, choose an earlier time of knowledge (As known at)"
        )
    return DayRange(max(days.starts, today), days.ends)


def _has_days(request: SiteRequest) -> bool:
    return bool(request.text("from") or request.text("to"))


def _read_days(request: SiteRequest) -> DayRange:
    """Return the requested days; `from` and `to` take precedence over `when`."""
    today = midnight(request.moment)
    if _has_days(request):
        first, last = _read_day(request, "from"), _read_day(request, "to")
        starts, ends = first or today, _FAR if last is None else last + timedelta(days=1)
        if ends <= starts:
            raise InvalidArgument(
                f"no day lies between from={starts:%Y-%m-%d} and to={ends - timedelta(1):%Y-%m-%d}"
            )
        return DayRange(starts, ends)
    when = read_choice(request, "when", _WHEN, _WHEN_DEFAULT)
    monday = today - timedelta(days=today.weekday())
    week = timedelta(days=7)
    if when == "today":
        return DayRange(today, today + timedelta(days=1))
    if when == "this-week":
        return DayRange(today, monday + week)
    if when == "next-week":
        return DayRange(monday + week, monday + 2 * week)
    if when == "all":
        return DayRange(today, _FAR)
    return DayRange(today, today + timedelta(days=int(when.removesuffix("d")) + 1))


def _read_day(request: SiteRequest, name: str) -> datetime | None:
    given = request.text(name)
    if given is None:
        return None
    try:
        found = date.fromisoformat(given)
    except ValueError:
        text = f"{name}={cut_line(given, 40)!r} is not a day; expected such as 2026-03-02"
        raise InvalidArgument(text) from None
    if not date(1970, 1, 1) <= found <= date(9990, 1, 1):
        raise InvalidArgument(f"{name}={given!r} is not within the years 1970 to 9990")
    return datetime.combine(found, time(), tzinfo=UTC)


def read_choice(request: SiteRequest, name: str, choices: Mapping[str, str], default: str) -> str:
    """Return a parameter that is one of the keys of `choices`."""
    given = request.text(name) or default
    if given not in choices:
        raise InvalidArgument(f"{name}={cut_line(given, 40)!r}; expected {', '.join(choices)}")
    return given


def read_impact(request: SiteRequest) -> float | None:
    """Return the least impact: a score, or the lowest score of a band."""
    given = request.text("impact")
    if given is None:
        return None
    of_band = {name.lower(): least for least, name in BANDS}
    try:
        return of_band[given.lower()] if given.lower() in of_band else float(given)
    except ValueError:
        expected = f"a score from 0 to 10, or {', '.join(name for _, name in BANDS)}"
        raise InvalidArgument(f"impact={cut_line(given, 40)!r}; expected {expected}") from None


def read_category(request: SiteRequest, shown: list[str]) -> str | None:
    """Return the requested category in its stored spelling; `shown` are tried first."""
    given = request.text("category")
    if given is None:
        return None
    for name in (*shown, *list_categories(request)):
        if name.lower() == given.lower():
            return name
    known = list_categories(request)
    near = get_close_matches(given.lower(), [name.lower() for name in known], 3, 0.4)
    similar = [(request.again(category=n), n, "") for n in known if n.lower() in near]
    hint = " Similar categories:" if similar else ""
    reason = f"No event has the category {cut_line(given, 60)!r}.{hint}"
    raise PageProblem("Unknown category", reason, 404, similar)


def list_categories(request: SiteRequest) -> list[str]:
    """Return the categories that were known at the time of knowledge."""
    rows = request.reader.rows(_SQL["known_categories"], {"at": request.moment})
    return [row["category"] for row in rows if row["category"]]


def _categories(
    request: SiteRequest, facets: list[dict[str, Any]], chosen: str | None
) -> list[tuple[str, int]]:
    """Return the categories of the drop-down list by name, with the number of their events."""
    found = {row["category"]: row["events"] for row in facets}
    if chosen is not None:
        found.setdefault(chosen, 0)
    return sorted(found.items())


def _chips(facets: list[dict[str, Any]], chosen: str | None) -> list[tuple[str, int]]:
    """Return the most frequent categories, and the chosen one."""
    found = {row["category"]: row["events"] for row in facets[:_CHIPS_MAX]}
    if chosen is not None and chosen not in found:
        found[chosen] = next((row["events"] for row in facets if row["category"] == chosen), 0)
    return list(found.items())


def _draw_weeks(weeks: list[dict[str, Any]]) -> BarChart | None:
    """Return the events of each week by impact; None for less than two weeks."""
    counted = {row["week"]: row for row in weeks if row["week"] is not None}
    if len(counted) < 2:
        return None
    first, last = min(counted), max(counted)
    mondays = [first + timedelta(weeks=n) for n in range((last - first).days // 7 + 1)]
    shown = mondays[:_WEEKS_MAX]
    apart = sum(row["events"] for row in weeks if row["week"] is None)
    notes = ["Events with an exact date, by the week (from Monday, UTC) in which they begin."]
    if len(mondays) > len(shown):
        notes.append(f"The first {len(shown)} of {len(mondays)} weeks.")
    if apart:
        notes.append(f"{apart:,} more have an estimated date, and are left out.")

    def count(row: dict[str, int], band: str) -> int:
        scored = sum(row[name] for name in _BAND_COLOURS if name != "unscored")
        return row["events"] - scored if band == "unscored" else row[band]

    nothing = dict.fromkeys((*_BAND_COLOURS, "events"), 0)
    return BarChart(
        name="weeks",
        question="How many events are there in each week?",
        description=" ".join(notes),
        label="Week from",
        labels=[f"{monday:%d %b}" for monday in shown],
        series=[
            BarSeries(name, colour, [count(counted.get(day, nothing), band) for day in shown])
            for band, (name, colour) in _BAND_COLOURS.items()
        ],
    )


def _by_day(
    events: list[dict[str, Any]], starts: datetime
) -> list[tuple[date | None, list[dict[str, Any]]]]:
    """Return the events of each day; under None those that began earlier."""

    def begins(event: dict[str, Any]) -> date | None:
        first: datetime = event["earliest"]
        return None if first < starts else first.astimezone(UTC).date()

    return [(day, list(found)) for day, found in groupby(events, key=begins)]


def _by_period(events: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    grouped = groupby(events, key=lambda event: _PERIODS.get(event["date_precision"], "No date"))
    return [(name, list(found)) for name, found in grouped]
