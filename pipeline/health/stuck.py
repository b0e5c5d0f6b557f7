"""The warnings of work that is stuck: `unmerged`, `unpublished`, `failed_runs`, `ticks`,
`long_runs`, `backfills` and `daemon`.

Each says what, since when, and the command that helps; it is gone once the work is done, however
that was done. Belongs here: their words, and what they count. Does not: finding what waits
(waiting) and what failed (pipeline/runs).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from pipeline.health.records import Health, Warned
from pipeline.health.waiting import STUCK_AFTER
from pipeline.runs.history import ASSET_JOB, FailedWork, RunHistory

SILENT_AFTER: Final = timedelta(minutes=15)
"""A daemon reports every 30 seconds."""
_PART_SILENT_AFTER: Final = timedelta(minutes=30)
"""One part of a daemon may be busy for as long as Dagster's own page tolerates."""
_PARTS: Final = ("SENSOR", "SCHEDULER", "BACKFILL")
_SILENT_FOR: Final = timedelta(days=7)
"""After so long nobody expects it: what it did not do has warnings of its own."""
_SHOWN: Final = 3
_ERROR_CHARS: Final = 300
REMEDIES: Final = {
    "daily": "`almanac run` repeats today's; materialise a past day in `almanac ui`",
    "merge": "`almanac merge` merges and publishes, or shows why not",
    "deliveries": "it is tried again by itself; `almanac merge` shows why not",
    "calendar": "`almanac backfill` continues it, or re-execute the run in `almanac ui`",
    "poll": "`almanac run` pulls now",
    "alert": "`almanac status --alert` posts again; check ALMANAC_ALERT_URL",
    "digest": "`almanac digest` posts again; check ALMANAC_DIGEST_URL",
    "prune": "`almanac prune` repeats it",
}
"""What helps after a failed run of a job, by the job's name without a prefix."""
_ON_PAGE: Final = "re-execute it on its page in `almanac ui`"


def stuck(health: Health, now: datetime) -> Iterator[Warned]:
    """Yield the warnings of stuck work. `now` is by the machine's clock, as all its times are."""
    yield from _unmerged(health)
    yield from _unpublished(health)
    history = health.runs
    yield from _failed_runs(history, health)
    yield from _ticks(health)
    yield from _long_runs(history, health)
    yield from _backfills(health, now)
    yield from _daemon(history, now)


def _unmerged(health: Health) -> Iterator[Warned]:
    found = health.unmerged
    if not found.batches:
        return
    merging = f" ({found.merging} merges now)" if found.merging else ""
    yield Warned(
        "unmerged",
        f"{_count(len(found.batches), 'landed batch waits', 'landed batches wait')} to be merged "
        f"since {_at(found.since)}{merging}: almanac merge merges them or shows why not",
        found.since,
    )


def _unpublished(health: Health) -> Iterator[Warned]:
    found = health.unpublished
    if found is None:
        return
    if found.why:
        yield Warned(
            "unpublished",
            f"The published file can't be read ({found.why}): almanac merge makes it anew from "
            "the lake, or shows why not",
            found.since,
        )
        return
    days = _count(len(found.days), "day", "days")
    named = f"{found.days[0]}" if len(found.days) == 1 else f"{found.days[0]} to {found.days[-1]}"
    versions = _count(found.versions, "version", "versions")
    yield Warned(
        "unpublished",
        f"The published file lacks {days} of the lake ({named}; {versions}) since "
        f"{_at(found.since)}: almanac merge publishes them or shows why not",
        found.since,
    )


def failing(history: RunHistory, health: Health) -> list[FailedWork]:
    """Return the failed work that is still not done.

    A merge or publication that was done otherwise, as by `almanac merge`, counts as done.
    """
    return [work for work in history.failed if not _was_published_since(work, health)]


def _was_published_since(work: FailedWork, health: Health) -> bool:
    only_publishes = work.role == "merge" or (work.job == ASSET_JOB and not work.part)
    waits = health.unmerged.batches or health.unpublished is not None
    return (
        only_publishes
        and not waits
        and health.published_at is not None
        and health.published_at > work.at
    )


def _failed_runs(history: RunHistory, health: Health) -> Iterator[Warned]:
    found = failing(history, health)
    if not found:
        return
    newest = sorted(found, key=lambda work: work.at, reverse=True)
    failures = "; ".join(_failure(work) for work in newest[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    runs = "1 run failed and was" if len(found) == 1 else f"{len(found)} runs failed and were"
    yield Warned(
        "failed_runs",
        f"{runs} not followed by a success: {failures}{more}. The "
        "page of the run in almanac ui has the whole error",
        min(work.since for work in found),
        about=tuple(f"{work.name} since {work.since.isoformat()}" for work in found),
    )


def _failure(work: FailedWork) -> str:
    times = f" for the {work.times}. time since {_at(work.since)}" if work.times > 1 else ""
    why = f" ({_short(work.error)})" if work.error else ""
    remedy = REMEDIES.get(work.role, _ON_PAGE)
    return f"run {work.run_id[:8]} of {work.name} at {_at(work.at)}{times}{why}: {remedy}"


def _ticks(health: Health) -> Iterator[Warned]:
    failed = health.runs.ticks
    if not failed:
        return
    first = min(failed, key=lambda ticks: ticks.since)
    more = _more(failed)
    why = f" ({_short(first.error)})" if first.error else ""
    yield Warned(
        "ticks",
        f"The last {_count(first.times, 'tick', 'ticks')} of `{first.name}`{more} failed, since "
        f"{_at(first.since)}{why}. It is tried again by itself; almanac ui shows it under "
        "Automation",
        first.since,
        about=tuple(f"{ticks.name} since {ticks.since.isoformat()}" for ticks in failed),
    )


def _long_runs(history: RunHistory, health: Health) -> Iterator[Warned]:
    dead = any(trouble.kind == "runs" for trouble in health.run_troubles)
    # A backfill may take as long; what stops in it is a warning of its own.
    found = [run for run in history.long if not run.job.endswith("calendar")]
    if found and not dead:
        first = found[0]
        yield Warned(
            "long_runs",
            f"Run {first.run_id[:8]} of {first.job}{_more(found)}, created at {_at(first.since)}, "
            f"has not ended ({first.status.lower()}): its page in almanac ui shows its step, and "
            "can terminate it",
            first.since,
        )


def _backfills(health: Health, now: datetime) -> Iterator[Warned]:
    stopped = [
        (work.stopped_at, work.what)
        for work in health.deferred
        if work.stopped_at is not None and now - work.stopped_at > STUCK_AFTER
    ]
    if stopped:
        stopped_at, what = min(stopped)
        yield Warned(
            "backfills",
            f"The backfill of {what}{_more(stopped)} was interrupted; it was last "
            f"continued at {_at(stopped_at)}: the same almanac backfill continues it, "
            "without another request for what is landed",
            stopped_at,
        )
        return
    history = health.runs
    stuck = [backfill for backfill in history.backfills if now - backfill.moved_at > STUCK_AFTER]
    if stuck:
        first = min(stuck, key=lambda backfill: backfill.moved_at)
        yield Warned(
            "backfills",
            f"Backfill {first.backfill_id} of {_at(first.since)}{_more(stuck)} has not ended, and "
            f"nothing happened in it since {_at(first.moved_at)}: see that almanac daemon or "
            "almanac ui runs, or cancel it on its page",
            first.moved_at,
        )


def _daemon(history: RunHistory, now: datetime) -> Iterator[Warned]:
    if not history.reported_at:
        return
    last = max(at for _, at in history.reported_at)
    if SILENT_AFTER < now - last <= _SILENT_FOR:
        yield Warned(
            "daemon",
            f"Dagster's daemon last reported at {_at(last)}: no schedule, sensor or backfill "
            "runs without it. Start almanac daemon or almanac ui",
            last,
        )
        return
    silent = [
        (at, part)
        for part, at in history.reported_at
        if part in _PARTS and last - at > _PART_SILENT_AFTER and now - last <= SILENT_AFTER
    ]
    if silent:
        at, part = min(silent)
        yield Warned(
            "daemon",
            f"The {part.lower()} part of Dagster's daemon last reported at {_at(at)}, the "
            "others since: stop almanac daemon or almanac ui, and start it again",
            at,
        )


def _more(found: Sequence[object]) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""


def _short(error: str) -> str:
    text = error.strip().rstrip(".")
    return text if len(text) <= _ERROR_CHARS else f"{text[:_ERROR_CHARS]}…"


def _count(count: int, noun: str, plural: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {plural}"


def _at(instant: datetime | None) -> str:
    return "an unknown time" if instant is None else f"{instant:%Y-%m-%d %H:%M} UTC"
