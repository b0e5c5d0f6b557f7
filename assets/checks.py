"""Asset checks of the published tables.

Failed checks of rows block the assets downstream in the same run; warnings are for people. All run
with every publication (published.py), whether or not their table changed: a separate step would be
skipped if the table did not change.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import dagster as dg
import duckdb

from almanac.forms import plain_line
from assets.layout import FRESH_WITHIN, Layout
from assets.metadata import SQL, Metadata
from resources.session import LazySession
from warehouse.history.change_log import ChangeLog
from warehouse.home import Home
from warehouse.queries import connected

_REJECTED_MAX: Final = 0.01
_NEW_FOR: Final = timedelta(days=7)
CheckResult = tuple[bool, Metadata]


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """The file that readers open now, with what a check compares it with."""

    connection: duckdb.DuckDBPyConnection
    catalog: LazySession
    home: Home

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement of checks.sql."""
        return self.connection.execute(SQL[statement]).fetchall()


Decide = Callable[[CheckedFile], CheckResult]


def check_specs(layout: Layout) -> list[dg.AssetCheckSpec]:
    """Return the checks of the published tables."""
    return [
        dg.AssetCheckSpec(
            name, asset=layout.key(table), description=meaning, blocking=(table, name) in _ERRORS
        )
        for (table, name), (meaning, _) in (_ERRORS | _WARNINGS).items()
    ]


def check_results(
    layout: Layout, keys: Iterable[dg.AssetCheckKey], catalog: LazySession, home: Home
) -> Iterator[dg.AssetCheckResult]:
    """Yield the results of some checks of the file that readers open now.

    Raises:
        dg.Failure: there is no published file.
    """
    if not home.warehouse.exists():
        raise dg.Failure("There is no published file to check.", allow_retries=False)
    with connected(home.warehouse, own_files=True) as connection:
        file = CheckedFile(connection, catalog, home)
        for key in sorted(keys):
            check = (layout.asset(key.asset_key), key.name)
            _, decide = (_ERRORS | _WARNINGS)[check]
            passed, metadata = decide(file)
            severity = (
                dg.AssetCheckSeverity.ERROR if check in _ERRORS else dg.AssetCheckSeverity.WARN
            )
            yield dg.AssetCheckResult(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=passed,
                severity=severity,
                metadata=metadata,
            )


def _count_none(statement: str) -> Decide:
    """Return a check that passes if a statement counts 0."""

    def decide(file: CheckedFile) -> CheckResult:
        ((count,),) = file.rows(statement)
        return count == 0, {"found": count}

    return decide


def has_all_of_the_lake(file: CheckedFile) -> CheckResult:
    """Check that the file was made from all days of the lake, and has all their versions."""
    lake = {day_file.day: day_file.sha256 for day_file in ChangeLog.of(file.home).days()}
    days = file.rows("check_published_days")
    of_days = sum(versions for _, _, versions in days)
    ((versions,),) = file.rows("count_versions")
    return {day: sha256 for day, sha256, _ in days} == lake and of_days == versions, {
        "days of the lake": len(lake),
        "days published": len(days),
        "versions of those days": of_days,
        "versions published": versions,
    }


def has_no_new_fields(file: CheckedFile) -> CheckResult:
    """Check that the service began to send no field without a column within the last days."""
    now = file.catalog.now()
    new = [name for name, since in file.rows("find_new_fields") if now - since < _NEW_FOR]
    return not new, {"new fields": ", ".join(map(plain_line, new)) or "none"}


def has_none_quarantined(file: CheckedFile) -> CheckResult:
    """Check that no batch is quarantined, except those that a person dismissed."""
    left_out = file.home.landing.dismissed()
    found = [row for row in file.rows("check_quarantined") if row[0] not in left_out]
    metadata: Metadata = {"quarantined": len(found)}
    if found:
        newest, why = found[0]
        metadata["next step"] = (
            f"almanac batches show {newest}; to merge it anyway: almanac batches release {newest}"
        )
        metadata["newest"] = f"{newest}: {why}"
    return not found, metadata


def has_few_rejects(file: CheckedFile) -> CheckResult:
    """Check that few rows of the newest day could not be read."""
    ((day, arrived, rejected),) = file.rows("check_rejects")
    passed = rejected <= arrived * _REJECTED_MAX
    return passed, {"day": str(day), "arrived": int(arrived), "rejected": int(rejected)}


def is_recent(file: CheckedFile) -> CheckResult:
    """Check the age of the newest complete pull of events."""
    ((pulled_at,),) = file.rows("check_freshness")
    if pulled_at is None:
        return False, {"looked at": "never"}
    age = file.catalog.now() - pulled_at
    return age <= FRESH_WITHIN, {
        "looked at": dg.MetadataValue.timestamp(pulled_at),
        "hours ago": round(age.total_seconds() / 3600, 1),
    }


_ERRORS: Final[dict[tuple[str, str], tuple[str, Decide]]] = {
    ("events", "one_current_version"): (
        "Every event has one current version, with the same number.",
        _count_none("check_current_version"),
    ),
    ("events", "unique_events"): ("Every event occurs once.", _count_none("check_event_keys")),
    ("event_versions", "spans_run_forward"): (
        "No version ends before it begins (known_from <= known_to).",
        _count_none("check_known_spans"),
    ),
    ("event_versions", "unique_versions"): (
        "Every (event_id, version) occurs once.",
        _count_none("check_version_keys"),
    ),
    ("event_versions", "all_of_the_lake"): (
        "The file contains every day and version of the lake.",
        has_all_of_the_lake,
    ),
}
"""The meaning of each check by table and name, and its function. A failure blocks."""
_WARNINGS: Final[dict[tuple[str, str], tuple[str, Decide]]] = {
    ("events", "no_new_fields"): (
        "In the last 7 days the service began to send no field that has no column. Such fields "
        "are kept as JSON in `extra`.",
        has_no_new_fields,
    ),
    ("batches", "none_quarantined"): ("No batch is quarantined.", has_none_quarantined),
    ("rejects", "few_rejects"): (
        "At most 1 % of the newest day's rows could not be read.",
        has_few_rejects,
    ),
    ("coverage", "recently_looked"): (
        "The newest complete pull of events is not older than 36 hours.",
        is_recent,
    ),
}
