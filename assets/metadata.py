"""The metadata of assets and materialisations in Dagster.

Foreign text is shown as text or in tables of Dagster, never as Markdown. No metadata has a
secret.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Final

import dagster as dg

from almanac.core.statements import Statements
from almanac.core.text import cut_line, plain_line
from almanac.events import KINDS
from resources.calendar_backfill import Backfill
from resources.feed_day import NOT_OBSERVED, WHY_EMPTY
from resources.session import FeedDay
from warehouse.batch_problems import BatchProblem, list_landed_problems, list_record_problems
from warehouse.history.merge import MergeReport
from warehouse.landing.batches import Manifest
from warehouse.schema.columns import Column

SQL: Final = Statements(__package__)
ROWS: Final = 5
_WIDTH: Final = 48
_BATCHES_SHOWN: Final = 12


def column_schema(columns: Iterable[Column]) -> dg.TableSchema:
    """Return the schema that Dagster shows, with types of DuckDB and the meaning of each column."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(column.name, column.type, description=column.meaning)
            for column in columns
        ]
    )


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> dg.MetadataValue[Any]:
    """Return rows as a table of Dagster, which shows them as text; "none" without rows."""
    records = [dg.TableRecord(dict(zip(columns, map(_cell, row), strict=True))) for row in rows]
    return dg.MetadataValue.table(records) if records else dg.MetadataValue.text("none")


def _cell(value: Any) -> str:
    return "" if value is None else cut_line(str(value), _WIDTH)


def list_lines(texts: Iterable[str]) -> str:
    """Return texts as one, each on a line of its own."""
    return "\n".join(map(plain_line, texts))


Metadata = dict[str, Any]
REFOLD_NOTES: Final = "changes by the refold"
"""The key of the lines that report how a refold changed history."""
RESUMES_AT: Final = "resumes at"


def pull_metadata(feed_day: FeedDay, *, quota_left: int | None) -> Metadata:
    """Return the metadata of a landing asset for one feed on one day."""
    metadata: Metadata = {
        "outcome": plain_line(feed_day.outcome),
        "requests": feed_day.requests,
        "bytes": feed_day.bytes,
        "batches": _batch_table(feed_day.manifests),
    }
    if feed_day.outcome in WHY_EMPTY:
        metadata["why it is empty"] = WHY_EMPTY[feed_day.outcome]
    if feed_day.rows is not None:
        metadata["rows"] = metadata["dagster/partition_row_count"] = feed_day.rows
    if quota_left is not None:
        metadata["quota left"] = quota_left
    if feed_day.manifests:
        newest = feed_day.manifests[-1]
        metadata["observed at"] = dg.MetadataValue.timestamp(newest.observed_at)
        metadata["content at"] = dg.MetadataValue.timestamp(newest.content_at)
    if feed_day.warnings:
        metadata["warnings"] = list_lines(feed_day.warnings)
    metadata |= _problem_metadata(list_landed_problems(feed_day.manifests))
    if feed_day.deferred is not None:
        metadata[RESUMES_AT] = dg.MetadataValue.timestamp(feed_day.deferred.resume_at)
    return metadata


def backfill_metadata(backfill: Backfill) -> Metadata:
    """Return the metadata of a month that a backfill has completed.

    It has no numbers: Dagster would plot the totals of the run as if they were values of each
    month.
    """
    if not backfill.landed:
        return {"batch": "landed before"}
    newest = backfill.landed[-1].manifest
    metadata: Metadata = {
        "batch": newest.batch_id,
        "observed at": dg.MetadataValue.timestamp(newest.observed_at),
    }
    if backfill.notes:
        metadata["notes"] = list_lines(backfill.notes)
    return metadata


def day_metadata(records: Sequence[Mapping[str, Any]]) -> Metadata:
    """Return the metadata of an observed day: the totals of all batches folded on it so far.

    `records` are the accounts of these batches, which are also the rows of `batches`.
    """
    versions = sum(record["versions"] for record in records)
    metadata: Metadata = {
        **({} if records else {"outcome": NOT_OBSERVED}),
        "rows": versions,
        "dagster/partition_row_count": versions,
        "rows received": sum(record["arrived"] for record in records),
        "rejected": sum(record["rejected"] for record in records),
        "quarantined": sum(record["status"] == "quarantined" for record in records),
        "batches folded": len(records),
    }
    metadata |= _problem_metadata(
        [problem for record in records for problem in list_record_problems(record)]
    )
    # One number for each kind and day, also 0, so that the plots over the days have no holes.
    changes = Counter[str]()
    for record in records:
        changes.update(record["changes"])
    return metadata | {f"changes/{kind}": changes[kind] for kind in KINDS}


def merge_metadata(report: MergeReport, day: date | None = None) -> Metadata:
    """Return the metadata of a whole merge; with a day, only this one of the recomputed days.

    A recomputed year is recorded for each of its days, and a complete list in each would be long.
    """
    metadata: Metadata = {"seconds": round(report.seconds, 3)}
    shown = [each for each in sorted(report.refolded) if day in (None, each)]
    if shown:
        rows = ((each, *report.refolded[each]) for each in shown)
        metadata["folded again"] = make_table(("day", "new", "gone"), rows)
    if report.notes:
        metadata[REFOLD_NOTES] = list_lines(report.notes)
    return metadata


def evaluate_day(spec: dg.AssetCheckSpec, day: date, fault: str | None) -> dg.AssetCheckEvaluation:
    """Return the result of a check on a day. Only the failure of a blocking check is an error."""
    return dg.AssetCheckEvaluation(
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=fault is None,
        severity=dg.AssetCheckSeverity("ERROR" if spec.blocking else "WARN"),
        description=fault,
        partition=day.isoformat(),
    )


def check_days(
    context: dg.AssetExecutionContext, spec: dg.AssetCheckSpec, faults: Mapping[date, str | None]
) -> dg.AssetCheckResult:
    """Return the result of a check in a run, which names the days that fail.

    Dagster 1.13 gives the result of a run of one day to its day. In a range, each day has a result
    of its own, too.
    """
    if not context.has_partition_key:
        for day, fault in faults.items():
            context.log_event(evaluate_day(spec, day, fault))
    bad = [f"{day}: {fault}" for day, fault in sorted(faults.items()) if fault is not None]
    return dg.AssetCheckResult(
        check_name=spec.name,
        passed=not bad,
        severity=dg.AssetCheckSeverity("ERROR" if spec.blocking else "WARN"),
        description="; ".join(bad[:ROWS]) or None,
    )


def log_problems(log: dg.DagsterLogManager, problems: Iterable[BatchProblem]) -> None:
    """Write a line in the run's log for each partial, flagged or quarantined batch."""
    for problem in problems:
        log.warning("%s", problem)


def _problem_metadata(problems: Sequence[BatchProblem]) -> Metadata:
    if not problems:
        return {}
    rows = ((problem.batch_id, problem.kind, problem.why) for problem in problems)
    return {"problems": make_table(("batch", "problem", "why"), rows)}


def _batch_table(manifests: Sequence[Manifest]) -> dg.MetadataValue[Any]:
    rows = (
        (manifest.batch_id, manifest.bytes, "yes" if manifest.complete else manifest.why_incomplete)
        for manifest in manifests[-_BATCHES_SHOWN:]
    )
    return make_table(("batch", "bytes", "complete"), rows)
