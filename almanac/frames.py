"""Columns of the user's frames: pandas, Polars or Arrow in, new columns out."""

from dataclasses import dataclass
from datetime import UTC, date, tzinfo
from decimal import Decimal
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from almanac.core.errors import InvalidArgument
from almanac.core.timestamps import ORIGIN, US, TimeUnit, read_timestamp
from almanac.user_files import explain_errors

Kind = Literal["pandas", "polars", "arrow"]
_SHOWN: Final = 12
_OBJECT: Final = np.dtype("O")
_SCALARS: Final = (str, int, float, Decimal, date, np.generic)
_US_IN: Final = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_YEARS_S: Final = (-62_135_596_800, 253_402_300_799)
_YEARS: Final = (2000, 2200)
"""Of timestamps that are numbers: with a wrong unit they are in 1970, or after 3000."""
_YEAR_US: Final = 365.2425 * 86_400e6
_NUMBER: Final = r"^\s*\d+(\.\d*)?([eE]\+?\d+)?\s*$"
_DAY: Final = r"^\s*(\d{4})(\d\d)(\d\d)\s*$"
_EXPECTED: Final = "texts, numbers, timestamps or lists of texts"


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
    """Return a column of a frame. None is the index of a pandas frame.

    In a pandas frame, the name of an index level is accepted, too.
    """
    kind, names = detect_kind(frame), list_columns(frame)
    if kind == "pandas":
        levels = list(frame.index.names)
        if name is None and len(levels) == 1:
            return frame.index
        if name is not None and name not in names and levels.count(name) == 1:
            return frame.index.get_level_values(name)
    if name is None or names.count(name) != 1:
        what = "is not a column" if name is not None else "means the index of a pandas frame"
        if names.count(name) > 1:
            what = "is the name of several columns"
        shown = ", ".join(map(str, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
        raise InvalidArgument(f"{argument}={name!r} {what}; the frame has: {shown or 'none'}")
    return frame[name]


def read_timestamp_column(
    values: Any, name: str, tz: tzinfo, first_row: int = 0, unit: TimeUnit | None = None
) -> TimestampColumn:
    """Return the timestamps of a column; one without a zone is of `tz`, never of the machine.

    Accepts timestamps with or without a zone, dates, ISO 8601 texts, and numbers with their unit.
    At a change of clocks, a repeated local time is the first of the two, and a skipped one is the
    last before."""
    with explain_errors(f"the column {name!r}"):
        array = convert_numbers(plain_column(values, name, "timestamps"), name, unit)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_date(array.type):
            array = array.cast(pa.timestamp("us"))
        if pa.types.is_timestamp(array.type):
            return _stamps(array, tz)
        if array.null_count == len(array):
            return _moments(pa.nulls(len(array), pa.int64()))  # Without a value no type is wrong.
        if pa.types.is_string(array.type):
            return _texts(array, name, tz, first_row)
    raise refuse_type(name, array.type, "timestamps")


def holds_periods(values: Any) -> bool:
    """Return whether a column of any kind holds periods, which stand for no single timestamp."""
    if not hasattr(values, "dtype") or isinstance(values.dtype, pd.PeriodDtype):
        return hasattr(values, "dtype") or "period" in str(getattr(values, "type", ""))
    kind = getattr(getattr(values.dtype, "categories", None), "dtype", None)
    return isinstance(kind, pd.PeriodDtype) or (
        values.dtype is _OBJECT and pd.api.types.infer_dtype(values, skipna=True) == "period"
    )


def plain_column(values: Any, name: str, expected: str = _EXPECTED) -> Any:
    """Return a column as Arrow's texts, numbers, booleans, timestamps, days, durations or lists of
    texts; refuse every other type. Timestamps and durations are in microseconds."""
    with explain_errors(f"the column {name!r}"):
        if holds_periods(values):
            raise refuse_type(name, "periods", expected)
        if hasattr(values, "to_arrow"):
            values = values.to_arrow()
        if isinstance(values, pd.Index):
            values = values.to_series(index=range(len(values)))
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            values = (
                _objects(values) if values.dtype is _OBJECT else pa.array(values, from_pandas=True)
            )
        return _plain(values, name, expected)


def _objects(values: pd.Series) -> Any:
    """Return Python objects as an Arrow array: of several types, or zones, as texts."""
    kind, is_missing = pd.api.types.infer_dtype(values, skipna=True), values.isna()
    given = values[~is_missing]
    is_mixed = kind == "datetime64" or kind.startswith("mixed")
    if kind == "datetime":
        is_mixed = len({value.tzinfo is None for value in given}) > 1
    if is_mixed and all(isinstance(value, _SCALARS) for value in given):
        return pa.array(values.astype(str).mask(is_missing, None), pa.string(), from_pandas=True)
    return pa.array(values, from_pandas=True)


def _plain(array: Any, name: str, expected: str) -> Any:
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return _plain(array.cast(kind.value_type), name, expected)
    if types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(array), name, expected)
    if types.is_timestamp(kind):
        pc.local_timestamp(pa.array([0], kind))  # An error if there is no such zone.
        ends = pc.min_max(array.cast(pa.timestamp("s", kind.tz), safe=False).cast(pa.int64()))
        if not all(_YEARS_S[0] <= end <= _YEARS_S[1] for end in ends.as_py().values() if end):
            what = "a time outside of the years 1 to 9999: were milliseconds read as seconds?"
            raise InvalidArgument(f"the column {name!r} has {what}")
        return array.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns")
    if types.is_duration(kind):
        return array.cast(pa.duration("us"), safe=kind.unit != "ns")
    if types.is_date(kind):
        return array.cast(pa.date32())
    if types.is_decimal(kind):
        return array.cast(pa.string()).cast(pa.float64())  # Directly, 5.8 is 5.800000000000001.
    if types.is_float16(kind):
        return array.cast(pa.float32())
    if types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind):
        return array.cast(pa.string())
    if types.is_string(kind) or types.is_floating(kind) or types.is_integer(kind):
        return array
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        of_list, others = kind.value_type, (types.is_nested, types.is_binary, types.is_time)
        if expected == _EXPECTED and not any(is_kind(of_list) for is_kind in others):
            return array.cast(pa.list_(pa.string()))
    if not types.is_boolean(kind):
        raise refuse_type(name, kind, expected)
    return array


def refuse_type(name: str, kind: Any, expected: str, advice: str = "") -> InvalidArgument:
    """Return the error of a column of a type that has no place there."""
    if "period" in str(kind):
        advice = f". Convert periods, here to their start: frame[{name!r}].dt.to_timestamp()"
    return InvalidArgument(f"the column {name!r} holds {kind}, and {expected} are expected{advice}")


def convert_numbers(array: Any, name: str, unit: TimeUnit | None) -> Any:
    """Return numbers, and texts of numbers, as timestamps by their unit; refuse them without one.

    `array` is of `plain_column`. Eight digits are a date. If only some texts are numbers, all stay
    texts: numbers in ISO 8601 if there is a unit, else as they are.
    """
    if unit is not None and (not isinstance(unit, str) or unit not in _US_IN):
        raise InvalidArgument(f"unit={unit!r}; expected {', '.join(_US_IN)}")
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        return _count_microseconds(array, name, unit)
    if not pa.types.is_string(array.type) or pc.all(pc.match_substring(array, "-")).as_py():
        return array
    array = pc.replace_substring_regex(array, _DAY, r"\1-\2-\3")
    is_number = pc.match_substring_regex(array, _NUMBER)
    is_other = pc.and_not(pc.match_substring_regex(array, r"\S"), is_number)
    has_others = pc.any(is_other).as_py()
    if not pc.any(is_number).as_py() or (has_others and unit is None):
        return array
    digits = pc.utf8_trim_whitespace(pc.if_else(is_number, array, pa.scalar(None, pa.string())))
    is_whole = not pc.any(pc.match_substring_regex(digits, r"\D")).as_py()
    numbers = digits.cast(pa.int64() if is_whole else pa.float64())
    moments = _count_microseconds(numbers, name, unit)
    return pc.coalesce(moments.cast(pa.string()), array) if has_others else moments


def _count_microseconds(numbers: Any, name: str, unit: TimeUnit | None) -> Any:
    wanted = pa.timestamp("us", "UTC")
    if pa.types.is_floating(numbers.type):
        numbers = numbers.cast(pa.float64())
        numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
    ends = [each for each in pc.min_max(numbers).as_py().values() if each is not None]
    if not ends:
        return pa.nulls(len(numbers), wanted)

    def lies_within(value: float, unit: str) -> bool:
        return _YEARS[0] <= 1970 + value * _US_IN[unit] / _YEAR_US < _YEARS[1]

    if wrong := [each for each in ends if unit is None or not lies_within(each, unit)]:
        fitting = [each for each in _US_IN if lies_within(wrong[0], each)]
        advice = f". {wrong[0]} fits no unit since 1970; a day is a text, such as '20260302'"
        if fitting:
            advice = f". For numbers such as {wrong[0]}, name their unit: unit={fitting[0]!r}"
        if unit is None:
            raise refuse_type(name, numbers.type, "timestamps", advice)
        raise InvalidArgument(
            f"the column {name!r} has {wrong[0]}, which with unit={unit!r} is not within the years "
            f"{_YEARS[0]} to {_YEARS[1]}{advice}"
        )
    if pa.types.is_floating(numbers.type):
        numbers, unit = pc.round(pc.multiply(numbers, _US_IN[unit or "us"])), "us"
    return numbers.cast(pa.int64()).cast(pa.timestamp(unit, "UTC")).cast(wanted, safe=False)


def read_text_column(values: Any, name: str) -> pa.DictionaryArray:
    """Return a column of texts as codes and their distinct texts."""
    array = plain_column(values, name, "texts")
    if len(array) == array.null_count:
        array = pa.nulls(len(array), pa.string())
    if not pa.types.is_string(array.type):
        raise refuse_type(name, array.type, "texts")
    return (array if isinstance(array, pa.Array) else array.combine_chunks()).dictionary_encode()


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
    with explain_errors("the frame"):
        kind = detect_kind(frame)
        if kind == "pandas":
            return pa.Table.from_pandas(frame)
        return frame.to_arrow() if kind == "polars" else frame


def to_pandas(table: pa.Table) -> Any:
    """Return a pandas DataFrame in which integer columns stay integers despite missing values."""
    whole = {pa.int32(): pd.Int64Dtype(), pa.int64(): pd.Int64Dtype()}
    return table.to_pandas(ignore_metadata=True, types_mapper=whole.get)


def _stamps(array: Any, tz: tzinfo) -> TimestampColumn:
    is_naive, found = array.type.tz is None, _moments(array.cast(pa.int64()))
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
    codes, found = array.dictionary_encode(), []
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
