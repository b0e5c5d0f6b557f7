"""What became known in a period: the changes of each kind, the important ones first.

Belongs here: which changes, their order and number, how old the knowledge is. Does not: how a
digest looks (texts, messages), to whom it is sent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Final

from almanac.coins import slugs_of
from almanac.coverage import coverage_at
from almanac.errors import InvalidArgument
from almanac.events import Coins, Names, impact_values, known_at, listed
from almanac.instants import Instant
from almanac.reader import Reader
from almanac.reading.named_sql import NamedStatements

IN_ORDER: Final = (
    *("cancelled", "rescheduled", "made_exact", "made_estimated", "rescored", "created"),
    *("withdrawn", "restored", "revised", "revealed"),
)
"""The kinds of change, the most important first."""
STALE_AFTER: Final = timedelta(hours=26)
"""A home is pulled once a day; a last pull older than this is said to be old."""
_FLOOD: Final = 20
"""More events than this that are only revealed are a count: a first pull reveals all there are."""
_OF_THE_DATE: Final = frozenset({"date", "date_end", "date_type", "displayed_date", "is_estimated"})
_OF_THE_SCORE: Final = frozenset({"impact", "impact_band"})
_TO_A_PRECISION: Final = frozenset({"made_exact", "made_estimated"})
_SQL = NamedStatements("almanac.digest")


@dataclass(frozen=True, slots=True)
class Entry:
    """The changes of one kind of one event in the period, oldest first; each as a row.

    A row has the columns of `changes`, the date, source and status of the version, and how far a
    date moved, in days.
    """

    rows: Sequence[dict[str, Any]]

    @property
    def last(self) -> dict[str, Any]:
        return self.rows[-1]

    @property
    def values(self) -> list[str]:
        """The old value, and the new value after each change, without repeats."""
        chain = [self.rows[0]["old_value"], *(row["new_value"] for row in self.rows)]
        known = [value for value in chain if value is not None]
        return [value for n, value in enumerate(known) if n == 0 or value != known[n - 1]]

    @property
    def other_fields(self) -> list[str]:
        """The fields that changed, without those that another kind of change shows."""
        fields: list[str] = []
        for row in self.rows:
            kinds = set(row["change_kinds"])
            shown: frozenset[str] = frozenset()
            if kinds & {"rescheduled", *_TO_A_PRECISION}:
                shown |= _OF_THE_DATE
            if "rescored" in kinds:
                shown |= _OF_THE_SCORE
            fields += [
                name
                for name in row["changed_fields"] or ()
                if name not in shown and name not in fields
            ]
        return fields or list(self.last["changed_fields"] or ())


@dataclass(frozen=True, slots=True)
class Section:
    """The changes of one kind: how many there are, and the first events of them.

    `apart` of the events are not in the text of this section: their date became exact or estimated,
    and another section shows how it moved.
    """

    kind: str
    changes: int
    events: int
    apart: int
    entries: Sequence[Entry]

    @property
    def shown(self) -> list[Entry]:
        """The entries of the text of this section."""
        return [entry for entry in self.entries if not entry.last["is_apart"]]

    @property
    def more(self) -> int:
        """How many events of the text have no entry."""
        return self.events - self.apart - len(self.shown)


@dataclass(frozen=True, slots=True)
class Digest:
    """What became known after `since`, until `until`.

    Attributes:
        first_pull_at, last_pull_at: of events, by `until`; None if there was none.
        sections: the kinds that occurred, the most important first.
        min_impact: the least impact, None for all; `unscored` changes have no known impact, and
            are left out if there is a least one.
        coins: slugs that an event has one of, None for all.
    """

    since: datetime
    until: datetime
    first_pull_at: datetime | None
    last_pull_at: datetime | None
    sections: Sequence[Section]
    min_impact: float | None = None
    unscored: int = 0
    coins: Sequence[str] | None = None

    @property
    def stale_for(self) -> timedelta | None:
        """The age of the last pull at the end of the period, if it is old; else None."""
        if self.last_pull_at is None:
            return None
        age = self.until - self.last_pull_at
        return age if age > STALE_AFTER else None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all entries."""
        for section in self.sections:
            for entry in section.entries:
                yield from entry.rows


def last_known(reader: Reader) -> datetime | None:
    """Return the instant of the last pull whose changes are published; None if there was none."""
    (row,) = reader.query(_SQL["last_known"]).to_pylist()
    found: datetime | None = row["last_known"]
    return None if found is None else found.astimezone(UTC)


def digest_of(
    reader: Reader,
    *,
    since: Instant,
    until: Instant | None = None,
    coins: Coins | None = None,
    kinds: Names | None = None,
    min_impact: float | None = None,
    limit: int | None = None,
) -> Digest:
    """Return what became known after `since`, until `until` (now by default).

    Before the first pull nothing was known, so a period may begin before it. `limit` is the most
    events of a kind that have an entry; None is all. Events that were only revealed have none if
    they are many, unless `kinds` names them.

    Raises:
        InvalidArgument: an argument is wrong, or an instant is still to come.
        UnknownName, AmbiguousCoin: a coin does not exist, or is not unique.
        WarehouseError: the file can't be read.
    """
    with reader.pinned():
        after, before = known_at(reader, since, "since"), known_at(reader, until, "until")
        if before < after:
            raise InvalidArgument(f"until={until!r} is before since={since!r}")
        if limit is not None and limit < 1:
            raise InvalidArgument(f"limit={limit}: expected at least 1")
        named, slugs = listed(kinds, "kinds", IN_ORDER), slugs_of(reader, coins)
        values = {
            "since": after,
            "until": before,
            "kinds": named,
            "coins": slugs,
            "apart": named is None or set(named) >= _TO_A_PRECISION,
            **impact_values(min_impact),
        }
        counts = reader.query(_SQL["digest_counts"], values).to_pylist()
        events = {row["kind"]: row["events"] for row in counts}
        with_revealed = "revealed" in (named or ()) or events.get("revealed", 0) <= _FLOOD
        values |= {"limit": limit, "revealed": with_revealed}
        rows = reader.query(_SQL["digest_rows"], values).to_pylist()
        pulled = coverage_at(reader, before)
    entries: dict[str, list[Entry]] = {kind: [] for kind in IN_ORDER}
    for (kind, _), of_event in groupby(rows, key=lambda row: (row["kind"], row.pop("place"))):
        entries[kind].append(Entry(list(of_event)))
    sections = [
        Section(row["kind"], row["changes"], row["events"], row["apart"], entries[row["kind"]])
        for row in sorted(counts, key=lambda row: IN_ORDER.index(row["kind"]))
        if row["events"]
    ]
    return Digest(
        since=after,
        until=before,
        first_pull_at=pulled.first_pull_at,
        last_pull_at=pulled.last_pull_at,
        sections=sections,
        min_impact=values["min_impact"],
        unscored=sum(row["unscored"] for row in counts),
        coins=slugs,
    )
