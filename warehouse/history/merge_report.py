"""What a merge did: its days and batches, and how the history differs where days were refolded."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from typing import Any

import duckdb

from almanac.reading.published import attach_published
from warehouse.batch_problems import BatchProblem, problems_of_damaged, problems_of_record
from warehouse.history.change_log import DayFile, folded_by_other_rules
from warehouse.history.day import DayMerged
from warehouse.history.outcomes import Outcome
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.publish.publish import PublishReport
from warehouse.schema.columns import GROUPS
from warehouse.sql import Statements, literal

_SQL = Statements(__package__, GROUPS)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many observed versions a history has, in all and by kind of change."""

    versions: int
    kinds: Counter[str]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Days that an Almanac with other rules folded, and this one refolded.

    Days that also got new batches are not compared, since their differences may come from those.
    `added` counts versions that are new or changed, `removed` those that no longer exist. The
    counts are None if the files could not be read.
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
        return (
            f"{days} folded by another version of Almanac {were} refolded: {self._what}{left_out}."
        )

    @property
    def _what(self) -> str:
        before, after = self.before, self.after
        if self.days == self.uncompared:
            return "nothing to compare"
        if not self.added and not self.removed:
            return "nothing changed"
        differing = f"{self.added:,} new or changed, {self.removed:,} removed"
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
    """Compares the history before a merge with the history after it."""

    def __init__(self, home: Home, released: frozenset[str]) -> None:
        """`released` are the batches that a person trusts now."""
        self._home = home
        self._released = released
        self._taken_back: set[str] = set()
        self._merged: set[str] = set()
        self._older: set[date] = set()
        self._with_fresh: set[date] = set()
        self._before: Counts | None = None

    def begin(self, days: Sequence[DayFile], fresh: Iterable[Manifest]) -> None:
        """Record the existing days before any is refolded, and the new batches."""
        self._older = set(folded_by_other_rules(days))
        self._with_fresh = {manifest.observed_at.date() for manifest in fresh}
        self._before = self._counts(days) if self._older else None

    def note(self, records: Collection[Mapping[str, Any]]) -> None:
        """Record the earlier outcomes of batches that may be refolded."""
        self._merged |= {
            str(record["batch_id"]) for record in records if record["status"] == "merged"
        }
        self._taken_back |= {
            str(record["batch_id"]) for record in records if record["released"]
        } - self._released

    def lost(self, quarantined: Iterable[Outcome]) -> dict[str, str]:
        """Return the quarantined batches that were merged before, with the reason.

        They were merged before according to the lake or the published file, since a killed replay
        may have left an incomplete lake. A batch whose release was taken back is not lost.
        """
        why = {outcome.manifest.batch_id: outcome.why or "" for outcome in quarantined}
        if not why:
            return {}
        before = (self._merged | _published(self._home)) - self._taken_back
        return {batch_id: reason for batch_id, reason in why.items() if batch_id in before}

    def upgrade(
        self, days: Callable[[], list[DayFile]], refolded: Mapping[date, tuple[int, int]]
    ) -> Upgrade | None:
        """Return how history differs, None if no day with other rules was refolded.

        `refolded` has for each day the number of new or changed versions, and of removed ones.
        """
        refolded_days = self._older & refolded.keys()
        if not refolded_days:
            return None
        compared = refolded_days - self._with_fresh
        return Upgrade(
            days=len(refolded_days),
            uncompared=len(refolded_days) - len(compared),
            added=sum(refolded[day][0] for day in compared),
            removed=sum(refolded[day][1] for day in compared),
            before=self._before,
            after=self._counts(days()),
        )

    def _counts(self, days: Iterable[DayFile]) -> Counts | None:
        """Return the counts of the compared files; None if one can't be read."""
        compared = self._older - self._with_fresh
        files = [literal(day_file.path) for day_file in days if day_file.day in compared]
        if not files:
            return Counts(0, Counter())
        with suppress(duckdb.Error), self._home.connect() as connection:
            rows = connection.execute(_SQL["count_history"], {"files": files}).fetchall()
            counted = dict(rows)
            return Counts(counted.pop(None), Counter(counted))
        return None


def _published(home: Home) -> set[str]:
    """Return the ids of the batches in the published file; none if it can't be read."""
    if not home.warehouse.is_file():
        return set()
    with suppress(duckdb.Error), home.connect() as connection:
        attach_published(connection, home.warehouse, "published")
        rows = connection.execute(_SQL["list_merged_batches"]).fetchall()
        return {str(batch_id) for (batch_id,) in rows}
    return set()


@dataclass(slots=True)
class MergeReport:
    """What a merge did. `refolded` has the days that were folded before, with the differences."""

    outcomes: list[Outcome] = field(default_factory=list)
    days: list[date] = field(default_factory=list)
    refolded: dict[date, tuple[int, int]] = field(default_factory=dict)
    rebuilt: list[str] = field(default_factory=list)
    """Checkpoints that could not be used, so that more days were refolded."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Batches that were set aside because their files in landing are damaged, with the reason."""
    lost: dict[str, str] = field(default_factory=dict)
    """Batches that were merged before and are quarantined now, with the reason."""
    upgrade: Upgrade | None = None
    """How history differs, if days of an older Almanac were refolded."""
    waited: bool = False
    seconds: float = 0.0
    published: PublishReport | None = None

    def note(self, merged: DayMerged, *, refolded: bool) -> None:
        """Add the outcome of a day; a day that is folded twice after a failed batch counts once."""
        if merged.day in self.days:
            self.outcomes = [outcome for outcome in self.outcomes if outcome.day != merged.day]
        else:
            self.days.append(merged.day)
        self.outcomes.extend(merged.outcomes)
        if refolded:
            self.refolded.setdefault(merged.day, (merged.added, merged.removed))

    @property
    def changes(self) -> Counter[str]:
        """The number of versions of each kind."""
        total: Counter[str] = Counter()
        for outcome in self.outcomes:
            total.update(outcome.changes)
        return total

    @property
    def rejected(self) -> int:
        return sum(outcome.rejected for outcome in self.outcomes)

    @property
    def versions(self) -> int:
        return sum(outcome.versions for outcome in self.outcomes)

    @property
    def problems(self) -> list[BatchProblem]:
        """The partial, flagged and quarantined batches, in the order in which they were folded,
        and the damaged ones."""
        folded = (problems_of_record(outcome.record()) for outcome in self.outcomes)
        return [*chain.from_iterable(folded), *problems_of_damaged(self.damaged)]

    @property
    def notes(self) -> list[str]:
        """A line for each effect that refolding had on the earlier history."""
        lost = (
            f"{batch_id} was merged before and is quarantined now: its rows are no longer in the "
            f"warehouse. {why}"
            for batch_id, why in self.lost.items()
        )
        return [*([] if self.upgrade is None else [str(self.upgrade)]), *lost]

    @property
    def quarantined(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == "quarantined"]
