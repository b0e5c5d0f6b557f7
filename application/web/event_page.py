"""The page of one event: its fields, and its history as a timeline."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from almanac.core.statements import Statements
from almanac.core.text import cut_line, make_web_address
from almanac.digest import TITLES, show_days
from application.web.changes_page import (
    HIDDEN,
    NONE,
    cut_alike,
    describe_move,
    label_field,
    prepare_changes,
    tell_moment,
    tell_value,
)
from application.web.drawing import draw_path, draw_shares
from application.web.filters import list_coins, read_events
from application.web.pages import PageProblem, SiteRequest, render, span_text
from application.web.track_record import find_record, read_records

_SQL = Statements("application.web")
_NEIGHBOUR_COINS_MAX: Final = 10
_TEXT_MAX: Final = 20_000
_DATE_FIELDS: Final = frozenset(
    ("date", "date_end", "displayed_date", "date_type", "is_estimated", "date_precision")
)
_PERIODS: Final = {
    "month": "The date is not fixed: some time in this month.",
    "quarter": "The date is not fixed: some time in this quarter.",
    "year": "The date is not fixed: some time in this year.",
    "deadline": "The date is not fixed: any time up to this deadline.",
}


class FieldChange(NamedTuple):
    """A changed field of a version: its label, both values as text, and how a date moved."""

    label: str
    old: str
    new: str
    note: str = ""


def show_event(request: SiteRequest) -> str:
    """Return the page of an event, with the versions that were known at the time of knowledge."""
    event_id = request.parameters["event_id"]
    values = {"event_id": event_id, "at": request.moment}
    versions = request.reader.rows(_SQL["event_versions_known"], values)
    if not versions:
        shown = cut_line(event_id, 100)
        raise PageProblem(
            "Unknown event",
            f"The event {shown!r} was not known then, at {request.as_of:%Y-%m-%d %H:%M:%S} UTC."
            if request.as_of
            else f"No event with the id {shown!r} is known.",
            404,
        )
    prepare_changes(request)
    moves = {row["version"]: row for row in request.reader.rows(_SQL["event_moves"], values)}
    absences = request.reader.rows(_SQL["event_absences_known"], values)
    event = versions[-1]
    hidden = frozenset(event["unknown_fields"] or ())
    reliability = None
    if not hidden & {"date", "categories"} and event["status"] == "scheduled":
        records = read_records(request)
        reliability = find_record(records, event["categories"], event["date_precision"])
    named = list_coins(request)
    return render(
        "event.html",
        request,
        title=event["title"] or "Event without a title",
        event=event,
        hidden=hidden,
        path=None if "date" in hidden else draw_path(versions, request.moment, absences),
        reliability=reliability,
        shares=reliability and draw_shares(reliability.shares, str(reliability)),
        state=_describe_state(event, absences, request.moment),
        period=_PERIODS.get(event["date_precision"]),
        record=_describe_record([m for m in moves.values() if m["move"] != "end_only"]),
        coins={coin: named.get(coin, (coin, coin)) for coin in event["coins"] or ()},
        neighbours=_find_neighbours(request, event),
        timeline=_list_history(versions, moves, absences),
        source=make_web_address(event["source_url"]),
        snapshot=make_web_address(event["snapshot_url"]),
        HIDDEN=HIDDEN,
        text_max=_TEXT_MAX,
    )


def _describe_state(
    event: Mapping[str, Any], absences: Sequence[Mapping[str, Any]], moment: datetime
) -> tuple[str, str]:
    """Return the state of an event as one word and as a sentence."""
    if event["status"] == "cancelled":
        since = event["cancelled_at"] or event["known_from"]
        return "cancelled", f"The service cancelled it: {tell_moment(since)}."
    if event["status"] == "withdrawn":
        known = tell_moment(event["known_from"])
        return "withdrawn", f"The service no longer has it. This became known at {known}."
    missing = absences[-1]["missing_since"] if absences else None
    if missing is not None:
        return "missing", f"Complete pulls have not shown it since {tell_moment(missing)}."
    if event["latest"] is not None and event["latest"] <= moment:
        return "over", "Its date is over."
    return "scheduled", ""


def _describe_record(moves: Sequence[Mapping[str, Any]]) -> str:
    """Return how often the date moved, and by how many days in all, as far as they are known."""
    if not moves:
        return ""
    shifts = [move["shift_days"] for move in moves if move["shift_days"] is not None]
    times = "Moved once" if len(moves) == 1 else f"Moved {len(moves)} times"
    if not shifts:
        return times
    days = sum(shifts)
    shown = f"{show_days(abs(days))} {'later' if days > 0 else 'earlier'}" if days else "0 days"
    if len(shifts) < len(moves):
        return f"{times}, {shown} in the moves of a known length ({len(shifts)})"
    return f"{times}, {shown}" + " in all" * (len(moves) > 1)


def _find_neighbours(request: SiteRequest, event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the exact events before and after this one, of each of its first coins."""
    coins = list(event["coins"] or ())[:_NEIGHBOUR_COINS_MAX]
    if event["earliest"] is None or not coins:
        return []
    values = {"coins": coins, "event_id": event["event_id"], "earliest": event["earliest"]}
    found = read_events(request, _SQL["event_neighbours"], values)
    return sorted(found, key=lambda row: coins.index(row["coin"]))


def _list_history(
    versions: Sequence[dict[str, Any]],
    moves: Mapping[int, Mapping[str, Any]],
    absences: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return what became known of an event, newest first: versions and absences."""
    listed = []
    for number, version in enumerate(versions):
        before = versions[number - 1] if number else None
        listed.append(
            {
                "at": version["known_from"],
                "kinds": [TITLES.get(kind, kind) for kind in version["change_kinds"] or ()],
                "changes": _find_changes(before, version, moves.get(version["version"])),
                "version": version["version"],
                "feed": version["feed"],
                "is_replaced": version["known_to"] == version["known_from"],
            }
        )
    for absence in absences:
        missing = absence["missing_since"]
        kind = "Shown again" if missing is None else "Missing from complete pulls"
        listed.append(
            {
                **{"at": absence["changed_at"], "kinds": [kind], "version": None, "feed": None},
                **{"changes": [], "is_replaced": False},
            }
        )
    listed.sort(key=lambda item: (item["at"], item["version"] or 0), reverse=True)
    return listed


def _find_changes(
    before: Mapping[str, Any] | None, version: Mapping[str, Any], move: Mapping[str, Any] | None
) -> list[FieldChange]:
    if before is None:
        return []
    changed = list(version["changed_fields"] or ())
    found = []
    if _DATE_FIELDS & set(changed):
        note = "" if move is None else describe_move(move)
        found.append(FieldChange("Date", _date_text(before), _date_text(version), note))
    for name in changed:
        if name not in _DATE_FIELDS:
            old, new = cut_alike(tell_value(before, name), tell_value(version, name))
            texts = cut_line(old, 400), cut_line(new, 400)
            found.append(FieldChange(label_field(name), *texts))
    return found


def _date_text(version: Mapping[str, Any]) -> str:
    """Return a date as displayed; with the time in UTC if it has one."""
    if "date" in (version["unknown_fields"] or ()):
        return HIDDEN
    shown = span_text(version["displayed_date_full"] or "")
    if not shown:
        return NONE
    if version["date_precision"] == "instant" and version["date"] is not None:
        return f"{cut_line(shown, 100)} {version['date']:%H:%M} UTC"
    return cut_line(shown, 100)
