"""Then and now: which events of a list are new, moved or gone since an earlier time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, Final

from almanac.core.statements import Statements
from almanac.digest import show_days
from application.web.filters import Filters, bound_days, is_of_now, read_choice, read_events
from application.web.pages import SiteRequest, span_text

_SQL = Statements("application.web")
COMPARE: Final = {
    "pull": "Last pull",
    "1d": "24 hours",
    "7d": "7 days",
    "30d": "30 days",
}
_MOST: Final = 2_000
"""Events listed at the earlier time that are compared; of more, the soonest."""
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The earlier time, and the events of that time that are not in the list any more."""

    then: datetime
    gone: Sequence[dict[str, Any]]


def compare_events(
    request: SiteRequest,
    filters: Filters,
    days: tuple[date, date],
    events: Sequence[dict[str, Any]],
    *,
    is_exact: bool | None = None,
) -> Comparison | None:
    """Return the comparison that a request asks for, None for none; each event gets `compared`,
    its mark and text.

    `days` are the first day and the end of the list, and `is_exact` is its kind of dates. The
    earlier time is never before the first pull.
    """
    for event in events:
        event["compared"] = None
    if not request.text("compare") or request.pulls.first is None:
        return None
    earlier = replace(request, moment=_find_then(request))
    values = {**filters.values, **bound_days(request, *days), "is_exact": is_exact}
    values |= {"ids": None, "limit": _MOST}
    then_rows = read_events(earlier, _SQL["list_window"], values, slot="then")
    values["ids"] = [row["event_id"] for row in then_rows]
    listed = {row["event_id"] for row in read_events(request, _SQL["list_window"], values)}
    gone = [row for row in then_rows if row["event_id"] not in listed]
    before = _read_states(earlier, events, slot="then")
    for event in events:
        event["compared"] = _tell_change(before.get(event["event_id"]), event)
    after = _read_states(request, gone)
    for row in gone:
        row["left"] = _tell_left(after.get(row["event_id"]), row)
    return Comparison(earlier.moment, gone)


def _find_then(request: SiteRequest) -> datetime:
    """Return the earlier time; counted from the last pull, so that it stays for a publication."""
    name = read_choice(request, "compare", COMPARE, "1d")
    first = request.pulls.first or request.moment
    if name == "pull":
        return request.pulls.previous or first
    at = request.moment
    if is_of_now(request):
        at = request.reader.publication().last_pull_at or at
    return max(first, at - int(name.removesuffix("d")) * _DAY)


def _read_states(
    request: SiteRequest, events: Sequence[Mapping[str, Any]], *, slot: str = "past"
) -> dict[str, dict[str, Any]]:
    ids = sorted({event["event_id"] for event in events})
    rows = read_events(request, _SQL["list_states"], {"ids": ids}, slot=slot) if ids else []
    return {row["event_id"]: row for row in rows}


def _tell_change(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return how an event differs from then: it is new, came back, or has another date."""
    if old is None:
        return "new", "added"
    if new["gone"]:
        return None
    if old["gone"]:
        return "new", f"no longer {old['gone']}"
    return _tell_move(old, new)


def _tell_move(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str] | None:
    if (old["earliest"], old["latest"]) == (new["earliest"], new["latest"]):
        return None
    if old["date_precision"] == new["date_precision"] and old["latest"] and new["latest"]:
        days = (new["latest"] - old["latest"]) / _DAY
        if days:
            return "moved", f"{show_days(abs(days))} {'later' if days > 0 else 'earlier'}"
    return "moved", f"was {span_text(old['displayed_date_full'] or 'no date')}"


def _tell_left(now: Mapping[str, Any] | None, then: Mapping[str, Any]) -> str:
    """Return why an event is not in the list any more."""
    if now is None or now["gone"]:
        return now["gone"] if now else "withdrawn"
    if _tell_move(then, now):
        return f"now {span_text(now['displayed_date_full'] or 'no date')}"
    return "no longer matches the filters"
