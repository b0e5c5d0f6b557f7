"""What folding again did to the history there was: nobody should find it out by chance.

Belongs here: which batches took part before and do so no more, and how the versions of days that
another version of Almanac folded differ in the end. Does not: folding (merge.py), how it is shown.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

import duckdb

from warehouse.attaching import attach_published
from warehouse.batches import Manifest
from warehouse.change_log import DayFile, folded_by_others
from warehouse.home import Home
from warehouse.outcomes import Outcome
from warehouse.statements import literal, statement


@dataclass(frozen=True, slots=True)
class Counts:
    """How many observed versions a history has, in all and by kind of change."""

    versions: int
    kinds: Counter[str]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Days that an Almanac of other rules folded, and this one again.

    Of these, days into which new batches were folded as well are not compared: what differs there
    need not be of the rules. `added` are versions that are new or other, `removed` those that are
    no more. The counts are None where the files could not be read.
    """

    days: int
    uncompared: int
    added: int
    removed: int
    before: Counts | None
    after: Counts | None

    def __str__(self) -> str:
        """Return one line."""
        days = "1 day" if self.days == 1 else f"{self.days:,} days"
        were = "was" if self.days == 1 else "were"
        left_out = f" ({self.uncompared:,} with new batches left out)" if self.uncompared else ""
        return f"{days} of another Almanac's rules {were} folded again: {self._what}{left_out}."

    @property
    def _what(self) -> str:
        before, after = self.before, self.after
        if self.days == self.uncompared:
            return "nothing to compare"
        if not self.added and not self.removed:
            return "nothing changed"
        differing = f"{self.added:,} new or other, {self.removed:,} no more"
        if before is None or after is None:
            return f"versions: {differing}"
        versions = "1 version" if before.versions == 1 else f"{before.versions:,} versions"
        changed = (
            f"{kind} {before.kinds[kind]:,} before, {after.kinds[kind]:,} now"
            for kind in sorted(before.kinds | after.kinds)
            if before.kinds[kind] != after.kinds[kind]
        )
        return "; ".join((f"{versions} before, {after.versions:,} now", differing, *changed))


class Comparison:
    """The history there was when a merge began, against what it became."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._merged: set[str] = set()
        self._older: set[date] = set()
        self._with_fresh: set[date] = set()
        self._before: Counts | None = None

    def begin(self, days: Sequence[DayFile], fresh: Iterable[Manifest]) -> None:
        """Look at the days there are, before any is folded again, and batches before they are."""
        self._older = set(folded_by_others(days))
        self._with_fresh = {manifest.observed_at.date() for manifest in fresh}
        self._before = self._counts(days) if self._older else None

    def note(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Note what became before of batches that may be folded again."""
        self._merged |= {str(one["batch_id"]) for one in records if one["status"] == "merged"}

    def lost(self, quarantined: Iterable[Outcome]) -> dict[str, str]:
        """Return the quarantined batches that took part before, with why they do so no more.

        Before is in the lake, or in the published file: of a replay that was killed, the lake is
        what that left.
        """
        why = {one.manifest.batch_id: one.why or "" for one in quarantined}
        if not why:
            return {}
        before = self._merged | _published(self._home)
        return {batch_id: told for batch_id, told in why.items() if batch_id in before}

    def upgrade(
        self, days: Callable[[], list[DayFile]], refolded: Mapping[date, tuple[int, int]]
    ) -> Upgrade | None:
        """Return what became of history, None where no day of other rules was folded again.

        `refolded` has the versions of each day that are new or other, and those that are no more.
        """
        again = self._older & refolded.keys()
        if not again:
            return None
        compared = again - self._with_fresh
        return Upgrade(
            days=len(again),
            uncompared=len(again) - len(compared),
            added=sum(refolded[day][0] for day in compared),
            removed=sum(refolded[day][1] for day in compared),
            before=self._before,
            after=self._counts(days()),
        )

    def _counts(self, days: Iterable[DayFile]) -> Counts | None:
        """Return the counts of the files that are compared; None where one can't be read."""
        compared = self._older - self._with_fresh
        files = [literal(one.path) for one in days if one.day in compared]
        if not files:
            return Counts(0, Counter())
        with suppress(duckdb.Error), self._home.connect() as connection:
            rows = connection.execute(statement("history_counts"), {"files": files}).fetchall()
            counted = dict(rows)
            return Counts(counted.pop(None), Counter(counted))
        return None


def _published(home: Home) -> set[str]:
    """Return the ids of the batches in the published file; none where it can't be read."""
    if not home.warehouse.is_file():
        return set()
    with suppress(duckdb.Error), home.connect() as connection:
        attach_published(connection, home.warehouse, "published")
        rows = connection.execute(statement("history_merged_batches")).fetchall()
        return {str(batch_id) for (batch_id,) in rows}
    return set()
