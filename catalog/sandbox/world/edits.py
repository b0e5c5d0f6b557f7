"""The edits of one event: each edit returns the fields it would set.

Belongs here: new dates, scores and texts for the current content. Does not: which edit happens
when, and its kinds (lifecycle.py). An edit may set a field to the value it already has.
"""

from typing import cast

from catalog.sandbox.world import wording
from catalog.sandbox.world.announcements import (
    HORIZON_DAYS,
    MAX_COINS,
    PERIODS,
    Content,
    coin_pick,
    span_days,
    time_of_day_s,
)
from catalog.sandbox.world.coins import ListedCoin
from catalog.sandbox.world.dates import (
    DAY_S,
    END_OF_DAY_S,
    FIRST_EVENT_DAY,
    PERIOD_DAYS,
    Dating,
    day_words,
    deadline,
    estimated,
    exact,
    month_words,
)
from catalog.sandbox.world.records import WEIGHTED

BAND_EDGES = (25, 50, 75)
"""Edges of the impact bands, in tenths; an edge belongs to the band above it."""


class Editor:
    """The editors of the events of one month; `r` decides, `coins` are those they may link."""

    __slots__ = ("by_slug", "coins", "r")

    def __init__(
        self, r: wording.Draw, coins: list[ListedCoin], by_slug: dict[str, ListedCoin]
    ) -> None:
        self.r = r
        self.coins = coins
        self.by_slug = by_slug

    def reschedule(self, now: Content, at: int) -> Content:
        """Move the date, the end or the time of day; a date past is at most corrected by days."""
        if (now["date_end"] or now["date"]) < at:
            return self._correct_date(now, at) if self.r() < 0.4 else self.revise(now, at)
        if now["is_estimated"]:
            return self._move_period(now, at)
        if self.r() < 0.18:
            return self._change_hours_or_end(now)
        day = self._clamp_day(now, at, self._new_day(now["date"] // DAY_S, at // DAY_S))
        time_s = now["date"] % DAY_S if self.r() < 0.8 else time_of_day_s(self.r)
        span = _span(now) if self.r() < 0.8 else span_days(self.r)
        return _content(exact(day * DAY_S + time_s, span))

    def make_exact(self, now: Content, at: int) -> Content:
        """Set an estimated event to a day of its period, past or future."""
        if not now["is_estimated"]:
            return self.reschedule(now, at)
        if self.r() < 0.15:
            return _content(exact(now["date"]))
        today, last = at // DAY_S, now["date"] // DAY_S
        earliest = today if last > today else now["created_at"] // DAY_S
        first = max(last - PERIOD_DAYS[now["date_type"]], earliest + 1, FIRST_EVENT_DAY)
        day = first + int(self.r() * (last - first + 1)) if first < last else last
        return _content(exact(day * DAY_S + time_of_day_s(self.r), span_days(self.r)))

    def make_estimated(self, now: Content, at: int) -> Content:
        """Replace an exact date by a deadline or a period."""
        if now["is_estimated"] or now["date"] < at:
            return self.reschedule(now, at)
        if self.r() < 0.2:
            return _content(deadline(now["date"]))
        day = self._clamp_day(now, at, now["date"] // DAY_S + int(self.r() * 40))
        return _content(estimated(self._period(), day, _last_day(now)))

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
        slots, part = wording.Slots(self.r, coin), self.r()
        if part < 0.15:
            return {"title": wording.title(self.r, slots, now["categories"][0])}
        if part < 0.4:
            return {"description": wording.description(self.r, slots, now["title"])}
        if part < 0.55:
            return self._relink(now, at)
        if part < 0.65:
            return self._recategorise(now)
        if part < 0.75 and now["impact"] is not None:
            return {"impact_summary": wording.impact_summary(self.r, slots)}
        if part < 0.85 and now["is_estimated"]:
            return {"displayed_date": _other_words(now)}
        return {
            "source_url": wording.source_url(self.r, coin),
            "snapshot_url": wording.snapshot_url(self.r, now["id"]),
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
            return _content(deadline(day * DAY_S + END_OF_DAY_S))
        length = PERIOD_DAYS[now["date_type"]] + 1
        day = self._clamp_day(now, at, now["date"] // DAY_S + step * length)
        date_type = now["date_type"] if self.r() < 0.8 else self._period()
        return _content(estimated(date_type, day, _last_day(now)))

    def _change_hours_or_end(self, now: Content) -> Content:
        if now["date_end"] is None and self.r() < 0.6:
            midnight = now["date"] - now["date"] % DAY_S
            return _content(exact(midnight + 3600 * (7 + int(self.r() * 15)), _span(now)))
        return _content(exact(now["date"], int(self.r() * 4) if _span(now) > 4 else _span(now) + 1))

    def _correct_date(self, now: Content, at: int) -> Content:
        if now["is_estimated"]:
            return self.make_exact(now, at)
        days = 1 + int(self.r() * 4)
        corrected = max(now["date"] - days * DAY_S, FIRST_EVENT_DAY * DAY_S)
        return _content(exact(corrected, _span(now)))

    def _clamp_day(self, now: Content, at: int, day: int) -> int:
        return min(max(day, at // DAY_S + 1, FIRST_EVENT_DAY), _last_day(now) - _span(now) - 1)

    def _period(self) -> str:
        return PERIODS[int(self.r() * len(PERIODS))]

    def _relink(self, now: Content, at: int) -> Content:
        linked = now["coins"]
        if len(linked) == MAX_COINS or (len(linked) > 1 and self.r() < 0.5):
            return {"coins": linked[:-1]}
        other = coin_pick(self.r, self.coins)
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
    """Return a dating as a change of content; mypy converts no TypedDict to a partial one."""
    return cast(Content, dating)


def _span(now: Content) -> int:
    end = now["date_end"]
    return 0 if end is None else (end - now["date"]) // DAY_S


def _last_day(now: Content) -> int:
    return now["created_at"] // DAY_S + HORIZON_DAYS


def _other_words(now: Content) -> str:
    """Return the same deadline in other words: `Q3 2026` as `Sep 2026`, that as `By 30 Sep`."""
    day = now["date"] // DAY_S
    if now["displayed_date"].startswith("By "):
        return month_words(day)
    if now["displayed_date"] == month_words(day):
        return f"By {day_words(day)}"
    return month_words(day)
