"""The published warehouse as a resource of Dagster."""

from pathlib import Path

import dagster as dg

import almanac


class Warehouse(dg.ConfigurableResource["Warehouse"]):
    """A published warehouse: a home of Almanac, or a copy of its `warehouse.duckdb`."""

    home: str

    def open(self) -> almanac.Database:
        """Open the newest publication. All questions of a `with` block are answered from it."""
        return almanac.open(self.home, follow=False)

    @property
    def file(self) -> Path:
        """The published file, for other programs to attach."""
        with self.open() as db:
            return db.path
