"""The result of a query: rows as frames, files, text and HTML."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from itertools import accumulate
from operator import index
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final, overload

from rich.cells import cell_len

from almanac.core.errors import InvalidArgument, UnknownName
from almanac.core.text import count_noun, format_cell, format_table, render_html, shorten
from almanac.user_files import path_to_write

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


FIRST: Final = 10
LAST: Final = 5
_CELL_MAX: Final = 50
"""Characters of a cell; pandas shows as many."""
_CELL_MIN: Final = 24
"""The least width of a cell that is shortened: an event id fits."""
_COLUMNS_MAX: Final = 40
_NAMED_MAX: Final = 3
_WIDTH_MIN: Final = 20

Rows = Sequence[Sequence[object]]


def preview_text(columns: Sequence[str], rows: Rows, count: int, width: int) -> str:
    """Return the rows as a table that is at most `width` wide, and how many there are.

    Columns that do not fit are left out, and the last line names them. `rows` are all of `count`,
    or the first `FIRST` and the last `LAST`.
    """
    width = max(_WIDTH_MIN, width)
    widths = [
        max(cell_len(format_cell(value)) for value in (name, *(row[place] for row in rows)))
        for place, name in enumerate(columns)
    ]
    all_fit = (
        most
        for most in range(_CELL_MAX, _CELL_MIN, -1)
        if _fitting(widths, most, width) == len(widths)
    )
    cell_max = next(all_fit, min(width, max(_CELL_MIN, width // 3)))
    fitting = _fitting(widths, cell_max, width)
    names = [shorten(format_cell(name), cell_max) for name in columns[:fitting]]
    shown = [[_short(value, cell_max) for value in row[:fitting]] for row in rows]
    lines = format_table(names, shown).splitlines()
    if count > len(rows):
        lines.insert(2 + FIRST, "…")
    lines.append(fill(_note(columns, fitting, count), width))
    return "\n".join(lines)


def preview_html(columns: Sequence[str], rows: Rows, count: int) -> str:
    """Return the rows as a fragment of HTML with the look of the page; texts are escaped."""
    fitting = min(len(columns), _COLUMNS_MAX)
    sides = [
        "right"
        if rows and all(row[place] is None or _is_number(row[place]) for row in rows)
        else "left"
        for place in range(fitting)
    ]
    return render_html(
        "preview.html",
        names=[_html_cell(name) for name in columns[:fitting]],
        rows=[[_html_cell(value) for value in row[:fitting]] for row in rows],
        sides=sides,
        gap=FIRST if count > len(rows) else None,
        note=shorten(_note(columns, fitting, count), 1_000),
    )


def _fitting(widths: Sequence[int], cell_max: int, width: int) -> int:
    """Return how many of the first columns fit beside each other."""
    ends = accumulate(min(own, cell_max) + 2 for own in widths)
    return sum(end - 2 <= width for end in ends)


def _note(columns: Sequence[str], fitting: int, count: int) -> str:
    note = f"{count_noun(count, 'row')} × {count_noun(len(columns), 'column')}"
    if not (hidden := columns[fitting:]):
        return note
    named = ", ".join(format_cell(name) for name in hidden[:_NAMED_MAX])
    more = len(hidden) - _NAMED_MAX
    return f"{note}; not shown: {named}" + (f" and {more:,} more" if more > 0 else "")


def _short(value: object, width: int) -> object:
    """Return a value, or its shortened text. A number is not changed, so that it stays aligned to
    the right."""
    text = format_cell(value)
    short = shorten(text, width)
    return value if short == text else short


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _html_cell(value: object) -> str:
    return shorten(format_cell(value), _CELL_MAX)


class Result:
    """Rows in memory, read from one publication. Timestamps are in the zone of the database.

    Dates of events are in UTC in every zone: a date of day precision is a UTC day.

    Iteration and `len` are over rows. `result["column"]` is a column, `result[["a", "b"]]` a Result
    with these columns, `result[:10]` one with these rows, `"column" in result` says whether there
    is a column. Libraries that know Arrow's PyCapsule interface take a Result as it is, such as
    `polars.DataFrame(result)`.

    Attributes:
        columns: the names of the columns, in order.
        notes: which coins were taken for ambiguous texts of the question.
    """

    def __init__(self, table: "pa.Table", notes: Sequence[str] = ()) -> None:
        self._table = table
        self.notes = tuple(notes)

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    def df(self) -> "pd.DataFrame":
        """Return a pandas DataFrame; timestamps are `datetime64[us, zone]`, lists are arrays.

        Integers and booleans keep their type beside NULL (`Int64`, `boolean`). Decimals are `int64`
        without decimal places, if they are not too large, else `float64`; `arrow` has them exactly.
        """
        table = self._table
        for place, column in enumerate(table.columns):
            table = table.set_column(place, table.field(place).name, _without_decimals(column))
        with _explain_years():
            frame: pd.DataFrame = table.to_pandas()
        for place, column in enumerate(table.columns):
            if column.null_count and (dtype := _nullable(column.type)) is not None:
                types = {column.type: dtype}
                frame.isetitem(place, column.to_pandas(types_mapper=types.get))
        return frame

    to_pandas = df

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self), len(self.columns)

    def pl(self) -> "pl.DataFrame":
        """Return a Polars DataFrame.

        Raises:
            InvalidArgument: Polars is not installed.
        """
        try:
            import polars
        except ModuleNotFoundError as error:
            raise InvalidArgument(
                "Polars is not installed; pip install 'crypto-almanac[polars]', or use .df()"
            ) from error
        frame = polars.from_arrow(self._table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def arrow(self) -> "pa.Table":
        """Return a pyarrow Table."""
        return self._table

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of Python values; timestamps are aware datetimes."""
        with _explain_years():
            found: list[dict[str, Any]] = self._table.to_pylist()
        return found

    def head(self, n: int = 5) -> "Result":
        """Return the first `n` rows; of a negative `n`, all but the last `-n`."""
        n = index(n)
        return Result(self._table.slice(0, n if n >= 0 else max(0, len(self) + n)))

    def tail(self, n: int = 5) -> "Result":
        """Return the last `n` rows; of a negative `n`, all but the first `-n`."""
        n = index(n)
        return Result(self._table.slice(max(0, len(self) - n) if n >= 0 else min(len(self), -n)))

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows to a Parquet file. A complete file replaces an existing one.

        Raises:
            InvalidArgument: `path` is not a path, its folder does not exist, or Parquet can't store
                a column.
            OSError: the file can't be written.
        """
        from almanac.streams import write_parquet

        write_parquet([self._table], self._table.schema, path_to_write(path))

    def to_csv(self, path: str | Path) -> None:
        """Write the rows to a CSV file; lists are JSON. A complete file replaces an existing one.

        Raises:
            InvalidArgument: `path` is not a path, or its folder does not exist.
            OSError: the file can't be written.
        """
        from almanac.reading.row_files import write_csv

        write_csv(self._table, path_to_write(path))

    @overload
    def __getitem__(self, name: str) -> "pd.Series[Any]": ...

    @overload
    def __getitem__(self, name: Sequence[str] | slice) -> "Result": ...

    def __getitem__(self, name: str | Sequence[str] | slice) -> "pd.Series[Any] | Result":
        """Return a column as a pandas Series, or a Result with several columns or a slice of rows.

        Raises:
            UnknownName: there is no such column; the message lists all.
            InvalidArgument: it is not a column name.
        """
        if isinstance(name, slice):
            places = range(len(self))[name]
            if places.step == 1:
                return Result(self._table.slice(places.start, len(places)))
            return Result(self._table.take(list(places)))
        names = [name] if isinstance(name, str) else name
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            raise InvalidArgument(
                f"{name!r} is not a column name. Rows: a slice such as result[:10], rows() or df()"
            )
        for wanted in names:
            if wanted not in self.columns:
                raise UnknownName(
                    f"there is no column {wanted!r}; the result has {', '.join(self.columns)}"
                )
        chosen = Result(self._table.select(names), self.notes)
        return chosen.df()[name] if isinstance(name, str) else chosen

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a PyCapsule of an Arrow stream."""
        return self._table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        width = shutil.get_terminal_size().columns
        shown = preview_text(self.columns, self._shown(), len(self), width)
        return "\n".join((shown, *self.notes))

    def _repr_html_(self) -> str:
        return preview_html(self.columns, self._shown(), len(self))

    def _shown(self) -> list[tuple[Any, ...]]:
        """Return the first and last rows, or all of a few, as Python values."""
        if len(self) <= FIRST + LAST:
            return _values(self._table)
        return _values(self._table.slice(0, FIRST)) + _values(self._table.slice(len(self) - LAST))


@contextmanager
def _explain_years() -> Iterator[None]:
    try:
        yield
    except (OverflowError, ValueError) as error:
        what = "a date or time is outside of Python's years 1 to 9999, such as infinity"
        raise InvalidArgument(f"{what}; use arrow(), or CAST(… AS VARCHAR) in SQL") from error


def _values(table: "pa.Table") -> list[tuple[Any, ...]]:
    import pyarrow as pa

    columns = []
    for column in table.columns:
        try:
            columns.append(column.to_pylist())
        except (OverflowError, ValueError):  # No year of Python's, such as infinity.
            columns.append(column.cast(pa.string()).to_pylist())
    return list(zip(*columns, strict=True))


def _without_decimals(column: Any) -> Any:
    import pyarrow as pa

    if not pa.types.is_decimal(column.type):
        return column
    if column.type.scale == 0:
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            pass  # Too large.
    return column.cast(pa.float64())


def _nullable(kind: Any) -> Any:
    """Return the type of pandas for a column with NULL that would else become another type."""
    import pandas as pd
    import pyarrow as pa

    if pa.types.is_boolean(kind):
        return pd.BooleanDtype()
    if pa.types.is_integer(kind):
        return pd.api.types.pandas_dtype(str(kind).replace("ui", "UI").replace("i", "I"))
    return None
