"""What a materialisation says of itself: metadata for Dagster's pages.

Belongs here: naming and shape, one convention for all assets. No secret ever comes here.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final

import dagster as dg

from assets.looks import Look, told_as_look
from assets.preview import bullets, markdown, of_batch
from resources.backfill import Backfill
from resources.daily_pulls import Pulled
from warehouse.batch_problems import BatchProblem, problems_of_landed, problems_of_record
from warehouse.batches import Manifest
from warehouse.landing import Landing
from warehouse.merge_report import MergeReport
from warehouse.outcomes import Outcome
from warehouse.plain_text import plain_line

Told = dict[str, Any]
REFOLD_NOTES: Final = "what folding again did"
"""The key of the lines that say what became of the history there was."""


def told_look(look: Look, landing: Landing, *, quota_left: int | None) -> Told:
    """Return what a landing asset says of one feed on one day."""
    told: Told = {
        "outcome": plain_line(look.outcome),
        "requests": look.requests,
        "bytes": look.bytes,
        "batches": _batches(look.manifests),
    }
    if look.rows is not None:
        told["rows"] = look.rows
    if quota_left is not None:
        told["quota left"] = quota_left
    if look.manifests:
        newest = look.manifests[-1]
        told["observed at"] = dg.MetadataValue.timestamp(newest.observed_at)
        told["content at"] = dg.MetadataValue.timestamp(newest.content_at)
        preview = of_batch(landing, newest)
        if preview:
            told["preview"] = dg.MetadataValue.md(preview)
    if look.warnings:
        told["warnings"] = dg.MetadataValue.md(bullets(look.warnings))
    told |= _problems(problems_of_landed(look.manifests))
    if look.resume_at is not None:
        told["goes on at"] = dg.MetadataValue.timestamp(look.resume_at)
    return told


def told_pull(pulled: Pulled, landing: Landing, *, day: date, quota_left: int | None) -> Told:
    """Return what a poll says of one feed."""
    return told_look(told_as_look(pulled, day), landing, quota_left=quota_left)


def told_months(backfill: Backfill) -> Told:
    """Return what is said of each month that has just become whole."""
    told: Told = {"requests so far": backfill.requests}
    if not backfill.manifests:
        return {**told, "batch": "landed before"}
    newest = backfill.manifests[-1]
    told["batch"] = newest.batch_id
    told["observed at"] = dg.MetadataValue.timestamp(newest.observed_at)
    if backfill.notes:
        told["notes"] = dg.MetadataValue.md(bullets(backfill.notes))
    return told


def told_outcomes(outcomes: Sequence[Outcome]) -> Told:
    """Return what a merge did with the batches of a day."""
    changes = changes_of(outcomes)
    told: Told = {
        "rows": sum(one.arrived for one in outcomes),
        "versions": sum(one.versions for one in outcomes),
        "rejected": sum(one.rejected for one in outcomes),
        "quarantined": sum(one.status == "quarantined" for one in outcomes),
        "batches": _merged(outcomes),
    }
    told |= _problems(
        [problem for outcome in outcomes for problem in problems_of_record(outcome.record())]
    )
    if changes:
        told["changes"] = dg.MetadataValue.md(markdown(("kind", "events"), changes.items()))
    return told


def told_merge(report: MergeReport) -> Told:
    """Return what a merge was as a whole."""
    told: Told = {"seconds": round(report.seconds, 3), "waited for the lock": report.waited}
    if report.refolded:
        rows = ((day, *counts) for day, counts in sorted(report.refolded.items()))
        told["folded again"] = dg.MetadataValue.md(markdown(("day", "new", "gone"), rows))
    if report.notes:
        told[REFOLD_NOTES] = "\n".join(map(plain_line, report.notes))
    return told


def changes_of(outcomes: Sequence[Outcome]) -> Mapping[str, int]:
    """Return how many events changed, by kind, most first."""
    found: dict[str, int] = {}
    for outcome in outcomes:
        for kind, count in outcome.changes.items():
            found[kind] = found.get(kind, 0) + count
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def log_problems(log: dg.DagsterLogManager, problems: Iterable[BatchProblem]) -> None:
    """Write a line in the run's log for each partial, flagged or quarantined batch."""
    for problem in problems:
        log.warning("%s", problem)


def _problems(problems: Sequence[BatchProblem]) -> Told:
    if not problems:
        return {}
    rows = ((problem.batch_id, problem.kind, problem.why) for problem in problems)
    return {"problems": dg.MetadataValue.md(markdown(("batch", "problem", "why"), rows))}


def _batches(manifests: Sequence[Manifest]) -> dg.MetadataValue[Any]:
    if not manifests:
        return dg.MetadataValue.text("none")
    rows = (
        (one.batch_id, one.bytes, "yes" if one.complete else one.why_incomplete)
        for one in manifests
    )
    return dg.MetadataValue.md(markdown(("batch", "bytes", "complete"), rows))


def _merged(outcomes: Sequence[Outcome]) -> dg.MetadataValue[Any]:
    if not outcomes:
        return dg.MetadataValue.text("none")
    rows = (
        (one.manifest.batch_id, one.status, one.arrived, one.versions, one.rejected, one.stale)
        for one in outcomes
    )
    columns = ("batch", "status", "rows", "versions", "rejected", "stale")
    return dg.MetadataValue.md(markdown(columns, rows))
