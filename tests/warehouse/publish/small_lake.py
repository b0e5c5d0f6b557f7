"""A small lake whose history is given as plans of days, and folded in plain Python.

It writes what a merge writes, without a merge: day files in a chain, checkpoints, snapshots.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import duckdb
from warehouse.publish.publish import PublishReport, publish

from tests.warehouse.publish.small_rows import (
    SHAPES,
    Row,
    batch_id_of,
    batch_record,
    content_of,
    observation_time,
)
from warehouse.files.storage import Storage

FIRST_DAY = date(2026, 3, 1)
Kind = Literal["change", "reschedule", "cancel", "see", "look", "miss"]


class Day(NamedTuple):
    day: date
    sha256: str
    name: str
    meta: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Op:
    """One fact that an observation shows: the number of the event, the kind, a seed of content.

    `see` shows the event with a new `updated_at`, `look` without one; `miss` makes it missing.
    """

    event: int
    kind: Kind = "change"
    seed: int = 0
    hour: int = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """A day: the facts observed of events, and the numbers of coins and rejected rows.

    `names` is the seed of the names of coins and categories from this day on.
    """

    ops: tuple[Op, ...] = ()
    coins: int = 0
    rejects: int = 0
    names: int = 0
    skip: bool = False
    """No batch arrived, so the day has no file."""


@dataclass(slots=True)
class _State:
    events: dict[str, Row] = field(default_factory=dict)
    coins: dict[str, Row] = field(default_factory=dict)
    cancelled: dict[str, Row] = field(default_factory=dict)
    absences: list[Row] = field(default_factory=list)
    """The changes of `missing_since` on the day that is written."""
    names: int = 0


class SmallLake:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.storage = Storage(home / "lake")
        self.warehouse = home / "warehouse.duckdb"
        self.chain: list[Day] = []
        self._hashes: dict[str, str] = {}

    def copied(self, home: Path) -> "SmallLake":
        """Return a lake with the same files, published or not, in another home, which is empty."""
        shutil.copytree(self.home, home, dirs_exist_ok=True)
        other = SmallLake(home)
        other.chain = [*self.chain]
        return other

    def set_plans(self, plans: Sequence[Plan]) -> None:
        """Write the lake of this history; the files of unchanged days keep their hashes."""
        old, self.chain = {item.name: item for item in self.chain}, []
        state, connection = _State(), _database().cursor()
        connection.execute("SET TimeZone = 'UTC'")
        for number, plan in enumerate(plans):
            if not plan.skip:
                self._write_day(connection, state, FIRST_DAY + timedelta(days=number), plan)
        if self.chain:
            # Only the newest checkpoint is read.
            self._hashes = {}
            self._write_state(connection, state, self.chain[-1].meta["checkpoint"])
            self.chain[-1].meta["files"] |= self._hashes
        for name in old.keys() - {item.name for item in self.chain}:
            self.storage.remove(name)
        connection.close()

    def publish(self, **options: Any) -> PublishReport:
        options = {"chain": self.chain, "state_folder": self.home / "state"} | options
        return publish(self.storage, self.warehouse, **options)

    def _write_day(
        self, connection: duckdb.DuckDBPyConnection, state: _State, day: date, plan: Plan
    ) -> None:
        self._hashes = {}
        state.names, state.absences = plan.names, []
        versions = [row for op in plan.ops for row in _rows_of(state, op, day)]
        batches = [batch_record(day, "export", len(plan.ops), plan.rejects, sorted({"btc"}))]
        snapshot = [_coin(state, number, day) for number in range(plan.coins)]
        batches += [batch_record(day, "coins", plan.coins, 0, None)] if plan.coins else []
        text = json.dumps([*map(str, versions), str(snapshot), plan.rejects, str(state)])
        checkpoint = f"{day.isoformat()}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        meta = {
            "format": 1,
            "normaliser": 1,
            "day": day.isoformat(),
            "previous": self.chain[-1].sha256 if self.chain else None,
            "checkpoint": checkpoint,
            "batches": batches,
        }
        folder = f"observed_date={day.isoformat()}"
        if plan.coins:
            name = f"coin_snapshots/{folder}/coins.parquet"
            self._write(connection, name, "snapshots", snapshot)
        else:
            self.storage.remove(f"coin_snapshots/{folder}/coins.parquet")
        name = f"event_absences/{folder}/absences.parquet"
        if state.absences:
            self._write(connection, name, "absences", state.absences)
        else:
            self.storage.remove(name)
        export = batches[0]["batch_id"]
        rejects = [
            {"batch_id": export, "position": place, "reason": "no id", "raw": f"row {place}"}
            for place in range(plan.rejects)
        ]
        if rejects:
            self._write(connection, f"rejects/{folder}/{export}.parquet", "rejects", rejects)
        else:
            self.storage.remove(f"rejects/{folder}/{export}.parquet")
        recorded = {"files": dict(self._hashes)}
        name = f"event_changes/{folder}/changes.parquet"
        sha256 = self._write(connection, name, "changes", versions, json.dumps(meta))
        self.chain.append(Day(day, sha256, name, {**meta, **recorded}))

    def _write_state(self, connection: duckdb.DuckDBPyConnection, state: _State, name: str) -> None:
        at = observation_time(FIRST_DAY)
        events = list(state.events.values())
        tables: dict[str, list[Row]] = {
            "seen": events,
            # In the content file half of the events have another content, and some are lacking.
            "content": [*events[::4], *({**row, "title": "as before"} for row in events[1::4])],
            "content_changes": [row for place, row in enumerate(events) if place % 4],
            "coins": list(state.coins.values()),
            "categories": [
                {"id": name, "name": "LISTING", "first_seen_at": at, "last_seen_at": at}
                for name in ("listing", "a-listing")[: 1 + state.names % 2]
            ],
            "cancellations": list(state.cancelled.values()),
            "labels": [
                {"slug": slug, "symbol": slug[:3].upper(), "name": _named("label of", slug, state)}
                for slug in ("coin-0", "coin-1", "coin-2", "coin-3")[state.names % 3 :]
            ],
        }
        for table, rows in tables.items():
            self._write(connection, f"checkpoints/{name}/{table}.parquet", table, rows)

    def _write(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        shape: str,
        rows: list[Row],
        meta: str = "{}",
    ) -> str:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE written ({SHAPES[shape]})")
        columns = [item[0] for item in connection.execute("DESCRIBE written").fetchall()]
        if rows:
            marks = f"({', '.join('?' for _ in columns)})"
            values = [row.get(column) for row in rows for column in columns]
            every = ", ".join(marks for _ in rows)
            connection.execute(f"INSERT INTO written VALUES {every}", values)
        with self.storage.writing(name) as file:
            connection.execute(
                "COPY written TO $file (FORMAT parquet, KV_METADATA {almanac: $meta})",
                {"file": str(file), "meta": meta},
            )
        self._hashes[name] = hashlib.sha256(self.storage.read(name)).hexdigest()
        return self._hashes[name]


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return a database that all lakes of this process are written with."""
    return duckdb.connect()


def _rows_of(state: _State, op: Op, day: date) -> list[Row]:
    """Fold one fact into the state; return the new versions."""
    at, event_id = observation_time(day, op.hour), f"evt_{op.event}"
    old = state.events.get(event_id)
    missing_since = at if op.kind == "miss" else None
    if old is not None and (old.get("missing_since") is None) != (missing_since is None):
        state.absences.append(
            {
                "event_id": event_id,
                "changed_at": at,
                "missing_since": missing_since,
                "batch_id": batch_id_of(day, "export"),
                "place": len(state.absences) + 1,
            }
        )
    if old is None and op.kind in ("see", "look", "miss", "cancel"):
        return []
    seen = {"last_seen_at": at, "content_at": at, "updated_at": at}
    if old is not None and op.kind in ("see", "look", "miss"):
        observed = {"last_seen_at": at, "content_at": at, "missing_since": None}
        missing = {"missing_since": old.get("missing_since") or at}
        changes = {"see": {**observed, **seen}, "look": observed, "miss": missing}
        state.events[event_id] = {**old, **changes[op.kind]}
        return []
    content = content_of(op.event, op.seed, at)
    if old is None and op.seed % 2:
        content["created_at"] = at  # Nothing is claimed of the time before.
    elif old is None and op.seed % 3:
        content["updated_at"] = content["created_at"] + timedelta(days=1)
    if op.kind == "cancel":
        content = {**content_of(op.event, op.seed, at), "status": "cancelled", "cancelled_at": at}
        state.cancelled[event_id] = {
            "event_id": event_id,
            "cancelled_at": at,
            "first_seen_at": at,
            "last_seen_at": at,
            "batch_id": batch_id_of(day, "export"),
        }
    number = 1 if old is None else old["version"] + 1
    state.events[event_id] = {
        "event_id": event_id,
        **content,
        **seen,
        "first_seen_at": at if old is None else old["first_seen_at"],
        "changed_at": at,
        "version": number,
    }
    kinds = {"change": "revised", "reschedule": "rescheduled", "cancel": "cancelled"}
    version = {
        "event_id": event_id,
        "version": number,
        "known_from": at,
        "known_basis": "observed",
        "change_kinds": ["created" if old is None else kinds[op.kind]],
        "changed_fields": [] if old is None else ["title"],
        "batch_id": batch_id_of(day, "export"),
        "feed": "export",
        "plan": "elite",
        "content_at": at,
        **content,
    }
    return [version]


def _coin(state: _State, number: int, day: date) -> Row:
    at, slug = observation_time(day), f"coin-{number}"
    counted = {
        "slug": slug,
        "rank": number + day.day % 3,
        "tracked": True,
        "upcoming_count": number,
        "major_count": None,
        "peak_impact": number / 2,
    }
    first = state.coins.get(slug, {"first_seen_at": at})["first_seen_at"]
    state.coins[slug] = {
        **counted,
        "symbol": f"C{number}",
        "name": _named("Coin", str(number), state),
        "first_seen_at": first,
        "last_seen_at": at,
        "content_at": at,
    }
    return {**counted, "observed_at": at, "batch_id": batch_id_of(day, "coins")}


def _named(kind: str, name: str, state: _State) -> str:
    return " ".join((kind, name, *(["renamed", str(state.names)] if state.names else [])))
