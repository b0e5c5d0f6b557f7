"""The answers of macros and views in plain Python, from the versions that an oracle folded.

Belongs here: what each macro and view should return. Does not: which versions there are
(tests/history/model). Instants are aware UTC.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tests.history.model.observations import Content
from tests.history.model.oracle import Oracle
from tests.history.model.versions import Version
from tests.warehouse.answers.plain.dating import DAY, EXACT, dating, days_until, midnight
from warehouse.landing.batches import Manifest

Row = tuple[Any, ...]
EVENT_FEEDS = ("export", "events", "event", "deliveries")
_DATED = ("rescheduled", "made_exact", "made_estimated")
_MOVED = (*_DATED, "rescored", "revised", "restored")


def dated(content: Content) -> tuple[str, datetime | None, datetime]:
    return dating(
        content["date"],
        content["date_end"],
        content["date_type"],
        is_open=content["is_estimated"],
    )


def full_date(content: Content) -> str:
    """Return the displayed date of an event of the sandbox, with its year or years."""
    shown, starts, ends = content["displayed_date"], content["date"], content["date_end"]
    if any(len(word) == 4 and word.isdigit() for word in shown.split()):
        return str(shown)
    if ends is not None and " → " in shown:
        first, last = shown.split(" → ")
        return f"{first} {starts.year} → {last} {ends.year}"
    return f"{shown} {starts.year}"


class PlainAnswers:
    def __init__(self, oracle: Oracle, batches: Sequence[Manifest]) -> None:
        self.oracle = oracle
        self.batches = batches
        self.versions = [v for v in oracle.versions() if v.basis == "observed"]
        self.by_number = {(v.event_id, v.version): v for v in self.versions}
        self.pulls = sorted(b.observed_at for b in batches if b.feed in EVENT_FEEDS)
        self.snapshots = list(self._snapshots())

    def last_pull_at(self, at: datetime) -> datetime | None:
        return max((pull for pull in self.pulls if pull <= at), default=None)

    def known(self, at: datetime) -> dict[str, Version]:
        return {
            v.event_id: v
            for v in self.versions
            if v.known_from <= at and (v.known_to is None or at < v.known_to)
        }

    def upcoming_as_of(self, at: datetime) -> set[Row]:
        return {
            upcoming_row(event_id, version.content, at)
            for event_id, version in self.known(at).items()
            if version.status == "scheduled"
            and self.oracle.events[event_id].missing_at(at) is None
            and dated(version.content)[2] > at
        }

    def coins_as_of(self, at: datetime) -> dict[str, Row]:
        """Return rank, tracked and the instant of the last observation of each coin."""
        found: dict[str, Row] = {}
        for slug, rank, tracked, observed_at in self.snapshots:
            if observed_at <= at:
                found[slug] = (rank, tracked, observed_at)
        return found

    def event_coins_as_of(self, at: datetime) -> set[Row]:
        ranks = self.coins_as_of(at)
        return {
            (event_id, coin, ranks[coin][0] if coin in ranks else None)
            for event_id, version in self.known(at).items()
            for coin in version.content["coins"]
        }

    def known_before(self, lead: timedelta) -> set[Row]:
        found = set()
        for event_id, state in self.oracle.events.items():
            if dated(state.content)[0] not in EXACT:
                continue
            known_at = state.content["date"] - lead
            for version in state.versions:
                following = self.by_number.get((event_id, version.version + 1))
                if (
                    version.basis == "observed"
                    and version.known_from <= known_at <= datetime.now(UTC)
                    and (following is None or known_at < following.known_from)
                ):
                    missing, pull = state.missing_at(known_at), self.last_pull_at(known_at)
                    date_final = state.content["date"]
                    found.add((event_id, version.version, missing, pull, known_at, date_final))
        return found

    def changes(self) -> Iterator[Row]:
        for new in self.versions:
            old = self.by_number.get((new.event_id, new.version - 1))
            for kind in new.kinds:
                before = None if old is None else _value(kind, old)
                after = _value(kind, new) or ", ".join(sorted(new.changed)) or None
                title, coins = new.content["title"], tuple(new.content["coins"])
                yield new.event_id, title, coins, new.version, new.known_from, kind, before, after

    def coverage_at(self, at: datetime) -> set[str]:
        """Return the batches of the last pulls."""
        pulls = [
            b
            for b in self.batches
            if b.complete
            and b.feed in ("export", "events", "cancellations")
            and b.observed_at <= at
        ]
        pulls.sort(key=lambda b: (b.observed_at, b.batch_id))
        last: dict[Any, str] = {}
        for pull in pulls:
            for window in _windows(pull):
                last[window] = pull.batch_id
        return {b.batch_id for b in pulls if all(last[w] == b.batch_id for w in _windows(b))}

    def score_history(self) -> Iterator[Row]:
        rows: dict[str, list[list[Any]]] = defaultdict(list)
        before: dict[str, tuple[Any, Any]] = {}
        for version in self.versions:
            score = (version.content.get("impact"), version.content.get("impact_band"))
            old = before.get(version.event_id, (None, None))
            before[version.event_id] = score
            if score != old:
                for row in rows[version.event_id][-1:]:
                    row[-2] = version.known_from
                starts, precision = version.content["date"], dated(version.content)[0]
                days = days_until(starts, precision, version.known_from)
                start = version.known_from
                rows[version.event_id].append(
                    [version.event_id, version.version, *old, *score, start, None, days]
                )
        for found in rows.values():
            yield from map(tuple, found)

    def detection_latency(self) -> Iterator[Row]:
        for new in self.versions:
            old = self.by_number.get((new.event_id, new.version - 1))
            updated = new.content["updated_at"]
            if "created" in new.kinds:
                kind, at = "created", new.content["created_at"]
            elif "cancelled" in new.kinds:
                kind, at = "cancelled", new.cancelled_at
            elif (
                old is not None
                and updated > old.content["updated_at"]
                and not set(new.kinds).isdisjoint(_MOVED)
            ):
                kind, at = "updated", updated
            else:
                continue
            latency = (new.known_from - at).total_seconds()
            yield new.event_id, new.version, kind, at, latency, new.observation.kind

    def scheduled(self) -> Iterator[tuple[str, Content]]:
        """Yield the events that are scheduled and not missing, as last known."""
        for event_id, state in self.oracle.events.items():
            if state.status == "scheduled" and state.missing_since is None:
                yield event_id, state.content

    def missing_events(self) -> set[Row]:
        events = self.oracle.events.items()
        return {(i, s.missing_since, s.last_seen_at) for i, s in events if s.missing_since}

    def today(self, now: datetime) -> set[str]:
        starts = midnight(now)
        return {
            event_id
            for event_id, content in self.scheduled()
            if _is_exact(content) and content["date"] < starts + DAY and dated(content)[2] > starts
        }

    def under_way(self, now: datetime) -> set[str]:
        return {
            event_id
            for event_id, content in self.scheduled()
            if _is_exact(content) and content["date"] <= now < dated(content)[2]
        }

    def upcoming(self, now: datetime) -> set[Row]:
        return {
            upcoming_row(event_id, content, now)
            for event_id, content in self.scheduled()
            if dated(content)[2] > now
        }

    def clusters(self, now: datetime) -> set[Row]:
        found: dict[tuple[str, date], dict[str, float | None]] = defaultdict(dict)
        for event_id, content in self.scheduled():
            if _is_exact(content) and dated(content)[2] > now:
                for coin in content["coins"]:
                    found[coin, content["date"].date()][event_id] = content.get("impact")
        return {
            (*key, len(events), _sum(events.values()), _max(events.values()), tuple(sorted(events)))
            for key, events in found.items()
            if len(events) >= 2
        }

    def coin_lookup(self, wanted: str) -> list[tuple[str, str]]:
        """Return slug and how it was matched, of the coins as last pulled."""
        ranks = {slug: rank for slug, rank, _, _ in self.snapshots}
        names = {coin.slug: coin for coin in self._last_coins()}
        found = []
        for slug in ranks:
            texts = (slug, names[slug].symbol.lower(), names[slug].name.lower())
            low = wanted.strip().lower()
            hits = [low == text for text in texts]
            hits.append(any(text.startswith(low) for text in texts))
            if low and any(hits):
                place = hits.index(True)
                rank = ranks[slug]
                by = ("slug", "symbol", "name", "prefix")[place]
                found.append(((place, rank is None, rank or 0, slug), by))
        return [(key[-1], by) for key, by in sorted(found)]

    def _snapshots(self) -> Iterator[tuple[str, int | None, bool, datetime]]:
        """Yield each coin of each day as it was last observed on the day, oldest first."""
        last: dict[tuple[date, str], tuple[str, int | None, bool, datetime]] = {}
        for batch in self.batches:
            if batch.feed == "coins":
                for coin in self.oracle.showing.world.coins_at(batch.content_at):
                    free = batch.plan == "free"
                    if not free or (coin.rank is not None and coin.rank <= 100):
                        day = batch.observed_at.date()
                        row = (coin.slug, coin.rank, coin.tracked, batch.observed_at)
                        last[day, coin.slug] = row
        yield from sorted(last.values(), key=lambda row: row[3])

    def _last_coins(self) -> Iterable[Any]:
        last = max(b.content_at for b in self.batches if b.feed == "coins")
        return self.oracle.showing.world.coins_at(last)


def upcoming_row(event_id: str, content: Content, at: datetime) -> Row:
    precision, earliest, latest = dated(content)
    starts = content["date"]
    exact = starts if precision in EXACT else None
    days = days_until(starts, precision, at)
    return event_id, content["title"], exact, precision, earliest, latest, days


def _is_exact(content: Content) -> bool:
    return dated(content)[0] in EXACT


def _value(kind: str, version: Version) -> str | None:
    if kind in _DATED:
        return full_date(version.content)
    if kind == "rescored":
        score = version.content.get("impact")
        return version.content.get("impact_band") if score is None else str(score)
    return version.status if kind in ("cancelled", "withdrawn", "restored") else None


def _windows(batch: Manifest) -> tuple[Any, Any]:
    """Return the window of a pull by its dates, and by its days from the day of the pull."""
    scope = batch.scope
    filters = [None if some is None else tuple(sorted(some)) for some in _filters(batch)]
    key = (batch.feed, batch.plan, *filters)
    bounds = (scope.lower, scope.upper)
    today = batch.observed_at.date()
    days = [None if bound is None else (bound.date() - today).days for bound in bounds]
    return ("dates", *key, *bounds), ("days", *key, *days)


def _filters(batch: Manifest) -> tuple[Iterable[str] | None, Iterable[str] | None]:
    return batch.scope.coins, batch.scope.categories


def _sum(scores: Iterable[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return round(sum(known), 6) if known else None


def _max(scores: Iterable[float | None]) -> float | None:
    return max((score for score in scores if score is not None), default=None)
