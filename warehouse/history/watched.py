"""Watched spans: they distinguish a new event from one that merely became visible.

After a complete pull of a span of event dates, an event in the span that was created later is a
creation; any other first sighting is a revelation. Bounds are inclusive, aware UTC.
"""

from datetime import UTC, datetime
from itertools import pairwise

import msgspec

from catalog.contract.plans import INSTANT_STEP

END_OF_TIME = datetime(9999, 12, 31, tzinfo=UTC)


class WatchedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span of event dates, watched since an instant, with a filter or without."""

    lower: datetime
    upper: datetime
    since: datetime
    coins: tuple[str, ...] | None = None
    categories: tuple[str, ...] | None = None

    @property
    def filter(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        return self.coins, self.categories


class CancellationsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time whose cancellations were all pulled, and when last."""

    since: datetime
    until: datetime
    observed_at: datetime


def with_cancellations(
    seen: tuple[CancellationsSeen, ...], new: CancellationsSeen
) -> tuple[CancellationsSeen, ...]:
    """Add the latest pull: it extends the spans that it touches, or begins one after a gap.

    A span before a gap is kept: it still proves that cancellations were pulled at that time.
    """
    while seen and new.since <= seen[-1].until:
        new = msgspec.structs.replace(new, since=min(new.since, seen[-1].since))
        seen = seen[:-1]
    return (*seen, new)


class WatchedSpans:
    """Disjoint spans for each filter, each with the time of its earliest complete pull."""

    def __init__(self, spans: tuple[WatchedSpan, ...] = ()) -> None:
        self.spans = spans

    def add(self, new: WatchedSpan) -> bool:
        """Record a complete pull; return whether the spans changed."""
        same = [span for span in self.spans if span.filter == new.filter]
        if any(
            span.lower <= new.lower and new.upper <= span.upper and span.since <= new.since
            for span in same
        ):
            return False
        others = [span for span in self.spans if span.filter != new.filter]
        self.spans = (*others, *_merged([*same, new]))
        return True


def _merged(spans: list[WatchedSpan]) -> list[WatchedSpan]:
    """Cut overlapping spans at each other's bounds; each piece has its earliest pull."""
    edges = sorted({span.lower for span in spans} | {_after(span.upper) for span in spans})
    pieces: list[WatchedSpan] = []
    for lower, end in pairwise(edges):
        upper = END_OF_TIME if end >= END_OF_TIME else end - INSTANT_STEP
        over = [span for span in spans if span.lower <= lower and upper <= span.upper]
        if not over:
            continue
        since = min(span.since for span in over)
        last = pieces[-1] if pieces else None
        if last is not None and last.since == since and _after(last.upper) == lower:
            pieces[-1] = msgspec.structs.replace(last, upper=upper)
        else:
            pieces.append(msgspec.structs.replace(spans[0], lower=lower, upper=upper, since=since))
    return pieces


def _after(upper: datetime) -> datetime:
    return END_OF_TIME if upper >= END_OF_TIME else upper + INSTANT_STEP
