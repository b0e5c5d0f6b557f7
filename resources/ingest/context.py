"""The shared context of a puller's pulls: client, landing, plan, source and clock.

A process locks its pull, and the lock ends with the process: so no other process resumes a pull
whose process is alive. Nothing else in resources/ uses files of the landing folder. Times
are aware UTC.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Final

from msgspec import UNSET

from almanac.core.files import make_folders, try_lock
from catalog.contract.constants import EXPORT_SNAPSHOT_MINUTE
from catalog.contract.plans import PLANS, Plan, day_start
from resources.errors import Defer
from resources.http.client import CatalogClient
from warehouse.codecs import storable_text
from warehouse.landing.batches import Feed, Manifest, Pull, Scope
from warehouse.landing.journal import Intent, OpenPull
from warehouse.landing.landing import Landing


@contextmanager
def lock_pull(landing: Landing, pull_id: str) -> Iterator[bool]:
    """Lock a pull against other processes; yield whether that was possible."""
    path = landing.storage.path(f"journal/{pull_id}.lock")
    make_folders(path.parent)
    with path.open("a") as lock:
        # If the file is gone, its last owner has just removed it, and the pull with it.
        if not (try_lock(lock) and _is_at(lock.fileno(), path)):
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@dataclass(slots=True)
class PullContext:
    """Client, landing, plan and source of some pulls. `clock` is the machine's, aware UTC.

    `resumed` has the recent pulls that `resume_open` finished; pullers of one session share it.
    """

    client: CatalogClient
    landing: Landing
    plan: Plan
    source: str
    clock: Callable[[], datetime]
    resumed: "list[LandedBatch]" = field(default_factory=list)

    def now(self) -> datetime:
        """Return the service's time, by the Date of the last response."""
        return self.client.service_clock.now()

    def describe_batch(
        self,
        feed: Feed,
        scope: Scope,
        *,
        observed_at: datetime,
        content_at: datetime,
        requests: int,
        rows_claimed: int | None = None,
        why_incomplete: str | None = None,
        of: Intent | None = None,
        date_doubt: str = "",
        etag: str | None = None,
    ) -> Pull:
        """Return the description of a batch, with the plan and source `of` an earlier pull.

        The content time is never after the observed time, even if the response says so.
        """
        return Pull(
            feed=feed,
            scope=scope,
            plan=self.plan.name if of is None else of.plan,
            source=self.source if of is None else of.source,
            observed_at=observed_at,
            content_at=min(content_at, observed_at),
            landed_at=self.clock(),
            requests=requests,
            rows_claimed=rows_claimed,
            why_incomplete=None if not why_incomplete else storable_text(why_incomplete),
            export_columns=(feed == "export" and self.client.export_columns) or UNSET,
            date_doubt=date_doubt or None,
            etag=etag,
        )

    @contextmanager
    def begin(self, feed: Feed, scope: Scope) -> Iterator[OpenPull]:
        """Begin a journaled pull and lock it while it is in progress."""
        started_at = self.clock()
        for tries in count():
            intent = Intent(
                feed=feed,
                scope=scope,
                plan=self.plan.name,
                source=self.source,
                # Two pulls that begin at the same time must not share a journal.
                started_at=started_at + timedelta(microseconds=tries),
            )
            journaled = f"journal/{intent.pull_id}/pull.json"
            with lock_pull(self.landing, intent.pull_id) as is_locked:
                if is_locked and not self.landing.storage.exists(journaled):
                    yield self.landing.journal.begin(intent)
                    return


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """A landed pull, whole or in part (`manifest.complete`).

    `requests` counts the requests of this process, and the pages of an earlier one. `rows` includes
    duplicates. `deferred` says when the service will respond again. `is_same` is whether the batch
    was landed before, and the service has the same snapshot.
    """

    manifest: Manifest
    requests: int
    rows: int
    deferred: Defer | None = None
    warnings: tuple[str, ...] = ()
    is_same: bool = False


_SNAPSHOT: Final = timedelta(minutes=EXPORT_SNAPSHOT_MINUTE)
_EXPORT_OUT_BY: Final = timedelta(minutes=10)
"""An export fetched sooner after midnight may still be the export of the previous day."""
_FIRST_YEAR: Final = 2000


def list_content_at(first_date: datetime, plan: Plan) -> datetime:
    """Return the content time of a list or look-up: the Date of its first page minus the plan's
    delay."""
    return first_date - timedelta(seconds=plan.freshness_s)


def export_content_at(last_modified: datetime | None, date: datetime) -> datetime:
    """Return the content time of an export: the time of its snapshot.

    `date` is when it was sent, by the service's clock. A Last-Modified after `date`, or of an
    impossible year, is ignored.
    """
    if last_modified is not None and last_modified <= date and last_modified.year >= _FIRST_YEAR:
        return last_modified
    today = day_start(date)
    day = today - timedelta(days=1) if date < today + _EXPORT_OUT_BY else today
    return day + _SNAPSHOT


def resolve_plan(name: str, usual: Plan) -> Plan:
    """Return the plan of an earlier pull; for an unknown name, the one with the oldest content."""
    if name == usual.name:
        return usual
    return PLANS.get(name) or max(PLANS.values(), key=lambda plan: plan.freshness_s)
