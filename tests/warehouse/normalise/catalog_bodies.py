"""Bodies to normalise, and a helper that lands them and reads the rows."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from catalog.contract.records import EVENT_FIELDS
from warehouse.landing.batches import Feed, Manifest, Pull, Scope
from warehouse.landing.landing import Landing
from warehouse.normalise.csv_reader import KnownLists
from warehouse.normalise.normalise import NormalisedBatch, normalise

AT = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
BEFORE = AT - timedelta(seconds=61)
PLAIN: dict[str, str] = {
    "id": "e1",
    "slug": "mainnet-launch",
    "title": "Mainnet launch",
    "description": "Goes live",
    "displayedDate": "08 Oct",
    "date": "2026-10-08T00:00:00Z",
    "dateEnd": "",
    "dateType": "date",
    "isEstimated": "false",
    "categories": "Mainnet;Release",
    "coins": "bitcoin",
    "impact": "7.5",
    "impactSummary": "Large",
    "sourceUrl": "https://example.org/1",
    "snapshotUrl": "",
    "lastVerifiedAt": "",
    "createdAt": "2026-02-01T10:00:00Z",
    "updatedAt": "2026-02-02T10:00:00Z",
}
"""A row of the export."""


class BatchReader:
    """A landing and a database in memory; `normalised` is the result of the last batch."""

    def __init__(self, root: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.landing = Landing(root)
        self.connection = connection
        self.normalised: NormalisedBatch
        self.manifest: Manifest

    def land(
        self,
        feed: Feed,
        bodies: bytes | Iterable[bytes],
        *,
        plan: str = "elite",
        status: int = 200,
        received_at: datetime | None = None,
        event_id: str | None = None,
    ) -> Manifest:
        pull = Pull(
            feed=feed,
            scope=Scope(event_id=event_id),
            plan=plan,
            source="sandbox seed=1 pace=1",
            observed_at=AT,
            content_at=BEFORE,
            landed_at=AT,
            requests=1,
        )
        listed = [bodies] if isinstance(bodies, bytes) else list(bodies)
        pages = [(body, received_at) for body in listed]
        return self.landing.land(pull, pages, status=status)

    def read(
        self,
        feed: Feed,
        bodies: bytes | Iterable[bytes],
        *,
        known: KnownLists | None = None,
        **how: Any,
    ) -> NormalisedBatch:
        self.manifest = self.land(feed, bodies, **how)
        self.normalised = normalise(self.connection, self.landing, self.manifest, known=known)
        return self.normalised

    def seen(self, table: str = "seen") -> list[dict[str, Any]]:
        """Return the rows without `row_hash`, which depends on the form in which a row arrived."""
        columns = "COLUMNS(lambda name: name <> 'row_hash')"
        return self._dicts(f"SELECT {columns} FROM {table} ORDER BY position")

    def only_row(self, table: str = "seen") -> dict[str, Any]:
        (row,) = self.seen(table)
        return row

    def rejected(self) -> list[tuple[int, str, str]]:
        rows = self._dicts("SELECT * FROM rejected ORDER BY position")
        assert all(row["batch_id"] == self.manifest.batch_id for row in rows)
        return [(row["position"], row["reason"], row["raw"]) for row in rows]

    def _dicts(self, query: str) -> list[dict[str, Any]]:
        found = self.connection.execute(query)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def csv_body(
    rows: Sequence[dict[str, str]],
    *,
    columns: Sequence[str] = EVENT_FIELDS,
    end: str = "\r\n",
    quoting: Any = csv.QUOTE_MINIMAL,
    delimiter: str = ",",
) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end, quoting=quoting, delimiter=delimiter)
    writer.writerow(columns)
    writer.writerows([row.get(name, "") for name in columns] for row in rows)
    return text.getvalue().encode("utf-8", "surrogateescape")


def plain(**changes: str) -> dict[str, str]:
    return PLAIN | changes


def plains(count: int) -> list[dict[str, str]]:
    return [plain(id=f"e{number}") for number in range(count)]


def json_event(**changes: Any) -> dict[str, Any]:
    """Return the same event in JSON form."""
    event: dict[str, Any] = {name: value or None for name, value in PLAIN.items()}
    event |= {
        "isEstimated": False,
        "impact": 7.5,
        "categories": ["Release", "Mainnet"],
        "coins": [{"slug": "bitcoin", "symbol": "btc", "name": "Bitcoin"}],
    }
    return event | changes


def json_body(value: Any) -> bytes:
    return msgspec.json.encode(value)


def page(*rows: Any) -> bytes:
    """Return a page of a list."""
    return json_body({"data": list(rows), "meta": {"total": len(rows)}})
