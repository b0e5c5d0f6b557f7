"""The batches of a home since a day: those folded in, and those that are landed and wait.

Read from landing and the change log alone, so that it can be told while a merge runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, Literal

import msgspec

from catalog.contract.windows import day_end, day_start
from warehouse.batches import Feed, Scope
from warehouse.change_log import ChangeLog, records_of
from warehouse.home import Home

DATED: Final = frozenset[Feed]({"export", "events"})
"""The feeds that show events of a range of dates."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to say of one batch. `flagged` is why, None where nothing was found."""

    batch_id: str
    feed: Feed
    plan: str
    scope: Scope
    observed_at: datetime
    content_at: datetime
    complete: bool
    attested: bool = False
    status: Literal["merged", "quarantined", "waiting"] = "waiting"
    rejected: int = 0
    flagged: str | None = None
    why_incomplete: str | None = None
    redacted: int = 0
    date_doubt: str | None = None

    @property
    def is_look(self) -> bool:
        """Whether all that it claims to cover was seen."""
        return self.complete and self.status != "quarantined"

    def makes_good(self, other: "Seen") -> bool:
        """Whether it is a whole look at all that another batch was to cover, and a later one."""
        if not self.is_look or self.flagged or self.observed_at <= other.observed_at:
            return False
        dated = self.feed in DATED and other.feed in DATED
        return (dated or self.feed == other.feed) and self._covers(other.scope)

    def _covers(self, scope: Scope) -> bool:
        mine = self.scope
        return (
            mine.event_id == scope.event_id
            and (mine.coins is None or mine.coins == scope.coins)
            and (mine.categories is None or mine.categories == scope.categories)
            and (mine.lower is None or (scope.lower is not None and mine.lower <= scope.lower))
            and (mine.upper is None or (scope.upper is not None and scope.upper <= mine.upper))
        )

    @property
    def is_of_now(self) -> bool:
        """Whether it covers the event dates of its own time: a backfill of the past does not."""
        lower, upper = self.scope.lower, self.scope.upper
        begins = lower is None or lower <= self.observed_at
        return begins and (upper is None or self.observed_at <= upper)


@dataclass(frozen=True, slots=True)
class SeenBatches:
    """The batches since a day, oldest first; `days` have a file in the change log.

    `first_day` is that of the first batch of all, or the day since when it was looked back;
    None where there is no batch.
    """

    batches: tuple[Seen, ...]
    days: int
    pending: int
    first_day: date | None
    damaged: frozenset[str] = frozenset()
    """Batches that wait, and of which nothing can be said."""

    def looks(self, *feeds: Feed) -> list[Seen]:
        return [one for one in self.batches if one.feed in feeds and one.is_look]

    @property
    def plan(self) -> str | None:
        """The plan of the newest batch that was pulled: an import is of the plan the user says."""
        pulled = [one for one in self.batches if not one.attested] or self.batches
        return pulled[-1].plan if pulled else None


def seen_since(home: Home, since: date) -> SeenBatches:
    """Return what was observed from a day on.

    Raises:
        LakeDamaged: a file of the change log can't be read.
    """
    log = ChangeLog(home.lake, home.state / "change_log.json")
    days = [one for one in log.days() if one.day >= since]
    merged = [msgspec.convert(record, Seen) for record in records_of(days)]
    pending = home.landing.pending()
    waiting, damaged = _waiting(home, set(pending) - {one.batch_id for one in merged}, since)
    batches = sorted([*merged, *waiting], key=lambda one: one.observed_at)
    first = min(home.landing.storage.folders("batches"), default=None)
    return SeenBatches(
        batches=tuple(batches),
        days=len(days),
        pending=len(pending),
        damaged=damaged,
        first_day=None if first is None else max(since, date.fromisoformat(first)),
    )


def bounds_of(day: date) -> tuple[datetime, datetime]:
    """Return the first and the last instant of a day."""
    last = day_end(day)
    return day_start(last), last


def _waiting(
    home: Home, batch_ids: Iterable[str], since: date
) -> tuple[list[Seen], frozenset[str]]:
    """Return the batches that wait, since a day, and the ids of those that can't be read."""
    manifests, damaged = home.landing.readable(batch_ids)
    found = [
        msgspec.convert(manifest, Seen, from_attributes=True)
        for manifest in manifests
        if manifest.observed_at.astimezone(UTC).date() >= since
    ]
    return found, frozenset(damaged)
