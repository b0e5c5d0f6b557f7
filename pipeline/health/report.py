"""The health of a home: last pulls, waiting work, problems, and warnings.

Warnings have stable kinds:

    stale:<feed>   cancellations   quota   rejected   partial   flagged   quarantined   damaged
    deferred   coverage   disk   deprecated   key   exposed   clock   runs   records
    unmerged   unpublished   failed_runs   ticks   long_runs   backfills   daemon
    push_silent   push_missed   dead_letters   inbox

It is read only from files of this machine (landing, change log, published file, inbox, Dagster's
records, the home's own notes), so that it can be reported while a merge runs. No request is sent.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from pipeline.health.coverage import coverage
from pipeline.health.freshness import FeedHealth, Seen, SeenBatches, freshness, seen_since
from pipeline.health.push import push_of, push_warnings
from pipeline.health.quota import quota_of
from pipeline.health.records import ClockHealth, Deprecated, Health, Problems, Warned, deferred_work
from pipeline.health.run_checks import run_history, run_troubles
from pipeline.health.stuck import stuck
from pipeline.health.waiting import find_unmerged, find_unpublished, published_of
from pipeline.runs.history import with_errors
from pipeline.secrecy import cautions_of, open_home, shareable
from pipeline.settings import Settings
from resources.request_log import RefusedFeeds, last_usage
from resources.service_clock import ServiceClock
from warehouse.files.storage import Storage
from warehouse.history.change_log import ChangeLog
from warehouse.home import Home

RECENT: Final = timedelta(days=2)
"""Problems that can't be repaired are warned of for this long, and then only counted."""
CANCELLATIONS_UNSEEN: Final = timedelta(days=30)
OVERDUE: Final = timedelta(days=1)
"""Deferred work resumes by itself; if it is later than this, something prevents it."""
ENDS_SOON: Final = timedelta(days=90)
"""A deprecated version works for a year; it is warned of only this long before its end."""
LEAST_FREE_BYTES: Final = 2_000_000_000
JOBS: Final = ("daily", "merge", "deliveries", "calendar", "poll", "alert", "digest", "prune")
"""The names of the jobs whose failed runs are reported, without the prefix of a layout."""


def warnings_of(health: Health, now: datetime, machine_now: datetime) -> list[Warned]:
    """Return the warnings, at most one of a kind; without a home, those of its first runs.

    `now` is by the service's clock, `machine_now` by the machine's.
    """
    if health.source is None:
        return [*health.run_troubles, *stuck(health, machine_now)]
    return [
        *_stale(health),
        *_cancellations(health, now),
        *_quota(health),
        *_rows(health),
        *_deferred(health, now),
        *_coverage(health, now),
        *_disk(health),
        *_deprecated(health, now),
        *_secrets(health),
        *_clock(health),
        *push_warnings(health, now, machine_now),
        *health.run_troubles,
        *stuck(health, machine_now),
    ]


def _stale(health: Health) -> Iterator[Warned]:
    is_pulled = _events_pulled_at(health.feeds) is not None
    first = health.coverage.since
    since = "yet" if first is None else f"since {first}"
    if not is_pulled:
        yield Warned("stale:events", f"No complete pull of events {since}: almanac run")
    for feed in health.feeds:
        if feed.stale_since is not None and (is_pulled or feed.feed != "events"):
            last = _last_pull(feed, since)
            text = f"{feed.feed}: {last}, expected every day: almanac run"
            yield Warned(f"stale:{feed.feed}", text, feed.stale_since)


def _last_pull(feed: FeedHealth, since: str) -> str:
    if feed.complete_at is None:
        return f"no complete pull {since}"
    return f"last pulled at {feed.complete_at:%Y-%m-%d %H:%M} UTC"


def _cancellations(health: Health, now: datetime) -> Iterator[Warned]:
    last = next((feed.complete_at for feed in health.feeds if feed.feed == "cancellations"), None)
    if last is None and health.coverage.since is not None:
        last = datetime.combine(health.coverage.since, time(tzinfo=UTC))
    if last is not None and now - last > CANCELLATIONS_UNSEEN:
        yield Warned(
            "cancellations",
            f"Cancellations were not pulled for {(now - last).days} days; after 90 days some are "
            "lost: almanac run",
            last + CANCELLATIONS_UNSEEN,
        )


def _quota(health: Health) -> Iterator[Warned]:
    quota = health.quota
    if quota is None or not quota.runs_out or quota.reset_at is None:
        return
    until = f"{quota.reset_at:%Y-%m-%d %H:%M} UTC"
    if quota.remaining == 0:
        text = f"The monthly quota of {quota.quota:,} is used up until {until}"
    else:
        text = (
            f"The monthly quota of {quota.quota:,} will run out: {quota.projected:,} by {until}, "
            f"at {quota.pace_per_day:,.0f} a day"
        )
    yield Warned("quota", f"{text}: almanac budget")


def _rows(health: Health) -> Iterator[Warned]:
    lately = health.rejected_lately
    if lately.rows:
        rows = "1 row" if lately.rows == 1 else f"{lately.rows:,} rows"
        were = "was" if lately.rows == 1 else "were"
        text = (
            f"{rows} of {_batches(lately)} of the last {RECENT.days} days {were} rejected: almanac "
            'sql "SELECT * FROM rejects"'
        )
        yield Warned("rejected", text, lately.since)
    for kind, problems, (of_one, of_several) in (
        ("partial", health.partial_lately, ("is incomplete", "are incomplete")),
        ("flagged", health.flagged_lately, ("looks incomplete", "look incomplete")),
    ):
        if problems.batches:
            what = of_one if len(problems.batches) == 1 else of_several
            why = " ".join(problems.why.split()).rstrip(".")
            text = (
                f"{_batches(problems)} of the last {RECENT.days} days {what}, and no complete "
                f"pull followed; the newest is {problems.batches[-1]}: {why}. Pull again: "
                "almanac run, or repeat the backfill"
            )
            yield Warned(kind, text, problems.since)
    if health.quarantined:
        text = (
            f"{_are(len(health.quarantined))} quarantined: almanac batches list "
            "--status quarantined --days 100"
        )
        yield Warned("quarantined", text, health.quarantined_since)
    if health.damaged:
        text = (
            f"{_are(len(health.damaged))} damaged in landing and left out; the "
            f"newest is {health.damaged[-1]}: almanac batches list shows which file to "
            "restore from a backup; then run almanac replay"
        )
        yield Warned("damaged", text)


def _batches(problems: Problems) -> str:
    count = len(problems.batches)
    return "1 batch" if count == 1 else f"{count} batches"


def _are(count: int) -> str:
    return "1 batch is" if count == 1 else f"{count:,} batches are"


def _deferred(health: Health, now: datetime) -> Iterator[Warned]:
    due = [
        (deferred.resume_at + OVERDUE, deferred)
        for deferred in health.deferred
        if deferred.resume_at is not None and deferred.resume_at + OVERDUE < now
    ]
    if due:
        since, first = min(due, key=lambda period: period[0])
        more = f" and {len(due) - 1} more" if len(due) > 1 else ""
        text = (
            f"{first.work} {first.what}{more}: should have resumed at "
            f"{first.resume_at:%Y-%m-%d %H:%M} UTC, and did not: almanac run, or almanac ui for "
            "the daemon"
        )
        yield Warned("deferred", text, since)


def _coverage(health: Health, now: datetime) -> Iterator[Warned]:
    lately = (now - RECENT).date()
    gaps = [gap for gap in health.coverage.unseen if gap.last >= lately]
    if gaps:
        text = (
            f"No complete pull of events on {gaps[-1]}: events that were announced and removed "
            f"on that day are not known (reported for {RECENT.days} days). almanac import adds "
            "an archived export"
        )
        yield Warned("coverage", text, datetime.combine(gaps[-1].first, time(tzinfo=UTC)))


def _disk(health: Health) -> Iterator[Warned]:
    if health.free_bytes < LEAST_FREE_BYTES:
        text = f"The disk has {health.free_bytes / 1e9:.1f} GB free: almanac prune"
        yield Warned("disk", text)


def _deprecated(health: Health, now: datetime) -> Iterator[Warned]:
    deprecated = health.deprecated
    if (
        deprecated is not None
        and deprecated.ends_at is not None
        and deprecated.ends_at - ENDS_SOON < now
    ):
        text = (
            "The service retires this version of its interface on "
            f"{deprecated.ends_at:%Y-%m-%d}: look for a newer version of Almanac"
        )
        yield Warned("deprecated", text, deprecated.since)


def _secrets(health: Health) -> Iterator[Warned]:
    repeated = health.key_repeated
    if repeated.batches:
        text = (
            f"The service repeated the API key in {_batches(repeated)}; it was removed before "
            "anything was stored. Report this to the service, and request a new key"
        )
        yield Warned("key", text, repeated.since)
    if health.cautions:
        yield Warned("exposed", "; ".join(health.cautions))


def _clock(health: Health) -> Iterator[Warned]:
    undated = health.undated_lately
    if undated.batches:
        text = (
            f"{_batches(undated)} of the last {RECENT.days} days had no plausible Date of the "
            f"service; the newest is {undated.batches[-1]}: {undated.why}. Check this machine's "
            "clock: almanac doctor"
        )
        yield Warned("clock", text, undated.since)


HISTORY_DAYS: Final = 100
"""The days of history that are read: cancellations are listed for 90 days and then lost."""


def health_of(settings: Settings, home: Home, now: datetime, *, leave_out: str = "") -> Health:
    """Return the health of a home over the last hundred days; `bytes` is left empty.

    Failed runs of the job `leave_out` are left out.

    `now` is by the machine's clock, as requests, quota, runs and the times of landing and
    publication are; all else is by the service's.

    Raises:
        WarehouseError: the stamp or a file of the change log can't be read.
    """
    home.refuse_lost_stamp()
    stamp = home.stamp()
    machine_now = now
    roles = {settings.name_prefix + job: job for job in JOBS}
    shown = partial(shareable, settings)
    runs = with_errors(run_history(home, roles, machine_now), shown, leave_out=leave_out)
    if stamp is None:
        health = Health(source=None, run_troubles=list(run_troubles(home)), runs=runs)
        health.warnings = warnings_of(health, now, machine_now)
        return health
    service_clock = ServiceClock(lambda: machine_now, state=Storage(home.state))
    now = service_clock.now()
    seen = seen_since(home, (now - timedelta(days=HISTORY_DAYS)).date())
    usage = last_usage(home.state)
    plan = seen.plan or settings.plan or (None if usage is None else usage.plan)
    lately = [
        batch for batch in seen.batches if batch.observed_at > now - RECENT and batch.rejected
    ]
    repeated = [batch for batch in seen.batches if batch.redacted]
    left_out = home.landing.dismissed()
    quarantined = [
        batch
        for batch in seen.batches
        if batch.status == "quarantined" and batch.batch_id not in left_out
    ]
    published, why_unreadable = published_of(home)
    feeds = freshness(seen, plan, now, RefusedFeeds(Storage(home.state)).all())
    health = Health(
        source=stamp.source,
        plan=plan,
        feeds=feeds,
        days=seen.days,
        pending=seen.pending,
        quarantined=[batch.batch_id for batch in quarantined],
        quarantined_since=_first(quarantined),
        damaged=sorted({*home.landing.damaged(), *seen.damaged}),
        flagged=[batch.batch_id for batch in seen.batches if batch.flagged is not None],
        flagged_lately=_not_superseded(seen, now, _why_flagged),
        partial_lately=_not_superseded(seen, now, _why_partial),
        key_repeated=Problems(
            batches=[batch.batch_id for batch in repeated], since=_first(repeated)
        ),
        cautions=[caution for caution in (*cautions_of(settings), open_home(settings)) if caution],
        rejected=sum(batch.rejected for batch in seen.batches),
        rejected_lately=Problems(
            batches=[batch.batch_id for batch in lately],
            rows=sum(batch.rejected for batch in lately),
            since=_first(lately),
        ),
        free_bytes=shutil.disk_usage(home.root).free,
        quota=quota_of(settings, home, stamp.source, plan, machine_now),
        clock=ClockHealth.of(service_clock),
        undated_lately=_lately(seen, now, lambda batch: batch.date_doubt),
        deprecated=Deprecated.of(usage),
        push=push_of(settings, home, now, shown),
        deferred=deferred_work(home, now),
        coverage=coverage(seen, now),
        run_troubles=list(run_troubles(home)),
        runs=runs,
        unmerged=find_unmerged(home, machine_now),
        unpublished=find_unpublished(
            home, ChangeLog.of(home).days(), published, why_unreadable, machine_now
        ),
        published_at=None if published is None else published.at,
    )
    health.warnings = warnings_of(health, now, machine_now)
    return health


def _events_pulled_at(feeds: Iterable[FeedHealth]) -> datetime | None:
    """Return when the events were last pulled completely, by the export or the list."""
    pulled = (feed.complete_at for feed in feeds if feed.feed in ("export", "events"))
    return max((at for at in pulled if at is not None), default=None)


def sizes_of(home: Home) -> dict[str, int]:
    """Return the bytes of each part of a home; for years of batches this takes seconds."""
    sizes = {part: _size(home.root / part) for part in ("landing", "lake", "dagster")}
    with suppress(FileNotFoundError):
        sizes[home.warehouse.name] = home.warehouse.stat().st_size
    return sizes


def _size(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # A running merge may delete files.
            with suppress(FileNotFoundError):
                size += (Path(parent) / name).stat().st_size
    return size


def _not_superseded(
    seen: SeenBatches, now: datetime, why: Callable[[Seen], str | None]
) -> Problems:
    """Return the recent batches with a problem that no later complete pull supersedes."""

    def why_unless_superseded(batch: Seen) -> str | None:
        superseded = any(later.supersedes(batch) for later in seen.batches)
        return None if superseded else why(batch)

    return _lately(seen, now, why_unless_superseded)


def _lately(seen: SeenBatches, now: datetime, why: Callable[[Seen], str | None]) -> Problems:
    """Return the recent batches with a problem."""
    found = [batch for batch in seen.batches if batch.observed_at > now - RECENT and why(batch)]
    newest = found[-1] if found else None
    return Problems(
        batches=[batch.batch_id for batch in found],
        since=_first(found),
        why="" if newest is None else why(newest) or "",
    )


def _why_partial(batch: Seen) -> str | None:
    # A quarantined batch has a warning of its own.
    return None if batch.status == "quarantined" else batch.why_incomplete


def _why_flagged(batch: Seen) -> str | None:
    # A partial batch has a warning of its own.
    return batch.flagged if batch.complete else None


def _first(batches: Iterable[Seen]) -> datetime | None:
    return min((batch.observed_at for batch in batches), default=None)
