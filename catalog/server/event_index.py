"""The live events of one state, and the orders in which they are read."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from catalog.server.store import ImpactKey, StoredEvent, date_key, impact_key
from catalog.server.timeline import Timeline, TimelineBuilder, long_key


@dataclass(frozen=True, slots=True)
class EventIndex:
    """Never changed once made; `edited` shares what stays the same."""

    events: dict[str, StoredEvent]
    texts: dict[str, tuple[str, str]]
    """Title and description of each, casefolded."""
    by_date: Timeline
    by_coin: dict[str, Timeline]
    by_category: dict[str, Timeline]
    by_impact: list[ImpactKey]

    @classmethod
    def of(cls, events: Iterable[StoredEvent]) -> "EventIndex":
        by_id = {event.id: event for event in events}
        whole = TimelineBuilder()
        by_coin: defaultdict[str, TimelineBuilder] = defaultdict(TimelineBuilder)
        by_category: defaultdict[str, TimelineBuilder] = defaultdict(TimelineBuilder)
        keyed = sorted(((date_key(event), event) for event in by_id.values()), key=itemgetter(0))
        for key, event in keyed:
            long = None if event.date_end is None else long_key(event)
            whole.add(key, long)
            for slug in event.coins:
                by_coin[slug].add(key, long)
            for category in event.categories:
                by_category[category].add(key, long)
        return cls(
            events=by_id,
            texts={event.id: _text(event) for event in by_id.values()},
            by_date=whole.timeline(),
            by_coin={slug: linked.timeline() for slug, linked in by_coin.items()},
            by_category={name: tagged.timeline() for name, tagged in by_category.items()},
            by_impact=sorted(map(impact_key, by_id.values())),
        )

    def edited(self, changes: Mapping[str, StoredEvent | None]) -> "EventIndex":
        """Return the index after some events changed; None means no longer live."""
        gone = [self.events[event_id] for event_id in changes if event_id in self.events]
        come = [event for event in changes.values() if event is not None]
        events, texts, by_impact = self.events.copy(), self.texts.copy(), self.by_impact.copy()
        for event in gone:
            del events[event.id], texts[event.id]
            del by_impact[bisect_left(by_impact, impact_key(event))]
        for event in come:
            events[event.id], texts[event.id] = event, _text(event)
            insort(by_impact, impact_key(event))
        return EventIndex(
            events=events,
            texts=texts,
            by_date=self.by_date.edited(gone=gone, come=come),
            by_coin=_edited_postings(self.by_coin, gone, come, lambda event: event.coins),
            by_category=_edited_postings(
                self.by_category, gone, come, lambda event: event.categories
            ),
            by_impact=by_impact,
        )


def _text(event: StoredEvent) -> tuple[str, str]:
    return event.title.casefold(), (event.description or "").casefold()


def _edited_postings(
    postings: dict[str, Timeline],
    gone: list[StoredEvent],
    come: list[StoredEvent],
    names: Callable[[StoredEvent], tuple[str, ...]],
) -> dict[str, Timeline]:
    gone_of: dict[str, list[StoredEvent]] = {}
    come_of: dict[str, list[StoredEvent]] = {}
    for event in gone:
        for name in names(event):
            gone_of.setdefault(name, []).append(event)
    for event in come:
        for name in names(event):
            come_of.setdefault(name, []).append(event)
    edited = postings.copy()
    for name in gone_of.keys() | come_of.keys():
        timeline = edited.get(name) or Timeline([], [])
        edited[name] = timeline.edited(gone=gone_of.get(name, ()), come=come_of.get(name, ()))
    return edited
