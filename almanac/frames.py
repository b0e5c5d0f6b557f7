"""Columns of the user's frames: pandas, Polars or Arrow in, new columns out."""

from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from almanac.errors import InvalidArgument
from almanac.timestamps import ORIGIN, US, read_timestamp

Kind = Literal["pandas", "polars", "arrow"]
_SHOWN: Final = 12
_YEARS_S: Final = (-62_135_596_800, 253_402_300_799)


@dataclass(frozen=True, slots=True)
class TimestampColumn:
    """A column of timestamps, as microseconds since 1970 UTC; none where `is_known` is false."""

    microseconds: npt.NDArray[np.int64]
    is_known: npt.NDArray[np.bool_]

    def slice(self, first: int, rows: int) -> "TimestampColumn":
        part = slice(first, first + rows)
        return TimestampColumn(self.microseconds[part], self.is_known[part])

    def range_us(self) -> tuple[int, int]:
        """Return the first and the last timestamp, 0 and 0 without any."""
        known = self.microseconds[self.is_known]
        return (int(known.min()), int(known.max())) if len(known) else (0, 0)


def detect_kind(frame: Any) -> Kind:
    library, name = type(frame).__module__.partition(".")[0], type(frame).__name__
    if library == "polars" and name == "LazyFrame":
        raise InvalidArgument(
            "the frame is a Polars LazyFrame; use frame.collect(), or frame.sink_parquet(path) and "
            "give the path"
        )
    if hasattr(frame, "columns") and hasattr(frame, "index") and hasattr(frame, "iloc"):
        if frame.columns.nlevels > 1:
            raise InvalidArgument("the columns of the frame have several levels; expected one")
        return "pandas"
    if library == "polars" and name == "DataFrame":
        return "polars"
    if library == "pyarrow" and name == "Table":
        return "arrow"
    raise InvalidArgument(
        f"the frame is a {type(frame).__name__}; expected a pandas or Polars DataFrame, a pyarrow "
        "Table, reader or dataset, or the path of Parquet files"
    )


def list_columns(frame: Any) -> list[Any]:
    return list(frame.column_names if detect_kind(frame) == "arrow" else frame.columns)


def get_column(frame: Any, name: str | None, argument: str) -> Any:
    """Return a column as a pandas Series or an Arrow array. None is the index of a pandas frame.

    In a pandas frame, the name of an index level is accepted, too.
    """
    kind, names = detect_kind(frame), list_columns(frame)
    if kind == "pandas":
        levels = list(frame.index.names)
        if name is None and len(levels) == 1:
            return frame.index.to_series(index=range(len(frame)))
        if name is not None and name not in names and levels.count(name) == 1:
            return frame.index.get_level_values(name).to_series(index=range(len(frame)))
    if name is None or names.count(name) != 1:
        what = "is not a column" if name is not None else "means the index of a pandas frame"
        if names.count(name) > 1:
            what = "is the name of several columns"
        shown = ", ".join(map(str, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
        raise InvalidArgument(f"{argument}={name!r} {what}; the frame has: {shown or 'none'}")
    return frame[name].to_arrow() if kind == "polars" else frame[name]


def read_timestamp_column(
    values: Any, name: str, tz: tzinfo, first_row: int = 0
) -> TimestampColumn:
    """Return the timestamps of a column; one without a zone is of `tz`, never of the machine.

    Accepts timestamps with or without a zone, dates, and ISO 8601 texts. At a change of clocks, a
    repeated local time is the first of the two, and a skipped one is the last before."""
    array = arrow_array(values, name)
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("us"))
    if pa.types.is_timestamp(array.type):
        return _stamps(array, name, tz)
    if len(array) == 0:
        return _moments(pa.array([], pa.int64()))  # Without a row no type is wrong.
    if pa.types.is_null(array.type):
        return _moments(array.cast(pa.int64()))
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        raise InvalidArgument(
            f"column {name!r} has values of type {array.type}; expected timestamps, dates or ISO "
            "8601 texts. Convert numbers by pandas.to_datetime(..., unit='ms', utc=True)."
        )
    return _texts(array, name, tz, first_row)


def arrow_array(values: Any, name: str) -> pa.Array:
    """Return a column as one Arrow array; objects of different types become texts."""
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if values.dtype == object:
        kind = pd.api.types.infer_dtype(values, skipna=True)
        if kind in ("string", "empty"):
            return pa.array(values, pa.string() if kind == "string" else None, from_pandas=True)
        objects = [None if pd.isna(value) else str(value) for value in values]
        return pa.array(objects, pa.string())
    try:
        array = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgument(f"column {name!r} can't be read: {error}") from error
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def read_text_column(values: Any, name: str) -> pa.DictionaryArray:
    """Return a column of texts as codes and their distinct texts."""
    array = arrow_array(values, name)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if len(array) == 0 or pa.types.is_null(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.string())
    if getattr(pa.types, "is_string_view", pa.types.is_string)(array.type):
        array = array.cast(pa.string())
    if not pa.types.is_string(array.type):
        raise InvalidArgument(f"column {name!r} has values of type {array.type}; expected texts")
    return array.dictionary_encode()


def add_columns(frame: Any, added: pa.Table, prefix: str) -> Any:
    """Return a frame of the same kind with added columns at the end."""
    added = added.rename_columns([prefix + name for name in added.column_names])
    names = list_columns(frame)
    if clashing := [name for name in added.column_names if name in names]:
        raise InvalidArgument(
            f"the frame already has {', '.join(clashing)}; name a prefix for the new columns, "
            f"such as prefix='known_'"
        )
    kind = detect_kind(frame)
    if kind == "pandas":
        columns = to_pandas(added)
        columns.index = frame.index
        return pd.concat([frame, columns], axis=1)
    if kind == "polars":
        import polars

        return frame.hstack(polars.DataFrame(polars.from_arrow(added)).get_columns())
    for field, column in zip(added.schema, added.columns, strict=True):
        frame = frame.append_column(field, column)
    return frame


def to_arrow(frame: Any) -> pa.Table:
    """Return a frame as an Arrow table; the index of a pandas frame is one of its columns."""
    kind = detect_kind(frame)
    if kind == "pandas":
        return pa.Table.from_pandas(frame)
    return frame.to_arrow() if kind == "polars" else frame


def to_pandas(table: pa.Table) -> Any:
    """Return a pandas DataFrame in which integer columns stay integers despite missing values."""
    whole = {pa.int32(): pd.Int64Dtype(), pa.int64(): pd.Int64Dtype()}
    return table.to_pandas(ignore_metadata=True, types_mapper=whole.get)


def _stamps(array: Any, name: str, tz: tzinfo) -> TimestampColumn:
    is_naive, unit = array.type.tz is None, array.type.unit
    ends = pc.min_max(array.cast(pa.timestamp("s", array.type.tz), safe=False).cast(pa.int64()))
    if not all(_YEARS_S[0] <= end <= _YEARS_S[1] for end in ends.as_py().values() if end):
        what = "a time outside of the years 1 to 9999: were milliseconds read as seconds?"
        raise InvalidArgument(f"column {name!r} has {what}")
    micros = array.cast(pa.timestamp("us", array.type.tz), safe=unit != "ns")
    found = _moments(micros.cast(pa.int64()))
    if is_naive and tz is not UTC and len(array):
        local = pd.DatetimeIndex(found.microseconds.view("datetime64[us]"))
        # The timestamp before a gap knows less than the one after it.
        zoned = local.tz_localize(
            tz, ambiguous=np.ones(len(local), bool), nonexistent="shift_backward"
        )
        moved = zoned.tz_convert("UTC").tz_localize(None).as_unit("us")
        return TimestampColumn(moved.to_numpy().view(np.int64), found.is_known)
    return found


def _texts(array: Any, name: str, tz: tzinfo, first_row: int) -> TimestampColumn:
    codes = read_text_column(array, name) if not pa.types.is_dictionary(array.type) else array
    found = []
    for place, text in enumerate(codes.dictionary.to_pylist()):
        try:
            found.append((read_timestamp(text, name, tz) - ORIGIN) // US)
        except InvalidArgument as error:
            row = first_row + codes.indices.to_pylist().index(place)
            raise InvalidArgument(f"row {row} of the frame: {error}") from None
    places = _moments(codes.indices.cast(pa.int64()))
    return TimestampColumn(np.array(found or [0], np.int64)[places.microseconds], places.is_known)


def _moments(array: Any) -> TimestampColumn:
    return TimestampColumn(
        array.fill_null(0).to_numpy(zero_copy_only=False),
        array.is_valid().to_numpy(zero_copy_only=False),
    )
