"""The comparison of the oracle's history with the published one, and a report of differences."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import duckdb

from tests.history.model.observations import CONTENT_FIELDS, SeenObservation
from tests.history.model.oracle import Oracle
from tests.history.model.versions import State, Version

Rows = dict[tuple[str, int], dict[str, Any]]
"""Rows by event and version; of `events`, the version is that of the row."""
Known = list[tuple[str, int, datetime | None]]
"""Event, version, and since when it was missing."""

_SHARED = (*CONTENT_FIELDS, "status", "cancelled_at", "content_at", "unknown_fields")
VERSION_COLUMNS = (
    *("known_from", "known_to", "known_basis", "change_kinds", "changed_fields"),
    *("batch_id", "feed", "plan", *_SHARED),
)
EVENT_COLUMNS = ("first_seen_at", "last_seen_at", "missing_since", "changed_at", *_SHARED)
_SETS = {"changed_fields", "unknown_fields"}
_SHOWN = 5


def versions_of(oracle: Oracle, basis: str = "observed") -> Rows:
    """Return the versions that were observed, or those that are claimed."""
    return {
        (version.event_id, version.version): _version_row(version)
        for version in oracle.versions()
        if version.basis == basis
    }


def events_of(oracle: Oracle) -> Rows:
    return {
        (event_id, state.versions[-1].version): _event_row(state)
        for event_id, state in oracle.events.items()
    }


def absences_of(oracle: Oracle) -> set[tuple[str, datetime, datetime | None]]:
    """Return event, instant and new value of each change of `missing_since`.

    Of several changes at one instant the last counts; none does if the value is the same as before.
    """
    found = set()
    for event_id, state in oracle.events.items():
        before: datetime | None = None
        for changed_at, since in dict(state.absences).items():
            if since != before:
                found.add((event_id, changed_at, since))
            before = since
    return found


def published(connection: duckdb.DuckDBPyConnection, table: str, columns: Iterable[str]) -> Rows:
    """Return the rows of `events` or of a table of versions; sets of names are sorted."""
    names = ("event_id", "version", *columns)
    rows = connection.sql(f"SELECT {', '.join(names)} FROM {table}").fetchall()
    records = [dict(zip(names, row, strict=True)) for row in rows]
    for row in records:
        for name in _SETS & row.keys():
            row[name] = sorted(row[name])
    return {(row.pop("event_id"), row.pop("version")): row for row in records}


def as_of(
    oracle: Oracle, versions: Iterable[Version], instant: datetime, *, claimed: bool
) -> Known:
    """Return all that was known at an instant, by event."""
    return sorted(
        (
            version.event_id,
            version.version,
            oracle.events[version.event_id].missing_at(instant),
        )
        for version in versions
        if version.known_from <= instant
        and (version.known_to is None or instant < version.known_to)
        and (claimed or version.basis == "observed")
    )


def published_as_of(
    connection: duckdb.DuckDBPyConnection, instant: datetime, *, claimed: bool
) -> Known:
    """Return what the macro returns; the content of each row must be that of its version."""
    basis = "claimed" if claimed else "observed"
    names = [name for name in _SHARED if name != "content_at"]
    names_text = ", ".join((*names, "changed_at"))
    kept = ", ".join((*names, "known_from"))
    source = "events_as_of($at::TIMESTAMPTZ, basis := $basis)"
    rows = connection.execute(
        f"""
        SELECT a.event_id, a.version, a.missing_since, a.shown = v.kept
        FROM (
            SELECT event_id, version, missing_since, row({names_text}) AS shown FROM {source}
        ) AS a
        LEFT JOIN (
            SELECT event_id, version, row({kept}) AS kept FROM event_versions
            UNION ALL SELECT event_id, version, row({kept}) FROM event_claims
        ) AS v USING (event_id, version)
        ORDER BY ALL
        """,
        {"at": instant, "basis": basis},
    ).fetchall()
    strange = [row for row in rows if not row[3]]
    assert not strange, f"at {instant} these rows are not of event_versions: {strange[:_SHOWN]}"
    return [(event_id, version, missing_since) for event_id, version, missing_since, _ in rows]


def differences(
    expected: Rows,
    found: Rows,
    observations: Iterable[SeenObservation],
    histories: Mapping[str, State],
) -> str:
    """Return a report of rows that differ, with what was seen of them; empty when none does."""
    wrong = {
        key: names
        for key in sorted(expected.keys() | found.keys())
        if (names := _differ(expected.get(key), found.get(key)))
    }
    lines = [f"{len(wrong)} rows differ; the first are:"]
    for key in list(wrong)[:_SHOWN]:
        event_id, version = key
        lines.append(f"event {event_id}, version {version}")
        for name in sorted(wrong[key]):
            right, is_ = expected.get(key, {}).get(name), found.get(key, {}).get(name)
            lines.append(f"  {name}: the oracle has {right!r}, published {is_!r}")
        state = histories.get(event_id)
        lines += [
            f"  oracle {known.version}: {known.known_from} {known.kinds} {sorted(known.changed)}"
            for known in (state.versions if state else ())
        ]
        lines += [
            f"  {observation}" for observation in observations if observation.event_id == event_id
        ]
    return "\n".join(lines) if wrong else ""


def _differ(right: dict[str, Any] | None, is_: dict[str, Any] | None) -> set[str]:
    if right is None or is_ is None:
        return {"the row itself"}
    return {name for name in right if right[name] != is_[name]}


def _version_row(version: Version) -> dict[str, Any]:
    return {
        "known_from": version.known_from,
        "known_to": version.known_to,
        "known_basis": version.basis,
        "change_kinds": list(version.kinds),
        "changed_fields": sorted(version.changed),
        "batch_id": version.observation.batch_id,
        "feed": version.observation.kind,
        "plan": version.observation.plan,
        **{name: version.content.get(name) for name in CONTENT_FIELDS},
        "status": version.status,
        "cancelled_at": version.cancelled_at,
        "content_at": version.content_at,
        "unknown_fields": sorted(version.unknown),
    }


def _event_row(state: State) -> dict[str, Any]:
    return {
        "first_seen_at": state.first_seen_at,
        "last_seen_at": state.last_seen_at,
        "missing_since": state.missing_since,
        "changed_at": state.versions[-1].known_from,
        **{name: state.content.get(name) for name in CONTENT_FIELDS},
        "status": state.status,
        "cancelled_at": state.cancelled_at,
        "content_at": state.content_at,
        "unknown_fields": sorted(CONTENT_FIELDS - state.content.keys()),
    }
