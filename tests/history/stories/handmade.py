"""Hand-made batches of a world of three events that need not make sense.

Merged at once, or one by one into a home, at instants chosen to the second.
"""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from catalog.contract.records import EVENT_FIELDS
from tests.history.stories.merged_story import reading
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.landing.batches import Feed, Manifest, Scope
from warehouse.landing.landing import Landing, Pull

STARTS = datetime(2021, 3, 1, tzinfo=UTC)
CREATED = datetime(2021, 2, 1, tzinfo=UTC)
SOURCE = "sandbox:by hand"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
IDS = tuple(letter * 24 for letter in "abc")
COINS = ("bitcoin", "ethereum")
PROOF = ("impactSummary", "sourceUrl", "snapshotUrl")
PROVEN = "https://proof.example/1"
NOT_FOUND = b'{"error": {"code": "not_found", "message": "none"}, "message": "none"}'


@dataclass(frozen=True)
class Content:
    """What may differ from one sight of an event to the next; `step` moves updatedAt."""

    step: int
    title: str
    day: int
    estimated: bool
    score: float | None
    coins: tuple[str, ...]


@dataclass(frozen=True)
class Glance:
    """One batch. Hours count from the start; `shown` are events with their contents."""

    feed: Feed
    hour: int
    lag: int
    plan: str
    shown: tuple[tuple[int, Content], ...]
    whole: bool
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
glances = st.builds(
    Glance,
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
    whole=st.sampled_from((True, True, True, False)),
    days=st.sampled_from(((-30, 90), (0, 7), (3, 90))),
    status=st.sampled_from((200, 404, 410)),
)


def receipts(glance: Glance, number: int) -> list[datetime]:
    """Return when each delivery came; none in the second of anything else, none the day before."""
    last = STARTS + glance.hour * HOUR + timedelta(minutes=50, seconds=number)
    return [last - timedelta(minutes=place) for place in range(max(len(glance.shown), 1))]


def land(glance: Glance, landing: Landing, number: int) -> Manifest:
    """Land a glance as the batch that a puller would have made of it."""
    observed_at = STARTS + glance.hour * HOUR
    content_at = observed_at - glance.lag * HOUR
    plan = "elite" if glance.feed in ("export", "deliveries") else glance.plan
    first = first_of(glance)
    today = observed_at.replace(hour=0)
    lower, upper = (today + days * DAY for days in glance.days)
    scope, bodies, status = Scope(), list[tuple[bytes, datetime | None]](), 200
    rows = [_event(index, content, plan) for index, content in glance.shown]
    if glance.feed in ("events", "export"):
        scope = Scope(lower=lower, upper=upper)
        bodies = [(_csv(rows) if glance.feed == "export" else _list(rows), None)]
    elif glance.feed == "event":
        scope, status = Scope(event_id=IDS[first[0]]), glance.status
        bodies = [(_single(*first, plan, glance), None)]
    elif glance.feed == "cancellations":
        scope = Scope(since=content_at - glance.days[1] * HOUR)
        gone = [_cancellation(index, content_at, content) for index, content in glance.shown]
        bodies = [(_list(gone), None)]
    elif glance.feed == "coins":
        bodies = [(_list([_coin(slug) for slug in COINS[: glance.lag + 1]]), None)]
    else:
        came = receipts(glance, number)
        bodies = _deliveries(glance.shown or (first,), observed_at, came, glance)
        observed_at = content_at = came[0]
    pull = Pull(
        feed=glance.feed,
        scope=scope,
        plan=plan,
        source=SOURCE,
        observed_at=observed_at,
        content_at=content_at,
        landed_at=STARTS,
        requests=1,
        why_incomplete=None if glance.whole else "cut short",
    )
    return landing.land(pull, bodies, status=status)


def first_of(glance: Glance) -> tuple[int, Content]:
    """Return the event that a single look-up or a delivery is of."""
    return glance.shown[0] if glance.shown else (0, Content(0, "Launch", 1, False, None, COINS))


def cancels(glance: Glance, content: Content) -> bool:
    """Whether a delivery of this content says that the event is cancelled."""
    return (content.step + glance.lag) % 3 == 2


def _event(index: int, content: Content, plan: str) -> dict[str, Any]:
    start = STARTS + content.day * DAY
    coins = [{"slug": slug, "symbol": slug[:3], "name": slug.title()} for slug in content.coins]
    event: dict[str, Any] = dict.fromkeys(EVENT_FIELDS)
    event |= {"id": IDS[index], "slug": f"event-{index}", "title": content.title}
    event |= {"displayedDate": f"{start:%d %b}", "date": _text(start), "dateType": "date"}
    event |= {"isEstimated": content.estimated, "coins": coins, "createdAt": _text(CREATED)}
    event |= {"updatedAt": _text(CREATED + content.step * DAY)}
    if plan == "free":
        del event["categories"]
    else:
        event |= {"categories": ["Release"], "description": f"It is {content.title.strip()}."}
    if plan in ("pro", "elite"):
        event |= {**dict.fromkeys(PROOF, PROVEN), "lastVerifiedAt": _text(CREATED)}
        event["impact"] = content.score
    if plan == "pro" and content.score is not None:
        event["impact"] = "Low" if content.score < 2.5 else "High"
    return event


def _single(index: int, content: Content, plan: str, glance: Glance) -> bytes:
    if glance.status == 404:
        return NOT_FOUND
    if glance.status == 410:
        at = STARTS + (glance.hour - glance.lag) * HOUR
        gone = {"error": {"code": "event_cancelled", "message": "gone"}, "message": "gone"}
        return json.dumps({**gone, **_cancellation(index, at, content)}).encode()
    return json.dumps(_event(index, content, plan)).encode()


def _deliveries(
    shown: tuple[tuple[int, Content], ...], hour: datetime, came: list[datetime], glance: Glance
) -> list[tuple[bytes, datetime | None]]:
    """Return a body for each event, with its receipt."""
    bodies: list[tuple[bytes, datetime | None]] = []
    for received_at, (index, content) in zip(came, shown, strict=True):
        created_at = hour - (glance.lag + content.step) * HOUR
        kind = "event.cancelled" if cancels(glance, content) else "event.updated"
        data = _event(index, content, "elite")
        if kind == "event.cancelled":
            data["cancelledAt"] = _text(created_at)
        delivered = {"id": f"evt_{index}_{content.step}", "type": kind, "data": data}
        body = json.dumps({**delivered, "createdAt": _text(created_at)}).encode()
        bodies.append((body, received_at))
    return bodies


def _cancellation(index: int, content_at: datetime, content: Content) -> dict[str, Any]:
    return {"id": IDS[index], "cancelledAt": _text(content_at - content.step * HOUR)}


def _coin(slug: str) -> dict[str, Any]:
    coin = {"slug": slug, "symbol": slug[:3], "name": slug.title(), "tracked": True}
    counters = {"upcomingCount": 1, "majorCount": None, "peakImpact": None}
    return {**coin, "rank": 1 + COINS.index(slug), "iconUrl": "https://icons.example", **counters}


def _list(rows: list[dict[str, Any]]) -> bytes:
    meta = {"total": len(rows), "limit": 100, "cursor": None}
    return json.dumps({"data": rows, "meta": meta}).encode()


def _csv(rows: list[dict[str, Any]]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(EVENT_FIELDS)
    for row in rows:
        joined = {
            "coins": ";".join(coin["slug"] for coin in row["coins"]),
            "categories": ";".join(row["categories"]),
            "isEstimated": str(row["isEstimated"]).lower(),
        }
        writer.writerow([{**row, **joined}[name] for name in EVENT_FIELDS])
    return out.getvalue().encode()


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


_WHOLE = Scope(lower=datetime(2017, 1, 1, tzinfo=UTC), upper=datetime(2030, 1, 1, tzinfo=UTC))
_LAG = timedelta(minutes=1)
_NOTHING: Mapping[str, Any] = {}


def at(text: str) -> datetime:
    """Return an instant of March 2026: `02 10:30` is the second, half past ten."""
    return datetime.strptime(f"2026-03-{text}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


def event(event_id: str, **other: Any) -> dict[str, Any]:
    """Return an event as Elite shows it, never updated; what is given as `...` is absent."""
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


class ByHand:
    """A home, told in any order; `merge` when it is to take effect."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)

    def merge(self) -> None:
        merge(self.home)

    def listed(self, when: str, *events: dict[str, Any], **how: Any) -> None:
        self._land("events", when, [(_page(*events), None)], **how)

    def listed_by_category(self, when: str, ids: tuple[str, ...], *events: dict[str, Any]) -> None:
        scope = Scope(lower=_WHOLE.lower, upper=_WHOLE.upper, categories=ids)
        self._land("events", when, [(_page(*events), None)], scope=scope)

    def export(self, when: str, *events: dict[str, Any]) -> None:
        self._land("export", when, [(_page(*events), None)])

    def categories(self, when: str, **names: str) -> None:
        """Tell the categories: ids (each begun by a `c`, which is cut) and names."""
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
        """Tell deliveries of one batch: when received, when created, the event."""
        bodies: list[tuple[bytes, datetime | None]] = []
        for when, created, data in received:
            kind = "event.cancelled" if "cancelledAt" in data else "event.updated"
            delivered = {"type": kind, "createdAt": created, "data": data}
            bodies.append((json.dumps(delivered).encode(), at(when)))
        self._land("deliveries", received[-1][0], bodies, scope=Scope(), true=received[0][0])

    def release_flagged(self) -> None:
        """Trust the batches that were flagged."""
        for (batch_id,) in self.rows("SELECT batch_id FROM batches WHERE flagged IS NOT NULL"):
            self.home.landing.release(batch_id)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with reading(self.home) as connection:
            return connection.sql(query).fetchall()

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
