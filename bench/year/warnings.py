"""The warnings of a year: when each began and ended, and which fault it was of.

At each check the production finds the warnings as of that time, and posts those that began or ended
by its own record of posted ones; here they are kept instead of sent. Belongs here: that record,
and comparing it with the planned faults. Does not: the faults.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pipeline.health.alerts import Alerts, Changes, find_warnings
from pipeline.settings import Settings
from warehouse.home import Home


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that was planned, and the kinds of the warnings that it must raise.

    It is remedied at `ends`; `over` is when its last warning must be gone.
    """

    name: str
    begins: datetime
    ends: datetime
    kinds: frozenset[str]
    over: datetime


@dataclass(slots=True)
class Seen:
    """A warning from the check that first had it (`at`) to the first without it (`until`)."""

    kind: str
    text: str
    at: datetime
    until: datetime | None = None

    def is_of(self, fault: Fault) -> bool:
        return self.kind in fault.kinds and fault.begins <= self.at <= fault.over


@dataclass(frozen=True, slots=True)
class FaultSeen:
    """Faults of one name: what they raised, and the longest waits for it and for its end.

    `silent` counts kinds that a fault should have raised and did not, `late` warnings that were
    there after they should have been gone.
    """

    name: str
    faults: int
    raised: Counter[str]
    silent: int
    late: int
    raised_after: timedelta
    gone_after: timedelta


@dataclass(slots=True)
class Watch:
    """The warnings of a home, found at each check."""

    settings: Settings
    home: Home
    seen: list[Seen] = field(default_factory=list)
    checks: int = 0
    posts: int = 0
    _open: dict[str, Seen] = field(default_factory=dict)

    def check(self, at: datetime) -> None:
        """Find the warnings as of a time, and post what began or ended."""
        found = find_warnings(self.settings, self.home, at)
        Alerts(self.home.state).post_due(found, self._posted, now=at)
        self.checks += 1

    def _posted(self, source: str, changes: Changes, at: datetime) -> None:
        self.posts += 1
        for warning in changes.begun:
            if warning.kind not in self._open:
                begun = self._open[warning.kind] = Seen(warning.kind, warning.text, at)
                self.seen.append(begun)
        for kind in changes.over:
            self._open.pop(kind).until = at

    def unexplained(self, faults: Iterable[Fault]) -> list[Seen]:
        """Return the warnings that no fault explains."""
        every = list(faults)
        return [each for each in self.seen if not any(each.is_of(fault) for fault in every)]

    def lasting(self) -> list[Seen]:
        """Return the warnings that never ended."""
        return list(self._open.values())

    def by_fault(self, faults: Iterable[Fault]) -> list[FaultSeen]:
        """Return what the faults of each name raised."""
        named: dict[str, list[Fault]] = {}
        for fault in faults:
            named.setdefault(fault.name, []).append(fault)
        return [self._of(name, of_name) for name, of_name in named.items()]

    def _of(self, name: str, faults: list[Fault]) -> FaultSeen:
        pairs = [(fault, each) for fault in faults for each in self.seen if each.is_of(fault)]
        found = {(fault.begins, each.kind) for fault, each in pairs}
        ended = [(fault, each.until) for fault, each in pairs if each.until is not None]
        none = timedelta(0)
        return FaultSeen(
            name=name,
            faults=len(faults),
            raised=Counter(each.kind for _, each in pairs),
            silent=sum(len(fault.kinds) for fault in faults) - len(found),
            late=sum(each.until is None or each.until > fault.over for fault, each in pairs),
            raised_after=max((each.at - fault.begins for fault, each in pairs), default=none),
            gone_after=max((until - fault.ends for fault, until in ended), default=none),
        )
