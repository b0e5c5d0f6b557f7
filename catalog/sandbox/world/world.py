"""The truth of the synthetic catalog at any time.

A world is a pure function of seed and pace: a result never depends on earlier calls. Times are UTC.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from threading import RLock

from catalog.sandbox.world.announcements import month_in_id
from catalog.sandbox.world.dates import DAY_S, instant_of, month_of, month_start_s, seconds_of
from catalog.sandbox.world.lifecycle import (
    CANCELLED,
    LIFE_DAYS,
    SCHEDULED,
    Life,
    collector_paused,
    generate_lives,
)
from catalog.sandbox.world.roster import Roster
from catalog.sandbox.world.truth import (
    CATEGORIES,
    Change,
    TrueCategory,
    TrueCoin,
    TrueEvent,
    Version,
)

__all__ = ["Change", "TrueCategory", "TrueCoin", "TrueEvent", "Version", "World"]


GeneratedMonths = Callable[[int], Iterable[Life] | None]
"""Returns the lives begun in a month, or None when they are not generated yet."""


class _EventHistory:
    """A life, with the content that was requested last."""

    __slots__ = ("_cached", "last", "last_at", "life")

    def __init__(self, life: Life) -> None:
        self.life = life
        self.last = len(life) - 1
        self.last_at = life[-1].at
        self._cached: tuple[int, TrueEvent] | None = None

    def content(self, index: int) -> TrueEvent:
        """Return the content after the moment of an index."""
        cached = self._cached
        if cached is None or cached[0] != index:
            cached = self._cached = (index, _event(self.life, index))
        return cached[1]


class World:
    """The synthetic catalog of a seed. `pace` multiplies the changes of events, not the events.

    `generated_months` gives lives of the same seed and pace that were generated ahead, as by a
    `WorldProcess`.

    Raises:
        ValueError: `pace` is negative or not a number; later, a time without a timezone.
    """

    categories = tuple(TrueCategory(category.id, category.name) for category in CATEGORIES)

    def __init__(
        self, seed: int = 1, *, pace: float = 1.0, generated_months: GeneratedMonths | None = None
    ) -> None:
        if not 0 <= pace <= 100:
            raise ValueError(f"pace is {pace!r}; expected a number from 0 (no changes) to 100")
        self.seed = seed
        self.pace = pace
        self._generated_months = generated_months
        self._months: dict[int, dict[str, _EventHistory]] = {}
        self._sorted_in: set[int] = set()
        self._happened: dict[int, list[tuple[int, str, tuple[str, ...]]]] = {}
        self._changes: dict[int, list[Change]] = {}
        self._lock = RLock()
        self._coins_on = lru_cache(maxsize=8)(self._sync_coins)
        self._roster = lru_cache(maxsize=1)(lambda: Roster(seed))

    @collector_paused()
    def changes(self, after: datetime, until: datetime) -> list[Change]:
        """Return the changes after one time until another (inclusive), by time and id."""
        first, last = seconds_of(after) + 1, seconds_of(until)
        if first > last:
            return []
        days = range(max(first, month_start_s(0)) // DAY_S, last // DAY_S + 1)
        if not days:
            return []
        self._sort_in(month_of((days[0] - LIFE_DAYS) * DAY_S), month_of(last))
        found = [self._changes_on(day) for day in days]
        low, high = instant_of(first), instant_of(last)
        return [change for day in found for change in day if low <= change.at <= high]

    def event_at(self, event_id: str, instant: datetime) -> TrueEvent | None:
        """Return an event as it was; None when unknown, unannounced, cancelled, withdrawn."""
        found = self._find(event_id, instant)
        if found is None or found[0].life[found[1]].status != SCHEDULED:
            return None
        return found[0].content(found[1])

    def status_at(self, event_id: str, instant: datetime) -> str | None:
        """Return scheduled, cancelled or withdrawn; None when unknown or not yet announced."""
        found = self._find(event_id, instant)
        return None if found is None else found[0].life[found[1]].status

    def cancelled_at(self, event_id: str, instant: datetime) -> datetime | None:
        """Return when an event was cancelled; None when it is not, as of the time."""
        found = self._find(event_id, instant)
        if found is None or found[0].life[found[1]].status != CANCELLED:
            return None
        return instant_of(found[0].life[found[1]].at)

    def history(self, event_id: str, until: datetime) -> tuple[Version, ...]:
        """Return the versions of an event up to a time; the last is open (`known_to` None)."""
        found = self._find(event_id, until)
        if found is None:
            return ()
        history, last = found
        known = history.life[: last + 1]
        edges = [*(instant_of(moment.at) for moment in known), None]
        return tuple(
            Version(
                instant_of(moment.at), edges[i + 1], moment.status, history.content(i), moment.kinds
            )
            for i, moment in enumerate(known)
        )

    @collector_paused()
    def events_at(self, instant: datetime) -> dict[str, TrueEvent]:
        """Return the scheduled events by id, in the order of their announcement."""
        seconds = seconds_of(instant)
        events: dict[str, TrueEvent] = {}
        for histories_by_id in self._months_until(seconds):
            for event_id, history in histories_by_id.items():
                index = (
                    history.last if history.last_at <= seconds else history.life.index_at(seconds)
                )
                if index >= 0 and history.life[index].status == SCHEDULED:
                    events[event_id] = history.content(index)
        return events

    @collector_paused()
    def cancellations_at(self, instant: datetime) -> list[tuple[datetime, str]]:
        """Return the time and id of each cancelled event, in that order."""
        seconds = seconds_of(instant)
        found = sorted(
            (history.last_at, event_id)
            for histories_by_id in self._months_until(seconds)
            for event_id, history in histories_by_id.items()
            if history.last_at <= seconds and history.life[history.last].status == CANCELLED
        )
        return [(instant_of(at), event_id) for at, event_id in found]

    def coins_at(self, instant: datetime) -> tuple[TrueCoin, ...]:
        """Return the coins known on a day, by rank, the unranked last; they sync at 00:00 UTC."""
        return self._coins_on(seconds_of(instant) // DAY_S)

    def _sync_coins(self, day: int) -> tuple[TrueCoin, ...]:
        return tuple(
            TrueCoin(
                coin.slug,
                coin.symbol,
                coin.name,
                rank,
                coin.tracked_on(day),
                f"https://icons.example/coins/{coin.slug}.png",
            )
            for coin, rank in self._roster().ranking(day)
        )

    def _find(self, event_id: str, instant: datetime) -> tuple[_EventHistory, int] | None:
        seconds = seconds_of(instant)
        try:
            month = month_in_id(event_id)
        except ValueError:
            return None
        if not 0 <= month <= month_of(seconds):
            return None
        history = self._month(month).get(event_id)
        index = -1 if history is None else history.life.index_at(seconds)
        return None if history is None or index < 0 else (history, index)

    def _months_until(self, seconds: int) -> list[dict[str, _EventHistory]]:
        last = month_of(seconds)
        # From the newest on: months generated ahead arrive from the other end.
        for month in range(last, -1, -1):
            self._month(month)
        return [self._months[month] for month in range(last + 1)]

    def _month(self, month: int) -> dict[str, _EventHistory]:
        known = self._months.get(month)
        if known is not None:
            return known
        with self._lock:
            if month not in self._months:
                self._months[month] = self._generate(month)
            return self._months[month]

    def _generate(self, month: int) -> dict[str, _EventHistory]:
        lives = None if self._generated_months is None else self._generated_months(month)
        if lives is None:
            lives = generate_lives(month, self._roster(), self.pace)
        return {life[0].delta["id"]: _EventHistory(life) for life in lives}

    def _sort_in(self, first_month: int, last_month: int) -> None:
        """Sort the moments of the lives begun in these months into the days they happened on."""
        with self._lock:
            for month in range(max(first_month, 0), last_month + 1):
                if month in self._sorted_in:
                    continue
                for event_id, history in self._month(month).items():
                    for at, kinds, _, _ in history.life:
                        self._happened.setdefault(at // DAY_S, []).append((at, event_id, kinds))
                self._sorted_in.add(month)

    def _changes_on(self, day: int) -> list[Change]:
        """Return the changes of a day; the months that can hold them were sorted in before."""
        changes = self._changes.get(day)
        if changes is None:
            changes = [
                Change(instant_of(at), event_id, kinds)
                for at, event_id, kinds in sorted(self._happened.get(day, ()))
            ]
            self._changes[day] = changes
        return changes


def _event(life: Life, index: int) -> TrueEvent:
    content = life.content(index)
    end, verified = content["date_end"], content["last_verified_at"]
    created, updated = content["created_at"], content["updated_at"]
    created_at = instant_of(created)
    return TrueEvent(
        content["id"],
        content["slug"],
        content["title"],
        content["description"],
        content["displayed_date"],
        instant_of(content["date"]),
        None if end is None else instant_of(end),
        content["date_type"],
        content["is_estimated"],
        content["categories"],
        content["coins"],
        content["impact"],
        content["impact_summary"],
        content["source_url"],
        content["snapshot_url"],
        None if verified is None else instant_of(verified),
        created_at,
        created_at if updated == created else instant_of(updated),
    )
