"""What a merge did, for those who asked for it."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from itertools import chain

from warehouse.batch_problems import BatchProblem, problems_of_damaged, problems_of_record
from warehouse.days import DayMerged
from warehouse.history_compared import Upgrade
from warehouse.outcomes import Outcome
from warehouse.publish import PublishReport


@dataclass(slots=True)
class MergeReport:
    """What a merge did. `refolded` has the days that were folded before, with what differs."""

    outcomes: list[Outcome] = field(default_factory=list)
    days: list[date] = field(default_factory=list)
    refolded: dict[date, tuple[int, int]] = field(default_factory=dict)
    rebuilt: list[str] = field(default_factory=list)
    """Checkpoints that could not be used, so that more was folded again."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Batches that were set aside since their files in landing are damaged, with why."""
    lost: dict[str, str] = field(default_factory=dict)
    """Batches that took part in history before and are quarantined now, with why."""
    upgrade: Upgrade | None = None
    """Where days of an older Almanac were folded again: what became of history."""
    waited: bool = False
    seconds: float = 0.0
    published: PublishReport | None = None

    def note(self, merged: DayMerged, *, refolded: bool) -> None:
        """Take up what became of a day; one that is folded twice, after a batch failed, once."""
        if merged.day in self.days:
            self.outcomes = [one for one in self.outcomes if one.day != merged.day]
        else:
            self.days.append(merged.day)
        self.outcomes.extend(merged.outcomes)
        if refolded:
            self.refolded.setdefault(merged.day, (merged.added, merged.removed))

    @property
    def changes(self) -> Counter[str]:
        """How many versions of each kind there are."""
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
        """A line for whatever folding again did to the history there was."""
        lost = (
            f"{batch_id} was merged before and is quarantined now: what it said is no more in the "
            f"warehouse. {why}"
            for batch_id, why in self.lost.items()
        )
        return [*([] if self.upgrade is None else [str(self.upgrade)]), *lost]

    @property
    def quarantined(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == "quarantined"]
