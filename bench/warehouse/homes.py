"""Lakes of any size and age, as merges would leave them, written directly to Parquet.

They are for measuring the steps after the merge. They depend on the arguments only; the last day
is `LAST_DAY`. Belongs here: making lakes. Does not: timing anything.
"""

import hashlib
import json
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
from warehouse.history.change_log import NORMALISER

from bench.warehouse import homes_sql
from warehouse.files import lake_paths
from warehouse.files.documents import hash_file
from warehouse.files.storage import Storage
from warehouse.schema.columns import ALL

LAST_DAY: Final = date(2026, 3, 1)
_PULLED_AT: Final = time(6)
Connection = duckdb.DuckDBPyConnection


class Lake:
    """A synthetic lake under a folder, which can be extended after it was made."""

    def __init__(self, root: Path, *, events: int, versions: int, coins: int, days: int) -> None:
        self.storage = Storage(root)
        self._coins = coins
        self._days = days
        self._deliveries = 0
        self._hashes: dict[int, str] = {}
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        values = {"events": events, "each": versions // events, "coins": coins, "days": days}
        self._run(homes_sql.VERSIONS, values | {"start": self._pulled_at(0), "known": ALL})

    def write(self) -> None:
        """Write every day, and the state after the last day."""
        checkpoint = self._write_state()
        for day_number in range(self._days):
            self._write_snapshot(day_number)
            self._write_day(day_number, checkpoint)

    def deliver(self) -> None:
        """Add one delivery on the last day, which makes one version."""
        self._deliveries += 1
        at = self._pulled_at(self._days - 1) + timedelta(hours=1, minutes=self._deliveries)
        self._run(homes_sql.DELIVERED, {"day_number": self._days - 1, "at": at})
        self._write_day(self._days - 1, self._write_state())

    def _write_day(self, day_number: int, checkpoint: str) -> None:
        day = self._day(day_number)
        batch_id = _batch_id(day, "export")
        ((versions,),) = self._rows(homes_sql.COUNT, {"day_number": day_number})
        observed_at = self._pulled_at(day_number).isoformat()
        beside = [lake_paths.coins_name(day), *self.storage.names(f"checkpoints/{checkpoint}")]
        meta = {
            "files": {name: hash_file(self.storage.path(name)) for name in beside},
            "format": 1,
            "normaliser": NORMALISER,
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
        name = lake_paths.changes_name(day)
        values = {"day_number": day_number, "batch_id": batch_id, "meta": json.dumps(meta)}
        with self.storage.writing(name) as file:
            self._run(homes_sql.CHANGES, values | {"file": str(file)})
        self._hashes[day_number] = hash_file(self.storage.path(name))

    def _write_snapshot(self, day_number: int) -> None:
        day = self._day(day_number)
        values = {
            "day_number": day_number,
            "coins": self._coins,
            "observed_at": self._pulled_at(day_number),
            "batch_id": _batch_id(day, "coins"),
        }
        name = lake_paths.coins_name(day)
        with self.storage.writing(name) as file:
            self._run(homes_sql.SNAPSHOT, values | {"file": str(file)})

    def _write_state(self) -> str:
        name = f"{LAST_DAY.isoformat()}-{self._deliveries:012x}"
        for table, query in homes_sql.STATE.items():
            values = {"at": self._pulled_at(self._days - 1), "coins": self._coins}
            with self.storage.writing(lake_paths.checkpoint_table(name, table)) as file:
                self._run(query, values | {"file": str(file)})
        return name

    def _run(self, query: str, values: dict[str, Any]) -> None:
        named = {name: value for name, value in values.items() if f"${name}" in query}
        self._connection.execute(query, named)

    def _rows(self, query: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    def _day(self, day_number: int) -> date:
        return LAST_DAY - timedelta(days=self._days - 1 - day_number)

    def _pulled_at(self, day_number: int) -> datetime:
        return datetime.combine(self._day(day_number), _PULLED_AT, UTC)


def generate_lake(root: Path, events: int, versions: int, coins: int, days: int) -> Lake:
    """Write a lake of so many events, versions in all, coins pulled daily, and days."""
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
