"""The life of one event: announced, then edited, verified, cancelled, withdrawn and restored.

An edit returns the fields it would set, also fields that already have that value. No two changes of
a life coincide. Does not belong here: how lives become rows (version_lines.py).
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import exp
from random import Random
from typing import NamedTuple, cast

from catalog.sandbox.world.announcements import (
    HORIZON_DAYS,
    MAX_COINS,
    PERIODS,
    Content,
    Draw,
    Slots,
    draw_description,
    draw_impact_summary,
    draw_snapshot_url,
    draw_source_url,
    draw_span_days,
    draw_time_of_day_s,
    draw_title,
    generate_announcements,
    pick_coin,
)
from catalog.sandbox.world.categories import WEIGHTED
from catalog.sandbox.world.dates import (
    DAY_S,
    END_OF_DAY_S,
    FIRST_EVENT_DAY,
    PERIOD_DAYS,
    Dating,
    format_day,
    format_month,
    make_deadline_dating,
    make_estimated_dating,
    make_exact_dating,
    month_start_s,
)
from catalog.sandbox.world.roster import ListedCoin, Roster


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Pause the garbage collector, which would walk the new objects again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


BAND_EDGES = (25, 50, 75)
"""Edges of the impact bands, in tenths; an edge belongs to the band above it."""


@dataclass(frozen=True, slots=True)
class Editor:
    """The editors of the events of one month; `r` decides, `coins` are those they may link."""

    r: Draw
    coins: list[ListedCoin]
    by_slug: dict[str, ListedCoin]

    def reschedule(self, now: Content, at: int) -> Content:
        """Move the date, the end or the time of day. A past date moves by a few days at most."""
        if (now["date_end"] or now["date"]) < at:
            return self._correct_date(now, at) if self.r() < 0.4 else self.revise(now, at)
        if now["is_estimated"]:
            return self._move_period(now, at)
        if self.r() < 0.18:
            return self._change_hours_or_end(now)
        day = self._clamp_day(now, at, self._new_day(now["date"] // DAY_S, at // DAY_S))
        time_s = now["date"] % DAY_S if self.r() < 0.8 else draw_time_of_day_s(self.r)
        span = _span(now) if self.r() < 0.8 else draw_span_days(self.r)
        return _content(make_exact_dating(day * DAY_S + time_s, span))

    def make_exact(self, now: Content, at: int) -> Content:
        """Set an estimated event to a day of its period, past or future."""
        if not now["is_estimated"]:
            return self.reschedule(now, at)
        if self.r() < 0.15:
            return _content(make_exact_dating(now["date"]))
        today, last = at // DAY_S, now["date"] // DAY_S
        earliest = today if last > today else now["created_at"] // DAY_S
        first = max(last - PERIOD_DAYS[now["date_type"]], earliest + 1, FIRST_EVENT_DAY)
        day = first + int(self.r() * (last - first + 1)) if first < last else last
        return _content(
            make_exact_dating(day * DAY_S + draw_time_of_day_s(self.r), draw_span_days(self.r))
        )

    def make_estimated(self, now: Content, at: int) -> Content:
        """Replace an exact date by a deadline or a period."""
        if now["is_estimated"] or now["date"] < at:
            return self.reschedule(now, at)
        if self.r() < 0.2:
            return _content(make_deadline_dating(now["date"]))
        day = self._clamp_day(now, at, now["date"] // DAY_S + int(self.r() * 40))
        return _content(make_estimated_dating(self._period(), day, _last_day(now)))

    def rescore(self, now: Content, at: int) -> Content:
        """Change the impact, often across the edge of a band; score what has no score yet."""
        if now["impact"] is None:
            return {"impact": int(self.r() * 80) / 10}
        tenths = round(now["impact"] * 10)
        if self.r() < 0.4:
            edge = BAND_EDGES[int(self.r() * len(BAND_EDGES))]
            beyond = int(self.r() * 12)
            tenths = edge + beyond if tenths < edge else edge - 1 - beyond
        else:
            step = 1 + int(self.r() * 9)
            up = tenths < 10 or (tenths < 90 and self.r() < 0.5)
            tenths += step if up else -step
        return {"impact": tenths / 10}

    def revise(self, now: Content, at: int) -> Content:
        """Change the title, text, coins, categories, sources or the words of the date."""
        coin = self.by_slug[now["coins"][0]]
        slots, part = Slots(self.r, coin), self.r()
        if part < 0.15:
            return {"title": draw_title(self.r, slots, now["categories"][0])}
        if part < 0.4:
            return {"description": draw_description(self.r, slots, now["title"])}
        if part < 0.55:
            return self._relink(now, at)
        if part < 0.65:
            return self._recategorise(now)
        if part < 0.75 and now["impact"] is not None:
            return {"impact_summary": draw_impact_summary(self.r, slots)}
        if part < 0.85 and now["is_estimated"]:
            return {"displayed_date": _other_words(now)}
        return {
            "source_url": draw_source_url(self.r, coin),
            "snapshot_url": draw_snapshot_url(self.r, now["id"]),
        }

    def verify(self, now: Content, at: int) -> Content:
        """Check the source again and find it unchanged."""
        return {"last_verified_at": at}

    def _new_day(self, day: int, today: int) -> int:
        choice, size = self.r(), self.r()
        if choice < 0.35:
            return day + 1 + int(size * 6)
        if choice < 0.45:
            return day - 1 - int(size * 6)
        if choice < 0.62:
            return today + 1 + int(size * 7)
        if choice < 0.82:
            return today + 8 + int(size * 90)
        return day + 14 + int(size * 110)

    def _move_period(self, now: Content, at: int) -> Content:
        step = 1 if self.r() < 0.8 else -1
        if now["date_type"] == "date":
            step *= 1 + int(self.r() * 20)
            day = self._clamp_day(now, at, now["date"] // DAY_S + step)
            return _content(make_deadline_dating(day * DAY_S + END_OF_DAY_S))
        length = PERIOD_DAYS[now["date_type"]] + 1
        day = self._clamp_day(now, at, now["date"] // DAY_S + step * length)
        date_type = now["date_type"] if self.r() < 0.8 else self._period()
        return _content(make_estimated_dating(date_type, day, _last_day(now)))

    def _change_hours_or_end(self, now: Content) -> Content:
        if now["date_end"] is None and self.r() < 0.6:
            midnight = now["date"] - now["date"] % DAY_S
            return _content(
                make_exact_dating(midnight + 3600 * (7 + int(self.r() * 15)), _span(now))
            )
        return _content(
            make_exact_dating(now["date"], int(self.r() * 4) if _span(now) > 4 else _span(now) + 1)
        )

    def _correct_date(self, now: Content, at: int) -> Content:
        if now["is_estimated"]:
            return self.make_exact(now, at)
        days = 1 + int(self.r() * 4)
        corrected = max(now["date"] - days * DAY_S, FIRST_EVENT_DAY * DAY_S)
        return _content(make_exact_dating(corrected, _span(now)))

    def _clamp_day(self, now: Content, at: int, day: int) -> int:
        return min(max(day, at // DAY_S + 1, FIRST_EVENT_DAY), _last_day(now) - _span(now) - 1)

    def _period(self) -> str:
        return PERIODS[int(self.r() * len(PERIODS))]

    def _relink(self, now: Content, at: int) -> Content:
        linked = now["coins"]
        if len(linked) == MAX_COINS or (len(linked) > 1 and self.r() < 0.5):
            return {"coins": linked[:-1]}
        other = pick_coin(self.r, self.coins)
        if other.slug in linked or not other.tracked_on(at // DAY_S):
            return {}
        return {"coins": (*linked, other.slug)}

    def _recategorise(self, now: Content) -> Content:
        linked = now["categories"]
        if len(linked) > 1:
            return {"categories": linked[: -1 if self.r() < 0.7 else 1]}
        other = WEIGHTED[int(self.r() * len(WEIGHTED))].id
        return {} if other in linked else {"categories": (*linked, other)}


def _content(dating: Dating) -> Content:
    """Return a dating as a change of content (mypy can't convert a TypedDict to a partial one)."""
    return cast(Content, dating)


def _span(now: Content) -> int:
    end = now["date_end"]
    return 0 if end is None else (end - now["date"]) // DAY_S


def _last_day(now: Content) -> int:
    return now["created_at"] // DAY_S + HORIZON_DAYS


def _other_words(now: Content) -> str:
    """Return the same deadline with another text: `Q3 2026` as `Sep 2026`, `Sep 2026` as `By 30
    Sep`."""
    day = now["date"] // DAY_S
    if now["displayed_date"].startswith("By "):
        return format_month(day)
    if now["displayed_date"] == format_month(day):
        return f"By {format_day(day)}"
    return format_month(day)


MOMENTS_PER_LIFE = 2.1
"""Mean number of changes per event at pace 1. A cancellation is added to it and is the last
change."""
CANCELLATIONS_PER_LIFE = 0.15
LIFE_DAYS = 820
"""The longest time from the announcement to a change; events announced earlier don't change now."""

AFTERWARDS_SHARE = 0.09
FOLLOW_UP_SHARE = 0.22
"""Share of the changes that are followed by a change of the same kind within hours."""
SECOND_EDIT_SHARE = 0.16
RESTORED_SHARE = 0.82
RESTORED_CHANGED_SHARE = 0.35

SCHEDULED, CANCELLED, WITHDRAWN = "scheduled", "cancelled", "withdrawn"
_WITHDRAW = "withdraw"


def _weighted(**weights: int) -> tuple[str, ...]:
    return tuple(act for act, weight in weights.items() for _ in range(weight))


_ON_EXACT = _weighted(
    verify=31, reschedule=16, make_estimated=13, rescore=21, revise=19, withdraw=12
)
_ON_ESTIMATED = _weighted(
    verify=24, reschedule=9, make_exact=80, rescore=15, revise=13, withdraw=11
)
_SECOND = _weighted(verify=4, reschedule=2, rescore=3, revise=3)


class LifeEvent(NamedTuple):
    """A change at a time (seconds): its kinds, the status after it, the fields set."""

    at: int
    kinds: tuple[str, ...]
    status: str
    delta: Content


Life = tuple[LifeEvent, ...]
"""The times at which one event changes, the announcement first."""


def generate_lives(month: int, roster: Roster, pace: float) -> Iterator[Life]:
    """Yield the lives begun in a month, by announcement; `pace` multiplies their changes."""
    first, end = month_start_s(month) // DAY_S, month_start_s(month + 1) // DAY_S
    coins = roster.tracked_throughout(first, end - 1)
    editor = Editor(Random(f"{roster.seed}/{month}/lives").random, coins, roster.by_slug)
    for content in generate_announcements(month, roster.seed, coins):
        yield tuple(_LifeBuilder(content, editor).write(pace))


class _LifeBuilder:
    __slots__ = ("editor", "moments", "now", "until")

    def __init__(self, first: Content, editor: Editor) -> None:
        start = first["created_at"]
        self.editor = editor
        self.now = first.copy()
        self.moments = [LifeEvent(start, ("created",), SCHEDULED, first)]
        self.until = start + LIFE_DAYS * DAY_S

    def write(self, pace: float) -> list[LifeEvent]:
        cancelled_at = self._cancellation(pace)
        if cancelled_at:
            self.until = cancelled_at
        self._add_moments(self._count(MOMENTS_PER_LIFE * pace))
        if cancelled_at:
            self.moments.append(LifeEvent(cancelled_at, (CANCELLED,), CANCELLED, {}))
        return self.moments

    def _cancellation(self, pace: float) -> int | None:
        r, start = self.editor.r, self.now["created_at"]
        if r() < exp(-CANCELLATIONS_PER_LIFE * pace):
            return None
        return start + 3600 + int((self.now["date"] - start) * (0.03 + 0.97 * r()))

    def _count(self, mean: float) -> int:
        r, floor = self.editor.r, exp(-mean)
        count, product = 0, r()
        while product > floor:
            count, product = count + 1, product * r()
        return count

    def _add_moments(self, count: int) -> None:
        act = ""
        for at, is_follow_up in self._instants(count):
            if not is_follow_up or act in ("", _WITHDRAW):
                acts = _ON_ESTIMATED if self.now["is_estimated"] else _ON_EXACT
                act = acts[int(self.editor.r() * len(acts))]
            if at <= self.moments[-1].at:
                continue
            if at >= self.until:
                return
            if act != _WITHDRAW:
                kinds, delta = self._edited(act, at)
                if kinds:
                    self._add(at, kinds, delta)
            elif not self._withdraw(at):
                return

    def _instants(self, count: int) -> list[tuple[int, bool]]:
        r, start = self.editor.r, self.now["created_at"]
        ahead = self.now["date"] - start
        instants: list[tuple[int, bool]] = []
        while len(instants) < count:
            after = ahead if r() < AFTERWARDS_SHARE else 0
            at = start + 60 + after + int((45 * DAY_S if after else ahead) * r())
            instants.append((at, False))
            while len(instants) < count and r() < FOLLOW_UP_SHARE:
                soon = r()
                at += 60 + int(soon * soon * 30_000)
                instants.append((at, True))
        return sorted(instants)

    def _edited(self, act: str, at: int) -> tuple[list[str], Content]:
        delta: Content = getattr(self.editor, act)(self.now, at)
        if self.editor.r() < SECOND_EDIT_SHARE:
            other = _SECOND[int(self.editor.r() * len(_SECOND))]
            so_far: Content = {**self.now, **delta}
            second: Content = getattr(self.editor, other)(so_far, at)
            delta = {**delta, **second}
        changed = find_differences(self.now, delta)
        kinds = name_kinds(changed)
        if kinds and kinds != ["verified"]:
            changed["updated_at"] = at
        return kinds, changed

    def _withdraw(self, at: int) -> bool:
        r = self.editor.r
        self._add(at, [WITHDRAWN], {})
        away = r()
        back_at = at + 600 + int(away * away * 20 * DAY_S)
        if r() > RESTORED_SHARE or back_at >= self.until:
            return False
        kinds: list[str] = []
        delta: Content = {}
        if r() < RESTORED_CHANGED_SHARE:
            kinds, delta = self._edited(_SECOND[int(r() * len(_SECOND))], back_at)
        self._add(back_at, ["restored", *kinds], {**delta, "updated_at": back_at})
        return True

    def _add(self, at: int, kinds: list[str], delta: Content) -> None:
        status = WITHDRAWN if kinds[0] == WITHDRAWN else SCHEDULED
        self.moments.append(LifeEvent(at, tuple(kinds), status, delta))
        self.now.update(delta)


def find_differences(now: Content, delta: Content) -> Content:
    """Return the fields of a delta that differ from the content as it is."""
    before = cast(dict[str, object], now)
    return cast(Content, {key: value for key, value in delta.items() if before[key] != value})


def name_kinds(changed: Content) -> list[str]:
    """Return the kinds of a change of these fields; new words for a new date are not a revision."""
    kinds: list[str] = []
    if "date" in changed or "date_end" in changed:
        kinds.append("rescheduled")
    if "is_estimated" in changed:
        kinds.append("made_estimated" if changed["is_estimated"] else "made_exact")
    redated = bool(kinds)
    if "impact" in changed:
        kinds.append("rescored")
    texts = _TEXTS if redated else _TEXTS_AND_WORDING
    if not texts.isdisjoint(changed):
        kinds.append("revised")
    if "last_verified_at" in changed:
        kinds.append("verified")
    return kinds


_TEXTS = frozenset(
    ("title", "description", "categories", "coins", "impact_summary", "source_url", "snapshot_url")
)
_TEXTS_AND_WORDING = _TEXTS | {"displayed_date", "date_type"}
