"""The look-ahead audit on the rows of a worker, by the code of `Database.audit`."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from almanac.audit.audit import audit
from almanac.audit.findings import StoredRows
from almanac.audit.places import pulls_of
from almanac.audit.report import Audit
from almanac.audit.user_rows import read_signals
from almanac.database import Database
from almanac.errors import InvalidArgument
from almanac.streams import open_stream

SLICE_ROWS: Final = 250_000
"""The rows that a worker judges at a time."""
FINDINGS_MAX: Final = 1_000
"""The first findings of each verdict that the driver receives."""
VERDICT: Final = "verdict"
FINDINGS: Final = "findings"
_FINDING: Final = ("field", "verdict", "used", "known_then", "knowable_from", "reason")
_KEYS: Final = [VERDICT, "field"]
PART: Final = pa.schema([("counts", pa.string()), ("findings", pa.binary())])
"""The answer of one worker about its rows."""


@dataclass(frozen=True, slots=True)
class RowAudit:
    """An audit that is ready for workers."""

    decided_at: str | None
    fields: Mapping[str, str | None] | None
    basis: str

    def judge(self, database: Database, rows: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows with their verdict and their findings.

        Raises: as `Database.audit`.
        """
        stream = open_stream(rows, "frame")
        assert stream is not None
        for table in stream.slices(stream.schema.names, SLICE_ROWS):
            found = self._audit(database, table)
            verdicts = found.verdicts.arrow()[VERDICT]
            findings = _listed(found.rows.arrow(), table.num_rows)
            answer = table.append_column(VERDICT, verdicts).append_column(FINDINGS, findings)
            yield from answer.to_batches()

    def count(self, database: Database, rows: Any, first: int) -> pa.RecordBatch:
        """Return the counts and the first findings of rows; `first` is the number of the first."""
        found = self._audit(database, rows)
        counts = {
            "findings": [[*key, count] for key, count in found.rows.counts.items()],
            "verdicts": [[*key, count] for key, count in found.verdicts.counts.items()],
            "naive": found.naive,
            "used": found.used,
            "other_basis": found.other_basis,
        }
        shown = _first_of_each(found.rows)
        numbers = pa.array(shown["row"].to_numpy() - 1 + first)
        shown = shown.set_column(shown.schema.get_field_index("row"), "row", numbers)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, shown.schema) as writer:
            writer.write_table(shown)
        values = {"counts": [json.dumps(counts)], "findings": [sink.getvalue().to_pybytes()]}
        return pa.RecordBatch.from_pydict(values, schema=PART)

    def merge(
        self, database: Database, columns: Mapping[str, pa.DataType], parts: Iterable[Any]
    ) -> Audit:
        """Return the audit of all rows, from the answers of workers.

        `Audit.rows` has the first findings of each verdict, and counts all. `Audit.verdicts` only
        counts.

        Raises:
            InvalidArgument: the columns can't be audited.
        """
        empty = pa.schema(list(columns.items())).empty_table()
        signals = read_signals(empty, decided_at=self.decided_at, fields=self.fields)
        none = self._audit(database, empty)
        findings: Counter[tuple[str, ...]] = Counter()
        verdicts: Counter[tuple[str, ...]] = Counter()
        naive: Counter[str] = Counter()
        used: Counter[str] = Counter()
        other: Counter[str] = Counter(none.other_basis)
        tables = [none.rows.arrow()]
        for part in parts:
            counts = json.loads(part["counts"])
            for counter, name in ((findings, "findings"), (verdicts, "verdicts")):
                for *key, count in counts[name]:
                    counter[tuple(key)] += count
            naive.update(counts["naive"])
            used.update(counts["used"])
            other.update(counts["other_basis"])
            with pa.ipc.open_stream(bytes(part["findings"])) as shown:
                tables.append(shown.read_all())
        rows = pa.concat_tables(tables).sort_by("row")
        every = StoredRows(ds.dataset(rows), _KEYS, findings)
        kept = _first_of_each(every)
        pulls = pulls_of(database.reader)
        return Audit(
            StoredRows(ds.dataset(kept), _KEYS, findings),
            StoredRows(ds.dataset(none.verdicts.arrow()), [VERDICT], verdicts),
            basis=self.basis,
            columns=signals.columns,
            ignored=signals.ignored,
            naive=naive,
            tz=str(database.reader.tz),
            pulls=(pulls.first, pulls.last),
            other_basis=other,
            used=used,
            universe=None,
            source="frame",
        )

    def new_columns(self, database: Database, columns: Mapping[str, pa.DataType]) -> list[pa.Field]:
        """Return the columns that `judge` adds.

        Raises:
            InvalidArgument: the rows have a column of one of these names, or can't be audited.
        """
        if clashing := [name for name in (VERDICT, FINDINGS) if name in columns]:
            raise InvalidArgument(
                f"the frame already has {', '.join(clashing)}; rename it, such as "
                f"frame.withColumnRenamed({clashing[0]!r}, 'my_{clashing[0]}')"
            )
        empty = pa.schema(list(columns.items())).empty_table()
        findings = _listed(self._audit(database, empty).rows.arrow(), 0)
        return [pa.field(VERDICT, pa.string()), pa.field(FINDINGS, findings.type)]

    def _audit(self, database: Database, rows: Any) -> Audit:
        return audit(
            database.reader,
            rows,
            decided_at=self.decided_at,
            fields=self.fields,
            basis=self.basis,
            progress=None,
            rows_max=SLICE_ROWS,
            held_bytes=20_000_000,
        )


def _listed(findings: pa.Table, rows: int) -> pa.Array:
    """Return the findings of each row of a table as a list, empty for a clean row."""
    findings = findings.sort_by("row").combine_chunks()
    counts = np.bincount(findings["row"].to_numpy() - 1, minlength=rows)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    columns = [findings[name].combine_chunks() for name in _FINDING]
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.StructArray.from_arrays(columns, list(_FINDING))
    )


def _first_of_each(findings: StoredRows) -> pa.Table:
    """Return the first findings of each verdict, in the order of their rows."""
    verdicts = sorted({verdict for verdict, _ in findings.counts})
    tables = [findings.of([verdict]).head(FINDINGS_MAX).arrow() for verdict in verdicts]
    return pa.concat_tables([findings.head(0).arrow(), *tables]).sort_by("row")
