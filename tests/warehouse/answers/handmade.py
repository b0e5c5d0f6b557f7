"""A warehouse in memory, whose versions are made by hand, as it was published at any instant.

warehouse = Handmade([Known("evt_1", 1, known_from, date=…), …])
warehouse.at(instant).rows("SELECT kind FROM reschedules")
"""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import duckdb

from almanac.core.statements import Statements
from warehouse.schema import ddl
from warehouse.schema.columns import CONTENT_NAMED, DATING, GROUPS
from warehouse.schema.tables import (
    EVENT_VERSIONS,
    INTERNAL,
    INTERNAL_SCHEMA,
    TABLES,
)
from warehouse.schema.views import AS_OF_MACROS, EVENT_CLAIMS, INTERNAL_MACROS, MACROS, VIEWS

ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Pacific/Kiritimati")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A version of an event: what was known of it from an instant on."""

    event_id: str
    version: int = 1
    known_from: datetime
    change_kinds: tuple[str, ...] = ("revealed",)
    changed_fields: tuple[str, ...] = ()
    unknown_fields: tuple[str, ...] = ()
    status: str = "scheduled"
    title: str = "title"
    displayed_date: str | None = "a day"
    date: datetime | None = None
    date_end: datetime | None = None
    date_type: str | None = "date"
    is_estimated: bool | None = False
    categories: tuple[str, ...] = ()
    coins: tuple[str, ...] = ()
    impact: float | None = None
    impact_band: str | None = None
    source_url: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    cancelled_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Absence:
    """A change of what was missing: `since` is None if the event was shown again."""

    event_id: str
    changed_at: datetime
    since: datetime | None


_NAMES = tuple(item.name for item in fields(Known))
_TYPES = {
    **{name: CONTENT_NAMED[name].type for name in _NAMES if name in CONTENT_NAMED},
    **{column.name: column.type for column in EVENT_VERSIONS.columns if column.name in _NAMES},
}
_DATED = """
    SELECT *,
        _almanac.date_precision(date, date_type, is_estimated) AS date_precision,
        _almanac.earliest(date, date_precision, is_estimated) AS earliest,
        _almanac.latest(date, date_end, date_precision, earliest) AS latest,
        _almanac.displayed_date_full(
            displayed_date, date, date_end, date_precision, earliest
        ) AS displayed_date_full,
        _almanac.date_doubt(
            _almanac.agreed_period(displayed_date, date, date_end, date_precision, earliest),
            displayed_date, date, date_precision
        ) AS date_doubt,
        min(known_from) OVER (PARTITION BY event_id) AS first_seen_at
    FROM given
"""
_NOW = "getvariable('published_at')::TIMESTAMPTZ"
PUBLISHED = {
    # The versions of a publication end when the next version in it begins.
    "event_versions": f"""
        SELECT * REPLACE (if(known_to <= {_NOW}, known_to, NULL) AS known_to)
        FROM every.event_versions WHERE known_from <= {_NOW}
    """,
    "event_claims": """
        SELECT * FROM every.event_claims
        WHERE event_id IN (SELECT event_id FROM event_versions)
    """,
    "event_absences": f"SELECT * FROM every.event_absences WHERE changed_at <= {_NOW}",
    "batches": f"SELECT * FROM every.batches WHERE observed_at <= {_NOW}",
    "events": """
        SELECT
            v.* EXCLUDE (
                known_from, known_to, known_basis, change_kinds, changed_fields,
                batch_id, feed, plan, published_seq
            ),
            v.first_seen_at AS last_seen_at, a.missing_since, v.known_from AS changed_at
        FROM event_versions AS v
        LEFT JOIN (
            SELECT event_id, arg_max_null(missing_since, changed_at) AS missing_since
            FROM event_absences GROUP BY event_id
        ) AS a ON a.event_id = v.event_id
        WHERE v.known_to IS NULL
    """,
    "categories": """
        SELECT DISTINCT lower(name) AS id, name
        FROM (SELECT unnest(categories) AS name FROM events)
    """,
    "_almanac.first_look": (
        "SELECT min(observed_at) AS first_at, max(observed_at) AS last_at FROM batches"
    ),
}


_emptied: list[duckdb.DuckDBPyConnection] = []
"""Warehouses that no test has any more. To declare one takes ten times as long as to fill it."""


def _empty(connection: duckdb.DuckDBPyConnection) -> None:
    for name in PUBLISHED:
        connection.execute(f"TRUNCATE every.{name.rpartition('.')[2]}")
    _emptied.append(connection)


class Handmade:
    """All that was ever known, and the views over what was published by an instant."""

    def __init__(
        self,
        versions: Sequence[Known],
        *,
        claims: Sequence[Known] = (),
        absences: Iterable[Absence] = (),
        pulls: Sequence[datetime] = (),
        zone: str = "UTC",
    ) -> None:
        self.connection = _emptied.pop() if _emptied else _declared()
        self._close = weakref.finalize(self, _empty, self.connection)
        self._close.atexit = False
        self.connection.execute("SET TimeZone = $zone", {"zone": zone})
        self._fill(EVENT_VERSIONS.name, versions)
        self._fill(EVENT_CLAIMS.name, claims)
        rows = [(item.event_id, item.changed_at, item.since) for item in absences]
        self._insert(
            "INSERT INTO every.event_absences BY NAME SELECT unnest($a::VARCHAR[]) AS event_id, "
            "unnest($b::TIMESTAMPTZ[]) AS changed_at, unnest($c::TIMESTAMPTZ[]) AS missing_since",
            {name: [row[place] for row in rows] for place, name in enumerate("abc")},
        )
        self._insert(
            "INSERT INTO every.batches BY NAME SELECT unnest($at::TIMESTAMPTZ[]) AS observed_at, "
            "'export' AS feed, 'merged' AS status, true AS complete, 'sandbox:7' AS source",
            {"at": list(pulls)},
        )
        self.at(max([item.known_from for item in versions] + list(pulls)))

    def at(self, instant: datetime) -> "Handmade":
        """Go to an instant: what became known later is not published, and `now()` is then."""
        self.connection.execute("SET VARIABLE published_at = $at::TIMESTAMPTZ", {"at": instant})
        return self

    def rows(self, sql: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values or {}).fetchall()

    def close(self) -> None:
        self._close()

    def _insert(self, sql: str, values: dict[str, Any]) -> None:
        self.connection.execute(sql, values)

    def _fill(self, table: str, versions: Sequence[Known]) -> None:
        columns = ", ".join(f"unnest(${name}::{_TYPES[name]}[]) AS {name}" for name in _NAMES)
        values = {
            name: [
                list(value) if isinstance(value := getattr(item, name), tuple) else value
                for item in versions
            ]
            for name in _NAMES
        }
        kept = ", ".join((*_NAMES, *(column.name for column in DATING), "first_seen_at"))
        self._insert(
            f"INSERT INTO every.{table} BY NAME SELECT {kept}, lead(known_from) OVER "
            "(PARTITION BY event_id ORDER BY version) AS known_to "
            f"FROM (WITH given AS (SELECT {columns}) {_DATED})",
            values,
        )


def _declared() -> duckdb.DuckDBPyConnection:
    """Return a warehouse without rows, whose views read what was published."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    declare_macros(connection)
    connection.execute(Statements("warehouse.history", GROUPS)["create_state"])
    connection.execute("CREATE SCHEMA every")
    for table in (*TABLES, EVENT_CLAIMS, *INTERNAL):
        is_cut = table.name in PUBLISHED or table.qualified in PUBLISHED
        if table.is_view and not is_cut:
            continue
        connection.execute(ddl.create(replace(table, schema="every") if is_cut else table))
    connection.execute(f"CREATE MACRO now() AS {_NOW}")
    for name, query in PUBLISHED.items():
        connection.execute(f"CREATE VIEW {name} AS {query}")
    connection.execute("DROP TABLE state.ended_versions")
    ended = "FROM event_versions WHERE known_to IS NOT NULL"
    connection.execute(f"CREATE VIEW state.ended_versions AS {ended}")
    for view in (*(table for table in TABLES if table.is_view), *VIEWS):
        # The claims of a test do not follow from its versions.
        if view.name not in PUBLISHED:
            connection.execute(ddl.create_view(view))
    for name in (*AS_OF_MACROS, *(macro.name for macro in MACROS)):
        connection.execute(ddl.create_macro(name))
    return connection


def declare_macros(connection: duckdb.DuckDBPyConnection) -> None:
    """Declare the internal macros, which views use."""
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {INTERNAL_SCHEMA}")
    for name in INTERNAL_MACROS:
        connection.execute(ddl.create_macro(name))
