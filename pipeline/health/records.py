"""The health of a home as records, as `status --json` prints it, and its warnings.

Also the deferred work: pulls, and backfills that have not finished.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from pipeline.health.coverage import Coverage
from pipeline.health.freshness import FeedHealth
from pipeline.health.quota import QuotaHealth
from pipeline.health.waiting import Unmerged, Unpublished
from pipeline.runs.history import RunHistory
from resources.backfill.state import BackfillState, BackfillStates
from resources.inbox.inbox_file import RefusalCount
from resources.limits.allowance import Work
from resources.request_log import DeferredPulls, ReportedUsage
from resources.service_clock import NOTABLE, ServiceClock, read_deprecation, read_http_date
from warehouse.files.storage import Storage
from warehouse.home import Home


@dataclass(frozen=True, slots=True)
class DeferredWork:
    """A deferred pull or backfill. `resume_at` None is a running or interrupted backfill."""

    work: Work
    what: str
    since: datetime
    resume_at: datetime | None
    why: str
    stopped_at: datetime | None = None
    """When a backfill was last begun or continued that is not finished, not deferred and in no
    process; None for other work."""


def deferred_work(home: Home, now: datetime) -> list[DeferredWork]:
    """Return the deferred work, pulls first; unreadable notes are ignored."""
    state = Storage(home.state)
    pulls = [
        DeferredWork(
            deferred.work, deferred.feed, deferred.noted_at, deferred.resume_at, deferred.why
        )
        for deferred in DeferredPulls(state).all()
    ]
    backfills = []
    states = BackfillStates(state, home.landing)
    for backfill in states.open(now):
        lower, upper = backfill.scope.lower, backfill.scope.upper
        assert lower is not None and upper is not None
        what = f"events of {lower:%Y-%m-%d} to {upper:%Y-%m-%d}"
        backfills.append(
            DeferredWork(
                "backfill",
                what,
                backfill.started_at,
                backfill.resume_at,
                backfill.why,
                stopped_at=_stopped_at(states, backfill),
            )
        )
    return pulls + backfills


def _stopped_at(states: BackfillStates, backfill: BackfillState) -> datetime | None:
    if backfill.resume_at is not None or states.is_running():
        return None
    return backfill.resumed_at or backfill.started_at


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning that a person should act on. `kind` is a stable name for programs.

    `since` is when it began, None if that is not known.
    """

    kind: str
    text: str
    since: datetime | None = None
    about: tuple[str, ...] = ()
    """What it is about, if one kind may be about several: a new one is posted at once."""


@dataclass(frozen=True, slots=True)
class Problems:
    """Batches with a problem. `since` is when the first of them was observed.

    `why` is the reason of the newest, empty if the kind of problem is enough.
    """

    batches: list[str] = field(default_factory=list)
    rows: int = 0
    since: datetime | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Deprecated:
    """The deprecation and end of the interface, as reported; None if there is no date."""

    since: datetime | None
    ends_at: datetime | None

    @classmethod
    def of(cls, usage: ReportedUsage | None) -> Self | None:
        """Return what the service reported with its usage."""
        if usage is None or not (usage.deprecation or usage.sunset):
            return None
        return cls(read_deprecation(usage.deprecation), read_http_date(usage.sunset))


@dataclass(frozen=True, slots=True)
class ClockHealth:
    """The seconds by which the service is ahead of this machine, and when that was recorded."""

    ahead_s: float
    heard_at: datetime | None

    @classmethod
    def of(cls, clock: ServiceClock) -> Self | None:
        if clock.offset is None:
            return None
        return cls(round(clock.ahead.total_seconds(), 1), clock.heard_at)

    @property
    def is_notable(self) -> bool:
        return abs(self.ahead_s) > NOTABLE.total_seconds()

    def __str__(self) -> str:
        size = timedelta(seconds=round(abs(self.ahead_s)))
        way = "ahead of" if self.ahead_s > 0 else "behind"
        return f"{size} {way} this machine's; days and times follow the service's clock"


@dataclass(frozen=True, slots=True)
class MissedChange:
    """A change that push should have brought, and that a pull of `feed` showed first."""

    event_id: str
    change_kinds: tuple[str, ...]
    feed: str
    changed_at: datetime
    known_at: datetime


@dataclass(slots=True)
class PushHealth:
    """What is received by push. `started_at` is when the receiver was last started.

    `dead_letters` are the delivery ids, the newest first; `failures` the failed attempts to land
    since the last success. `unusable` says why the inbox can't be read, empty if it can.
    """

    has_secrets: bool
    is_running: bool
    started_at: datetime | None
    silent_after_s: float
    last_at: datetime | None = None
    waiting: int = 0
    waiting_since: datetime | None = None
    failures: int = 0
    failed_at: datetime | None = None
    failure: str = ""
    dead_letters: list[str] = field(default_factory=list)
    dead_since: datetime | None = None
    refused: list[RefusalCount] = field(default_factory=list)
    missed: list[MissedChange] = field(default_factory=list)
    unusable: str = ""


@dataclass(slots=True)
class Health:
    """The health of a home. Counts are of the last hundred days."""

    source: str | None
    plan: str | None = None
    feeds: list[FeedHealth] = field(default_factory=list)
    days: int = 0
    pending: int = 0
    quarantined: list[str] = field(default_factory=list)
    quarantined_since: datetime | None = None
    damaged: list[str] = field(default_factory=list)
    """Batches that are set aside, since their files in landing have changed."""
    flagged: list[str] = field(default_factory=list)
    flagged_lately: Problems = field(default_factory=Problems)
    partial_lately: Problems = field(default_factory=Problems)
    key_repeated: Problems = field(default_factory=Problems)
    cautions: list[str] = field(default_factory=list)
    """How a secret could leak, by the settings."""
    undated_lately: Problems = field(default_factory=Problems)
    rejected: int = 0
    rejected_lately: Problems = field(default_factory=Problems)
    bytes: dict[str, int] = field(default_factory=dict)
    free_bytes: int = 0
    published_at: datetime | None = None
    quota: QuotaHealth | None = None
    deprecated: Deprecated | None = None
    clock: ClockHealth | None = None
    push: PushHealth | None = None
    deferred: list[DeferredWork] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    run_troubles: list[Warned] = field(default_factory=list)
    runs: RunHistory = field(default_factory=RunHistory)
    unmerged: Unmerged = field(default_factory=Unmerged)
    unpublished: Unpublished | None = None
    warnings: list[Warned] = field(default_factory=list)
