"""The facts of a home's health, as `almanac status --json` prints them.

Read only from files of this machine (landing, published file, inbox, notes), so that they can be
reported while a merge runs. No request is sent. `pipeline.health.checks` decides which facts are a
warning.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import duckdb

from pipeline.health.batches import (
    BatchFacts,
    Coverage,
    FeedHealth,
    RecentBatches,
    find_coverage,
    list_feeds,
    read_batches,
)
from pipeline.health.push import PushHealth, read_push
from pipeline.health.quota import QuotaHealth, read_quota
from pipeline.health.runs import RunNote, read_run_note
from pipeline.secrecy import cautions_of, open_home
from pipeline.settings import Settings
from resources.backfill.state import BackfillState, BackfillStates
from resources.limits.ledger import Work
from resources.request_log import DeferredPulls, RefusedFeeds, ReportedUsage, last_usage
from resources.service_clock import NOTABLE, ServiceClock, read_deprecation, read_http_date
from warehouse.files.locks import holder, is_held
from warehouse.history.warehouse_file import (
    SEPARATOR_FACT,
    PublishedFile,
    read_published,
)
from warehouse.home import Home

HISTORY_DAYS: Final = 100
"""The days of history that are read: cancellations are listed for 90 days and then lost."""
RECENT: Final = timedelta(days=2)
"""Problems that can't be repaired are warned of for this long, and then only counted."""
STUCK_AFTER: Final = timedelta(hours=1)
"""Merges are requested within a minute and take seconds."""


@dataclass(frozen=True, slots=True)
class HealthWarning:
    """A warning that a person should act on. `kind` is a stable name for programs.

    `since` is when it began, None if that is not known.
    """

    kind: str
    text: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeferredWork:
    """A deferred pull or backfill. `resume_at` None is a running or interrupted backfill.

    `stopped_at` is when an interrupted backfill was last begun or continued.
    """

    work: Work
    what: str
    since: datetime
    resume_at: datetime | None
    why: str
    stopped_at: datetime | None = None


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
class Unpublished:
    """Batches that have waited too long for a merge.

    `merging` names the process that merges now. `why` is the reason why the published file can't be
    read."""

    batches: list[str] = field(default_factory=list)
    since: datetime | None = None
    merging: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Deprecation:
    """The deprecation and end of the interface, as reported; None if there is no date."""

    since: datetime | None
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class ClockHealth:
    """The seconds by which the service is ahead of this machine, and when that was recorded."""

    ahead_s: float
    heard_at: datetime | None

    @property
    def is_notable(self) -> bool:
        return abs(self.ahead_s) > NOTABLE.total_seconds()

    def __str__(self) -> str:
        size = timedelta(seconds=round(abs(self.ahead_s)))
        way = "ahead of" if self.ahead_s > 0 else "behind"
        return f"{size} {way} this machine's; days and times follow the service's clock"


@dataclass(slots=True)
class Health:
    """The health of a home. Counts are of the last hundred days.

    `source` is None before the first pull. `damaged` are batches whose files in landing have
    changed; `cautions` say how a secret could leak. `mirror` is whether a mirror runs on the home's
    folder of it, None if there is no such folder.
    """

    source: str | None
    plan: str | None = None
    feeds: list[FeedHealth] = field(default_factory=list)
    days: int = 0
    pending: int = 0
    quarantined: list[str] = field(default_factory=list)
    quarantined_since: datetime | None = None
    damaged: list[str] = field(default_factory=list)
    flagged: list[str] = field(default_factory=list)
    partial_lately: Problems = field(default_factory=Problems)
    key_repeated: Problems = field(default_factory=Problems)
    cautions: list[str] = field(default_factory=list)
    undated_lately: Problems = field(default_factory=Problems)
    rejected: int = 0
    rejected_lately: Problems = field(default_factory=Problems)
    bytes: dict[str, int] = field(default_factory=dict)
    free_bytes: int = 0
    published_at: datetime | None = None
    quota: QuotaHealth | None = None
    deprecated: Deprecation | None = None
    clock: ClockHealth | None = None
    push: PushHealth | None = None
    deferred: list[DeferredWork] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    runs: RunNote | None = None
    mirror: bool | None = None
    unpublished: Unpublished | None = None
    list_separator: str | None = None
    """The separator of lists in exports; None: none was set, and no export showed it yet."""
    warnings: list[HealthWarning] = field(default_factory=list)


def read_facts(settings: Settings, home: Home, now: datetime) -> Health:
    """Return the facts of a home over the last hundred days; `bytes` and `warnings` are empty.

    `now` is by the machine's clock, as requests, quota, runs and the times of landing and
    publication are; all else is by the service's.

    Raises:
        WarehouseError: the stamp can't be read.
    """
    home.refuse_lost_stamp()
    stamp, runs = home.stamp(), read_run_note(home)
    if stamp is None:
        return Health(source=None, runs=runs)
    state = home.state_storage
    service_clock = ServiceClock(lambda: now, state=state)
    service_now = service_clock.now()
    published, why_unreadable = _read_publication(home)
    recent = read_batches(
        home,
        (service_now - timedelta(days=HISTORY_DAYS)).date(),
        is_readable=not why_unreadable,
    )
    usage = last_usage(home.state)
    plan = recent.plan or settings.plan or (None if usage is None else usage.plan)
    since = service_now - RECENT
    left_out = home.landing.dismissed()
    quarantined = [
        batch
        for batch in recent.batches
        if batch.status == "quarantined" and batch.batch_id not in left_out
    ]
    mirror_dir = settings.mirror_dir
    return Health(
        source=stamp.source,
        plan=plan,
        mirror=is_held(mirror_dir / "server.lock") if mirror_dir.exists() else None,
        feeds=list_feeds(recent, plan, service_now, RefusedFeeds(state).all()),
        days=recent.days,
        pending=recent.pending,
        quarantined=[batch.batch_id for batch in quarantined],
        quarantined_since=_find_first(quarantined),
        damaged=sorted({*home.landing.damaged(), *recent.damaged}),
        flagged=[batch.batch_id for batch in recent.batches if batch.flagged is not None],
        partial_lately=_find_partial(recent, since),
        key_repeated=_find_problems(recent.batches, lambda batch: "repeated" * batch.redacted),
        cautions=[caution for caution in (*cautions_of(settings), open_home(settings)) if caution],
        undated_lately=_find_problems(recent.batches, lambda batch: batch.date_doubt, since),
        rejected=sum(batch.rejected for batch in recent.batches),
        rejected_lately=_find_problems(
            recent.batches, lambda batch: "rejected" if batch.rejected else None, since
        ),
        free_bytes=shutil.disk_usage(home.root).free,
        published_at=None if published is None else published.at,
        quota=read_quota(settings, home, stamp.source, plan, now, service_now - now),
        deprecated=_read_deprecation(usage),
        clock=_read_clock(service_clock),
        push=read_push(settings, home, service_now),
        deferred=list_deferred_work(home, now),
        coverage=find_coverage(recent, service_now),
        runs=runs,
        unpublished=_find_unpublished(home, published, why_unreadable, now),
        list_separator=home.list_separator
        or (None if published is None else published.facts.get(SEPARATOR_FACT)),
    )


def read_sizes(home: Home) -> dict[str, int]:
    """Return the bytes of each part of a home; for years of batches this takes seconds."""
    sizes = {part: _add_sizes(home.root / part) for part in ("landing", "parquet", "dagster")}
    with suppress(FileNotFoundError):
        sizes[home.warehouse.name] = home.warehouse.stat().st_size
    sizes["checkpoints"] = sum(
        path.stat().st_size
        for path in home.checkpoints.root.glob("*.duckdb")
        if path.stat().st_nlink == 1
    )
    return sizes


def _add_sizes(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # A running merge may delete files.
            with suppress(FileNotFoundError):
                size += (Path(parent) / name).stat().st_size
    return size


def list_deferred_work(home: Home, now: datetime) -> list[DeferredWork]:
    """Return the deferred work, pulls first; unreadable notes are ignored."""
    pulls = [
        DeferredWork(pull.work, pull.feed, pull.noted_at, pull.resume_at, pull.why)
        for pull in DeferredPulls(home.state_storage).all()
    ]
    states = BackfillStates(home.state_storage, home.landing)
    return pulls + [_describe_backfill(states, backfill) for backfill in states.open(now)]


def _describe_backfill(states: BackfillStates, backfill: BackfillState) -> DeferredWork:
    is_stopped = backfill.resume_at is None and not states.is_running()
    return DeferredWork(
        "backfill",
        f"events of {backfill.scope.lower:%Y-%m-%d} to {backfill.scope.upper:%Y-%m-%d}",
        backfill.started_at,
        backfill.resume_at,
        backfill.why,
        stopped_at=(backfill.resumed_at or backfill.started_at) if is_stopped else None,
    )


def _read_deprecation(usage: ReportedUsage | None) -> Deprecation | None:
    if usage is None or not (usage.deprecation or usage.sunset):
        return None
    return Deprecation(read_deprecation(usage.deprecation), read_http_date(usage.sunset))


def _read_clock(clock: ServiceClock) -> ClockHealth | None:
    if clock.heard is None:
        return None
    return ClockHealth(round(clock.heard.ahead_s, 1), clock.heard.heard_at)


def _find_partial(recent: RecentBatches, since: datetime) -> Problems:
    """Return the incomplete batches that no later complete pull supersedes.

    Quarantined batches are a problem of their own.
    """

    def explain(batch: BatchFacts) -> str | None:
        if batch.status == "quarantined" or not (batch.why_incomplete or batch.flagged):
            return None
        if any(later.supersedes(batch) for later in recent.batches):
            return None
        return batch.why_incomplete or batch.flagged

    return _find_problems(recent.batches, explain, since)


def _find_problems(
    batches: Iterable[BatchFacts],
    explain: Callable[[BatchFacts], str | None],
    since: datetime | None = None,
) -> Problems:
    """Return the batches since a time with a problem; `explain` returns its reason, if any."""
    found = [
        batch
        for batch in batches
        if (since is None or batch.observed_at > since) and explain(batch)
    ]
    return Problems(
        batches=[batch.batch_id for batch in found],
        rows=sum(batch.rejected for batch in found),
        since=_find_first(found),
        why=(explain(found[-1]) or "") if found else "",
    )


def _find_first(batches: Iterable[BatchFacts]) -> datetime | None:
    return min((batch.observed_at for batch in batches), default=None)


def _read_publication(home: Home) -> tuple[PublishedFile | None, str]:
    """Return the published file's metadata, and why it can't be read or an empty text."""
    try:
        return read_published(home.warehouse), ""
    except (duckdb.Error, OSError) as error:
        # Not its text: it names folders of this machine.
        return None, type(error).__name__


def _find_unpublished(
    home: Home, published: PublishedFile | None, why: str, now: datetime
) -> Unpublished | None:
    """Return what has waited for too long to be merged, None if nothing has.

    It takes no lock. `now` is by the machine's clock, as the times of landing are.
    """
    if why:
        return Unpublished(why=why)
    lock = home.state / "merge.lock"
    merging = holder(lock) if is_held(lock) else None
    late = _find_late_batches(home, published, now)
    if late:
        return Unpublished(
            batches=sorted(late),
            since=min(late.values()),
            merging="" if merging is None else str(merging),
        )
    return None


def _find_late_batches(
    home: Home, published: PublishedFile | None, now: datetime
) -> dict[str, datetime]:
    """Return the batches that have waited too long for a merge, and since when.

    Those whose manifest can't be read are left out: they have the warning `damaged`. A batch that
    was merged and released again waits since then; after a killed merge, the marker of a merged
    batch may be left, and does not count.
    """
    landing, merged = home.landing, {} if published is None else published.batches
    released = {*landing.released()}
    again = [
        batch_id
        for batch_id in landing.pending()
        if batch_id in merged and merged[batch_id].released != (batch_id in released)
    ]
    waiting: dict[str, datetime] = {}
    for batch in landing.readable([*(set(landing.batch_ids()) - merged.keys()), *again])[0]:
        since = batch.landed_at
        if batch.batch_id in merged:
            marker = landing.storage.path(f"pending/{batch.batch_id}.json")
            try:
                since = datetime.fromtimestamp(marker.stat().st_mtime, UTC)
            except FileNotFoundError:
                continue  # A merge has just folded it.
        if now - since > STUCK_AFTER:
            waiting[batch.batch_id] = since
    return waiting
