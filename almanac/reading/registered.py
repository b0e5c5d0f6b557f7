"""Frames of the caller as tables of SQL: no row, column or index is lost in silence.

Belongs here: what DuckDB would drop, rename or read only once. Does not: registering it (reader).
"""

from collections.abc import Sequence
from typing import Any, Final

from almanac.errors import InvalidArgument

_WHOLE: Final = ("DataFrame", "Table")
"""Frames that can be read more than once."""


def frame_for_sql(frame: Any, name: str) -> Any:
    """Return a frame that DuckDB shows whole.

    The index of a pandas frame becomes its first columns, unless it is the number of the row:
    integers without a name. A level without a name is `ts` if it has instants, else `index`, or
    `level_0` and so on of several. A Series is a frame of one column. What can be read once, such
    as an Arrow reader, is read into a table.

    Raises:
        InvalidArgument: it is no frame, two columns have the same name but for capitals, or columns
            have levels.
    """
    rooms = {kind.__module__.partition(".")[0] for kind in type(frame).__mro__}
    if "pandas" in rooms and hasattr(frame, "index"):
        if hasattr(frame, "to_frame"):
            frame = frame.to_frame("value" if frame.name is None else frame.name)
        frame = _with_index(frame, name)
    elif type(frame).__name__ not in _WHOLE and hasattr(frame, "__arrow_c_stream__"):
        import pyarrow as pa

        frame = pa.table(frame)
    elif not rooms & {"pandas", "polars", "pyarrow"}:
        raise InvalidArgument(
            f"{name!r} can't be a table: it is a {type(frame).__name__}; expected a pandas or "
            "Polars DataFrame, or a pyarrow Table"
        )
    if type(frame).__name__ in _WHOLE:
        _refuse_same(list(getattr(frame, "column_names", None) or frame.columns), name)
    return frame


def _with_index(frame: Any, name: str) -> Any:
    import pandas as pd

    if frame.columns.nlevels > 1:
        raise InvalidArgument(
            f"the columns of {name!r} have several levels; expected one. Join their names, as by "
            f"frame.columns = frame.columns.map('_'.join)"
        )
    index = frame.index
    has_name = any(level is not None for level in index.names)
    if index.nlevels == 1 and not has_name and pd.api.types.is_integer_dtype(index.dtype):
        return frame
    names = []
    for place, given in enumerate(index.names):
        default = f"level_{place}" if index.nlevels > 1 else "index"
        if isinstance(index.get_level_values(place), pd.DatetimeIndex):
            default = "ts"
        names.append(default if given is None else given)
    _refuse_same([*names, *frame.columns], name)
    return frame.reset_index(names=names)


def _refuse_same(columns: Sequence[Any], name: str) -> None:
    """Refuse names that are the same in SQL, where capitals do not count."""
    found: dict[str, Any] = {}
    for column in columns:
        key = str(column).lower()
        if key in found:
            raise InvalidArgument(
                f"{name!r} has two columns {found[key]!r} and {column!r}, with the index counted; "
                "SQL does not tell them apart. Rename one; an index that is a column, too, is "
                "dropped by frame.reset_index(drop=True)"
            )
        found[key] = column
