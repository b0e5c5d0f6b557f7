"""The checks of a home's health. Each yields warnings, with the command that helps.

`almanac status`, the asset checks in Dagster's UI, the metrics and the alerts show the same
warnings. A warning ends when its cause is gone. docs/warnings.md has a row for each kind.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final, Literal, get_args

from almanac.forms import plain_line
from catalog.contract.plans import PLANS
from pipeline.health.facts import RECENT, STUCK_AFTER, Health, HealthWarning, read_facts
from pipeline.health.push import MISSED_FOR, PushHealth
from pipeline.health.runs import REPORTED_FOR, FailedWork
from pipeline.settings import Settings
from resources.service_clock import ServiceClock
from warehouse.errors import WarehouseError
from warehouse.home import Home

LEAST_FREE_BYTES: Final = 2_000_000_000
DAEMON_SILENT_AFTER: Final = timedelta(minutes=15)
"""The sensor `health` writes its note every five minutes."""
_DAEMON_SILENT_FOR: Final = timedelta(days=7)
"""After so long nobody expects a daemon; its missed work has warnings of its own."""
_OVERDUE: Final = timedelta(days=1)
"""Deferred work resumes automatically; if it is later than this, something prevents it."""
_ENDS_SOON: Final = timedelta(days=90)
_RECEIVER_STOPPED_AFTER: Final = timedelta(minutes=15)
_SHOWN: Final = 3
_ERROR_CHARS: Final = 300
_REMEDIES: Final = {
    "daily": "`almanac run` repeats today's; materialise a past day in `almanac ui`",
    "merge": "`almanac merge` merges and publishes, or shows the reason",
    "deliveries": "Dagster tries again; `almanac merge` shows the reason",
    "calendar": "`almanac backfill` continues it, or re-execute the run in `almanac ui`",
    "poll": "Dagster tries again; `almanac run` pulls now",
    "prune": "`almanac prune` repeats it",
    "report": "`almanac report` shows the reason; the next report has its changes",
}
"""The remedy after a failed run, by the job's name without a prefix."""
Topic = Literal["freshness", "quota", "quality", "push", "runs", "system"]
TOPICS: Final[tuple[Topic, ...]] = get_args(Topic)
"""The names of the asset checks."""


@dataclass(frozen=True, slots=True)
class Times:
    """The time of a check by the service's clock and by the machine's."""

    service: datetime
    machine: datetime


Find = Callable[[Health, Times], Iterator[HealthWarning]]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one kind of warning. `is_error` says that data is lost or late until it ends."""

    kind: str
    topic: Topic
    meaning: str
    find: Find
    is_error: bool = False


def read_health(settings: Settings, home: Home, now: datetime) -> Health:
    """Return the facts and warnings of a home. `now` is by the machine's clock.

    Raises:
        WarehouseError: the stamp can't be read.
    """
    health = read_facts(settings, home, now)
    service_now = ServiceClock(lambda: now, state=home.state_storage).now()
    times = Times(service=service_now, machine=now)
    for check in CHECKS:
        # Before the first pull there is nothing but runs that failed.
        if health.source is not None or check.topic == "runs":
            health.warnings += check.find(health, times)
    return health


@dataclass(frozen=True, slots=True)
class FoundWarnings:
    """The warnings of a home to show or post. `source` None means that there is no home.

    `is_all` is false if there may be others, for a home that can't be read.
    """

    source: str | None
    warnings: tuple[HealthWarning, ...] = ()
    is_all: bool = True


def find_warnings(settings: Settings, home: Home, now: datetime) -> FoundWarnings:
    """Return the warnings of a home. A home that can't be read is itself a warning."""
    try:
        health = read_health(settings, home, now)
    except WarehouseError as error:
        # Not its text: it may name folders of this machine.
        text = f"The home can't be read ({type(error).__name__}): almanac status shows the reason"
        return FoundWarnings(settings.source, (HealthWarning("damaged", text),), is_all=False)
    source = settings.source if health.warnings else health.source
    return FoundWarnings(source, tuple(health.warnings))


def find_stale(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning for each feed without a complete pull for two days."""
    first = health.coverage.since
    since = "yet" if first is None else f"since {first}"
    pulled = any(feed.complete_at for feed in health.feeds if feed.feed in ("export", "events"))
    if not pulled:
        yield HealthWarning("stale:events", f"No complete pull of events {since}: almanac run")
    for feed in health.feeds:
        if feed.stale_since is None or (feed.feed == "events" and not pulled):
            continue
        last = f"no complete pull {since}"
        if feed.complete_at is not None:
            last = f"last pulled at {_at(feed.complete_at)}"
        lost = "; after 90 days some are lost" if feed.feed == "cancellations" else ""
        text = f"{feed.feed}: {last}, expected every day{lost}: almanac run"
        yield HealthWarning(f"stale:{feed.feed}", text, feed.stale_since)


def find_gap(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning for two days after a day without a complete pull of events."""
    lately = (now.service - RECENT).date()
    gaps = [gap for gap in health.coverage.unseen if gap.last >= lately]
    if gaps:
        yield HealthWarning(
            "coverage",
            f"No complete pull of events on {gaps[-1]}: events that were announced and removed "
            f"on that day are not known (reported for {RECENT.days} days). almanac import adds "
            "an archived export",
            datetime.combine(gaps[-1].first, time(tzinfo=UTC)),
        )


def find_unpublished(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning if landed data has not been published for an hour."""
    found = health.unpublished
    if found is None:
        return
    merging = f" ({found.merging} merges now)" if found.merging else ""
    if found.why:
        text = f"The published file can't be read ({found.why}): almanac replay makes it again"
    else:
        waits = _count(found.batches, "landed batch waits", "landed batches wait")
        text = f"{waits} to be merged since {_at(found.since)}{merging}: almanac merge merges them"
    yield HealthWarning("unpublished", f"{text}, or shows the reason", found.since)


def find_quota(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning if the quota is used up, or will be before the reset."""
    quota = health.quota
    if quota is None or not quota.runs_out or quota.reset_at is None:
        return
    text = f"The monthly quota of {quota.quota:,} is used up until {_at(quota.reset_at)}"
    if quota.remaining != 0:
        text = (
            f"The monthly quota of {quota.quota:,} will run out: {quota.projected:,} by "
            f"{_at(quota.reset_at)}, at {quota.pace_per_day:,.0f} a day"
        )
    yield HealthWarning("quota", f"{text}: almanac budget")


def find_deferred(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning for deferred work a day overdue, and for an interrupted backfill."""
    due = []
    for work in health.deferred:
        if work.resume_at is not None and work.resume_at + _OVERDUE < now.service:
            resume = f"should have resumed at {_at(work.resume_at)}, and did not: almanac run, or "
            due.append((work.resume_at + _OVERDUE, work, f"{resume}almanac ui for the daemon"))
        elif work.stopped_at is not None and now.machine - work.stopped_at > STUCK_AFTER:
            text = f"was interrupted; it was last continued at {_at(work.stopped_at)}: the same "
            due.append((work.stopped_at, work, f"{text}almanac backfill continues it"))
    if due:
        since, work, text = min(due, key=lambda found: found[0])
        yield HealthWarning("deferred", f"{work.work} {work.what}{_more(due)}: {text}", since)


def find_rejected(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning for rows of the last two days that could not be read."""
    found = health.rejected_lately
    if found.rows:
        rows = _count(found.rows, "row", "rows")
        yield HealthWarning(
            "rejected",
            f"{rows} of {_batches(found.batches)} of the last {RECENT.days} days could not be "
            'read: almanac sql "SELECT * FROM rejects"',
            found.since,
        )


def find_partial(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning for incomplete batches of the last two days without a later full pull."""
    found = health.partial_lately
    if found.batches:
        why = " ".join(found.why.split()).rstrip(".")
        yield HealthWarning(
            "partial",
            f"Incomplete: {_batches(found.batches)} of the last {RECENT.days} days, no complete "
            f"pull since; the newest is {found.batches[-1]}: {why}. Pull again: almanac run, or "
            "repeat the backfill",
            found.since,
        )


def find_quarantined(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning for batches in quarantine."""
    if health.quarantined:
        yield HealthWarning(
            "quarantined",
            f"{_batches(health.quarantined)} in quarantine: almanac batches list --status "
            "quarantined --days 100",
            health.quarantined_since,
        )


def find_damaged(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning for landed batches whose files have changed."""
    if health.damaged:
        yield HealthWarning(
            "damaged",
            f"Damaged in landing and left out: {_batches(health.damaged)}; the newest is "
            f"{health.damaged[-1]}: almanac batches list shows which file to restore from a "
            "backup; then run almanac replay",
        )


def find_clock(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning for batches of the last two days without a plausible `Date`."""
    found = health.undated_lately
    if found.batches:
        yield HealthWarning(
            "clock",
            f"{_batches(found.batches)} of the last {RECENT.days} days without a plausible Date of "
            f"the service; the newest is {found.batches[-1]}: {found.why}. Check this machine's "
            "clock: almanac doctor",
            found.since,
        )


def find_push(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning if push is expected and silent, or missed changes."""
    push = health.push
    if push is None:
        return
    last, limit = push.last_at, timedelta(seconds=push.silent_after_s)
    received = "yet" if last is None else f"since {_at(last)}"
    if not push.is_running and _expects_receiver(push, now):
        yield HealthWarning(
            "push",
            f"almanac receive does not run, and no delivery was received {received}: start it. The "
            "service repeats deliveries for some days; polls find the rest",
            last,
        )
        return
    if push.is_running:
        is_silent = now.service - last > limit if last else _is_old(push.started_at, limit, now)
        if is_silent:
            plan = PLANS.get(health.plan or "")
            without = "" if plan is None or plan.webhooks else f"; the plan {plan.name} has no push"
            yield HealthWarning(
                "push",
                f"almanac receive runs, and no delivery was received {received}{without}: check "
                "that the service has the endpoint enabled, that its address leads to this "
                "machine, and that the log of the receiver shows no refused requests. Meanwhile "
                "polls find the changes",
                last or push.started_at,
            )
            return
    if push.missed:
        named = ", ".join(
            f"{plain_line(change.event_id)} ({', '.join(change.change_kinds)}, "
            f"{_at(change.changed_at)})"
            for change in push.missed[:_SHOWN]
        )
        yield HealthWarning(
            "push",
            f"Push missed {_count(push.missed, 'change', 'changes')} of the last "
            f"{MISSED_FOR.days} days that a pull found: {named}{_others(push.missed)}. The "
            "warehouse has them. Check that the endpoint gets created, updated and cancelled "
            "events, and that the receiver was not down for long",
            min(change.known_at for change in push.missed),
        )


def _expects_receiver(push: PushHealth, now: Times) -> bool:
    """Whether a receiver should run, and has not stopped just now."""
    if not push.has_secrets and (push.last_at is None or now.service - push.last_at > REPORTED_FOR):
        return False
    heard = push.last_at is not None and now.service - push.last_at <= _RECEIVER_STOPPED_AFTER
    started = push.started_at is not None and not _is_old(
        push.started_at, _RECEIVER_STOPPED_AFTER, now
    )
    return not (heard or started)


def _is_old(at: datetime | None, age: timedelta, now: Times) -> bool:
    return at is not None and now.machine - at > age


def find_inbox(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning if deliveries wait for an hour, or can't be applied."""
    push = health.push
    if push is None:
        return
    texts: list[str] = []
    since = push.waiting_since
    if since is not None and now.service - since > STUCK_AFTER:
        texts.append(
            f"{_count(push.waiting, 'delivery waits', 'deliveries wait')} in the inbox since "
            f"{_at(since)}: almanac merge lands and merges them, or shows the reason; see that "
            "almanac daemon runs, or start almanac receive --merge"
        )
    if push.rejected:
        count = _count(push.rejected, "delivery", "deliveries")
        texts.append(
            f"{count} in the inbox can't be applied; the newest is {push.rejected[-1]}: almanac "
            "inbox list shows the reason"
        )
    if texts:
        yield HealthWarning("inbox", ". ".join(texts), push.rejected_since or since)


def find_failed_runs(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning for runs of the last week that failed and were not repeated."""
    if health.runs is None:
        return
    failed = [
        work
        for work in health.runs.failed
        if now.machine - work.at <= REPORTED_FOR and not _is_published_since(work, health)
    ]
    if not failed:
        return
    newest = sorted(failed, key=lambda work: work.at, reverse=True)[:_SHOWN]
    runs = _count(failed, "run failed and was", "runs failed and were")
    yield HealthWarning(
        "failed_runs",
        f"{runs} not followed by a success: {'; '.join(map(_describe_failure, newest))}"
        f"{_others(failed)}. The page of the run in almanac ui has the whole error",
        min(work.since for work in failed),
    )


def _is_published_since(work: FailedWork, health: Health) -> bool:
    """Whether a failed merge was done otherwise, as by `almanac merge`."""
    at = health.published_at
    is_done = health.unpublished is None and at is not None and at > work.at
    return work.job.endswith("merge") and is_done


def _describe_failure(work: FailedWork) -> str:
    times = f", {work.times} times since {_at(work.since)}" if work.times > 1 else ""
    why = f" ({_shorten(work.error)})" if work.error else ""
    remedy = next((text for job, text in _REMEDIES.items() if work.job.endswith(job)), "")
    return (
        f"run {work.run_id[:8]} of {work.name} at {_at(work.at)}{times}{why}: "
        f"{remedy or 're-execute it in `almanac ui`'}"
    )


def find_daemon(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning if the daemon stopped in the last week, or a sensor or schedule fails."""
    note = health.runs
    if note is None or note.daemon_at is None or now.machine - note.daemon_at > _DAEMON_SILENT_FOR:
        return
    if now.machine - note.daemon_at > DAEMON_SILENT_AFTER:
        yield HealthWarning(
            "daemon",
            f"Dagster's daemon last reported at {_at(note.daemon_at)}: no schedule, sensor or "
            "backfill runs without it. Start almanac daemon or almanac ui; if it runs, almanac "
            "doctor",
            note.daemon_at,
        )
    elif note.ticks:
        first = min(note.ticks, key=lambda ticks: ticks.since)
        why = f" ({_shorten(first.error)})" if first.error else ""
        yield HealthWarning(
            "daemon",
            f"`{first.name}`{_more(note.ticks)} failed {_count(first.times, 'time', 'times')} "
            f"since {_at(first.since)}{why}. Dagster tries again; almanac ui shows it under "
            "Automation",
            first.since,
        )


def find_disk(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning if less than 2 GB is free."""
    if health.free_bytes < LEAST_FREE_BYTES:
        text = f"The disk has {health.free_bytes / 1e9:.1f} GB free: almanac prune"
        yield HealthWarning("disk", text)


def find_secrets(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning if a secret can leak."""
    texts = list(health.cautions)
    if health.key_repeated.batches:
        texts.append(
            f"The service repeated the API key in {_batches(health.key_repeated.batches)}; it "
            "was removed before anything was stored. Report this to the service, and request a "
            "new key"
        )
    if texts:
        yield HealthWarning("secrets", "; ".join(texts), health.key_repeated.since)


def find_deprecated(health: Health, now: Times) -> Iterator[HealthWarning]:
    """Yield a warning if this version of the interface ends within 90 days."""
    found = health.deprecated
    if found is None or found.ends_at is None or found.ends_at - _ENDS_SOON >= now.service:
        return
    yield HealthWarning(
        "deprecated",
        f"The service retires this version of its interface on {found.ends_at:%Y-%m-%d}: look for "
        "a newer version of Almanac",
        found.since,
    )


CHECKS: Final = (
    Check("stale", "freshness", "Each feed was pulled in the last two days.", find_stale),
    Check("coverage", "freshness", "Events were pulled on each of the last two days.", find_gap),
    Check(
        *("unpublished", "freshness", "Landed data is published within an hour."),
        *(find_unpublished, True),
    ),
    Check("quota", "quota", "The monthly quota lasts until its reset.", find_quota),
    Check("deferred", "quota", "Deferred work was resumed in time.", find_deferred),
    Check("rejected", "quality", "Every row of the last two days could be read.", find_rejected),
    Check("partial", "quality", "Every pull of the last two days is complete.", find_partial),
    Check("quarantined", "quality", "No batch is in quarantine.", find_quarantined),
    Check("damaged", "quality", "The files of landed batches are unchanged.", find_damaged, True),
    Check("clock", "quality", "The clocks of service and machine agree.", find_clock),
    Check("push", "push", "Push brings every change that it should.", find_push),
    Check("inbox", "push", "Every delivery is landed within an hour.", find_inbox),
    Check("failed_runs", "runs", "Every failed run was repeated.", find_failed_runs, True),
    Check("daemon", "runs", "Dagster's daemon, schedules and sensors work.", find_daemon, True),
    Check("disk", "system", "At least 2 GB of the disk are free.", find_disk, True),
    Check("secrets", "system", "No secret can leak.", find_secrets),
    Check("deprecated", "system", "The interface does not end soon.", find_deprecated),
)
"""All checks, in the order in which their warnings are shown."""


def find_check(kind: str) -> Check:
    """Return the check of a warning."""
    return next(check for check in CHECKS if check.kind == kind.partition(":")[0])


def _batches(batches: Sequence[str]) -> str:
    return _count(batches, "batch", "batches")


def _count(counted: Sequence[object] | int, noun: str, plural: str) -> str:
    count = counted if isinstance(counted, int) else len(counted)
    return f"1 {noun}" if count == 1 else f"{count:,} {plural}"


def _more(found: Sequence[object]) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""


def _others(found: Sequence[object]) -> str:
    return f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""


def _shorten(error: str) -> str:
    text = error.strip().rstrip(".")
    return text if len(text) <= _ERROR_CHARS else f"{text[:_ERROR_CHARS]}…"


def _at(instant: datetime | None) -> str:
    return "an unknown time" if instant is None else f"{instant:%Y-%m-%d %H:%M} UTC"
