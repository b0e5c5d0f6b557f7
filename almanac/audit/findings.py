"""The findings of an audit: in memory or in a temporary Parquet file, with their counts."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from almanac.audit.fields import COIN, EVENT, GROUPS, JUDGED, NO_EVENT, SEVERITY
from almanac.audit.user_rows import suggest_fields
from almanac.core.errors import InvalidArgument, WarehouseError
from almanac.core.files import own_folder
from almanac.core.text import count_noun
from almanac.results import FIRST, LAST, Result
from almanac.streams import make_scan_options, write_parquet
from almanac.user_files import local_path

HELD_BYTES: Final = 200_000_000
_BATCH_ROWS: Final = 131_072


class RowStore:
    """Takes tables of one schema, and counts their rows by the columns `keys`.

    When the rows exceed `held_bytes`, they are written to a temporary Parquet file. The file is
    unlinked when this context ends, and its space is freed with the last `StoredRows`.
    """

    def __init__(self, keys: Sequence[str], held_bytes: int = HELD_BYTES) -> None:
        self._keys = list(keys)
        self._held_max = held_bytes
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._schema: Any = None
        self._writer: Any = None
        self.path: Path | None = None
        self.counts: Counter[tuple[str, ...]] = Counter()

    def append(self, table: pa.Table) -> None:
        self._schema = self._schema or table.schema
        for row in table.group_by(self._keys).aggregate([([], "count_all")]).to_pylist():
            self.counts[tuple(row[key] for key in self._keys)] += row["count_all"]
        self._held.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes > self._held_max or self._writer is not None:
            self._spill()

    def finish(self) -> "StoredRows":
        """Return the rows. Nothing can be added after this."""
        if self._writer is None:
            source = ds.dataset(pa.concat_tables(self._held))
        else:
            self._writer.close()
            form = ds.ParquetFileFormat()
            fragment = form.make_fragment(pa.OSFile(str(self.path)))
            source = ds.FileSystemDataset([fragment], self._schema, form)
        return StoredRows(source, self._keys, self.counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _spill(self) -> None:
        try:
            if self._writer is None:
                descriptor, name = mkstemp(prefix="audit-", suffix=".parquet", dir=own_folder())
                os.close(descriptor)
                self.path = Path(name)
                self._writer = pq.ParquetWriter(name, self._schema, compression="zstd")
            for table in self._held:
                self._writer.write_table(table, row_group_size=_BATCH_ROWS)
        except OSError as error:
            raise WarehouseError(
                f"the findings can't be stored: {error}. An audit of many rows needs about 35 "
                "bytes a row in the temporary folder; name a larger one in TMPDIR."
            ) from error
        self._held, self._held_bytes = [], 0


class StoredRows(Result):
    """A Result whose rows are read on first use. Counting rows and `head` do not read all of them.

    Attributes:
        source: the pyarrow dataset that holds the rows.
    """

    def __init__(
        self,
        source: Any,
        keys: list[str],
        counts: "Counter[tuple[str, ...]]",
        verdicts: frozenset[str] | None = None,
    ) -> None:
        self.notes = ()
        self.source = source
        self._keys = keys
        self._counts = counts
        self._verdicts = verdicts

    @property
    def columns(self) -> list[str]:
        return list(self.source.schema.names)

    @cached_property
    def _table(self) -> Any:
        return self.source.to_table(filter=self._filter)

    def __len__(self) -> int:
        return sum(self.counts.values())

    @property
    def counts(self) -> "Counter[tuple[str, ...]]":
        """How many rows there are, by the values of the columns that were counted."""
        place, verdicts = self._keys.index("verdict"), self._verdicts
        return Counter(
            {
                key: count
                for key, count in self._counts.items()
                if verdicts is None or key[place] in verdicts
            }
        )

    def select(self, verdicts: Iterable[str]) -> Self:
        """Return the rows with one of these verdicts."""
        return type(self)(self.source, self._keys, self._counts, frozenset(verdicts))

    def head(self, n: int = 5) -> Result:
        if n < 0:
            return super().head(n)
        if not n or not len(self):
            return Result(self.source.schema.empty_table())
        return Result(self.source.head(n, filter=self._filter, **self._options))

    def tail(self, n: int = 5) -> Result:
        if n < 0:
            return super().tail(n)
        last = self.source.schema.empty_table()
        for batch in self.reader():
            table = pa.concat_tables([last, pa.Table.from_batches([batch])])
            last = table.slice(max(0, table.num_rows - n))
        return Result(last)

    def to_parquet(self, path: str | Path) -> None:
        tables = (pa.Table.from_batches([batch]) for batch in self.reader())
        write_parquet(tables, self.source.schema, local_path(path, "path"))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.reader().__arrow_c_stream__(requested_schema)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a pyarrow RecordBatchReader, which holds few of them in memory."""
        return self.source.scanner(filter=self._filter, **self._options).to_reader()

    def _shown(self) -> list[tuple[Any, ...]]:
        rows = self.head(FIRST + LAST).rows()
        if len(self) > FIRST + LAST:
            rows = [*rows[:FIRST], *self.tail(LAST).rows()]
        return [tuple(row.values()) for row in rows]

    @property
    def _options(self) -> dict[str, Any]:
        return make_scan_options(self.source, _BATCH_ROWS)

    @property
    def _filter(self) -> Any:
        if self._verdicts is None:
            return None
        return pc.field("verdict").isin(sorted(self._verdicts))


@dataclass(eq=False, repr=False, kw_only=True)
class AuditFindings:
    """The verdicts of an audit, counted. `Audit` documents the attributes."""

    rows: StoredRows
    verdicts: StoredRows
    basis: str
    columns: dict[str, str]
    ignored: list[str]
    naive: dict[str, int]
    tz: str
    first_pull_at: datetime | None
    last_pull_at: datetime | None
    used: dict[str, int]
    universe: Result | None
    source: str

    def __len__(self) -> int:
        """The number of rows of the input."""
        return len(self.verdicts)

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of input rows per verdict, the worst first; unused verdicts are left out."""
        counted = {verdict: count for (verdict,), count in self.verdicts.counts.items()}
        return {name: counted[name] for name in SEVERITY if name in counted}

    @cached_property
    def groups(self) -> dict[str, int]:
        """The number of input rows per group: leak, unjudged, warning, clean."""
        groups = dict.fromkeys(("leak", "unjudged", "warning", "clean"), 0)
        for verdict, count in self.counts.items():
            groups[GROUPS[verdict]] += count
        return groups

    @cached_property
    def summary(self) -> Result:
        """A Result of counts: verdict, group, field, values; the worst verdict first."""
        counted = self.rows.counts
        fields = [EVENT, *(name for name in self.columns if name not in (EVENT, "decided_at"))]
        unknown = sum(count for (_, name), count in counted.items() if name == EVENT)
        unused = self.counts.get(NO_EVENT, 0)
        for name in fields:
            found = sum(count for (_, field), count in counted.items() if field == name)
            left = len(self) - unused - unknown - (found if name != EVENT else 0)
            counted["clean", name] = left
        counted[NO_EVENT, EVENT] = unused
        rows = sorted(counted.items(), key=lambda item: (SEVERITY[item[0][0]], item[0][1]))
        return Result(
            pa.table(
                {
                    "verdict": pa.array([key[0] for key, count in rows if count], pa.string()),
                    "group": pa.array([GROUPS[key[0]] for key, n in rows if n], pa.string()),
                    "field": pa.array([key[1] for key, count in rows if count], pa.string()),
                    "values": pa.array([count for _, count in rows if count], pa.int64()),
                }
            )
        )

    @property
    def leaks(self) -> StoredRows:
        """The findings that are look-ahead, in the form of `rows`."""
        return self.select_group("leak")

    def select_group(self, group: str) -> StoredRows:
        """Return the findings of a group: `leak`, `unjudged` or `warning`."""
        return self.rows.select(name for name in SEVERITY if GROUPS[name] == group)

    @property
    def is_clean(self) -> bool:
        """Whether no look-ahead was found, and no difference from the rule of the universe.

        False if no row could be judged. Rows that can't be judged are not clean;
        `groups` counts them, and `assert_clean` limits them.
        """
        return not self.failures()

    @property
    def is_blind(self) -> bool:
        """Whether there are rows that used an event, and none could be judged."""
        used = len(self) - self.counts.get(NO_EVENT, 0)
        return 0 < used == self.groups["unjudged"]

    @property
    def suggestions(self) -> dict[str, str]:
        """The field that the name of a column suggests, for columns that were not judged."""
        return suggest_fields(self.ignored)

    def failures(self, max_unjudged: float | None = None, require: Iterable[str] = ()) -> list[str]:
        """Return why this is not clean, a sentence each; arguments as in `assert_clean`."""
        groups, found = self.groups, []
        if groups["leak"]:
            found.append(f"{count_noun(groups['leak'], 'row')} used something that was not known")
        if self.is_blind:
            found.append("no row could be judged")
        if max_unjudged is not None and groups["unjudged"] > read_unjudged_limit(
            max_unjudged, len(self)
        ):
            share = isinstance(max_unjudged, float)
            allowed = f"a share of {max_unjudged:g}" if share else f"{max_unjudged:,}"
            found.append(
                f"{count_noun(groups['unjudged'], 'row')} can't be judged; at most {allowed} may be"
            )
        found += [
            f"{name} was not judged: {reason}"
            for name in ([require] if isinstance(require, str) else require)
            if (reason := self._not_judged(name))
        ]
        if self.universe is not None and len(self.universe):
            found.append("the table differs from the rule of its universe")
        return found

    def _not_judged(self, name: str) -> str | None:
        if name not in (EVENT, COIN, *JUDGED):
            raise InvalidArgument(
                f"require: {name!r} is not a field that the audit judges; expected "
                f"{', '.join((EVENT, COIN, *JUDGED))}"
            )
        names = {"categories": ("categories", "category")}.get(name, (name,))
        if not any(field in self.columns for field in names):
            return "the table has no column for this field"
        judged = len(self) - self.counts.get(NO_EVENT, 0)
        if name in JUDGED and judged and not any(self.used.get(field) for field in names):
            return "no row with a known event has a value in this field"
        return None


def read_unjudged_limit(given: float, rows: int) -> float:
    """Return how many of the rows may not be judged: a number of rows, or a share of them."""
    if isinstance(given, float) and 0 <= given <= 1:
        return given * rows
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise InvalidArgument(
        f"max_unjudged={given!r}; expected a number of rows, such as 10, or a share from 0.0 to 1.0"
    )
