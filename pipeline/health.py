"""The health of a home: what was looked at when, what waits, and what is wrong.

Read from landing, the change log and the home's own notes alone, so that it can be told while a
merge runs. No request is made.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pipeline.coverage_gaps import coverage
from pipeline.freshness import freshness
from pipeline.health_quota import quota_of
from pipeline.health_record import ClockHealth, Deprecated, Health, Problems
from pipeline.health_warnings import RECENT, warnings_of
from pipeline.put_off import put_off
from pipeline.run_checks import run_troubles
from pipeline.secrecy import cautions_of, open_home
from pipeline.seen_batches import Seen, SeenBatches, seen_since
from pipeline.settings import Settings
from resources.headers import read_deprecation, read_http_date
from resources.request_log import ToldUsage, last_usage
from resources.service_clock import ServiceClock
from warehouse.home import Home
from warehouse.storage import Storage

LOOKED_BACK_DAYS: Final = 100
"""Cancellations are listed for 90 days: one that was not looked at for longer is lost."""


def health_of(settings: Settings, home: Home, now: datetime) -> Health:
    """Return the health of a home, looking back a hundred days; `bytes` is left empty.

    `now` is the machine's: requests and quota are by its clock, all else is by the service's.

    Raises:
        WarehouseError: the stamp or a file of the change log can't be read.
    """
    home.refuse_lost_stamp()
    stamp = home.stamp()
    if stamp is None:
        return Health(source=None)
    machine_now = now
    heard = ServiceClock(lambda: machine_now, state=Storage(home.state))
    now = heard.now()
    seen = seen_since(home, (now - timedelta(days=LOOKED_BACK_DAYS)).date())
    told = last_usage(home.state)
    plan = seen.plan or settings.plan or (None if told is None else told.plan)
    lately = [one for one in seen.batches if one.observed_at > now - RECENT and one.rejected]
    repeated = [batch for batch in seen.batches if batch.redacted]
    quarantined = [one for one in seen.batches if one.status == "quarantined"]
    health = Health(
        source=stamp.source,
        plan=plan,
        feeds=freshness(seen, plan, now),
        days=seen.days,
        pending=seen.pending,
        quarantined=[one.batch_id for one in quarantined],
        quarantined_since=_first(quarantined),
        damaged=sorted({*home.landing.damaged(), *seen.damaged}),
        flagged=[one.batch_id for one in seen.batches if one.flagged is not None],
        flagged_lately=_not_made_good(seen, now, _why_flagged),
        partial_lately=_not_made_good(seen, now, _why_partial),
        key_repeated=Problems(batches=[one.batch_id for one in repeated], since=_first(repeated)),
        cautions=[caution for caution in (*cautions_of(settings), open_home(settings)) if caution],
        rejected=sum(one.rejected for one in seen.batches),
        rejected_lately=Problems(
            batches=[one.batch_id for one in lately],
            rows=sum(one.rejected for one in lately),
            since=_first(lately),
        ),
        free_bytes=shutil.disk_usage(home.root).free,
        quota=quota_of(settings, home, stamp.source, plan, machine_now),
        clock=_clock(heard),
        undated_lately=_lately(seen, now, lambda batch: batch.date_doubt),
        deprecated=_deprecated(told),
        put_off=put_off(home, now),
        coverage=coverage(seen, now),
        run_troubles=list(run_troubles(home)),
    )
    with suppress(FileNotFoundError):
        published = home.warehouse.stat().st_mtime
        health.published_at = datetime.fromtimestamp(published, tz=UTC)
    health.warnings = warnings_of(health, now)
    return health


def _clock(heard: ServiceClock) -> ClockHealth | None:
    if heard.offset is None:
        return None
    return ClockHealth(round(heard.ahead.total_seconds(), 1), heard.heard_at)


def sizes_of(home: Home) -> dict[str, int]:
    """Return the bytes of each part of a home; over years of batches that takes seconds."""
    sizes = {part: _size(home.root / part) for part in ("landing", "lake", "dagster")}
    with suppress(FileNotFoundError):
        sizes[home.warehouse.name] = home.warehouse.stat().st_size
    return sizes


def _size(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            # A merge that runs takes files away.
            with suppress(FileNotFoundError):
                size += (Path(parent) / name).stat().st_size
    return size


def _not_made_good(seen: SeenBatches, now: datetime, why: Callable[[Seen], str | None]) -> Problems:
    """Return the recent batches that have a problem and that no later whole look made good."""

    def lasting(batch: Seen) -> str | None:
        made_good = any(later.makes_good(batch) for later in seen.batches)
        return None if made_good else why(batch)

    return _lately(seen, now, lasting)


def _lately(seen: SeenBatches, now: datetime, why: Callable[[Seen], str | None]) -> Problems:
    """Return the recent batches that have a problem."""
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


def _deprecated(told: ToldUsage | None) -> Deprecated | None:
    if told is None or not (told.deprecation or told.sunset):
        return None
    return Deprecated(read_deprecation(told.deprecation), read_http_date(told.sunset))


def _first(batches: Iterable[Seen]) -> datetime | None:
    return min((one.observed_at for one in batches), default=None)
