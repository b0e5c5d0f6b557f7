"""The plan of a merge: which batches are folded, in which order, and into a copy of which file.

Also this machine's logs of requests and of the quota, which a merge makes tables of:
state/requests/*.jsonl and state/usage.jsonl. A rebuild does not restore them.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from glob import escape
from pathlib import Path
from typing import Final

from warehouse.errors import DamagedBatch, LandingError
from warehouse.history import checkpoints
from warehouse.history.observations import find_first_key
from warehouse.history.warehouse_file import (
    SECONDS_FACT,
    VIEWS_FACT,
    MergedBatch,
    NextFile,
    PublishedFile,
    hash_views,
)
from warehouse.home import Home
from warehouse.landing.batches import Manifest
from warehouse.landing.landing import lost_batch

_log = logging.getLogger(__name__)
_LOGS: Final = "local_logs"
"""The key under which the file stores the fingerprint of its logs."""
_BATCH_S: Final = 0.1
"""The assumed time of one batch, for a file that does not record how long its batches took."""


@dataclass(frozen=True, slots=True)
class LocalLogs:
    """The files of each table, and a fingerprint that changes with them."""

    files: dict[str, list[str]]
    fingerprint: str

    def load(self, file: NextFile) -> None:
        """Replace the tables that are made from the logs, if these changed."""
        if file.facts.get(_LOGS) == self.fingerprint:
            return
        for table, paths in self.files.items():
            file.run("empty_log", {"table": table})
            if paths:
                file.run(f"insert_{table}", files=paths)
        file.note_fact(_LOGS, self.fingerprint)


def find_local_logs(state: Path) -> LocalLogs:
    """Find the logs in a state folder; it may have none."""
    found = {
        "requests": sorted(state.glob("requests/*.jsonl")),
        "usage": sorted(state.glob("usage.jsonl")),
    }
    found = {table: [path for path in paths if path.is_file()] for table, paths in found.items()}
    stats = [(path.name, path.stat()) for paths in found.values() for path in paths]
    return LocalLogs(
        {table: [escape(str(path)) for path in paths] for table, paths in found.items()},
        " ".join(f"{name}:{stat.st_size}:{stat.st_mtime_ns}" for name, stat in stats),
    )


@dataclass(slots=True)
class MergePlan:
    """The batches to merge, and the base: the file whose copy they are merged into.

    `base` None is an empty file. `why_rebuilt` is the reason why the warehouse is rebuilt from
    landing although no rebuild was requested. `damaged` has the batches that were set aside.
    """

    published: PublishedFile | None
    released: frozenset[str]
    may_lose: bool
    """Whether a damaged batch that took effect is set aside, as in a rebuild."""
    base: Path | None = None
    manifests: list[Manifest] = field(default_factory=list)
    is_needed: bool = False
    is_refold: bool = False
    why_rebuilt: str | None = None
    damaged: dict[str, str] = field(default_factory=dict)

    @property
    def merged(self) -> Mapping[str, MergedBatch]:
        """The batches that took effect before."""
        return {} if self.published is None else self.published.batches

    @property
    def first_day(self) -> date:
        """The first day that is folded; no day if there is no batch."""
        return min((each.observed_at.date() for each in self.manifests), default=date.max)

    def set_aside(self, home: Home, batch_id: str, error: DamagedBatch) -> None:
        if batch_id in self.merged and not self.may_lose:
            raise error
        home.landing.set_aside(batch_id, str(error))
        self.damaged[batch_id] = str(error)


def plan_merge(
    home: Home,
    published: PublishedFile | None,
    *,
    refold_from: date | None,
    last_day: date,
    is_rebuild: bool,
) -> MergePlan:
    """List the unmerged batches of the days until `last_day`, and choose the base.

    The base is the published file if all new batches sort after its last one; else the newest
    checkpoint before them; else an empty file.
    """
    why_rebuilt = None if is_rebuild else _explain_rebuilding(home, published)
    from_empty = is_rebuild or published is None or why_rebuilt is not None
    plan = MergePlan(
        published, frozenset(home.landing.released()), from_empty, why_rebuilt=why_rebuilt
    )
    if is_rebuild:
        _set_aside_lost(home, plan)
    landed = [
        batch_id
        for batch_id in home.landing.batch_ids()
        if batch_id in plan.merged or batch_id[:8] <= f"{last_day:%Y%m%d}"
    ]
    fresh = _read_manifests(home, plan, _find_fresh(plan, landed))
    days = [manifest.observed_at.date() for manifest in fresh]
    if refold_from is not None:
        days += home.landing.days(since=refold_from)[:1]
    if published is not None and not from_empty and refold_from is None:
        last = published.last_key
        if last is None or all(find_first_key(manifest) > last for manifest in fresh):
            plan.base, plan.manifests = home.warehouse, fresh
            plan.is_needed = bool(fresh) or _has_other_facts(home, published)
            return plan
    plan.is_needed = plan.is_refold = True
    after = date.min
    first = min(days, default=date.max)
    if not from_empty and (before := checkpoints.find_before(home, first, plan.merged)):
        after, plan.base = before
    if not from_empty:
        _refuse_lost(home, plan, after, landed)
    later = [batch_id for batch_id in landed if batch_id[:8] > f"{after:%Y%m%d}"]
    plan.manifests = _read_manifests(home, plan, later)
    return plan


def _explain_rebuilding(home: Home, published: PublishedFile | None) -> str | None:
    """Return why the warehouse must be rebuilt, and log how long that takes; else None."""
    if not home.warehouse.exists() or (published is not None and published.has_current_tables):
        return None
    batches = len(home.landing.batch_ids())
    facts: Mapping[str, str] = {} if published is None else published.facts
    seconds = float(facts.get(SECONDS_FACT, batches * _BATCH_S))
    why = "Another version of Almanac made the warehouse: it is rebuilt from landing"
    _log.warning("%s, %d batches, in about %.0f s.", why, batches, seconds)
    return f"{why}."


def _find_fresh(plan: MergePlan, landed: Iterable[str]) -> list[str]:
    """Return the batches that are not merged yet, or were released or taken back since."""
    return [
        batch_id
        for batch_id in landed
        if (batch := plan.merged.get(batch_id)) is None
        or batch.released != (batch_id in plan.released)
    ]


def _has_other_facts(home: Home, published: PublishedFile) -> bool:
    """Whether a new file is published without new batches, because the logs or the views
    changed."""
    current = {_LOGS: find_local_logs(home.state).fingerprint, VIEWS_FACT: hash_views()}
    return any(published.facts.get(name) != value for name, value in current.items())


def _set_aside_lost(home: Home, plan: MergePlan) -> None:
    """Set aside batches that took effect and are missing from landing."""
    there = {*home.landing.batch_ids(), *home.landing.damaged()}
    for batch_id in sorted(plan.merged.keys() - there):
        home.landing.set_aside(batch_id, str(lost_batch(batch_id)))
    plan.damaged.update(home.landing.damaged())


def _refuse_lost(home: Home, plan: MergePlan, after: date, landed: Iterable[str]) -> None:
    """Stop if later days would be refolded without a batch that had taken effect."""
    there = {*landed, *home.landing.damaged()}
    for batch_id, batch in plan.merged.items():
        if batch.day > after and batch_id not in there:
            raise lost_batch(batch_id)


def _read_manifests(home: Home, plan: MergePlan, batch_ids: Iterable[str]) -> list[Manifest]:
    """Return the manifests of batches; a damaged one is set aside."""
    found: list[Manifest] = []
    for batch_id in batch_ids:
        try:
            found.append(home.landing.manifest(batch_id))
        except DamagedBatch as error:
            plan.set_aside(home, batch_id, error)
        except LandingError:
            continue
    return found
