"""A made world in which every field of an event changes, and rows that leak one later value each.

Belongs here: the events, the rows, what is planted in them. Does not: how an audit is called
(test_planted_kinds). It shares no code with the audit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta, timezone
from random import Random
from typing import Any

from tests.almanac.publications import NamedCoin
from tests.warehouse.answers.handmade import Known

DAY = timedelta(days=1)
FIRST = datetime(2026, 3, 1, 6, tzinfo=UTC)
PULLS = tuple(FIRST + number * DAY for number in range(30))
LAST = PULLS[-1]
CATEGORIES = ("AMA", "Airdrop", "Exchange Listing", "Meetup", "Token Supply (Lock, Burn)")
BANDS = ("Low", "Mid", "High", "Critical")
WORDS = ("amber", "birch", "cedar", "delta", "ember", "flint", "grove", "heron", "ivory", "jasper")
_INSTANT = timedelta(microseconds=1)
_OFFSET = timezone(timedelta(hours=5, minutes=30))

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a back-test: its values, and what is planted in it; None is an honest row."""

    values: Values
    kind: str | None


@dataclass(frozen=True, slots=True)
class Leak:
    """What a row may use: the version of its decision, and a later one."""

    then: Known
    end: datetime
    later: Known


class World:
    """Events with four to six versions each, and coins of their own."""

    def __init__(self, seed: int, events: int = 120) -> None:
        self.random = Random(seed)
        self.histories = [self._history(number) for number in range(events)]
        self.coins = [
            NamedCoin(f"coin-{number}", f"C{number}", f"Coin {number}", number + 1)
            for number in range(2 * events)
        ]

    @property
    def versions(self) -> list[Known]:
        return [version for history in self.histories for version in history]

    def spans(self) -> Iterator[tuple[list[Known], int, datetime]]:
        """Yield each version, as a history and a place in it, with the end of its time."""
        for history in self.histories:
            ends = [version.known_from for version in history[1:]]
            for place, end in enumerate([*ends, LAST + _INSTANT]):
                yield history, place, end

    def leaks(self, name: str, differs: Callable[[Known, Known], bool]) -> list[Leak]:
        """Return the later versions that differ in `name` from each version up to the decision.

        `differs` says that a later value is not even close to an earlier one.
        """
        found = []
        for history, place, end in self.spans():
            for later in history[place + 1 :]:
                before = history[: place + 1]
                if all(
                    getattr(later, name) != getattr(each, name) and differs(later, each)
                    for each in before
                ):
                    found.append(Leak(history[place], end, later))
                    break
        return found

    def between(self, start: datetime, end: datetime) -> datetime:
        """Return an instant from `start` until before `end`; the edges are drawn often."""
        share = self.random.choice([0.0, 1.0, self.random.random()])
        return min(start + (end - start) * share, end - _INSTANT)

    def _history(self, number: int) -> list[Known]:
        random = self.random
        is_new = random.random() < 0.4
        start = random.randrange(3, 12) if is_new else 0
        known = Known(
            event_id=f"event-{number}",
            known_from=PULLS[start],
            change_kinds=("created",) if is_new else ("revealed",),
            title=f"{random.choice(WORDS)} {number}",
            categories=(random.choice(CATEGORIES),),
            coins=(f"coin-{2 * number}",),
            impact=round(random.uniform(1, 9), 2),
            impact_band=random.choice(BANDS),
            source_url=f"https://example.org/{number}/0",
            created_at=PULLS[start] - timedelta(hours=2),
            **self._date(0),
        )
        if random.random() < 0.3:
            end = datetime(2026, random.choice([4, 5, 6]), 30, 23, 59, 59, tzinfo=UTC)
            known = replace(known, date=end, date_type="month", is_estimated=True)
        history = [known]
        for place in sorted(random.sample(range(start + 1, len(PULLS)), random.randint(3, 5))):
            known = replace(
                self._changed(known, len(history)),
                version=len(history) + 1,
                known_from=PULLS[place],
                change_kinds=("revised",),
            )
            history.append(known)
            if known.status != "scheduled":
                break
        return history

    def _date(self, number: int) -> Values:
        """Return a date that is days away from that of any other number."""
        day = datetime(2026, 4, 2, tzinfo=UTC) + (number * 7 + self.random.randrange(4)) * DAY
        hours = self.random.choice([0, 0, self.random.randrange(1, 24)])
        date = day + timedelta(hours=hours)
        return {
            "date": date,
            "date_end": date + self.random.randrange(1, 5) * DAY,
            "displayed_date": f"{date:%d %b %Y %H:%M}",
            "date_type": "date",
            "is_estimated": False,
        }

    def _changed(self, known: Known, number: int) -> Known:
        random = self.random
        changes: list[Callable[[], Values]] = [
            lambda: self._date(number),
            lambda: {"impact": round((known.impact or 0) % 7 + 1.51, 2)},
            lambda: {"impact_band": random.choice([b for b in BANDS if b != known.impact_band])},
            lambda: {"title": f"{random.choice(WORDS)} {random.choice(WORDS)} {number}"},
            lambda: {"categories": (*known.categories, self._category(known))},
            lambda: (
                {"coins": (*known.coins, f"coin-{2 * int(known.event_id[6:]) + 1}")}
                if len(known.coins) == 1
                else {}
            ),
            lambda: {"source_url": f"https://example.org/{known.event_id}/{number}"},
            lambda: {"created_at": (known.created_at or FIRST) + timedelta(minutes=number)},
            lambda: {
                "status": "cancelled",
                "cancelled_at": known.known_from + timedelta(minutes=random.randrange(1, 600)),
            },
        ]
        found: Values = {}
        for change in random.sample(changes, 3):
            found |= change()
        return replace(known, **found)

    def _category(self, known: Known) -> str:
        rest = [name for name in CATEGORIES if name not in known.categories]
        return self.random.choice(rest or ["Release"])


NAMES = (
    *("date", "date_end", "displayed_date", "date_type", "is_estimated", "impact", "impact_band"),
    *("status", "cancelled_at", "title", "categories", "coins", "source_url", "created_at"),
)


def content(version: Known) -> Values:
    """Return the values of a version under the names of the audit."""
    return {name: getattr(version, name) for name in NAMES}


def midnight(instant: datetime) -> datetime:
    """Return an instant as frames write its day."""
    return datetime.combine(instant.date(), time(), tzinfo=UTC)


def is_exact(version: Known) -> bool:
    return version.date_type == "date" and not version.is_estimated


def days_until(version: Known, when: datetime) -> float:
    """Return what attach_known says of an exact date."""
    assert version.date is not None
    if version.date.time() == time():
        return float((version.date.date() - when.date()).days)
    return (version.date - when) / DAY


def _exactly(later: Known, before: Known) -> bool:
    """Whether a later date is exact and of another day."""
    assert later.date is not None and before.date is not None
    return is_exact(later) and later.date.date() != before.date.date()


def _any(later: Known, before: Known) -> bool:
    return True


def _apart(later: Known, before: Known) -> bool:
    return abs((later.impact or 0) - (before.impact or 0)) >= 0.3


def _not_hidden_in(later: Known, before: Known) -> bool:
    return not set(later.categories) <= set(before.categories)


Change = Callable[[Leak, datetime], Values]
PLAIN: dict[str, tuple[str, Callable[[Known, Known], bool], Change]] = {
    "later date": ("date", _exactly, lambda leak, when: {"date": leak.later.date, **_AS_EXACT}),
    "later day as midnight": (
        "date",
        _exactly,
        lambda leak, when: {"date": midnight(leak.later.date or when), **_AS_EXACT},
    ),
    "later date in another zone": (
        "date",
        _exactly,
        lambda leak, when: {"date": (leak.later.date or when).astimezone(_OFFSET), **_AS_EXACT},
    ),
    "later end": ("date_end", _exactly, lambda leak, when: {"date_end": leak.later.date_end}),
    "later displayed date": (
        "displayed_date",
        _exactly,
        lambda leak, when: {"displayed_date": leak.later.displayed_date},
    ),
    "later precision": (
        "is_estimated",
        _any,
        lambda leak, when: {"is_estimated": leak.later.is_estimated},
    ),
    "later score": ("impact", _apart, lambda leak, when: {"impact": leak.later.impact}),
    "later score, rounded": (
        "impact",
        _apart,
        lambda leak, when: {"impact": round(leak.later.impact or 0, 1)},
    ),
    "later band": ("impact_band", _any, lambda leak, when: {"impact_band": leak.later.impact_band}),
    "later status": ("status", _any, lambda leak, when: {"status": leak.later.status}),
    "later cancellation": (
        "cancelled_at",
        _any,
        lambda leak, when: {"cancelled_at": leak.later.cancelled_at},
    ),
    "later title": ("title", _any, lambda leak, when: {"title": leak.later.title}),
    "later title, in capitals": (
        "title",
        _any,
        lambda leak, when: {"title": f" {leak.later.title.upper()}!"},
    ),
    "later categories": (
        "categories",
        _not_hidden_in,
        lambda leak, when: {"categories": leak.later.categories},
    ),
    "later coins": ("coins", _any, lambda leak, when: {"coins": leak.later.coins}),
    "later link": ("source_url", _any, lambda leak, when: {"source_url": leak.later.source_url}),
    "later creation": (
        "created_at",
        lambda later, before: later.created_at != before.created_at,
        lambda leak, when: {"created_at": leak.later.created_at},
    ),
}
_AS_EXACT: Values = {"date_type": None, "is_estimated": None}


class Planter:
    """Draws rows from a world, in tables of one layout each."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._found = {
            kind: world.leaks(name, differs) for kind, (name, differs, _) in PLAIN.items()
        }
        self._linked = world.leaks("coins", _any)
        self._moved = self._found["later date"]

    def plain(self, count: int) -> list[Row]:
        """Return rows with an event_id and all values: half of them leak, each kind as often."""
        rows = []
        kinds = [*PLAIN, "not announced", "estimated as exact"]
        for number in range(count):
            kind = kinds[number % len(kinds)]
            if kind == "not announced":
                rows.append(Row(self._unannounced(), kind))
            elif kind == "estimated as exact":
                rows.append(Row(self._estimated(), kind))
            else:
                leak = self._random.choice(self._found[kind])
                when = self._world.between(leak.then.known_from, leak.end)
                used = content(leak.then) | PLAIN[kind][2](leak, when)
                rows.append(Row({**_decided(leak.then, when), **used}, kind))
            rows.append(Row(self._honest(number), None))
        return rows

    def days(self, count: int) -> list[Row]:
        """Return rows that use the days until an event."""
        rows = []
        for _ in range(count):
            leak = self._random.choice(self._moved)
            when = self._world.between(leak.then.known_from, leak.end)
            days = days_until(leak.later, when)
            rows.append(Row({**_decided(leak.then, when), "days_until": days}, "later days"))
            version, when = self._version(is_exact)
            days = days_until(version, when)
            rows.append(Row({**_decided(version, when), "days_until": days}, None))
        return rows

    def categories(self, count: int) -> list[Row]:
        """Return rows that use one category."""
        rows = []
        for _ in range(count):
            leak = self._random.choice(self._found["later categories"])
            when = self._world.between(leak.then.known_from, leak.end)
            (*_, name) = (n for n in leak.later.categories if n not in leak.then.categories)
            rows.append(Row({**_decided(leak.then, when), "category": name}, "later category"))
            version, when = self._version(lambda version: True)
            name = self._random.choice(version.categories)
            rows.append(Row({**_decided(version, when), "category": name}, None))
        return rows

    def coins(self, count: int) -> list[Row]:
        """Return rows that name a coin: beside an event, or with a date in its place."""
        rows = []
        for number in range(count):
            if number % 2:
                leak = self._random.choice(self._linked)
                when = self._world.between(leak.then.known_from, leak.end)
                coin = leak.later.coins[-1].replace("coin-", "C")
                used = {**_decided(leak.then, when), "coin": coin, "date": None}
                rows.append(Row(used, "later coin"))
                version, when = self._version(lambda version: True)
                coin = self._random.choice(version.coins)
                rows.append(Row({**_decided(version, when), "coin": coin, "date": None}, None))
                continue
            leak = self._random.choice(self._moved)
            when = self._world.between(leak.then.known_from, leak.end)
            used = {"coin": leak.then.coins[0], "date": leak.later.date}
            named = {"event_id": None, "decided_at": when}
            rows.append(Row({**named, **used}, "later date of a coin"))
            version, when = self._version(is_exact)
            used = {"coin": version.coins[0], "date": midnight(version.date or when)}
            rows.append(Row({"event_id": None, "decided_at": when, **used}, None))
        return rows

    def joined(self, rows: list[Values]) -> list[Row]:
        """Return the rows of attach_known, and beside each with an event one that leaks."""
        found = []
        histories = {history[0].event_id: history for history in self._world.histories}
        for number, values in enumerate(rows):
            found.append(Row(values, None))
            if values["next_event_id"] is None:
                continue
            history, when = histories[values["next_event_id"]], values["ts"]
            places = [p for p, version in enumerate(history) if version.known_from <= when]
            for later in history[places[-1] + 1 :]:
                changes = self._joined_changes(history[: places[-1] + 1], later, when)
                if changes:
                    kind = sorted(changes)[number % len(changes)]
                    found.append(Row({**values, **changes[kind]}, f"joined: {kind}"))
                    break
        return found

    def _joined_changes(
        self, before: list[Known], later: Known, when: datetime
    ) -> dict[str, Values]:
        """Return what a row of attach_known may use of a later version, by kind."""
        assert later.date is not None
        changes: dict[str, Values] = {"known_from": {"next_event_known_from": later.known_from}}
        if all(later.date != each.date and _exactly(later, each) for each in before):
            changes["date"] = {"next_event_date": later.date}
            changes["day"] = {"next_event_date": midnight(later.date)}
            changes["days"] = {"days_until": days_until(later, when)}
        if all(_apart(later, each) for each in before):
            changes["score"] = {"next_event_impact": later.impact}
        if all(later.title != each.title for each in before):
            changes["title"] = {"next_event_title": later.title}
        if all(_not_hidden_in(later, each) for each in before):
            changes["categories"] = {"next_event_categories": "; ".join(later.categories)}
        if all(later.impact_band != each.impact_band for each in before):
            changes["band"] = {"next_event_band": later.impact_band}
        return changes

    def _version(self, is_taken: Callable[[Known], bool]) -> tuple[Known, datetime]:
        """Return a version and an instant at which it was known."""
        while True:
            history, place, end = self._random.choice(list(self._world.spans()))
            if is_taken(history[place]):
                return history[place], self._world.between(history[place].known_from, end)

    def _honest(self, number: int) -> Values:
        version, when = self._version(lambda version: True)
        used = content(version)
        if number % 3 == 0 and is_exact(version):
            used["date"] = midnight(used["date"])
        return {**_decided(version, when), **used}

    def _unannounced(self) -> Values:
        history = self._random.choice(
            [each for each in self._world.histories if each[0].change_kinds == ("created",)]
        )
        when = self._world.between(PULLS[0], history[0].known_from)
        return {**_decided(history[0], when), **content(history[0])}

    def _estimated(self) -> Values:
        version, when = self._version(lambda version: not is_exact(version))
        return {**_decided(version, when), **content(version), **_AS_EXACT}


def _decided(version: Known, when: datetime) -> Values:
    return {"event_id": version.event_id, "decided_at": when}
