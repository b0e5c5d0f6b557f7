"""The first page: events by day, as a list, a month or a week, with filters.

An estimated event is never under a day: it is listed apart, under its month, quarter, year or
deadline.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from math import ceil
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import Response

from almanac.core.errors import InvalidArgument
from almanac.core.statements import Statements
from almanac.core.text import cut_line
from almanac.events import BANDS
from application.web.changes_page import count_changes
from application.web.comparison import COMPARE, Comparison, compare_events
from application.web.drawing import WEEKS, draw_heat, draw_path
from application.web.filters import (
    FILTERS,
    NEWS,
    Filters,
    bound_days,
    describe_filters,
    is_of_now,
    keep_drawn,
    label_coins,
    list_days,
    make_bar,
    read_choice,
    read_count,
    read_events,
    read_filters,
)
from application.web.pages import FILE_ROWS, SiteRequest, render, span_text, table_file
from application.web.track_record import find_record, read_records

_SQL = Statements("application.web")
PARAMETERS: Final = (
    *(*FILTERS, "when", "from", "to", "estimated", "view", "sort", "compare"),
    *("page", "format"),
)
ON_A_PAGE: Final = 60
_GONE_SHOWN: Final = 300
_OPEN_SHOWN: Final = 10
"""Events without an exact date that are shown below the days, before a link to all."""
_WHEN: Final = {
    "today": "Today",
    "this-week": "This week",
    "next-week": "Next week",
    "7d": "Next 7 days",
    "14d": "Next 14 days",
    "30d": "Next 30 days",
    "90d": "Next 90 days",
    "365d": "Next 365 days",
    "all": "From today on",
}
_WHEN_DEFAULT: Final = "30d"
_ESTIMATED: Final = {"include": "All", "only": "Estimated", "drop": "Exact"}
_VIEWS: Final = {"list": "List", "month": "Month", "week": "Week"}
_SORTS: Final = {"time": "Time", "impact": "Impact"}
_PERIODS: Final = {
    "month": "Some time in a month",
    "quarter": "Some time in a quarter",
    "year": "Some time in a year",
    "deadline": "Any time up to a deadline",
}
_FAR: Final = date(9999, 1, 1)
_DAY: Final = timedelta(days=1)
_SHOWN_OF_A_DAY: Final = {"month": 3, "week": 12}
FILE_COLUMNS: Final = (
    *("event_id", "title", "coins", "categories", "displayed_date_full", "date_precision"),
    *("earliest", "latest", "impact", "impact_band", "gone", "new_date", "source_url"),
)


def show_upcoming(request: SiteRequest) -> str | Response:
    """Return the list or the calendar of the events that were known at the time."""
    view, filters = (
        read_choice(request, "view", _VIEWS, "list"),
        read_filters(request, keeps_rest=True),
    )
    return _show_list(request, filters) if view == "list" else _show_grid(request, filters, view)


def _show_list(request: SiteRequest, filters: Filters) -> str | Response:
    (starts, ends), today = _read_days(request), request.today
    estimated = read_choice(request, "estimated", _ESTIMATED, "include")
    sort = read_choice(request, "sort", _SORTS, "time")
    page, form = read_count(request.text("page"), "page"), request.text("format")
    size = FILE_ROWS if form else request.report.rows if request.report else ON_A_PAGE
    places, none = ((page - 1) * size + 1, page * size), (1, 0)
    exact = none if estimated == "only" else places
    first_open = none if page > 1 else (1, FILE_ROWS if form else _OPEN_SHOWN)
    opened = {"include": first_open, "only": places, "drop": none}[estimated]
    values = {
        **filters.values,
        **list_days(request, starts, ends),
        "at": request.moment,
        "since": request.moment - NEWS,
        "is_exact": {"include": None, "only": False, "drop": True}[estimated],
        "by_impact": sort == "impact",
        "folds": starts == today and sort == "time",
        **dict(
            zip(("exact_from", "exact_to", "open_from", "open_to"), exact + opened, strict=True)
        ),
    }
    rows = read_events(request, _SQL["list_events"], values)
    if form:
        files = [{name: row[name] for name in FILE_COLUMNS} for row in rows[:FILE_ROWS]]
        return table_file(request, form, "events", files)
    events = prepare_events(request, rows)
    paged = [event for event in events if event["is_exact"] == (estimated != "only")]
    if page > 1 and not paged:
        raise InvalidArgument(f"page={page}: there are fewer pages. Begin with the first.")
    for event in events:
        if sort == "time" or not event["is_exact"]:
            event["heading"] = _find_heading(event)
    kind = values["is_exact"]
    compared = compare_events(request, filters, (starts, ends), events, is_exact=kind)
    exact_events = [event for event in events if event["is_exact"]]
    folds = values["folds"]
    over = [event for event in exact_events if folds and event["latest"] <= request.moment]
    apart = events[len(exact_events) :]
    when, length = _when(request), min(ends - starts, timedelta(days=31))
    first = {"when": None, "to": None, "from": request.text("from")}
    if starts != today:
        first["from"] = f"{starts}"
    return _render(
        request,
        filters,
        _WHEN[when].lower() if when else _name_days(starts, ends),
        view="list",
        view_links={"list": request.again()}
        | {other: request.again(view=other, **first) for other in ("month", "week")},
        previous=_link_days(request, starts - length, starts),
        following=_link_days(request, ends, ends + length) if ends < _FAR else None,
        **show_gone(request, compared),
        earlier=over,
        events=exact_events[len(over) :],
        apart=apart,
        apart_total=apart[0]["total"] if apart else 0,
        apart_places=apart[0]["places"] if apart else 0,
        total=paged[0]["total"] if paged else 0,
        page=page,
        pages=ceil(paged[0]["places"] / size) if paged else 0,
        sort=sort,
        estimated=estimated,
        stars=link_stars(
            request, filters, {slug for each in events for slug in each["coins"] or ()}
        ),
    )


def show_gone(request: SiteRequest, compared: Comparison | None) -> dict[str, Any]:
    """Return the values of `comparison.html`: the times to compare with, and what left since."""
    gone = prepare_events(request, compared.gone[:_GONE_SHOWN]) if compared else []
    for event in gone:
        event["compared"] = "off", event["left"]
    return {"comparisons": COMPARE, "compared": compared, "gone": gone}


def _find_head(request: SiteRequest, filters: Filters) -> dict[str, Any]:
    """Return the next event of high impact with its countdown, and counts with their addresses:
    critical events of 7 days, and changes of the last day, each as its page counts them."""
    days = bound_days(request, request.today, request.today + timedelta(days=8))
    values = {**filters.values, **days, "at": request.moment}
    (head,) = read_events(request, _SQL["head_line"], values)
    event = head["next_event"]
    if event:
        label_coins(request, [event])
        move_to_zone(request, event)
        event["shown"] = _tell_ahead(event["earliest"] - request.moment)
    found = count_changes(request, filters, request.moment - _DAY, request.moment)
    kept = {name: request.text(name) for name in FILTERS}
    is_above = (filters.min_impact or 0) > BANDS[-1][0]
    least = kept["min_impact"] if is_above else "Critical"
    counts = [
        (
            head["critical"],
            "critical in 7 days",
            request.link("/", **{**kept, "min_impact": least, "when": "7d"}),
        )
    ]
    for kind, text in (("rescheduled", "moved"), ("cancelled", "cancelled")):
        address = request.link("/changes", **kept, kinds=kind, last="1d")
        counts.append((found.get(kind, 0), f"{text} since yesterday", address))
    return {"event": event, "counts": counts}


def _tell_ahead(ahead: timedelta) -> str:
    hours, minutes = divmod(int(ahead.total_seconds()) // 60, 60)
    if ahead.days:
        return f"in {ahead.days} d {hours % 24} h"
    return f"in {hours} h {minutes} min" if hours else f"in {minutes} min"


def _show_grid(request: SiteRequest, filters: Filters, view: str) -> str:
    """Return the month or week of `from`, else the current one."""
    if request.text("format"):
        raise InvalidArgument(f"view={view} has no file; leave out view, or format")
    first = _read_day(request, "from") or request.today
    if view == "month":
        first -= timedelta(days=first.day - 1)
        after = (first + timedelta(days=31)).replace(day=1)
    else:
        first -= timedelta(days=first.weekday())
        after = first + timedelta(days=7)
    starts = first - timedelta(days=first.weekday())
    ends = after + timedelta(days=-after.weekday() % 7)
    values = {**filters.values, **list_days(request, starts, ends), "most": _SHOWN_OF_A_DAY[view]}
    rows = read_events(request, _SQL["list_days"], values)
    found = {row["day"]: row for row in rows}
    cells = []
    for number in range((ends - starts).days):
        day = starts + number * _DAY
        cell = found.get(day, {"events": 0, "steps": (), "first_events": ()})
        link = _link_days(request, day, day + _DAY)
        shown = sorted(cell["first_events"], key=lambda event: event["earliest"])
        label_coins(request, shown)
        for event in shown:
            move_to_zone(request, event)
        other = not first <= day < after
        cells.append(cell | {"day": day, "link": link, "first_events": shown, "is_other": other})
    shown_events = [event for cell in cells for event in cell["first_events"]]
    compared = compare_events(request, filters, (first, after), shown_events)
    all_days = _link_days(request, first, after)
    keep = {"to": None, "when": None}
    return _render(
        request,
        filters,
        f"{first:%B %Y}" if view == "month" else _name_days(first, after),
        view=view,
        view_links={
            "list": all_days if request.text("from") else request.again(view=None),
            **{other: request.again(view=other) for other in ("month", "week")},
        },
        previous=request.again(**keep, **{"from": first - _DAY}),
        following=request.again(**keep, **{"from": after}),
        **show_gone(request, compared),
        weeks=[cells[at : at + 7] for at in range(0, len(cells), 7)],
        today=request.today,
        apart_total=found.get(None, {"events": 0})["events"],
        all_days=all_days,
    )


def _render(request: SiteRequest, filters: Filters, period: str, **values: Any) -> str:
    named = describe_filters(request, filters)
    return render(
        "upcoming.html",
        request,
        title=f"{named}: {period}" if named else f"Events: {period}",
        heading=request.report.heading if request.report else named or "Events",
        period=period,
        head=None if request.is_report else _find_head(request, filters),
        when=_when(request),
        whens=_WHEN,
        views=_VIEWS,
        strip=draw_strip(request, filters),
        estimates=_ESTIMATED,
        bar=make_bar(request, filters),
        bands=BANDS,
        **values,
    )


def link_stars(
    request: SiteRequest, filters: Filters, slugs: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """Return for each coin the address that adds it to the filter, or removes it, and its name."""
    chosen, links = filters.coins or [], {}
    without = request.again(coins=None)
    start = f"{without}{'&' if '?' in without else '?'}coins="
    for slug in slugs:
        coins = [coin for coin in chosen if coin != slug] if slug in chosen else [*chosen, slug]
        named = quote(",".join(f"slug:{coin}" for coin in coins), safe="")
        name = "Remove the star of" if slug in chosen else "Star"
        links[slug] = start + named if coins else without, name
    return links


def _link_days(request: SiteRequest, starts: date, ends: date) -> str:
    """Return the address of the list of some days."""
    return request.again(view=None, when=None, **{"from": starts, "to": ends - _DAY})


def _name_days(starts: date, ends: date) -> str:
    if ends >= _FAR:
        return f"from {starts:%d %b %Y} on"
    first, last = f"{starts:%d %b %Y}", f"{ends - _DAY:%d %b %Y}"
    return first if first == last else f"{first} to {last}"


def move_to_zone(request: SiteRequest, event: dict[str, Any]) -> None:
    """Move `earliest` of an event into the zone of the request; a day has no time and stays."""
    if event["date_precision"] == "instant":
        event["earliest"] = event["earliest"].astimezone(request.zone)


def prepare_events(request: SiteRequest, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of `page_events` for `event_table`: with labels of coins, `shown`, the date
    without the current year, its `start` and `end`, and `news`."""
    events = list(rows)
    label_coins(request, events)
    paths, records = _draw_paths(request, events), read_records(request)
    for event in events:
        event["record"] = find_record(records, event["categories"], event["date_precision"])
        event["path"] = paths.get(event["event_id"])
        event["shown"] = _shorten(request, event["displayed_date_full"])
        event["start"], _, event["end"] = event["shown"].partition(" – ")
        move_to_zone(request, event)
        if event["is_exact"] and event["earliest"].utcoffset():
            event["start"] = _shorten(request, f"{event['earliest']:%d %b %Y}")
        event["heading"] = event["compared"] = None
        event["news"] = _tell_news(request, event)
    return events


def _draw_paths(
    request: SiteRequest, events: Sequence[Mapping[str, Any]]
) -> dict[str, Markup | None]:
    """Return a small path of the date of each event whose date moved; None for another.

    It ends at the last pull, so that it is drawn once for a publication.
    """
    drawn: dict[str, Markup | None] = {}
    until = request.moment
    if is_of_now(request):
        drawn = request.reader.once("small paths", dict)
        until = request.reader.publication().last_pull_at or until
    ids = sorted({event["event_id"] for event in events if event["version"] > 1} - drawn.keys())
    rows = list_dates(request, ids)
    lost = {
        event["event_id"]: [{"changed_at": event["left_at"], "missing_since": event["left_at"]}]
        for event in events
        if event["gone"] == "missing"
    }
    for event_id, group in groupby(rows, key=lambda row: row["event_id"]):
        versions = list(group)
        has_moved = len({(row["earliest"], row["latest"]) for row in versions}) > 1
        absences = lost.get(event_id, ())
        drawn[event_id] = draw_path(versions, until, absences, is_small=True) if has_moved else None
    return drawn


def list_dates(request: SiteRequest, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the dates of each version of some events that was known at the time."""
    values = {"ids": ids, "at": request.moment}
    return request.reader.rows(_SQL["list_dates"], values) if ids else []


def draw_strip(request: SiteRequest, filters: Filters) -> Markup | None:
    """Return the heat strip of the next weeks, from Monday on."""
    today = request.today
    starts = today - timedelta(days=today.weekday())
    kept = {name: request.text(name) for name in FILTERS}
    kept["coins"] = ",".join(f"slug:{coin}" for coin in filters.coins or ())
    address = request.link("/", **kept)
    address += "&" if "?" in address else "?"

    def link(day: date) -> str:
        return f"{address}from={day}&to={day}"

    def draw() -> Markup | None:
        days = list_days(request, starts, starts + timedelta(days=7 * WEEKS))
        rows = read_events(request, _SQL["count_heat"], {**filters.values, **days})
        return draw_heat(rows, starts, today, None if request.is_report else link)

    return keep_drawn(request, (today, address, request.is_report, repr(filters)), draw)


def _tell_news(request: SiteRequest, event: dict[str, Any]) -> tuple[str, str, str] | None:
    """Return kind, text and age of the last news of an event: it left, moved, or is new."""
    moved, new = (_find_age(request, event[name]) for name in ("moved_at", "new_at"))
    if event["gone"] == "moved":
        return "moved", f"moved → {_begin(request, event['new_date'])}", moved or ""
    if event["gone"]:
        return "off", event["gone"], _find_age(request, event["left_at"]) or ""
    if moved:
        is_same = event["moved_from"] == event["displayed_date_full"]
        text = "moved" if is_same else f"moved from {_begin(request, event['moved_from'])}"
        return "moved", text, moved
    return ("new", "new", new) if new else None


def _begin(request: SiteRequest, shown: str | None) -> str:
    return _shorten(request, shown).partition(" – ")[0]


def _shorten(request: SiteRequest, shown: str | None) -> str:
    """Return a displayed date without the current year behind a day."""
    found = span_text(shown or "no date")
    is_day = found[:2].isdigit() or found.startswith("By ")
    return found.replace(f" {request.moment.year}", "") if is_day else found


def _find_age(request: SiteRequest, known_at: datetime | None) -> str | None:
    """Return the age of news; None if it is none any more."""
    if known_at is None or (age := request.moment - known_at) >= NEWS:
        return None
    if age < _DAY:
        return f"{age.seconds // 3600} h ago" if age.seconds >= 3600 else "just now"
    return "1 day ago" if age.days == 1 else f"{age.days} days ago"


def _find_heading(event: dict[str, Any]) -> date | str:
    """Return the day or the period under which a list by time shows an event."""
    if not event["is_exact"]:
        return _PERIODS.get(event["date_precision"], "No date")
    day: date = event["earliest"].date()
    return "Began before these days" if event["is_before"] else day


def _when(request: SiteRequest) -> str | None:
    """Return the named period; None if the address has days."""
    if request.text("from") or request.text("to"):
        return None
    return read_choice(request, "when", _WHEN, _WHEN_DEFAULT)


def _read_days(request: SiteRequest) -> tuple[date, date]:
    """Return the first day and the end of the last one; `from` and `to` precede `when`."""
    today, when = request.today, _when(request)
    if when is None:
        first, last = _read_day(request, "from"), _read_day(request, "to")
        starts, ends = first or min(today, last or today), _FAR if last is None else last + _DAY
        if ends <= starts:
            raise InvalidArgument(f"no day lies between from={starts} and to={ends - _DAY}")
        return starts, ends
    monday, week = today - timedelta(days=today.weekday()), timedelta(days=7)
    if when == "next-week":
        return monday + week, monday + 2 * week
    named = {"today": today + _DAY, "this-week": monday + week, "all": _FAR}.get(when)
    return today, named or today + timedelta(days=int(when.removesuffix("d")) + 1)


def _read_day(request: SiteRequest, name: str) -> date | None:
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
    return found
