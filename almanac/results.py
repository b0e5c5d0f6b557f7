"""The rows of a query, in the form that the caller works with.

Belongs here: pandas, Polars, Arrow and Python rows of one answer. Does not: running the query.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from almanac.errors import InvalidArgument
from almanac.forms.plain_text import plain

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_SHOWN: Final = 10


class Result:
    """Rows in memory, read from one publication. Instants are in the zone of the database.

    Attributes:
        columns: the names of the columns, in order.
    """

    def __init__(self, table: "pa.Table") -> None:
        self._table = table

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    def df(self) -> "pd.DataFrame":
        """Return a pandas DataFrame; instants are `datetime64[us, zone]`, lists are arrays."""
        return self._table.to_pandas()

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
        """Return the rows as dicts of Python values; instants are aware datetimes."""
        found: list[dict[str, Any]] = self._table.to_pylist()
        return found

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        head = self._table.slice(0, _SHOWN).to_pandas().to_string()
        more = f"\n… {len(self):,} rows" if len(self) > _SHOWN else ""
        return plain(f"{head}{more}")

    def _repr_html_(self) -> str:
        return str(self.df().to_html())
