"""The caller's rows: a frame or a file, its columns by what they mean.

Belongs here: reading, naming columns. Does not: the values in them (judge).
"""

import csv
import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from almanac.audit.fields import COIN, EVENT, FIELDS
from almanac.audit.values import joined_lists
from almanac.errors import InvalidArgument
from almanac.results import Result

if TYPE_CHECKING:
    import pyarrow as pa

DECIDED_AT: Final = "decided_at"
_DECISIONS: Final = (DECIDED_AT, "ts")
_NAMES: Final = (EVENT, COIN, *FIELDS)
_SUFFIXES: Final = (".parquet", ".pq", ".csv", ".tsv", ".csv.gz")
_NOT_LETTERS: Final = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class Signals:
    """The rows to judge.

    Attributes:
        table: one row per row, with the columns `row` (1 is the first), `decided_at`, `event_id`
            and `coin` where there are any, and one for each field used.
        columns: the name in the input of each of them.
        ignored: names in the input that are not judged.
        broken: why a row could not be read, by row; it is in `table` without values.
    """

    table: "pa.Table"
    columns: dict[str, str]
    ignored: list[str]
    broken: dict[int, str]

    @property
    def fields(self) -> list[str]:
        return [name for name in FIELDS if name in self.columns]


def read_signals(
    source: Any, *, decided_at: str | None, fields: Mapping[str, str | None] | None
) -> Signals:
    """Read rows from a frame (pandas, Polars, Arrow), a list of dicts, or a file.

    Raises:
        InvalidArgument: it can't be read, or lacks a column; the message lists what it has.
    """
    if isinstance(source, (str, Path)):
        return _read_file(Path(source).expanduser(), decided_at, fields)
    frame = _as_frame(source)
    names = list(map(str, frame.columns if _is_pandas(frame) else frame.column_names))
    columns = _columns(names, decided_at, fields, "the frame")
    wanted = list(dict.fromkeys(columns.values()))
    table = _from_pandas(frame, wanted) if _is_pandas(frame) else frame.select(wanted)
    return _signals(table, columns, names)


def _columns(
    names: list[str],
    decided_at: str | None,
    fields: Mapping[str, str | None] | None,
    where: str,
) -> dict[str, str]:
    """Return the column of each field, and of the decision."""
    given = dict(fields or {})
    for column, field in given.items():
        if column not in names:
            raise InvalidArgument(f"{where} has no column {column!r}; it has {_listed(names)}")
        if field is not None and field not in _NAMES:
            raise InvalidArgument(
                f"fields: {column!r} is to be {field!r}, which is no field that is judged; "
                f"expected one of {', '.join(_NAMES)}, or None to leave the column out"
            )
    found = {field: column for column, field in given.items() if field is not None}
    decision = _decision(names, given, decided_at, where)
    by_letters = {_NOT_LETTERS.sub("", name): name for name in _NAMES}
    for column in names:
        field = by_letters.get(_NOT_LETTERS.sub("", column.lower()))
        if field is not None and column not in given and column != decision:
            found.setdefault(field, column)
    if EVENT not in found and not {COIN, "date"} <= set(found):
        raise InvalidArgument(
            f"{where} has no column event_id, and not both coin and date; it has {_listed(names)}. "
            "Name the column: fields={'my_column': 'event_id'}, or --field my_column=event_id"
        )
    return {DECIDED_AT: decision, **found}


def _decision(
    names: list[str], given: Mapping[str, str | None], decided_at: str | None, where: str
) -> str:
    if decided_at is not None:
        if decided_at not in names:
            raise InvalidArgument(f"{where} has no column {decided_at!r}; it has {_listed(names)}")
        return decided_at
    for wanted in _DECISIONS:
        for name in names:
            if name.lower() == wanted and name not in given:
                return name
    raise InvalidArgument(
        f"{where} has no column decided_at or ts with the time of each decision; it has "
        f"{_listed(names)}. Name it: decided_at='my_column', or --decided-at my_column"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "no columns"


def _signals(
    table: "pa.Table",
    columns: dict[str, str],
    names: list[str],
    broken: dict[int, str] | None = None,
) -> Signals:
    import numpy
    import pyarrow as pa

    plain = {name: _plain(table.column(column), column) for name, column in columns.items()}
    count = table.num_rows + len(broken or {})
    rows = numpy.arange(1, count + 1)
    if broken:
        readable = rows[~numpy.isin(rows, list(broken))]
        places = numpy.full(count, -1)
        places[readable - 1] = numpy.arange(table.num_rows)
        taken = pa.array(places, mask=places < 0)
        plain = {name: column.take(taken) for name, column in plain.items()}
    ignored = [name for name in names if name not in columns.values()]
    return Signals(pa.table({"row": pa.array(rows), **plain}), columns, ignored, broken or {})


def _plain(column: "pa.ChunkedArray", name: str) -> "pa.ChunkedArray":
    """Return a column as one of the types that are read: text, number, boolean, instant, list."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view":
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_date64(kind):
        return column.cast(pa.date32())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        try:
            return joined_lists(column)
        except pa.ArrowException as error:
            raise InvalidArgument(f"the column {name!r} is no list of texts: {error}") from error
    return column


def _is_pandas(frame: Any) -> bool:
    return hasattr(frame, "iloc")


def _as_frame(source: Any) -> Any:
    """Return a pandas frame whose index is among its columns if it has a name, or an Arrow table.

    An index of instants is the decision if no column is.
    """
    import pyarrow as pa

    if isinstance(source, Result):
        return source.arrow()
    if type(source).__name__ == "LazyFrame":
        raise InvalidArgument("the frame is a Polars LazyFrame; use frame.collect()")
    try:
        if not _is_pandas(source):
            return pa.Table.from_pylist(source) if isinstance(source, list) else pa.table(source)
        names = {str(name).lower() for name in source.columns}
        if not names & set(_DECISIONS) and str(source.index.dtype).startswith("datetime64"):
            return source.rename_axis(DECIDED_AT).reset_index()
        if any(name is not None and name not in source.columns for name in source.index.names):
            return source.reset_index()
        return source
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(
            f"a {type(source).__name__} can't be read as rows ({error}); expected a pandas, Polars "
            f"or Arrow frame, or the path of a file ({', '.join(_SUFFIXES)})"
        ) from error


def _from_pandas(frame: Any, wanted: list[str]) -> "pa.Table":
    import pyarrow as pa

    columns = {}
    for place, name in enumerate(map(str, frame.columns)):
        if name in wanted and name not in columns:
            values = frame.iloc[:, place]
            try:
                columns[name] = pa.array(values, from_pandas=True)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                # Values of several types: each is read as its text.
                is_missing = values.isna()
                columns[name] = pa.array(values.astype(str).mask(is_missing, None), pa.string())
    return pa.table(columns)


def _read_file(
    path: Path, decided_at: str | None, fields: Mapping[str, str | None] | None
) -> Signals:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise InvalidArgument(f"there is no file {path}")
    if not path.name.lower().endswith(_SUFFIXES):
        raise InvalidArgument(f"{path}: expected a file whose name ends in {', '.join(_SUFFIXES)}")
    try:
        if path.suffix.lower() not in (".parquet", ".pq"):
            return _read_csv(path, decided_at, fields)
        names = pq.read_schema(path).names
        columns = _columns(names, decided_at, fields, str(path))
        table = pq.read_table(path, columns=list(dict.fromkeys(columns.values())))
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except (pa.ArrowException, csv.Error) as error:
        raise InvalidArgument(f"{path} can't be read: {error}") from error
    return _signals(table, columns, names)


def _read_csv(
    path: Path, decided_at: str | None, fields: Mapping[str, str | None] | None
) -> Signals:
    """Read a CSV as texts. A row with a wrong number of fields is kept as one that is broken."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names, delimiter = _header(path)
    columns = _columns(names, decided_at, fields, str(path))
    broken: dict[int, str] = {}

    def keep(row: Any) -> str:
        broken[row.number - 1] = (
            f"it has {row.actual_columns} fields, and the header {row.expected_columns}"
        )
        return "skip"

    wanted = list(dict.fromkeys(columns.values()))

    def read(**options: Any) -> pa.Table:
        return arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(use_threads=not options),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, **options
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()), include_columns=wanted
            ),
        )

    try:
        table = read()
    except pa.ArrowInvalid:
        # Rows have numbers only where one thread reads.
        table = read(invalid_row_handler=keep)
    return _signals(table, columns, names, broken)


def _header(path: Path) -> tuple[list[str], str]:
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        line = file.readline()
        delimiter = max((",", ";", "\t"), key=line.count)
        file.seek(0)
        names = next(csv.reader(file, delimiter=delimiter), [])
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise InvalidArgument(f"{path} has two columns {_listed(sorted(repeated))}")
    return names, delimiter
