"""The published warehouse as a resource of Dagster, for the assets of a project of its own.

    @dg.asset(deps=["upcoming_events"])
    def next_week(warehouse: Warehouse) -> pd.DataFrame:
        with warehouse.open() as db:
            return db.upcoming(within="7d").df()

    dg.Definitions(assets=[next_week], resources={"warehouse": Warehouse(home="/srv/almanac")})

It reads and never writes. Dagster is imported with this module, and with no other of the package.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from almanac.database import Database, open_database
from almanac.reader import find_file

if TYPE_CHECKING:
    from pathlib import Path


class Warehouse(dg.ConfigurableResource["Warehouse"]):
    """A published warehouse, open for reading while an asset needs it."""

    home: str = Field(
        description="A home of Almanac, or a `warehouse.duckdb`, also a copy on another machine."
    )
    tz: str = Field(
        default="UTC",
        description="The zone of timestamps in results, and of arguments without a zone.",
    )

    @contextmanager
    def open(self) -> Iterator[Database]:
        """Open the newest publication. All questions of the block are answered from that one.

        Raises:
            WarehouseError: there is no such file, or it can't be opened.
            InvalidArgument: there is no such zone.
        """
        with open_database(self.home, tz=self.tz, follow=False) as db:
            yield db

    @property
    def file(self) -> "Path":
        """The published file, e.g. for `ATTACH … (READ_ONLY)` in another program.

        Raises:
            WarehouseError: there is none.
        """
        return find_file(self.home)
