"""Recorded history, one change after another, with the catalog as it was known at each.

for change in db.replay("2026-03-01", "2026-03-08", kinds="rescheduled"):
    print(change.known_from, change.event["title"], change.previous["date"], change.event["date"])
"""

import hashlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Self

from almanac.coins import resolve_slugs
from almanac.core.errors import InvalidArgument
from almanac.core.statements import Statements
from almanac.core.timestamps import TimestampLike
from almanac.events import KINDS, Coins, Names, read_choices, read_known_at, read_observed
from almanac.reader import Reader

_SQL = Statements("almanac")
_BATCH: Final = 10_000
KnownEvent = Mapping[str, Any]
"""A version of an event: the columns of `event_versions` that were known then, in UTC."""


class ChangeDigest:
    """The hash of a change log: proof that a client of a replay received every change.

    SHA-256 over a line `event version known_from` for each change, with the count of changes.
    `known_from` is written in UTC with six decimals: `2026-03-01T06:00:00.000000Z`.
    """

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, event_id: str, version: int, known_from: datetime) -> None:
        """Add the next change; `known_from` has a time zone."""
        instant = known_from.astimezone(UTC)
        self._hash.update(f"{event_id} {version} {instant:%Y-%m-%dT%H:%M:%S.%fZ}\n".encode())
        self.count += 1

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


@dataclass(frozen=True, slots=True)
class Change:
    """A version that became known. `previous` is the version before it, None if there was none."""

    event_id: str
    version: int
    known_from: datetime
    kinds: tuple[str, ...]
    changed_fields: tuple[str, ...]
    event: KnownEvent
    previous: KnownEvent | None


class Replay:
    """An iterator over the changes after a start, until an end, in order of knowledge.

    The order is the same as in a replay of the mirror: `known_from`, event, version. It reads the
    file that it opened: a publication during the iteration changes nothing.

    Attributes:
        since, until: the range; a change at `since` is part of the catalog, not of the changes.
        now: when the last change became known; the start before the first change.
        catalog: the events known now, by id, of every status. It changes with each step; a program
            can't change it.
    """

    def __init__(
        self,
        reader: Reader,
        since: TimestampLike,
        until: TimestampLike | None = None,
        *,
        coins: Coins | None = None,
        kinds: Names | None = None,
    ) -> None:
        if since is None:
            raise InvalidArgument("since=None: expected a timestamp, such as 2026-03-01")
        self._reader = reader
        self.since = read_observed(reader, since, "since")
        self.until = read_known_at(reader, until, "until")
        if self.until < self.since:
            raise InvalidArgument(f"until={until!r} is before since={since!r}")
        slugs = resolve_slugs(reader, coins, self.since)
        self._coins = None if slugs is None else frozenset(slugs)
        chosen = read_choices(kinds, "kinds", KINDS)
        self._kinds = None if chosen is None else frozenset(chosen)
        self.now = self.since
        self._known: dict[str, KnownEvent] = {
            row["event_id"]: MappingProxyType(row)
            for row in reader.rows(_SQL["catalog_at"], {"at": self.since})
        }
        self.catalog: Mapping[str, KnownEvent] = MappingProxyType(self._known)
        self._changes = self._read()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        for change in self._changes:
            if self._is_chosen(change):
                return change
        self.now = self.until
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the catalog stays readable."""
        self._changes.close()
        self._reader.close()

    @property
    def count(self) -> int:
        """The number of all changes in the range, regardless of the chosen coins and kinds."""
        return self._digest.count

    @property
    def sha256(self) -> str:
        """The hash of all changes in the range: a mirror that replays the range shows the same."""
        return self._digest.hexdigest()

    @cached_property
    def _digest(self) -> ChangeDigest:
        digest = ChangeDigest()
        values = {"after": self.since, "until": self.until}
        for row in self._reader.rows(_SQL["keys_between"], values):
            digest.add(row["event_id"], row["version"], row["known_from"])
        return digest

    def _read(self) -> Generator[Change, None, None]:
        """Yield every change once it is applied to the catalog."""
        key: dict[str, Any] = {"known_from": None, "event_id": None, "version": None}
        bounds = {"after": self.since, "until": self.until, "most": _BATCH}
        while rows := self._reader.rows(_SQL["changes_between"], {**bounds, **key}):
            for row in rows:
                previous = self._known.get(row["event_id"])
                event = self._known[row["event_id"]] = MappingProxyType(row)
                self.now = row["known_from"]
                kinds, fields = (tuple(row[n] or ()) for n in ("change_kinds", "changed_fields"))
                key = {name: row[name] for name in key}
                yield Change(
                    **key, kinds=kinds, changed_fields=fields, event=event, previous=previous
                )

    def _is_chosen(self, change: Change) -> bool:
        if self._kinds is not None and self._kinds.isdisjoint(change.kinds):
            return False
        if self._coins is None:
            return True
        versions = (change.event, change.previous or {})
        return any(not self._coins.isdisjoint(known.get("coins") or ()) for known in versions)
