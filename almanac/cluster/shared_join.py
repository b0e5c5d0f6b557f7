"""A join over a published file that all workers read at one path, for Ray and Dask."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from almanac.cluster.pinned_publication import PinnedPublication, pin_publication
from almanac.cluster.row_join import JoinOptions, RowJoin, prepare_join
from almanac.database import Database
from almanac.reader import find_file


@dataclass(frozen=True, slots=True)
class SharedJoin:
    """A prepared join and the file it reads; small enough to be sent with each task."""

    publication: PinnedPublication
    file: Path
    join: RowJoin

    @classmethod
    def prepare(
        cls, home: str | Path | Database, options: JoinOptions, texts: Iterable[str | None]
    ) -> Self:
        """Pin the publication and resolve the distinct texts of the column of coins.

        Raises: as `Database.attach_known`.
        """
        publication, copy = pin_publication(home)
        join = prepare_join(publication.open(copy), options, texts)
        file = home.path if isinstance(home, Database) else find_file(home)
        return cls(publication, file.absolute(), join)

    def join_rows(self, rows: pa.Table) -> pa.Table:
        """Return rows with their new columns.

        Raises: as `Database.attach_known`; WarehouseError also if the file was replaced.
        """
        database = self.publication.open(self.file)
        return self.join.join_table(database, rows)
