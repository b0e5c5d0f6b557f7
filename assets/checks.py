"""Asset checks of the published tables.

Errors block the assets downstream in the same run; warnings are for people. All run with every
publication (published.py), whether or not their table changed: a separate step would be skipped if
the table did not change.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

import dagster as dg
import duckdb

from almanac.forms import plain_line
from assets.layout import FRESH_WITHIN, Layout
from assets.metadata import SQL, single
from resources.session import LazySession
from warehouse.history.change_log import ChangeLog
from warehouse.home import Home
from warehouse.queries import connected

_REJECTED_MAX: Final = 0.01
_NEW_FOR: Final = timedelta(days=7)
CheckResult = tuple[bool, dict[str, Any]]

_MUST_BE_ZERO: Final = {
    ("events", "one_current_version"): (
        "check_current_version",
        "Every event has one current version, with the same content.",
    ),
    ("events", "unique_events"): ("check_event_keys", "Every event occurs once."),
    ("event_versions", "spans_run_forward"): (
        "check_known_spans",
        "No version ends before it begins (known_from <= known_to).",
    ),
    ("event_versions", "unique_versions"): (
        "check_version_keys",
        "Every (event_id, version) occurs once.",
    ),
}
"""Counts that must be zero: table and check, statement and meaning."""
_OTHER_BLOCKING: Final = {
    ("event_versions", "all_of_the_lake"): "The file contains every day and version of the lake.",
}
_WARNINGS: Final = {
    ("events", "no_new_fields"): "In the last 7 days the service began to send no field that has "
    "no column. Such fields are kept as JSON in `extra`.",
    ("batches", "none_quarantined"): "No batch is quarantined.",
    ("rejects", "few_rejects"): "At most 1 % of the newest day's rows could not be read.",
    (
        "coverage",
        "recently_looked",
    ): "The newest complete pull of events is not older than 36 hours.",
}


def check_specs(layout: Layout) -> list[dg.AssetCheckSpec]:
    """Return the checks of the published tables."""
    blocking = {key: meaning for key, (_, meaning) in _MUST_BE_ZERO.items()} | _OTHER_BLOCKING
    return [
        dg.AssetCheckSpec(
            name,
            asset=layout.key(table),
            description=meaning,
            blocking=(table, name) in blocking,
        )
        for (table, name), meaning in (blocking | _WARNINGS).items()
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
        for key in sorted(keys):
            check = (layout.asset(key.asset_key), key.name)
            passed, metadata = _check(check, connection, catalog, home)
            yield dg.AssetCheckResult(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=passed,
                severity=dg.AssetCheckSeverity.WARN
                if check in _WARNINGS
                else dg.AssetCheckSeverity.ERROR,
                metadata=metadata,
            )


def _check(
    check: tuple[str, str],
    connection: duckdb.DuckDBPyConnection,
    catalog: LazySession,
    home: Home,
) -> CheckResult:
    counted = _MUST_BE_ZERO.get(check)
    if counted is not None:
        (count,) = single(connection, counted[0])
        return count == 0, {"found": count}
    others: dict[str, Callable[[], CheckResult]] = {
        "all_of_the_lake": lambda: all_of_the_lake(connection, home),
        "none_quarantined": lambda: none_quarantined(connection, home),
        "no_new_fields": lambda: no_new_fields(connection, catalog),
        "few_rejects": lambda: few_rejects(connection),
        "recently_looked": lambda: recently_looked(connection, catalog),
    }
    return others[check[1]]()


def all_of_the_lake(connection: duckdb.DuckDBPyConnection, home: Home) -> CheckResult:
    """Check that the file was made from all days of the lake, and has all their versions."""
    log = ChangeLog.of(home)
    lake = {day_file.day: day_file.sha256 for day_file in log.days()}
    rows = connection.execute(SQL["check_published_days"]).fetchall()
    versions_published = sum(versions for _, _, versions in rows)
    (versions,) = single(connection, "count_versions")
    same = {day: sha256 for day, sha256, _ in rows} == lake
    return same and versions_published == versions, {
        "days of the lake": len(lake),
        "days published": len(rows),
        "versions of those days": versions_published,
        "versions published": versions,
    }


def none_quarantined(connection: duckdb.DuckDBPyConnection, home: Home) -> CheckResult:
    left_out = home.landing.dismissed()
    rows = connection.execute(SQL["check_quarantined"]).fetchall()
    rows = [row for row in rows if row[0] not in left_out]
    metadata: dict[str, Any] = {"quarantined": len(rows)}
    if rows:
        newest = rows[0][0]
        metadata["next step"] = (
            f"almanac batches show {newest}; to merge it anyway: almanac batches release {newest}"
        )
        metadata["newest"] = f"{rows[0][0]}: {rows[0][1]}"
    return not rows, metadata


def no_new_fields(connection: duckdb.DuckDBPyConnection, catalog: LazySession) -> CheckResult:
    rows = connection.execute(SQL["find_new_fields"]).fetchall()
    new = [name for name, first_seen_at in rows if catalog.now() - first_seen_at < _NEW_FOR]
    return not new, {"new fields": ", ".join(map(plain_line, new)) or "none"}


def few_rejects(connection: duckdb.DuckDBPyConnection) -> CheckResult:
    day, arrived, rejected = single(connection, "check_rejects")
    passed = rejected <= arrived * _REJECTED_MAX
    return passed, {"day": str(day), "arrived": int(arrived), "rejected": int(rejected)}


def recently_looked(connection: duckdb.DuckDBPyConnection, catalog: LazySession) -> CheckResult:
    (pulled_at,) = single(connection, "check_freshness")
    if pulled_at is None:
        return False, {"looked at": "never"}
    age = catalog.now() - pulled_at
    return age <= FRESH_WITHIN, {
        "looked at": dg.MetadataValue.timestamp(pulled_at),
        "hours ago": round(age.total_seconds() / 3600, 1),
    }
