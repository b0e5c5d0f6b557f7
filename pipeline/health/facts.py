"""The facts of a home's health: freshness, gaps, waiting and deferred work, quota, push, runs.

`almanac status --json` prints them, and `pipeline.health.warnings` judges them. They are read from
files of this machine without a lock, also while a merge runs. No request is sent. Times of feeds
and deliveries are by the service's clock; those of quota, landing, publication and runs are by the
machine's.
"""

import shutil
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

import duckdb
import msgspec

from almanac.core.connections import open_memory
from almanac.core.statements import Statements
from almanac.events import STALE_AFTER as STALE_AFTER
from almanac.reading.attached_file import attach_published
from catalog.contract.constants import CANCELLATIONS_SINCE_DAYS as LISTED_DAYS
from catalog.contract.plans import PLANS
from pipeline.secrecy import find_cautions, warn_open_home
from pipeline.service_session import open_ledger
from pipeline.settings import Settings, SettingsError
from resources.calendar_backfill import read_open_backfill
from resources.errors import CatalogError
from resources.limits.ledger import UNKNOWN, UNLIMITED, Allowance, next_reset
from resources.request_log import (
    DeferredPull,
    DeferredPulls,
    RefusedFeed,
    last_usage,
    read_refused_feeds,
)
from resources.service_clock import ServiceClock, read_deprecation, read_http_date
from resources.session import plan_lacks
from warehouse.files.documents import read_note
from warehouse.files.locks import is_held, read_holder
from warehouse.history.partitions import partition_name, read_record
from warehouse.history.warehouse_file import (
    SEPARATOR_FACT,
    PublishedFile,
    read_published,
    set_search_path,
)
from warehouse.home import Home
from warehouse.landing.batches import FEEDS, Feed
from warehouse.landing.inbox import PUSH_SILENCE, Inbox, list_receipts, read_receipt_time

HISTORY_DAYS: Final = 100
"""The days of batches that are read: cancellations are listed for 90 days and then lost."""
DAILY_FEEDS: Final = frozenset[Feed]({"export", "events", "cancellations", "coins", "categories"})
"""The feeds that are pulled every day. Deliveries and look-ups are not."""
FORGOTTEN_AFTER: Final = timedelta(days=7)
"""A daemon, push or failed run older than this is taken to be abandoned and causes no warning."""
RUN_NOTE: Final = "runs.json"
_LOOKED_BACK: Final = timedelta(days=30)
"""A delivery older than this is not shown as the last one."""
_DAY: Final = timedelta(days=1)
_SQL: Final = Statements(__package__)
_PACE_OVER: Final = timedelta(days=7)
_RATE_LIMITED: Final = 429
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, slots=True)
class FeedHealth:
    """The last pulls of a feed.

    `complete_at` is the last complete pull, which for event feeds includes today's dates;
    `interval_s` is None if no pull is expected, as for a feed that is not in the plan. `refused` is
    the reason why the service refused the feed to this plan. `missing` are the days without a
    complete pull since the first one, up to yesterday; if the feed is stale, today from noon on.
    """

    feed: Feed
    batches: int
    observed_at: datetime | None
    complete_at: datetime | None
    age_s: float | None
    interval_s: int | None
    in_plan: bool
    stale_since: datetime | None
    refused: str
    missing: list[date] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Gap:
    """Successive days, both ends inclusive."""

    first: date
    last: date

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The gaps since the first complete pull of events; `since` None means that there is none."""

    since: date | None = None
    days_unseen: int = 0
    unseen: list[Gap] = field(default_factory=list)
    cancellations_lost: list[Gap] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SuspectBatch:
    """A merged or quarantined batch with a problem; `rows` is the number of affected rows."""

    problem: Literal["quarantined", "rejected", "undated", "key_repeated", "incomplete"]
    batch_id: str
    observed_at: datetime
    why: str
    rows: int


@dataclass(frozen=True, slots=True)
class PulledHistory:
    """The merged pulls of the hundred days before a time."""

    plan: str | None = None
    feeds: list[FeedHealth] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    problems: list[SuspectBatch] = field(default_factory=list)


def read_pulls(
    warehouse: Path,
    at: datetime,
    refused: Mapping[Feed, RefusedFeed] = MappingProxyType({}),
    dismissed: Iterable[str] = (),
) -> PulledHistory:
    """Return the merged pulls of a published file before a time of the service's clock.

    A feed that the plan lacks or refuses is never stale. Problems leave out `dismissed` batches.

    Raises:
        duckdb.Error: the file can't be read.
    """
    given = {"since": at - HISTORY_DAYS * _DAY, "at": at}
    with closing(open_memory()) as connection:
        attach_published(connection, warehouse, "warehouse")
        set_search_path(connection)

        def rows(name: str, **values: object) -> list[tuple[Any, ...]]:
            return connection.execute(_SQL[name], {**given, **values}).fetchall()

        ((first_day, plan),) = rows("find_start")
        pulled = {feed: found for feed, *found in rows("list_feeds")}
        spans = [(k, Gap(*days)) for k, *days in rows("list_gaps", listed_days=LISTED_DAYS)]
        problems = [SuspectBatch(*row) for row in rows("list_problems", dismissed=[*dismissed])]
    begun = datetime.combine(first_day or at.date(), time(tzinfo=UTC))
    feeds = []
    for feed in FEEDS:
        count, observed_at, complete_at, days = pulled.get(feed, (0, None, None, []))
        in_plan = plan not in PLANS or not plan_lacks(PLANS[plan], feed)
        note = refused.get(feed)
        why = note.why if note is not None and plan in (None, note.plan) else ""
        is_daily = plan in PLANS and in_plan and not why and feed in DAILY_FEEDS
        # Before its first pull, the interval starts on the day on which the home was first used.
        stale_at = (complete_at or begun) + STALE_AFTER
        stale_since = stale_at if is_daily and stale_at < at else None
        age_s = None if observed_at is None else max(0.0, (at - observed_at).total_seconds())
        interval_s = round(_DAY.total_seconds()) if is_daily else None
        times = (observed_at, complete_at, age_s, interval_s)
        last = (at - (_DAY if stale_since is None else _DAY / 2)).date()
        span = [last - number * _DAY for number in range((last - min(days, default=last)).days)]
        missing = sorted({*span} - {*days}) if is_daily else []
        feeds.append(FeedHealth(feed, count, *times, in_plan, stale_since, why, missing))
    seen, unseen, lost = ([g for k, g in spans if k == kind] for kind in ("seen", "unseen", "lost"))
    since = seen[0].first if seen else None
    coverage = Coverage(since, sum(gap.days for gap in unseen), unseen, lost)
    return PulledHistory(plan, feeds, coverage, problems)


@dataclass(frozen=True, slots=True)
class QuotaHealth:
    """`quota` is the user's own limit if that is lower; `projected` is the use at the reset."""

    at: datetime
    counted_by: Literal["ledger", "service"]
    plan: str | None
    quota: int | None
    used: int | None
    remaining: int | None
    is_unlimited: bool
    reset_at: datetime
    pace_per_day: float
    projected: int | None

    @property
    def runs_out(self) -> bool:
        """Whether the quota is used up, or will be before the reset."""
        if self.quota is None or self.projected is None:
            return False
        return self.remaining == 0 or self.projected > self.quota


def read_quota(
    settings: Settings, home: Home, source: str, plan: str | None, now: datetime, ahead: timedelta
) -> QuotaHealth | None:
    """Return the month's quota, None if nothing is known. `source` is the home's.

    The service's clock is `ahead` of the machine's.
    """
    used: int | None
    ledger, usage = _read_ledger(settings, source, now + ahead), last_usage(home.state)
    if ledger is not None:
        at, allowed, used, remaining = now, ledger.allowed, ledger.used, None
        mine, reset_at = ledger.own, datetime.fromtimestamp(ledger.resets_at, UTC)
    elif usage is not None:
        at, allowed, used, remaining = usage.at, usage.allowed, usage.used, usage.remaining
        if used is None and usage.quota is not None and remaining is not None:
            used = usage.quota - remaining
        plan, mine, reset_at = usage.plan, used or 0, usage.reset_at or next_reset(usage.at)
    else:
        return None
    quota, own = (None if allowed in (UNKNOWN, UNLIMITED) else allowed), settings.monthly_quota
    if own is not None and used is not None and (quota is None or own - mine < quota - used):
        quota, used = own, mine
    sent, pace = read_sent_requests(home.state, now)
    projected = None
    reset_at -= ahead
    if used is not None and (left := reset_at - now) > timedelta(0):
        projected = used + sum(each > at for each in sent) + ceil(pace * (left / _DAY))
    return QuotaHealth(
        at=at,
        counted_by="service" if ledger is None else "ledger",
        plan=plan,
        quota=quota,
        used=used,
        remaining=remaining if quota is None or used is None else max(0, quota - used),
        is_unlimited=allowed == UNLIMITED and quota is None,
        reset_at=reset_at,
        pace_per_day=pace,
        projected=projected,
    )


def _read_ledger(settings: Settings, source: str, now: datetime) -> Allowance | None:
    """Return the ledger's state of this month; `now` is by the service's clock."""
    with suppress(SettingsError, CatalogError):
        ledger = open_ledger(settings) if settings.source == source else None
        state = None if ledger is None else ledger.peek()
        if state is not None and not state.is_unknown(now.timestamp()):
            return state
    return None


class _RequestLine(msgspec.Struct, frozen=True):
    at: _Time
    status: int | None = None


def read_sent_requests(state: Path, now: datetime) -> tuple[list[datetime], float]:
    """Return the times of the last seven days' attempts, and their average number a day.

    The service does not count a response 429. Lines that can't be read are skipped.
    """
    since, sent = now - _PACE_OVER, list[datetime]()
    files = sorted(path for path in (state / "requests").glob("*.jsonl") if path.is_file())
    lately = [file for file in files if file.stem >= since.date().isoformat()]
    for text in (text for file in lately for text in file.read_bytes().splitlines()):
        with suppress(ValueError, RecursionError):
            line = msgspec.json.decode(text, type=_RequestLine)
            if since < line.at <= now and line.status != _RATE_LIMITED:
                sent.append(line.at)
    over = now - (since if len(lately) < len(files) else min(sent, default=since))
    return sent, len(sent) / (max(_DAY, over) / _DAY)


@dataclass(slots=True)
class PushHealth:
    """The receipt by push. `started_at` is when the receiver was last started.

    `is_expected` is true if signing secrets are set. `rejected` are the names of deliveries that
    can't be applied, the oldest first.
    """

    is_expected: bool
    is_running: bool
    silent_after: timedelta
    started_at: datetime | None = None
    last_at: datetime | None = None
    waiting: int = 0
    waiting_since: datetime | None = None
    rejected: list[str] = field(default_factory=list)


def read_push(settings: Settings, home: Home, at: datetime) -> PushHealth | None:
    """Return what is received by push, None if it was never set up nor received.

    `at` is by the service's clock, as receipts are.
    """
    is_running, started = is_held(home.receiver_lock), read_holder(home.receiver_lock)
    if not (settings.push or is_running or home.inbox.exists()):
        return None
    push = PushHealth(settings.push, is_running, PUSH_SILENCE)
    push.started_at = None if started is None else started.since
    inbox, receipts = Inbox(home), list_receipts(home, at - _LOOKED_BACK)
    waiting, push.rejected = inbox.names(), inbox.names("rejected")
    push.last_at, push.waiting = max(receipts, default=None), len(waiting)
    push.waiting_since = min(map(read_receipt_time, waiting), default=None)
    return push


class FailedWork(msgspec.Struct, frozen=True):
    """A job, with its partition or the first of its range, whose newest run failed."""

    job: str
    part: str
    run_id: str
    at: _Time


class RunNote(msgspec.Struct, frozen=True):
    """Dagster's records `at` a time, which the sensor `health` notes in `state/runs.json`.

    `daemon_at` is when Dagster's daemon last reported itself.
    """

    at: _Time
    failed: tuple[FailedWork, ...] = ()
    daemon_at: _Time | None = None


@dataclass(frozen=True, slots=True)
class HealthWarning:
    """A warning that a person should act on. `kind` is a stable name for programs."""

    kind: str
    text: str


@dataclass(slots=True)
class Health:
    """The health of a home; `source` is None before the first pull.

    `at` is the machine's time, `service_at` the service's, `ahead_s` their difference if known.
    `pending` batches wait for a merge, the first since `waiting_since`. The files of `damaged`
    batches were altered; the `outdated` Parquet files lack the last publication. `unreadable` is
    why the published file can't be read. `mirror` is whether a mirror runs, None without its
    folder.
    """

    at: datetime
    service_at: datetime
    ahead_s: float | None = None
    source: str | None = None
    plan: str | None = None
    feeds: list[FeedHealth] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    problems: list[SuspectBatch] = field(default_factory=list)
    pending: int = 0
    waiting_since: datetime | None = None
    damaged: list[str] = field(default_factory=list)
    unreadable: str = ""
    outdated: list[str] = field(default_factory=list)
    published_at: datetime | None = None
    list_separator: str | None = None
    deferred: list[DeferredPull] = field(default_factory=list)
    runs: RunNote | None = None
    quota: QuotaHealth | None = None
    push: PushHealth | None = None
    mirror: bool | None = None
    is_deprecated: bool = False
    deprecated_since: datetime | None = None
    ends_at: datetime | None = None
    cautions: list[str] = field(default_factory=list)
    free_bytes: int | None = None
    warnings: list[HealthWarning] = field(default_factory=list)


def read_facts(settings: Settings, home: Home, now: datetime) -> Health:
    """Return the measured state of a home, without warnings. `now` is by the machine's clock.

    Raises:
        WarehouseError: the stamp can't be read.
    """
    home.refuse_lost_stamp()
    state, stamp, landing = home.state_storage, home.stamp(), home.landing
    clock = ServiceClock(lambda: now, state=state)
    health = Health(at=now, service_at=clock.now(), runs=read_note(state, RUN_NOTE, RunNote))
    if stamp is None:
        return health
    published, pulls = None, PulledHistory()
    try:
        published = read_published(home.warehouse)
        if published is not None:
            notes, dismissed = read_refused_feeds(state), landing.dismissed()
            pulls = read_pulls(home.warehouse, health.service_at, notes, dismissed)
    except (duckdb.Error, OSError) as error:
        health.unreadable = type(error).__name__  # Not its text: it names folders.
    usage, merged = last_usage(home.state), {} if published is None else published.batches
    waiting, unread = landing.readable(set(landing.batch_ids()) - merged.keys())
    health.source, health.feeds, health.coverage = stamp.source, pulls.feeds, pulls.coverage
    health.plan = pulls.plan or settings.plan or (None if usage is None else usage.plan)
    health.problems, health.pending = pulls.problems, len(waiting)
    health.waiting_since = min((batch.landed_at for batch in waiting), default=None)
    health.damaged = sorted({*landing.damaged(), *unread})
    if published is not None:
        health.published_at = published.at
        health.list_separator = published.facts.get(SEPARATOR_FACT)
        health.outdated = find_outdated(home, published)
    health.deferred = DeferredPulls(state).all()
    backfill = read_open_backfill(state, health.service_at)
    if backfill is not None and backfill.resume_at is not None:
        at = {"noted_at": backfill.started_at, "resume_at": backfill.resume_at}
        pull = DeferredPull(work="backfill", feed="events", **at, why=backfill.why)
        health.deferred.append(pull)
    health.quota = read_quota(settings, home, stamp.source, health.plan, now, clock.ahead)
    health.push = read_push(settings, home, health.service_at)
    if settings.mirror_dir.exists():
        health.mirror = is_held(settings.mirror_dir / "server.lock")
    if clock.heard is not None:
        health.ahead_s = round(clock.heard.ahead_s, 1)
    if usage is not None:
        health.is_deprecated = bool(usage.deprecation or usage.sunset)
        health.deprecated_since = read_deprecation(usage.deprecation)
        health.ends_at = read_http_date(usage.sunset)
    health.cautions = [
        text for text in (*find_cautions(settings), warn_open_home(settings)) if text
    ]
    health.free_bytes = shutil.disk_usage(home.root).free
    return health


def find_outdated(home: Home, published: PublishedFile) -> list[str]:
    """Return which Parquet files lack the last publication."""
    record, found = read_record(home.parquet), []
    for day, content in published.days.items():
        name, written = partition_name(f"{day}"), record.get(f"{day}")
        is_written = written is not None and written.content == content
        if not content.startswith("0-") and not (is_written and home.parquet.exists(name)):
            found.append(f"parquet/{name}")
    return found
