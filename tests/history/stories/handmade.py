"""Hand-made batches of a world of three events, which need not be consistent.

They are merged at once, or one by one into a home, at instants chosen to the second.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from catalog.contract.records import EVENT_FIELDS
from tests.reading import ask
from warehouse.history.merge import MergeReport, merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Manifest, Pull, Scope
from warehouse.landing.landing import Landing

STARTS = datetime(2021, 3, 1, tzinfo=UTC)
CREATED = datetime(2021, 2, 1, tzinfo=UTC)
SOURCE = "sandbox:by hand"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
IDS = tuple(delivery * 24 for delivery in "abc")
COINS = ("bitcoin", "ethereum")
PROOF = ("impactSummary", "sourceUrl", "snapshotUrl")
PROVEN = "https://proof.example/1"
NOT_FOUND = b'{"error": {"code": "not_found", "message": "none"}, "message": "none"}'


@dataclass(frozen=True)
class Content:
    """The fields of an event that may differ between batches; `step` moves updatedAt."""

    step: int
    title: str
    day: int
    estimated: bool
    score: float | None
    coins: tuple[str, ...]


@dataclass(frozen=True)
class HandmadeBatch:
    """One batch. Hours count from the start; `shown` are events with their contents."""

    feed: Feed
    hour: int
    lag: int
    plan: str
    shown: tuple[tuple[int, Content], ...]
    complete: bool
    days: tuple[int, int]
    status: int


contents = st.builds(
    Content,
    step=st.integers(0, 4),
    title=st.sampled_from(("Launch", " Launch ", "Halving")),
    day=st.sampled_from((1, 5, 60)),
    estimated=st.booleans(),
    score=st.sampled_from((None, 1.5, 6.0)),
    coins=st.sampled_from((COINS[:1], COINS, COINS[::-1])),
)
_some = st.lists(
    st.tuples(st.integers(0, 2), contents), min_size=1, max_size=3, unique_by=lambda row: row[0]
).map(tuple)
handmade_batches = st.builds(
    HandmadeBatch,
    feed=st.sampled_from(
        (
            *("events", "export", "deliveries", "event", "cancellations"),
            *("events", "export", "deliveries", "event", "coins"),
        )
    ),
    hour=st.integers(1, 71),
    lag=st.integers(0, 3),
    plan=st.sampled_from(("free", "standard", "pro", "elite")),
    shown=st.one_of(_some, _some, _some, st.just(())),
    complete=st.sampled_from((True, True, True, False)),
    days=st.sampled_from(((-30, 90), (0, 7), (3, 90))),
    status=st.sampled_from((200, 404, 410)),
)


def receipts(batch: HandmadeBatch, number: int) -> list[datetime]:
    """Return when each delivery arrived: at an instant of its own, all on the batch's day."""
    last = STARTS + batch.hour * HOUR + timedelta(minutes=50, seconds=number)
    return [last - timedelta(minutes=place) for place in range(max(len(batch.shown), 1))]


def land(batch: HandmadeBatch, landing: Landing, number: int) -> Manifest:
    """Land a hand-made batch as a puller would land it."""
    observed_at = STARTS + batch.hour * HOUR
    content_at = observed_at - batch.lag * HOUR
    plan = "elite" if batch.feed in ("export", "deliveries") else batch.plan
    first = first_of(batch)
    lower, upper = (observed_at.replace(hour=0) + days * DAY for days in batch.days)
    scope, status = Scope(), 200
    received: Sequence[datetime | None] = (None,)
    rows = [_event(index, content, plan) for index, content in batch.shown]
    if batch.feed in ("events", "export"):
        scope = Scope(lower=lower, upper=upper)
        bodies = [_csv(rows) if batch.feed == "export" else _page(*rows)]
    elif batch.feed == "event":
        scope, status = Scope(event_id=IDS[first[0]]), batch.status
        bodies = [_single(*first, plan, batch)]
    elif batch.feed == "cancellations":
        scope = Scope(since=content_at - batch.days[1] * HOUR)
        cancelled = [_cancellation(index, content_at, content) for index, content in batch.shown]
        bodies = [_page(*cancelled)]
    elif batch.feed == "coins":
        ranked = (coin(slug, rank=rank) for rank, slug in enumerate(COINS[: batch.lag + 1], 1))
        bodies = [_page(*ranked)]
    else:
        received = arrivals = receipts(batch, number)
        bodies = _deliveries(batch, observed_at)
        observed_at = content_at = arrivals[0]
    pull = Pull(
        feed=batch.feed,
        scope=scope,
        plan=plan,
        source=SOURCE,
        observed_at=observed_at,
        content_at=content_at,
        landed_at=STARTS,
        requests=1,
        why_incomplete=None if batch.complete else "cut short",
    )
    return landing.land(pull, list(zip(bodies, received, strict=True)), status=status)


def first_of(batch: HandmadeBatch) -> tuple[int, Content]:
    """Return the event of a single look-up or of a delivery."""
    return batch.shown[0] if batch.shown else (0, Content(0, "Launch", 1, False, None, COINS))


def cancels(batch: HandmadeBatch, content: Content) -> bool:
    """Whether a delivery of this content cancels the event."""
    return (content.step + batch.lag) % 3 == 2


def _event(index: int, content: Content, plan: str) -> dict[str, Any]:
    """Return an event with all fields; the plan decides which of them are known."""
    start = STARTS + content.day * DAY
    band = None if content.score is None else "Low" if content.score < 2.5 else "High"
    return event(
        IDS[index],
        slug=f"event-{index}",
        title=content.title,
        description=f"It is {content.title.strip()}.",
        displayedDate=f"{start:%d %b}",
        date=_text(start),
        isEstimated=content.estimated,
        categories=... if plan == "free" else ["Release"],
        coins=[{"slug": slug, "symbol": slug[:3], "name": slug.title()} for slug in content.coins],
        impact=band if plan == "pro" else content.score,
        lastVerifiedAt=_text(CREATED),
        createdAt=_text(CREATED),
        updatedAt=_text(CREATED + content.step * DAY),
        **dict.fromkeys(PROOF, PROVEN),
    )


def _single(index: int, content: Content, plan: str, batch: HandmadeBatch) -> bytes:
    if batch.status == 404:
        return NOT_FOUND
    if batch.status == 410:
        at = STARTS + (batch.hour - batch.lag) * HOUR
        error = {"error": {"code": "event_cancelled", "message": "gone"}, "message": "gone"}
        return json.dumps({**error, **_cancellation(index, at, content)}).encode()
    return json.dumps(_event(index, content, plan)).encode()


def _deliveries(batch: HandmadeBatch, hour: datetime) -> list[bytes]:
    """Return a body for each event."""
    bodies = []
    for index, content in batch.shown or (first_of(batch),):
        created_at = _text(hour - (batch.lag + content.step) * HOUR)
        data = _event(index, content, "elite")
        if is_cancelled := cancels(batch, content):
            data["cancelledAt"] = created_at
        kind = "event.cancelled" if is_cancelled else "event.updated"
        delivered = {"id": f"evt_{index}_{content.step}", "type": kind, "createdAt": created_at}
        bodies.append(json.dumps({**delivered, "data": data}).encode())
    return bodies


def _cancellation(index: int, content_at: datetime, content: Content) -> dict[str, Any]:
    return {"id": IDS[index], "cancelledAt": _text(content_at - content.step * HOUR)}


def _csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, EVENT_FIELDS)
    writer.writeheader()
    for row in rows:
        joined = {
            "coins": ";".join(coin["slug"] for coin in row["coins"]),
            "categories": ";".join(row["categories"]),
            "isEstimated": str(row["isEstimated"]).lower(),
        }
        writer.writerow(row | joined)
    return out.getvalue().encode()


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


_WHOLE = Scope(lower=datetime(2017, 1, 1, tzinfo=UTC), upper=datetime(2030, 1, 1, tzinfo=UTC))
_LAG = timedelta(minutes=1)
_NOTHING: Mapping[str, Any] = {}


def at(text: str) -> datetime:
    """Return an instant of March 2026, or of a full date: `02 10:30` is March 2, 10:30."""
    full = text if text[4:5] == "-" else f"2026-03-{text}"
    return datetime.fromisoformat(full).replace(tzinfo=UTC)


def event(event_id: str, **other: Any) -> dict[str, Any]:
    """Return an event as Elite shows it, never updated; a field given as `...` is absent."""
    body = {
        **{"id": event_id, "slug": event_id, "title": f"First {event_id}", "description": None},
        **{"displayedDate": "01 Jun 2026", "date": "2026-06-01T00:00:00Z", "dateEnd": None},
        **{"dateType": "date", "isEstimated": False, "categories": ["Listing"]},
        **{"coins": [{"slug": "bitcoin", "symbol": "BTC", "name": "Bitcoin"}], "impact": 5.0},
        **{"impactSummary": None, "sourceUrl": None, "snapshotUrl": None},
        **{"lastVerifiedAt": None, "createdAt": "2026-01-01T00:00:00Z"},
        **{"updatedAt": "2026-01-01T00:00:00Z", **other},
    }
    return {name: value for name, value in body.items() if value is not ...}


def coin(slug: str, **other: Any) -> dict[str, Any]:
    body = {"slug": slug, "symbol": slug[:3], "name": slug.title(), "rank": 1, "tracked": True}
    return {
        **body,
        "iconUrl": None,
        "upcomingCount": 1,
        "majorCount": 0,
        "peakImpact": 1.0,
        **other,
    }


class HandmadeHome:
    """A home whose batches are landed in any order; they take effect with `merge`."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)

    def merge(self, *, with_events: bool = False, **how: Any) -> MergeReport:
        """Merge, by default without the Parquet file of the events."""
        return merge(self.home, with_events=with_events, **how)

    def listed(self, when: str, *events: dict[str, Any], **how: Any) -> None:
        self._land("events", when, [(_page(*events), None)], **how)

    def listed_by_category(self, when: str, ids: tuple[str, ...], *events: dict[str, Any]) -> None:
        scope = Scope(lower=_WHOLE.lower, upper=_WHOLE.upper, categories=ids)
        self._land("events", when, [(_page(*events), None)], scope=scope)

    def export(self, when: str, *events: dict[str, Any], **how: Any) -> None:
        self._land("export", when, [(_page(*events), None)], **how)

    def csv_export(self, when: str, body: bytes) -> None:
        self._land("export", when, [(body, None)])

    def categories(self, when: str, **names: str) -> None:
        """Land the categories: ids (each with a leading `c`, which is removed) and names."""
        rows = [{"id": key.removeprefix("c"), "name": name} for key, name in names.items()]
        self._land("categories", when, [(_page(*rows), None)], scope=Scope())

    def coins(self, when: str, *coins: dict[str, Any], **how: Any) -> None:
        self._land("coins", when, [(_page(*coins), None)], scope=Scope(), **how)

    def cancellations(self, when: str, *, since: str = "01 00:00", **cancelled: str) -> None:
        rows = [{"id": event_id, "cancelledAt": value} for event_id, value in cancelled.items()]
        self._land("cancellations", when, [(_page(*rows), None)], scope=Scope(since=at(since)))

    def look_up(
        self, when: str, event_id: str, status: int, body: Mapping[str, Any] = _NOTHING, **how: Any
    ) -> None:
        answer = json.dumps({"error": {"code": "gone", "message": "gone"}, **body}).encode()
        scope = Scope(event_id=event_id)
        self._land("event", when, [(answer, None)], scope=scope, status=status, **how)

    def deliveries(self, *received: tuple[str, str, dict[str, Any]]) -> None:
        """Land deliveries as one batch: when received, when created, the event."""
        bodies: list[tuple[bytes, datetime | None]] = []
        for when, created, data in received:
            kind = "event.cancelled" if "cancelledAt" in data else "event.updated"
            delivered = {"type": kind, "createdAt": created, "data": data}
            bodies.append((json.dumps(delivered).encode(), at(when)))
        self._land("deliveries", received[-1][0], bodies, scope=Scope(), true=received[0][0])

    def pushed(self, *received: tuple[str, Mapping[str, Any]]) -> None:
        """Land deliveries as one batch: when received, and the body as it was sent."""
        bodies: list[tuple[bytes, datetime | None]] = [
            (json.dumps(body).encode(), at(when)) for when, body in received
        ]
        self._land("deliveries", received[-1][0], bodies, scope=Scope(), true=received[0][0])

    def release_flagged(self) -> None:
        """Release the flagged batches."""
        for (batch_id,) in self.rows("SELECT batch_id FROM batches WHERE flagged IS NOT NULL"):
            self.home.landing.release(batch_id)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return ask(self.home, query)

    def versions(self, event_id: str, columns: str) -> list[tuple[Any, ...]]:
        """Return some columns of each observed version of an event."""
        return self.rows(
            f"SELECT {columns} FROM event_versions "
            f"WHERE event_id = '{event_id}' AND version > 0 ORDER BY version"
        )

    def _land(
        self,
        feed: Feed,
        when: str,
        bodies: list[tuple[bytes, datetime | None]],
        *,
        scope: Scope = _WHOLE,
        true: str | None = None,
        status: int = 200,
        why_incomplete: str | None = None,
        plan: str = "elite",
    ) -> None:
        pull = Pull(
            feed=feed,
            scope=scope,
            plan=plan,
            source="by hand",
            observed_at=at(when),
            content_at=at(when) - _LAG if true is None else at(true),
            landed_at=at(when),
            requests=1,
            why_incomplete=why_incomplete,
        )
        self.home.landing.land(pull, bodies, status=status)


def _page(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"data": rows, "meta": {"total": len(rows)}}).encode()
