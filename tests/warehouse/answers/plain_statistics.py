"""What the views of moves and shares must answer, in plain Python over the versions of events.

Belongs here: the rules as their documentation states them. Does not: SQL. Nothing of warehouse/ is
used, so that a mistake there is not repeated here. Days are UTC.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from tests.warehouse.answers.handmade import Absence, Known
from tests.warehouse.answers.test_dating import dating

DAY = timedelta(days=1)
ALWAYS = datetime.min.replace(tzinfo=UTC)
Row = dict[str, Any]


class Start(NamedTuple):
    """When an event may begin: not before `first`, and before `end`."""

    precision: str
    date: datetime
    first: datetime
    end: datetime

    def days(self, since: datetime) -> tuple[date, date]:
        """Return the first and the last day; a deadline is open from the day of `since` on."""
        if self.precision in ("instant", "day"):
            return self.date.date(), self.date.date()
        if self.precision == "deadline":
            return min(since.date(), self.date.date()), self.date.date()
        return self.first.date(), self.end.date() - DAY

    def within(self, other: "Start") -> bool:
        return other.first <= self.first and self.end <= other.end


_dating = cache(dating)


def start_of(version: Known) -> Start | None:
    if version.date is None:
        return None
    kind = None if version.date_type is None else version.date_type.lower()
    precision, first, end = _dating(version.date, None, kind, is_open=version.is_estimated)
    return Start(precision, version.date, first or ALWAYS, end)


def over_at(version: Known) -> datetime | None:
    """Return the end of the interval in which an event may take place."""
    if version.date is None:
        return None
    kind = None if version.date_type is None else version.date_type.lower()
    return _dating(version.date, version.date_end, kind, is_open=version.is_estimated)[2]


def is_moved(old: Known, new: Known) -> bool:
    """Whether a change of a known field gave an event another date, end or interval."""
    names = ("date", "date_end", "date_type", "is_estimated")
    changed = {
        name
        for name in names
        if getattr(old, name) != getattr(new, name) and name not in old.unknown_fields
    }
    before, after = ((start_of(item), over_at(item)) for item in (old, new))
    return bool(changed & {"date", "date_end"}) or (bool(changed) and before != after)


def kind_of(old: Start | None, new: Start | None) -> str:
    if old == new:
        return "end_only"
    if old is None or new is None:
        return "refined" if old is None else "loosened"
    if old.precision != new.precision:
        if new.within(old):
            return "refined"
        if old.within(new):
            return "loosened"
        return "slipped" if new.end > old.end else "pulled_in"
    same_day = old.precision == "instant" and old.date.date() == new.date.date()
    if same_day or (old.first, old.end) == (new.first, new.end):
        return "time_only"
    if old.precision == "deadline":
        return "slipped" if new.end > old.end else "pulled_in"
    return "slipped" if new.first > old.first else "pulled_in"


def shifts(old: Start, new: Start, known_from: datetime) -> tuple[float, float, float | None]:
    """Return the least and the most days of a shift, and the shift if it is known."""
    if old.precision == new.precision == "instant":
        exact = (new.date - old.date) / DAY
        return exact, exact, exact
    (old_first, old_last), (new_first, new_last) = old.days(known_from), new.days(known_from)
    least, most = (new_first - old_last).days, (new_last - old_first).days
    if least == most:
        return least, most, least
    if old.precision == new.precision:
        deadline = old.precision == "deadline"
        return least, most, (new.end - old.end if deadline else new.first - old.first) / DAY
    return least, most, None


def known_at_some_time(versions: Iterable[Known]) -> list[Known]:
    """Return the last version of each instant, by event; it is created if one of them is."""
    found: dict[tuple[str, datetime], Known] = {}
    for item in sorted(versions, key=lambda item: (item.event_id, item.version)):
        before = found.get((item.event_id, item.known_from))
        kinds = () if before is None else before.change_kinds
        found[item.event_id, item.known_from] = replace(
            item, change_kinds=(*kinds, *item.change_kinds)
        )
    return list(found.values())


def reschedules(versions: Sequence[Known]) -> dict[tuple[str, int], Row]:
    """Return the rows of the view by event and version."""
    found = {}
    for old, new in pairwise(versions):
        if old.event_id != new.event_id or not is_moved(old, new):
            continue
        before, after = start_of(old), start_of(new)
        least, most, shift = (
            (None, None, None)
            if before is None or after is None
            else shifts(before, after, new.known_from)
        )
        found[new.event_id, new.version] = {
            "known_from": new.known_from,
            "kind": kind_of(before, after),
            "least_shift_days": least,
            "most_shift_days": most,
            "shift_days": shift,
        }
    return found


class History:
    """All versions of events, cut at an instant by `until`."""

    def __init__(self, versions: Sequence[Known], claims: Sequence[Known] = ()) -> None:
        self.versions = known_at_some_time(versions)
        self.claims = {item.event_id: item for item in claims}
        self.moves = reschedules(self.versions)
        self.events: dict[str, list[Known]] = defaultdict(list)
        for item in self.versions:
            self.events[item.event_id].append(item)

    def known_at(self, instant: datetime) -> dict[str, Known]:
        """Return the version of each event that was known."""
        found = {}
        for event_id, versions in self.events.items():
            if until := [item for item in versions if item.known_from <= instant]:
                found[event_id] = until[-1]
        return found

    def kinds(self, after: datetime, until: datetime) -> dict[str, set[str]]:
        """Return how each event moved in a time, exclusive of its beginning."""
        found = defaultdict(set)
        for (event_id, _), move in self.moves.items():
            if after < move["known_from"] <= until:
                found[event_id].add(move["kind"])
        return found

    def watched(self, event_id: str) -> bool:
        first = self.events[event_id][0]
        end = over_at(first)
        return first.status == "scheduled" and end is not None and end > first.known_from


def missing_at(absences: Iterable[Absence], instant: datetime) -> set[str]:
    now = {}
    for item in sorted(absences, key=lambda item: item.changed_at):
        if item.changed_at <= instant:
            now[item.event_id] = item.since
    return {event_id for event_id, since in now.items() if since is not None}


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _by_category(known: dict[str, Known]) -> dict[str, list[Known]]:
    found = defaultdict(list)
    for item in known.values():
        for category in item.categories:
            found[category].append(item)
    return found


def _due(history: History, events: Iterable[Known], pulled: datetime) -> set[str]:
    """Return the watched events whose date as first known was over by a pull."""
    return {
        item.event_id
        for item in events
        if history.watched(item.event_id)
        and (over_at(history.events[item.event_id][0]) or pulled) <= pulled
    }


def category_stats(
    history: History, missing: set[str], now: datetime, pulled: datetime
) -> dict[str, Row]:
    """Return the rows by category; `pulled` is the last pull at or before `now`."""
    moved = history.kinds(ALWAYS, now)
    rows = {}
    for category, events in _by_category(history.known_at(now)).items():
        watched = [item.event_id for item in events if history.watched(item.event_id)]
        scores = [item.impact for item in events if item.impact is not None]
        due = _due(history, events, pulled)
        rescheduled_due = sum(event_id in moved for event_id in due)
        rows[category] = {
            "events": len(events),
            "upcoming": sum(
                item.status == "scheduled"
                and item.event_id not in missing
                and (over_at(item) or ALWAYS) > now
                for item in events
            ),
            "estimated": sum(bool(item.is_estimated) for item in events),
            "scored": len(scores),
            "mean_impact": sum(scores) / len(scores) if scores else None,
            "watched": len(watched),
            "rescheduled": sum(event_id in moved for event_id in watched),
            "slipped": sum("slipped" in moved.get(event_id, ()) for event_id in watched),
            "due": len(due),
            "rescheduled_due": rescheduled_due,
            "rescheduled_share": share(rescheduled_due, len(due)),
        }
    return rows


def cancellation_stats(
    history: History, missing: set[str], now: datetime, pulled: datetime
) -> dict[str, Row]:
    """Return the rows by category; `pulled` is the last pull at or before `now`."""
    rows = {}
    for category, events in _by_category(history.known_at(now)).items():
        cohort = {item.event_id for item in events if history.watched(item.event_id)}
        over = _due(history, events, pulled)
        due = [item for item in events if item.event_id in over]
        cancelled = {item.event_id for item in events if item.status == "cancelled"}
        counted = {item.event_id for item in due} & cancelled
        rows[category] = {
            "events": len(events),
            "watched": len(cohort),
            "due": len(due),
            "cancelled": len(counted),
            "withdrawn": sum(item.status == "withdrawn" for item in due),
            "missing": sum(item.status == "scheduled" and item.event_id in missing for item in due),
            "share": share(len(counted), len(due)),
            "cancelled_not_due": len(cancelled & cohort - counted),
            "cancelled_unwatched": len(cancelled - cohort),
            "cancelled_unseen": sum(
                history.events[event_id][0].status == "cancelled" for event_id in cancelled
            ),
        }
    return rows


def announcement_lead_times(history: History, now: datetime) -> dict[str, Row]:
    moved = history.kinds(ALWAYS, now)
    rows = {}
    for event_id, latest in history.known_at(now).items():
        first, basis = history.events[event_id][0], "observed"
        if "created" not in first.change_kinds:
            if event_id not in history.claims:
                continue
            first, basis = history.claims[event_id], "claimed"
        created, start = first.created_at, start_of(first)
        assert created is not None
        least: float | None = None
        most: float | None = None
        if start is not None:
            first_day, last_day = start.days(created)
            least, most = (first_day - created.date()).days, (last_day - created.date()).days
            if start.precision == "instant":
                least = most = (start.date - created) / DAY
            elif start.precision != "day" and least < 0:
                least = min(0, most)
        is_exact = start is not None and start.precision in ("instant", "day")
        rows[event_id] = {
            "basis": basis,
            "status": latest.status,
            "least_lead_days": least,
            "most_lead_days": most,
            "lead_days": least if is_exact else None,
            "moved": event_id in moved,
        }
    return rows


OUTCOMES = ("slipped", "pulled_in", "refined", "loosened", "cancelled", "withdrawn")
BANDS = ((7, 0, "0-7"), (30, 8, "8-30"), (90, 31, "31-90"), (365, 91, "91-365"))


def _band(days: int) -> tuple[int, str]:
    found = [(first, name) for last, first, name in BANDS if days <= last]
    return found[0] if found else (366, "over 365")


def slip_rates(
    history: History, missing: set[str], at: datetime, until: datetime
) -> dict[tuple[str | None, int, str], Row]:
    """Return what became known until an instant of the events that were upcoming at another."""
    moved = history.kinds(at, until)
    cohort: dict[tuple[str | None, int, str], list[set[str]]] = defaultdict(list)
    names = {}
    for event_id, item in history.known_at(at).items():
        start, end = start_of(item), over_at(item)
        if item.status != "scheduled" or event_id in missing or start is None or end is None:
            continue
        if end <= at:
            continue
        is_exact = start.precision in ("instant", "day")
        last = start.date if is_exact else end - timedelta(microseconds=1)
        first_day, name = _band((last.date() - at.date()).days)
        names[first_day] = name
        later = {
            other.status for other in history.events[event_id] if at < other.known_from <= until
        }
        outcomes = (moved.get(event_id, set()) | later) & set(OUTCOMES)
        for category in (None, *item.categories):
            cohort[category, first_day, start.precision].append(outcomes)
    rows = {}
    for key, events in cohort.items():
        counts = {name: sum(name in outcomes for outcomes in events) for name in OUTCOMES}
        counts["held"] = sum(not outcomes for outcomes in events)
        shares = {f"{name}_share": count / len(events) for name, count in counts.items()}
        rows[key] = {"distance": names[key[1]], "cohort": len(events), **counts, **shares}
    return rows
