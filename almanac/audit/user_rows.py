"""Reads the rows that the user audits, and finds the field that each column holds."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from almanac.audit.fields import COIN, COIN_FIELD, EVENT, FIELDS, JUDGED
from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import TimeUnit
from almanac.frames import convert_numbers, plain_column
from almanac.results import Result
from almanac.streams import SLICE_ROWS, open_stream, regroup, stream_table
from almanac.user_files import (
    PARQUET,
    TEXT,
    CsvFile,
    explain_errors,
    find_column,
    local_path,
    plain_name,
)

NEXT_EVENT: Final = "next_event_id"
_WRITTEN: Final = {
    NEXT_EVENT: EVENT,
    "next_event_title": "title",
    "next_event_date": "date",
    "next_event_precision": "date_precision",
    "next_event_categories": "categories",
    "next_event_impact": "impact",
    "next_event_band": "impact_band",
    "next_event_known_from": "known_from",
    "days_until": "days_until",
}
"""Columns that the package writes and the audit judges."""
_NOT_JUDGED: Final = ("nexteventagedays", "eventsahead", "watched")
"""Other columns that it writes, as `plain_name` gives them."""
_KNOWN_AT: Final = "known_at"
_SYMBOL: Final = "symbol"
_LOOKALIKES: Final = (
    (r"days|lead|dte|tte|time_(to|until)|countdown", "days_until"),
    (r"(end|ends|finish)(_(date|at|time))?|date_to|until", "date_end"),
    (r"cancell?(ed|ation)_(at|on|date|time)", "cancelled_at"),
    (r"created|announced(_(at|on|date))?", "created_at"),
    (
        r"date|day|exit|expiry|expiration|unlock|deadline|starts?|begins?|due|scheduled_(for|at)"
        r"|event_(at|on|ts|time|timestamp)|exit_(at|ts|time)",
        "date",
    ),
    (r"precision", "date_precision"),
    (r"score|impact|importance|significance|rating", "impact"),
    (r"band", "impact_band"),
    (r"status|state|cancell?ed|postponed|withdrawn", "status"),
    (r"title|name|headline", "title"),
    (r"category|type|kind", "category"),
    (r"categories|tags?", "categories"),
    (r"description|summary|text", "description"),
    (r"url|link|source", "source_url"),
    (r"coin|symbol|ticker|asset|pair|slug", COIN),
    (r"id", EVENT),
)


def find_written_columns(names: list[str], given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the field of each column that `attach_known` or `features` wrote, with its prefix.

    Empty if the rows name their events in another way.
    """
    by_letters = {plain_name(name): name for name in names}
    named = [plain_name(column) for column, field in given.items() if field == EVENT]
    ends = [name for name in by_letters if name.endswith(plain_name(NEXT_EVENT))]
    if named:
        ends = [name for name in ends if name in named]
    elif plain_name(EVENT) in by_letters:
        return {}
    if len(ends) > 1:
        listed = [by_letters[name] for name in ends]
        raise InvalidArgument(
            f"several columns may be the event: {', '.join(map(repr, listed))}. Name one: "
            f"fields={{{listed[0]!r}: 'event_id'}}, or --field {listed[0]}=event_id"
        )
    if not ends:
        return {}
    prefix = ends[0].removesuffix(plain_name(NEXT_EVENT))
    fields = {prefix + plain_name(column): field for column, field in _WRITTEN.items()}
    if plain_name(_KNOWN_AT) in by_letters and COIN not in by_letters:
        fields[_SYMBOL] = COIN
    return {
        by_letters[name]: field
        for name, field in fields.items()
        if name in by_letters and by_letters[name] not in given and field not in given.values()
    }


def is_next_event(column: str | None) -> bool:
    """Return whether this is `next_event_id` of `attach_known` or `features`, with any prefix."""
    return column is not None and plain_name(column).endswith(plain_name(NEXT_EVENT))


def is_category_set(column: str) -> bool:
    """Whether each value of a column is a complete set of categories, as the package writes it."""
    return plain_name(column).endswith(plain_name("next_event_categories"))


def suggest_fields(ignored: Iterable[str]) -> dict[str, str]:
    """Return the field that the name of a column suggests, for columns that were not judged."""
    found = {}
    for column in ignored:
        if plain_name(column).endswith(_NOT_JUDGED):
            continue
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", column.strip())
        name = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        for pattern, field in _LOOKALIKES:
            if re.search(rf"(^|_)({pattern})(_|$)", name):
                found[column] = field
                break
        else:
            stripped = name.rpartition("next_event_")[2]
            if stripped in JUDGED:
                found[column] = stripped
    return found


DECIDED_AT: Final = "decided_at"
_DECISIONS: Final = (DECIDED_AT, "ts")
_NAMES: Final = (EVENT, COIN, *FIELDS, "category", "days_until", "known_from")
_SUFFIXES: Final = (*PARQUET, *TEXT)


@dataclass(frozen=True, slots=True)
class Signals:
    """A part of the given rows, ready to be judged.

    Attributes:
        table: one row per row, with the columns `row` (1 is the first of the input), `decided_at`,
            `event_id` and `coin` where there are any, and one for each field used.
        columns: the name in the input of each of them.
        broken: why a row could not be read, by row; it is in `table` without values.
        decimals: of each column of scores, as many as any value had so far.
    """

    table: pa.Table
    columns: dict[str, str]
    broken: dict[int, str]
    decimals: dict[str, int]

    @property
    def fields(self) -> list[str]:
        return [name for name in JUDGED if name in self.columns]


@dataclass(frozen=True, slots=True)
class SignalBatches:
    """The rows to judge, in batches.

    Attributes:
        columns: the name in the input of each column of `Signals.table`.
        ignored: names in the input that are not judged.
        rows: how many rows there are; None if only reading them tells.
        batches: the rows in order, to be read once; at least one batch, perhaps without rows.
    """

    columns: dict[str, str]
    ignored: list[str]
    rows: int | None
    batches: Iterator[Signals]


def read_signals(
    source: Any,
    *,
    decided_at: str | None,
    fields: Mapping[str, str | None] | None,
    unit: TimeUnit | None = None,
    rows_max: int = SLICE_ROWS,
) -> SignalBatches:
    """Open rows: a frame (pandas, Polars, Arrow), a list of dicts, a reader, a dataset, or a file.

    A batch has at most `rows_max` rows.
    """
    broken: dict[int, str] = {}
    if isinstance(source, (str, Path)) and Path(source).name.lower().endswith(TEXT):
        path = local_path(source, "signals")
        file, count = CsvFile(path), None
        names = file.names
        columns = _columns(names, decided_at, fields, str(path))
        wanted = list(dict.fromkeys(columns.values()))
        schema = pa.schema([(name, pa.string()) for name in wanted])
        # A row with a wrong number of fields is broken.
        tables = regroup(file.batches(wanted, broken.__setitem__), schema, rows_max)
    else:
        stream, frame = open_stream(source), None
        if stream is None:
            if isinstance(source, (str, Path)):
                expected = f"expected a file whose name ends in {', '.join(_SUFFIXES)}"
                raise InvalidArgument(f"{source}: {expected}")
            frame = _as_frame(source)
            is_pandas = _is_pandas(frame)
            names = list(map(str, frame.columns if is_pandas else frame.column_names))
        else:
            names = stream.schema.names
        where = "the frame" if stream is None else stream.where
        columns = _columns(names, decided_at, fields, where)
        wanted = list(dict.fromkeys(columns.values()))
        if stream is None:
            # As a whole: the type of a column of objects depends on all of them.
            stream = stream_table(_from_pandas(frame, wanted) if is_pandas else frame)
        tables, count = stream.slices(wanted, rows_max), stream.rows
    ignored = [name for name in names if name not in columns.values()]
    return SignalBatches(columns, ignored, count, _number_rows(tables, columns, broken, unit))


def _number_rows(
    tables: Iterable[pa.Table],
    columns: dict[str, str],
    broken: dict[int, str],
    unit: TimeUnit | None,
) -> Iterator[Signals]:
    """Yield tables with the number of each row; reading them fills `broken`."""
    first, decimals = 1, dict[str, int]()
    for table in tables:
        end = first + table.num_rows
        here = {row: broken.pop(row) for row in sorted(broken) if first <= row < end}
        plain = {
            name: _read_column(table.column(column), name, column, unit)
            for name, column in columns.items()
        }
        rows = pa.table({"row": pa.array(np.arange(first, end)), **plain})
        yield Signals(rows, columns, here, decimals)
        first = end


def _read_column(
    values: pa.ChunkedArray, field: str, name: str, unit: TimeUnit | None
) -> pa.ChunkedArray:
    """Return a column in a type of `plain_column`; a duration is a number of days."""
    if field == DECIDED_AT or JUDGED.get(field, COIN_FIELD).kind == "instant":
        with explain_errors(f"the column {name!r}"):
            return convert_numbers(plain_column(values, name, "timestamps"), name, unit)
    column = plain_column(values, name)
    if pa.types.is_duration(column.type):
        micros = column.cast(pa.int64()).cast(pa.float64(), safe=False)
        return pc.divide(micros, 86_400_000_000.0)
    return column


def _columns(
    names: list[str], decided_at: str | None, fields: Mapping[str, str | None] | None, where: str
) -> dict[str, str]:
    given: dict[str, str | None] = {}
    for name, field in (fields or {}).items():
        if field is not None and field not in _NAMES:
            raise InvalidArgument(
                f"fields: {name!r} is to be {field!r}, which is not a field that is judged; "
                f"expected one of {', '.join(_NAMES)}, or None to leave the column out"
            )
        given[_column(names, name, where)] = field
    written = find_written_columns(names, given)
    if written and decided_at is None:
        # `ts` of `features` may be earlier than its knowledge.
        by_letters = {plain_name(name): name for name in names}
        if plain_name(DECIDED_AT) not in by_letters:
            decided_at = by_letters.get(plain_name(_KNOWN_AT))
    given |= written
    found = {field: column for column, field in given.items() if field is not None}
    decision = _decision(names, given, decided_at, where)
    others = [name for name in names if name not in given and name != decision]
    for field in _NAMES[:-1]:
        alike = [name for name in others if plain_name(name) == plain_name(field)]
        if field in found or not alike:
            continue
        if len(alike) > 1:
            raise InvalidArgument(
                f"{where} has {len(alike)} columns for {field}: {_listed(alike)}. Leave one out: "
                f"fields={{{alike[0]!r}: None}}, or --field '{alike[0]}=-'; rename one if both "
                "have the same name"
            )
        found[field] = alike[0]
    if EVENT not in found and not {COIN, "date"} <= set(found):
        raise InvalidArgument(
            f"{where} has no column event_id, and not both coin and date; it has {_listed(names)}. "
            "Name the column: fields={'my_column': 'event_id'}, or --field my_column=event_id"
        )
    columns = {DECIDED_AT: decision, **found}
    if twice := [name for name in columns.values() if names.count(name) > 1]:
        raise InvalidArgument(f"{where} has two columns {twice[0]!r}; rename one of them")
    return columns


def _column(names: list[str], wanted: str, where: str) -> str:
    found = wanted if wanted in names else find_column(names, wanted, where)
    if found is None:
        raise InvalidArgument(f"{where} has no column {wanted!r}; it has {_listed(names)}")
    return found


def _decision(
    names: list[str], given: Mapping[str, str | None], decided_at: str | None, where: str
) -> str:
    if decided_at is not None:
        return _column(names, decided_at, where)
    others = [name for name in names if name not in given]
    for wanted in _DECISIONS:
        alike = [name for name in others if plain_name(name) == plain_name(wanted)]
        if len(alike) > 1:
            raise InvalidArgument(
                f"{where} has {len(alike)} columns with the time of the decision: "
                f"{_listed(alike)}. Name one: decided_at={alike[0]!r}, or --decided-at "
                f"'{alike[0]}'; rename one if both have the same name"
            )
        if alike:
            return alike[0]
    raise InvalidArgument(
        f"{where} has no column decided_at or ts with the time of each decision; it has "
        f"{_listed(names)}. Name it: decided_at='my_column', or --decided-at my_column"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "no columns"


def _is_pandas(frame: Any) -> bool:
    return hasattr(frame, "iloc")


def _as_frame(source: Any) -> Any:
    """Return a pandas frame whose index is among its columns if it has a name, or an Arrow table.

    An index of timestamps is the decision if no column is.
    """
    if isinstance(source, Result):
        return source.arrow()
    if type(source).__name__ == "LazyFrame":
        raise InvalidArgument("the frame is a Polars LazyFrame; use frame.collect()")
    try:
        if not _is_pandas(source):
            if not isinstance(source, list):
                return pa.table(source)
            return pd.DataFrame(source, dtype=object)
        names = {plain_name(str(name)) for name in source.columns}
        is_decided = not names.isdisjoint(map(plain_name, _DECISIONS))
        if not is_decided and str(source.index.dtype).startswith("datetime64"):
            return source.rename_axis(DECIDED_AT).reset_index()
        if any(name is not None and name not in source.columns for name in source.index.names):
            return source.reset_index()
        return source
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(
            f"a {type(source).__name__} can't be read as rows ({error}); expected a pandas, Polars "
            f"or Arrow frame, or the path of a file ({', '.join(_SUFFIXES)})"
        ) from error


def _from_pandas(frame: Any, wanted: list[str]) -> pa.Table:
    places = {name: place for place, name in reversed([*enumerate(map(str, frame.columns))])}
    return pa.table({name: plain_column(frame.iloc[:, places[name]], name) for name in wanted})
