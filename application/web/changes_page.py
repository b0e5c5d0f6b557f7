"""The page of changes: what became known in a period, as one timeline."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import groupby
from math import ceil
from typing import Any, Final

from markupsafe import Markup
from starlette.responses import Response

from almanac.core.errors import InvalidArgument
from almanac.core.statements import Statements
from almanac.core.text import cut_line, format_cell, format_number
from almanac.core.timestamps import subtract_time
from almanac.digest import FLOOD, IN_ORDER, TITLES, list_other_fields, place_values, show_days
from almanac.events import read_choices, read_known_at
from application.web.filters import (
    FILTERS,
    Filters,
    describe_filters,
    label_coins,
    make_bar,
    read_choice,
    read_count,
    read_filters,
    split_list,
)
from application.web.pages import FILE_ROWS, SiteRequest, format_moment, render, table_file
from catalog.server.routes import write_cursor

_SQL = Statements("application.web")
PARAMETERS: Final = (*FILTERS, "kinds", "last", "since", "until", "page", "format")
FEED_PATH: Final = "/changes.atom"
FEED_PARAMETERS: Final = (*FILTERS, "kinds", "last")
ON_A_PAGE: Final = 50
_IN_A_FEED: Final = 200
_LAST: Final = {"pull": "pull", "1d": "24 hours", "7d": "7 days", "30d": "30 days"}
_LAST_DEFAULT: Final = "7d"
_DATED: Final = ("rescheduled", "made_exact", "made_estimated")
_OTHER: Final = ("revised", "revealed")
"""The kinds of change of fields other than date, score and status."""
_CONTEXT: Final = 2
HIDDEN: Final = "not shown by the plan"
NONE: Final = "none"
_LABELS: Final = {
    "impact_band": "Impact band",
    "impact_summary": "Reason of the impact",
    "source_url": "Source",
    "snapshot_url": "Snapshot",
    "last_verified_at": "Last checked by the service",
    "created_at": "Created at the service",
    "updated_at": "Updated at the service",
    "cancelled_at": "Cancelled at the service",
    "extra": "Other fields",
}
_MOVES: Final = {
    "slipped": "later",
    "pulled_in": "earlier",
    "refined": "more precise",
    "loosened": "less precise",
    "time_only": "another time",
    "end_only": "the end moved",
}


def show_changes(request: SiteRequest, places: tuple[int, int] | None = None) -> str | Response:
    """Return the page of the changes that became known in a period, until the time of knowledge.

    `places` selects what was published after one place of the feed, until another, instead.
    """
    last, since, until = _read_period(request)
    kinds = read_choices(split_list(request.text("kinds")), "kinds", IN_ORDER)
    is_feed = request.path.endswith(FEED_PATH)
    form = "atom" if is_feed else request.text("format")
    page = read_count(request.text("page"), "page")
    filters = read_filters(request, keeps_rest=not is_feed)
    prepare_changes(request)
    rows_of = request.reader.rows
    values = {**filters.values, "since": since, "until": until, **place_values(places)}
    values |= {"kinds": kinds or IN_ORDER, "is_apart": form is not None}
    counted = rows_of(_SQL["count_changes"], values)
    found = {row["kind"]: row["changes"] for row in counted}
    is_flood = kinds is None and found.get("revealed", 0) > FLOOD
    listed = kinds or [kind for kind in IN_ORDER if not (is_flood and kind == "revealed")]
    total = sum(row["rows"] for row in counted if row["kind"] in listed)
    most = request.report.rows if request.report else ON_A_PAGE
    pages = ceil(total / most)
    if page > max(pages, 1):
        raise InvalidArgument(f"page={page}: there are fewer pages. Begin with the first.")
    skip, limit = (0, FILE_ROWS) if form else ((page - 1) * most, most)
    limit = _IN_A_FEED if is_feed else limit
    values |= {"kinds": listed, "skip": skip, "limit": limit}
    rows = rows_of(_SQL["list_changes"], values)
    named = [TITLES[kind].lower() for kind in kinds or ()]
    span = " to ".join(f"{at.astimezone(request.zone):%d %b %Y}" for at in (since, until))
    named.append(f"last {_LAST[last]}" if last else span)
    title = f"{describe_filters(request, filters) or 'Changes'}: {', '.join(named)}"
    if is_feed:
        label_coins(request, rows)
        feed = render("changes.xml", request, title=title, rows=rows, until=until, titles=TITLES)
        return Response(feed, media_type="application/atom+xml")
    if form:
        inner = ("change_kinds", "changed_fields", "impact_step", "old_time", "new_time")
        rows = [{name: row[name] for name in row if name not in inner} for row in rows]
        return table_file(request, form, "changes", rows, {"cursor": _write_cursor(request, until)})
    label_coins(request, rows)
    _tell_values(request, rows)
    by_day = groupby(rows, lambda row: row["known_from"].date())
    return render(
        "changes.html",
        request,
        title=title,
        feed=request.link(FEED_PATH, **{k: request.text(k) for k in FEED_PARAMETERS}),
        heading=request.report.heading if request.report else "What changed",
        last=last,
        lasts=_LAST,
        since=since,
        until=until,
        chips=_list_chips(request, found, kinds),
        titles=TITLES,
        dated=_DATED,
        describe_move=describe_move,
        days=[(day, list(of_day)) for day, of_day in by_day],
        flood=found["revealed"] if is_flood else 0,
        total=total,
        page=page,
        pages=pages,
        bar=make_bar(request, filters),
    )


def _tell_values(request: SiteRequest, rows: Sequence[dict[str, Any]]) -> None:
    """Give each row its time in the zone, its `kinds`, both times if only the times of day differ,
    and in `texts` the old and new values of other fields."""
    told = {row["event_id"] for row in rows if row["kind"] in _OTHER and row["new_value"]}
    values = {"ids": sorted(told)}
    versions = request.reader.rows(_SQL["list_contents"], values) if told else []
    known = {(version["event_id"], version["version"]): version for version in versions}
    for row in rows:
        dated = [kind for kind in _DATED if kind in row["change_kinds"]]
        row["kinds"] = dated if row["kind"] in _DATED else [row["kind"]]
        row["known_from"] = row["known_from"].astimezone(request.zone)
        is_same = row["kind"] in _DATED and row["old_value"] == row["new_value"]
        for side in ("old", "new") if is_same else ():
            if at := row[f"{side}_time"]:
                row[f"{side}_value"] = f"{at.astimezone(request.zone):%d %b %Y %H:%M}"
        now = known.get((row["event_id"], row["version"]))
        old = known.get((row["event_id"], row["version"] - 1))
        if row["kind"] in _OTHER and now and old:
            row["texts"] = [tell_change(old, now, name) for name in list_other_fields([row])]


def tell_change(
    old: Mapping[str, Any], new: Mapping[str, Any], name: str, most: int = 160
) -> Markup:
    """Return the label of a field, its old and new value; of a text only the part that differs."""
    was, now = tell_value(old, name), tell_value(new, name)
    if name in ("title", "description", "impact_summary"):
        was, now = cut_alike(was, now)
    return Markup("{} <del><bdi>{}</bdi></del> → <ins><bdi>{}</bdi></ins>").format(
        label_field(name), cut_line(was, most), cut_line(now, most)
    )


def label_field(name: str) -> str:
    return cut_line(_LABELS.get(name, name.replace("_", " ").capitalize()), 60)


def tell_value(version: Mapping[str, Any], name: str) -> str:
    """Return a field of a version as a text."""
    if name in (version["unknown_fields"] or ()):
        return HIDDEN
    value = version.get(name)
    if value is None or value == [] or value == "":
        return NONE
    return tell_moment(value) if isinstance(value, datetime) else cut_line(format_cell(value), 2000)


def tell_moment(moment: datetime) -> str:
    """Return a timestamp without HTML, and a midnight as a day."""
    is_day = moment.astimezone(UTC).time() == time()
    return f"{moment:%d %b %Y}" if is_day else format_moment(moment).striptags() + " UTC"


def cut_alike(old: str, new: str) -> tuple[str, str]:
    """Return two texts without the words that both begin and end with, but two on each side."""
    texts = old.split(" "), new.split(" ")
    least = min(map(len, texts))
    same = next((n for n in range(least) if texts[0][n] != texts[1][n]), least)
    left = least - same
    ends = next((n for n in range(left) if texts[0][-1 - n] != texts[1][-1 - n]), left)
    first, last = max(same - _CONTEXT, 0), max(ends - _CONTEXT, 0)
    found = [" ".join(words[first : len(words) - last]) for words in texts]
    was, now = (f"{'… ' * (first > 0)}{text}{' …' * (last > 0)}" for text in found)
    return was, now


def count_changes(
    request: SiteRequest, filters: Filters, since: datetime, until: datetime
) -> dict[str, int]:
    """Return the number of changes of each kind that became known in a period."""
    prepare_changes(request)
    values = {**filters.values, "since": since, "until": until, **place_values(None)}
    values |= {"kinds": IN_ORDER, "is_apart": True}
    rows = request.reader.rows(_SQL["count_changes"], values)
    return {row["kind"]: row["changes"] for row in rows}


def prepare_changes(request: SiteRequest) -> None:
    """Make the tables of changes of the publication, if they are not there."""
    for name in ("page_changes", "page_contents"):
        request.reader.prepare(name, _SQL[name])


def _write_cursor(request: SiteRequest, until: datetime) -> str | None:
    """Return the cursor of `/v2/events/changes` for what is published after the end of the period;
    a replay has places of its own."""
    if request.plan is None:
        return None
    (row,) = request.reader.rows(_SQL["feed_place"], {"until": until})
    filters = (row["feed_id"], request.plan, request.as_of)
    return write_cursor("changes", filters, (row["place"], 0, 0))


def _read_period(request: SiteRequest) -> tuple[str | None, datetime, datetime]:
    """Return the name of the period, None if the request has its start; its start and its end."""
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
    if last != "pull":
        return last, subtract_time(until, timedelta(days=int(last.removesuffix("d")))), until
    if request.text("until"):
        raise InvalidArgument("last=pull ends at the time of knowledge; leave out until")
    return last, request.pulls.previous or request.pulls.first or until, until


def _list_chips(
    request: SiteRequest, found: Mapping[str, int], kinds: Sequence[str] | None
) -> list[tuple[str, int, bool, str]]:
    """Return title and changes of each kind, whether it is chosen, and the address that changes
    that."""
    chosen = set(kinds or ())
    return [
        (
            TITLES[kind],
            found.get(kind, 0),
            kind in chosen,
            request.again(kinds=",".join(each for each in IN_ORDER if each in chosen ^ {kind})),
        )
        for kind in IN_ORDER
        if kind in found or kind in chosen
    ]


def describe_move(row: Mapping[str, Any]) -> str:
    """Return how a date moved: by how many days, or the kind of move if that is not known."""
    days, least, most = row["shift_days"], row["least_shift_days"], row["most_shift_days"]
    if row["move"] in (None, "end_only"):
        return _MOVES.get(row["move"], "")
    if days:
        return f"{show_days(abs(days))} {'later' if days > 0 else 'earlier'}"
    if days is None and least is not None and most is not None and least * most > 0:
        first, last = sorted((abs(least), abs(most)))
        way = "later" if least > 0 else "earlier"
        return f"{format_number(first)} to {show_days(last)} {way}"
    return _MOVES[row["move"]]
