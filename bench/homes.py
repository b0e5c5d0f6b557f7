"""Lakes of any size and age, written straight to Parquet: what a merge would have left behind.

For measuring what comes after the merge. Everything follows from the arguments; the days end on
`LAST_DAY`. Belongs here: making lakes. Does not: timing anything.
"""

import hashlib
import json
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb

from warehouse.fields import ALL
from warehouse.storage import Storage

LAST_DAY: Final = date(2026, 3, 1)
_LOOK_AT: Final = time(6)
Connection = duckdb.DuckDBPyConnection

_VERSIONS = """
CREATE TABLE versions AS
WITH planned AS (
    SELECT
        k,
        n AS version,
        CASE WHEN hash(k) % 10 < 6 THEN 0 ELSE hash(k, 'first') % $days END::INTEGER AS first,
    FROM range($events) AS e(k), range(1, $each + 1) AS v(n)
),
dated AS (
    SELECT
        *,
        first + ((($days - 1 - first) * (version - 1)) // $each)::INTEGER AS day_number,
    FROM planned
),
seen AS (
    SELECT *, $start::TIMESTAMPTZ + to_days(day_number) + to_seconds(version) AS known_from
    FROM dated
)
SELECT
    day_number,
    'evt_' || left(md5(k::VARCHAR), 16) AS event_id,
    version::INTEGER AS version,
    known_from,
    'observed' AS known_basis,
    CASE WHEN version = 1 THEN ['created'] ELSE ['rescheduled'] END AS change_kinds,
    CASE WHEN version = 1 THEN []::VARCHAR[] ELSE ['date', 'displayed_date'] END AS changed_fields,
    NULL::VARCHAR AS batch_id,
    'export' AS feed,
    'elite' AS plan,
    known_from AS content_at,
    'event-' || k AS slug,
    'Mainnet upgrade number ' || k || ' of a network' AS title,
    repeat('Some words on what is going to happen and why. ', (1 + hash(k) % 6)::INTEGER)
        || k AS description,
    strftime(known_from + to_days((hash(k, version) % 300)::INTEGER), '%d %b %Y')
        AS displayed_date,
    date_trunc('day', known_from) + to_days((hash(k, version) % 300)::INTEGER) AS date,
    NULL::TIMESTAMPTZ AS date_end,
    CASE WHEN hash(k) % 5 = 0 THEN 'quarter' ELSE 'date' END AS date_type,
    hash(k) % 5 = 0 AS is_estimated,
    ['Category ' || (hash(k, 'c') % 20)] AS categories,
    list_distinct(['coin-' || (hash(k, 1) % $coins), 'coin-' || (hash(k, 2) % 100)]) AS coins,
    (hash(k, 'i') % 100) / 10.0 AS impact,
    'Mid' AS impact_band,
    'It may matter to holders, for reason ' || hash(k) % 1000 AS impact_summary,
    'https://example.org/announcements/' || md5(k::VARCHAR) AS source_url,
    'https://example.org/snapshots/' || md5(k::VARCHAR) || '.png' AS snapshot_url,
    known_from AS last_verified_at,
    $start::TIMESTAMPTZ + to_days(first) - to_days(1) AS created_at,
    known_from AS updated_at,
    CASE
        WHEN version = $each AND hash(k) % 30 = 0 THEN 'cancelled' ELSE 'scheduled'
    END AS status,
    CASE WHEN version = $each AND hash(k) % 30 = 0 THEN known_from END AS cancelled_at,
    $known::BIGINT AS known,
    NULL::VARCHAR AS extra
FROM seen
ORDER BY day_number, known_from, event_id
"""
_CHANGES = """
COPY (
    SELECT * EXCLUDE (day_number) REPLACE ($batch_id AS batch_id)
    FROM versions
    WHERE day_number = $day_number
) TO $file (FORMAT parquet, COMPRESSION zstd, KV_METADATA {almanac: $meta})
"""
_COUNT = "SELECT count(*) FROM versions WHERE day_number = $day_number"
_SNAPSHOT = """
COPY (
    SELECT
        'coin-' || k AS slug,
        (1 + k + hash(k, $day_number) % 7)::INTEGER AS rank,
        k % 4 < 3 AS tracked,
        (hash(k, $day_number // 20) % 12)::INTEGER AS upcoming_count,
        (hash(k, $day_number // 20, 1) % 3)::INTEGER AS major_count,
        (hash(k, $day_number // 20, 2) % 100) / 10.0 AS peak_impact,
        $observed_at::TIMESTAMPTZ AS observed_at,
        $batch_id AS batch_id
    FROM range($coins) AS c(k)
) TO $file (FORMAT parquet, COMPRESSION zstd)
"""
_STATE = {
    "events": """
COPY (
    SELECT * EXCLUDE (
        day_number, known_from, known_basis, change_kinds, changed_fields, batch_id, feed, plan
    ),
        min(known_from) OVER (PARTITION BY event_id) AS first_seen_at,
        $at::TIMESTAMPTZ AS last_seen_at,
        NULL::TIMESTAMPTZ AS missing_since,
        known_from AS changed_at
    FROM versions
    QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY version DESC) = 1
    ORDER BY event_id
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
    "coins": """
COPY (
    SELECT
        'coin-' || k AS slug, 'C' || k AS symbol, 'Coin ' || k AS name,
        (1 + k)::INTEGER AS rank, k % 4 < 3 AS tracked,
        'https://example.org/icons/' || k || '.png' AS icon_url,
        0::INTEGER AS upcoming_count, 0::INTEGER AS major_count, NULL::DOUBLE AS peak_impact,
        $at::TIMESTAMPTZ AS first_seen_at, $at::TIMESTAMPTZ AS last_seen_at,
        NULL::TIMESTAMPTZ AS missing_since, $at::TIMESTAMPTZ AS content_at
    FROM range($coins) AS c(k)
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
    "categories": """
COPY (
    SELECT
        'category-' || k AS id, 'Category ' || k AS name,
        $at::TIMESTAMPTZ AS first_seen_at, $at::TIMESTAMPTZ AS last_seen_at
    FROM range(20) AS c(k)
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
    "cancellations": """
COPY (
    SELECT
        event_id, cancelled_at, cancelled_at AS first_seen_at, cancelled_at AS last_seen_at,
        'none' AS batch_id
    FROM versions
    WHERE cancelled_at IS NOT NULL
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
    "labels": """
COPY (
    SELECT 'coin-' || k AS slug, 'C' || k AS symbol, 'Coin ' || k AS name FROM range(100) AS c(k)
) TO $file (FORMAT parquet, COMPRESSION zstd)
""",
}
_DELIVERED = """
INSERT INTO versions
SELECT * REPLACE (
    $day_number AS day_number, $at::TIMESTAMPTZ AS known_from, version + 1 AS version,
    title || ', again' AS title, $at::TIMESTAMPTZ AS content_at, $at::TIMESTAMPTZ AS updated_at,
    ['revised'] AS change_kinds, ['title'] AS changed_fields
)
FROM versions
QUALIFY row_number() OVER (ORDER BY known_from DESC, event_id, version DESC) = 1
"""


class Lake:
    """A synthetic lake under a folder, which can go on after it was made."""

    def __init__(self, root: Path, *, events: int, versions: int, coins: int, days: int) -> None:
        self.storage = Storage(root)
        self._coins = coins
        self._days = days
        self._deliveries = 0
        self._hashes: dict[int, str] = {}
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        values = {"events": events, "each": versions // events, "coins": coins, "days": days}
        self._run(_VERSIONS, values | {"start": self._look_at(0), "known": ALL})

    def write(self) -> None:
        """Write every day, and the state after the last."""
        checkpoint = self._write_state()
        for day_number in range(self._days):
            self._write_snapshot(day_number)
            self._write_day(day_number, checkpoint)

    def deliver(self) -> None:
        """Go on by one delivery on the last day, which brings one version."""
        self._deliveries += 1
        at = self._look_at(self._days - 1) + timedelta(hours=1, minutes=self._deliveries)
        self._run(_DELIVERED, {"day_number": self._days - 1, "at": at})
        self._write_day(self._days - 1, self._write_state())

    def _write_day(self, day_number: int, checkpoint: str) -> None:
        day = self._day(day_number)
        batch_id = _batch_id(day, "export")
        ((versions,),) = self._rows(_COUNT, {"day_number": day_number})
        observed_at = self._look_at(day_number).isoformat()
        meta = {
            "format": 1,
            "normaliser": 1,
            "day": day.isoformat(),
            "previous": self._hashes.get(day_number - 1),
            "fold_id": hashlib.sha256(f"{day} {self._deliveries}".encode()).hexdigest(),
            "folded_to": [observed_at, observed_at, 0, batch_id],
            "checkpoint": checkpoint,
            "batches": [
                _batch(_batch_id(day, feed), feed, observed_at, rows)
                for feed, rows in (("export", versions), ("coins", self._coins))
            ],
        }
        name = f"event_changes/observed_date={day.isoformat()}/changes.parquet"
        values = {"day_number": day_number, "batch_id": batch_id, "meta": json.dumps(meta)}
        with self.storage.writing(name) as file:
            self._run(_CHANGES, values | {"file": str(file)})
        self._hashes[day_number] = hashlib.sha256(self.storage.read(name)).hexdigest()

    def _write_snapshot(self, day_number: int) -> None:
        day = self._day(day_number)
        values = {
            "day_number": day_number,
            "coins": self._coins,
            "observed_at": self._look_at(day_number),
            "batch_id": _batch_id(day, "coins"),
        }
        name = f"coin_snapshots/observed_date={day.isoformat()}/coins.parquet"
        with self.storage.writing(name) as file:
            self._run(_SNAPSHOT, values | {"file": str(file)})

    def _write_state(self) -> str:
        name = f"{LAST_DAY.isoformat()}-{self._deliveries:012x}"
        for table, query in _STATE.items():
            values = {"at": self._look_at(self._days - 1), "coins": self._coins}
            with self.storage.writing(f"checkpoints/{name}/{table}.parquet") as file:
                self._run(query, values | {"file": str(file)})
        return name

    def _run(self, query: str, values: dict[str, Any]) -> None:
        named = {name: value for name, value in values.items() if f"${name}" in query}
        self._connection.execute(query, named)

    def _rows(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    def _day(self, day_number: int) -> date:
        return LAST_DAY - timedelta(days=self._days - 1 - day_number)

    def _look_at(self, day_number: int) -> datetime:
        return datetime.combine(self._day(day_number), _LOOK_AT, UTC)


def generate_lake(root: Path, events: int, versions: int, coins: int, days: int) -> Lake:
    """Write a lake of that many events, versions in all, coins looked at daily, and days."""
    lake = Lake(root, events=events, versions=versions, coins=coins, days=days)
    lake.write()
    return lake


def _batch_id(day: date, feed: str) -> str:
    digest = hashlib.sha256(f"{day}{feed}".encode()).hexdigest()[:12]
    return f"{day:%Y%m%d}T060000Z-{feed}-{digest}"


def _batch(batch_id: str, feed: str, observed_at: str, rows: int) -> dict[str, Any]:
    return {
        "batch_id": batch_id,
        "feed": feed,
        "status": "merged",
        "why": None,
        "flagged": None,
        "released": False,
        **{"arrived": rows, "good": rows, "rejected": 0, "duplicates": 0, "ignored": 0},
        **{"stale": 0, "missing": 0, "versions": rows, "changes": {}, "notes": []},
        **{"observed_at": observed_at, "content_at": observed_at, "landed_at": observed_at},
        **{"plan": "elite", "complete": True, "why_incomplete": None, "attested": False},
        **{"requests": 1, "rows_claimed": rows, "bytes": 1000 * rows},
        "scope": {"lower": None, "upper": None, "since": None, "coins": None, "categories": None},
    }
