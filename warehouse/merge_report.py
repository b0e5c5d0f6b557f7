"""What a merge did, for those who asked for it."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from itertools import chain

from warehouse.batch_problems import BatchProblem, problems_of_damaged, problems_of_record
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
    waited: bool = False
    seconds: float = 0.0
    published: PublishReport | None = None

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
    def quarantined(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == "quarantined"]
