"""Archived files as batches: exports that a person kept, with times that the person states.

The rows are marked as attested: the user states when they were known. Instants are aware UTC.
"""

from datetime import date, datetime
from pathlib import Path

from catalog.contract.plans import day_end, day_start
from warehouse.errors import LandingError
from warehouse.landing.batches import Manifest, Scope
from warehouse.landing.landing import Landing, Pull
from warehouse.schema.columns import plan_named

_NO_COVERAGE = "imported without --covers-from and --covers-to, so the batch makes no event missing"


def import_export(
    landing: Landing,
    path: Path,
    *,
    content_at: datetime,
    observed_at: datetime | None = None,
    plan: str,
    source: str,
    now: datetime,
    covers: tuple[date, date] | None = None,
) -> Manifest:
    """Land a file of the bulk export; the next merge folds it at its place in history.

    `observed_at` is when it was known, by default `content_at`. `covers` has the first and last
    event date of the range for which the file has every event; without it, absence means nothing.

    Raises:
        LandingError: no file, or impossible times: known before it was true, or in the future.
    """
    known_at = content_at if observed_at is None else observed_at
    if not path.is_file():
        raise LandingError(f"{path} is not a file. Nothing was landed.")
    if known_at < content_at:
        raise LandingError(
            f"observed at {known_at.isoformat()}, before its content time "
            f"{content_at.isoformat()}: it can't have been known before it was true. Nothing was "
            "landed; check --content-at and --observed-at."
        )
    if known_at > now:
        raise LandingError(
            f"observed at {known_at.isoformat()}, which is in the future. Nothing was landed."
        )
    plan_named(plan)
    scope = Scope()
    if covers is not None:
        first, last = covers
        lower = day_start(day_end(first))
        scope = Scope(lower=lower, upper=day_end(last))
    pull = Pull(
        feed="export",
        scope=scope,
        plan=plan,
        source=source,
        observed_at=known_at,
        content_at=content_at,
        landed_at=now,
        requests=0,
        why_incomplete=None if covers is not None else _NO_COVERAGE,
        attested=True,
    )
    return landing.land_file(pull, path)
