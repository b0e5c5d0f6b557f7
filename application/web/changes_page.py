"""The page of changes in a period, by kind, with plots of moves and lead times."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any, Final

from almanac.digest import IN_ORDER, TITLES, place_values, show_days
from almanac.errors import InvalidArgument
from almanac.events import BANDS, make_impact_values, read_known_at
from almanac.reading.named_sql import NamedStatements
from almanac.safe_text import cut_line, format_number
from almanac.timestamps import subtract_time
from application.web.charts import BarChart, BarSeries
from application.web.pages import SiteRequest, read_coin_filter, render
from application.web.upcoming_page import (
    find_coin_labels,
    list_categories,
    read_category,
    read_choice,
    read_impact,
    read_page,
)

_SQL = NamedStatements("application.web")
PARAMETERS: Final = ("last", "since", "until", "kind", "coin", "category", "impact", "page")
ON_A_PAGE: Final = 50
SHOWN_OF_A_KIND: Final = 10
"""Changes of a kind that the page of all kinds shows, before a link to all of them."""
_FLOOD: Final = 20
"""More events than this that were only revealed are a count: a first pull reveals all there are."""
_LAST: Final = {"pull": "Since the last pull", "1d": "24 hours", "7d": "7 days", "30d": "30 days"}
_LAST_DEFAULT: Final = "7d"
_DATED: Final = ("rescheduled", "made_exact", "made_estimated")
_MOVES: Final = {
    "slipped": "later",
    "pulled_in": "earlier",
    "refined": "more precise",
    "loosened": "less precise",
    "time_only": "another time, same start day or period",
    "end_only": "only the end moved",
}
_CATEGORIES_MAX: Final = 12
_LEADS: Final = {
    0: "0",
    1: "1–2",
    3: "3–7",
    8: "8–14",
    15: "15–30",
    31: "31–90",
    91: "91–365",
    366: "366+",
}


@dataclass(frozen=True, slots=True)
class ChangesSection:
    """The changes of one kind: how many there are, and those that are shown."""

    kind: str
    changes: int
    events: int
    rows: list[dict[str, Any]]

    @property
    def title(self) -> str:
        return TITLES[self.kind]

    @property
    def is_dated(self) -> bool:
        return self.kind in _DATED

    @property
    def has_values(self) -> bool:
        """Whether a change has an old and a new value, not only field names."""
        return self.is_dated or self.kind in ("rescored", "restored")


def show_changes(request: SiteRequest, places: tuple[int, int] | None = None) -> str:
    """Return the page of the changes that became known in a period, until the time of knowledge.

    `places` selects what was published after one place of the feed, until another, instead.
    """
    last, since, until = _read_period(request)
    kind = request.text("kind")
    if kind is not None and kind not in IN_ORDER:
        raise InvalidArgument(f"kind={cut_line(kind, 40)!r}; expected {', '.join(IN_ORDER)}")
    page = read_page(request)
    category = read_category(request, [])
    filters = {
        **{"since": since, "until": until, **place_values(places)},
        "coins": read_coin_filter(request),
        "categories": None if category is None else [category.lower()],
        **make_impact_values(read_impact(request)),
    }
    counts = {row["kind"]: row for row in request.reader.rows(_SQL["count_changes"], filters)}
    found = [name for name in IN_ORDER if name in counts]
    is_flood = counts.get("revealed", {"events": 0})["events"] > _FLOOD
    listed = [kind] if kind else [name for name in found if name != "revealed" or not is_flood]
    total = counts[kind]["changes"] if kind in counts else 0
    pages = ceil(total / ON_A_PAGE) if kind else 1
    if page > max(pages, 1):
        raise InvalidArgument(f"page={page}: there are fewer pages. Begin with the first.")
    limit = ON_A_PAGE if kind or request.is_report else SHOWN_OF_A_KIND
    rows = _list_changes(request, filters, listed, skip=(page - 1) * limit, limit=limit)
    sections = [
        ChangesSection(
            name,
            counts[name]["changes"],
            counts[name]["events"],
            [row for row in rows if row["kind"] == name],
        )
        for name in found
        if kind in (None, name)
    ]
    return render(
        "changes.html",
        request,
        title="What changed",
        last=last,
        lasts=_LAST,
        since=since,
        until=until,
        kind=kind,
        kinds=TITLES,
        counts=[(name, counts[name]) for name in found],
        sections=sections,
        page=page,
        pages=pages,
        on_a_page=ON_A_PAGE,
        total=total,
        category=category,
        categories=sorted({*list_categories(request), *([category] if category else [])}),
        bands=BANDS,
        charts=[] if kind else _draw(request, filters, counts),
        has_filter=any(request.text(name) for name in ("coin", "category", "impact", "kind")),
    )


def _read_period(request: SiteRequest) -> tuple[str | None, datetime, datetime]:
    """Return the name of the period, None if the request has times, its start and its end."""
    until = read_known_at(request.reader, request.text("until") or request.moment, "until")
    if until > request.moment:
        raise InvalidArgument(
            f"until={request.text('until')!r} is after the time of knowledge, "
            f"{request.moment:%Y-%m-%d %H:%M:%S} UTC; what became known later is not shown"
        )
    given = request.text("since")
    if given is not None:
        since = read_known_at(request.reader, given, "since")
        if since > until:
            raise InvalidArgument(f"since={cut_line(given, 40)!r} is after the end of the period")
        return None, since, until
    last = read_choice(request, "last", _LAST, _LAST_DEFAULT)
    if last == "pull":
        (row,) = request.reader.rows(_SQL["previous_pull"], {"at": until})
        since = row["observed_at"] or request.pulls.first or until
        return last, since, until
    return last, subtract_time(until, timedelta(days=int(last.removesuffix("d")))), until


def _list_changes(
    request: SiteRequest, filters: dict[str, Any], kinds: list[str], *, skip: int, limit: int
) -> list[dict[str, Any]]:
    if not kinds:
        return []
    values = {**filters, "kinds": kinds, "skip": skip, "limit": limit}
    rows = request.reader.rows(_SQL["list_changes"], values)
    labels = find_coin_labels(request, {coin for row in rows for coin in row["coins"] or ()})
    for row in rows:
        row["coin_labels"] = [(coin, labels.get(coin, coin)) for coin in row["coins"] or ()]
        row["shift"] = describe_shift(row)
    return rows


def describe_shift(row: dict[str, Any]) -> str:
    """Return how a date moved: the kind of move, and the number of days if it is known."""
    if row["move"] is None:
        return ""
    kind = _MOVES[row["move"]]
    days, least, most = row["shift_days"], row["least_shift_days"], row["most_shift_days"]
    if row["move"] in ("time_only", "end_only"):
        return kind
    if days:
        return f"{kind}, by {show_days(abs(days))}"
    if days is None and least is not None and most is not None:
        if least > 0:
            return f"{kind}, by {format_number(least)} to {show_days(most)}"
        if most < 0:
            return f"{kind}, by {format_number(-most)} to {show_days(-least)}"
    return kind


def _draw(
    request: SiteRequest, filters: dict[str, Any], counts: dict[str, dict[str, Any]]
) -> list[BarChart]:
    charts = []
    if "rescheduled" in counts:
        charts.append(_draw_moves(request.reader.rows(_SQL["count_moves"], filters)))
    if "created" in counts:
        values = {**filters, "steps": list(_LEADS)}
        charts.append(_draw_lead_times(request.reader.rows(_SQL["count_lead_times"], values)))
    return charts


def _draw_moves(rows: list[dict[str, Any]]) -> BarChart:
    shown, left = rows[:_CATEGORIES_MAX], len(rows) - _CATEGORIES_MAX
    more = f" The {_CATEGORIES_MAX} categories with the most; {left} more have some." * (left > 0)
    columns = {
        "slipped": ("Later", "c2"),
        "pulled_in": ("Earlier", "c1"),
        "other_precision": ("More or less precise", "c4"),
        "same_start": ("Only time of day or end", "c5"),
    }
    return BarChart(
        name="moves",
        question="Which categories had dates that moved?",
        description=f"Changes of a date in this period; an event counts in each of its "
        f"categories.{more}",
        label="Category",
        labels=[row["category"] for row in shown],
        series=[
            BarSeries(name, colour, [row[column] for row in shown])
            for column, (name, colour) in columns.items()
        ],
    )


def _draw_lead_times(rows: list[dict[str, Any]]) -> BarChart:
    events = {row["least"]: row["events"] for row in rows}
    apart = events.get(None, 0)
    left_out = f" {apart:,} more have no exact date." if apart else ""
    return BarChart(
        name="leads",
        question="How long before its date is an event announced?",
        description="Events announced in this period with an exact date, by the days from the "
        f"announcement to the date.{left_out}",
        label="Days from the announcement to the date",
        labels=list(_LEADS.values()),
        series=[BarSeries("Events", "c1", [events.get(least, 0) for least in _LEADS])],
    )
