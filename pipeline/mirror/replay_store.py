"""The store of a replay: one published file, whose history becomes known again.

The file stays open, so a publication during the replay changes nothing. The order of the changes is
the order of knowledge: `known_from`, event, version. The place of a change is its number in that
order since the start.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final

from almanac.change_digest import ChangeDigest
from almanac.errors import WarehouseError
from catalog.server.store import CatalogChange, CatalogView
from pipeline.mirror.knowledge_routes import ChangePage, KnownChange
from pipeline.mirror.past_view import PastViews
from pipeline.mirror.published_catalog import (
    CatalogVersion,
    KnownSpan,
    PublishedCatalog,
    utc_text,
)
from pipeline.mirror.pushed_changes import catalog_changes
from pipeline.mirror.version_feed import FeedPlace, ForeignPlace, to_micros


class ReplayStore:
    """`CatalogStore` and `KnowledgeStore` over a file, from a start to an end.

    Without `until`, the replay ends at the last pull.

    Raises:
        WarehouseError: the file is missing or can't be served, or does not know the whole range.
    """

    is_recorded: Final = True

    def __init__(self, path: Path, start: datetime, until: datetime | None = None) -> None:
        self.catalog = PublishedCatalog(path)
        self.bounds: KnownSpan = self.catalog.bounds
        try:
            self.start, self.until = _check_range(self.bounds, start, until)
        except WarehouseError:
            self.close()
            raise
        self._views = PastViews(self.catalog)
        self._order = self.catalog.order_of_knowledge(self.start, self.until)
        self._known_at = [known_from for known_from, _, _ in self._order]
        self._digest = ChangeDigest()
        self._digesting = Lock()

    def close(self) -> None:
        self.catalog.close()

    @property
    def total(self) -> int:
        """The number of changes from the start to the end."""
        return len(self._order)

    @property
    def identity(self) -> str:
        return f"replay {self.catalog.signature}"

    def never_known(self) -> frozenset[str]:
        return self.catalog.never_known

    def at(self, instant: datetime) -> CatalogView:
        return self._views.at(instant)

    def newest(self, instant: datetime) -> datetime:
        return instant

    def changes(self, after: datetime, until: datetime) -> Sequence[CatalogChange]:
        versions = self.catalog.versions_between(after, until)
        return list(catalog_changes(versions, self.catalog))

    def history(self, event_id: str, instant: datetime) -> list[CatalogVersion]:
        return self.catalog.history(event_id, instant)

    def changes_after(self, place: FeedPlace, *, until: datetime | None, limit: int) -> ChangePage:
        """Return the changes after a place, in order of knowledge.

        Raises:
            ForeignPlace: the place is not one of this replay.
        """
        if place.seq and self._place(place.seq) != place:
            raise ForeignPlace(f"{place.seq} is not a place of this replay")
        end = len(self._order) if until is None else bisect_right(self._known_at, until)
        first = place.seq
        if place.since >= 0:
            since = place.since
            first = bisect_right(self._known_at, since, key=to_micros)
        wanted = [(event_id, version) for _, event_id, version in self._order[first:end][:limit]]
        versions = self.catalog.versions(wanted)
        changes = [
            KnownChange(versions[each], self._place(first + n)) for n, each in enumerate(wanted, 1)
        ]
        last = changes[-1].place if changes else self._place(first)
        return ChangePage(changes, max(0, end - first), last)

    def _place(self, seq: int) -> FeedPlace:
        if not 0 < seq <= len(self._known_at):
            return FeedPlace(seq)
        return FeedPlace(seq, to_micros(self._known_at[seq - 1]))

    def count_until(self, instant: datetime) -> int:
        """Return the number of changes that became known from the start to a time."""
        return bisect_right(self._known_at, instant)

    def time_of_step(self, instant: datetime, step: int) -> datetime:
        """Return when the `step`-th next change after a time became known; the end, after all."""
        place = self.count_until(instant) + step
        return self._known_at[place - 1] if place <= len(self._known_at) else self.until

    def digest(self, count: int) -> str:
        """Return the hash of the first `count` changes, as `ChangeDigest` makes it."""
        with self._digesting:
            if self._digest.count > count:
                self._digest = ChangeDigest()
            for known_from, event_id, version in self._order[self._digest.count : count]:
                self._digest.add(event_id, version, known_from)
            return self._digest.hexdigest()


def _check_range(
    bounds: KnownSpan, start: datetime, until: datetime | None
) -> tuple[datetime, datetime]:
    first, last = bounds.first, bounds.last
    if first is None or last is None:
        raise WarehouseError("nothing was pulled yet: this warehouse has no history to replay")
    end = last if until is None else until.astimezone(UTC)
    start = start.astimezone(UTC)
    span = f"history is from {utc_text(first)} to {utc_text(last)}. Nothing was started."
    if start < first:
        raise WarehouseError(f"{utc_text(start)} is before the first pull: {span}")
    if end > last:
        raise WarehouseError(f"{utc_text(end)} is after the last pull: {span}")
    if start >= end:
        raise WarehouseError(
            f"the replay would end at {utc_text(end)}, and not after its start at "
            f"{utc_text(start)}: {span}"
        )
    return start, end
