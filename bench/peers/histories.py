"""Compares the history of each side with the history that the exports imply, row by row."""

from datetime import datetime
from pathlib import Path
from typing import Final

import duckdb

from almanac.reading.named_sql import NamedStatements
from bench.peers.child import COMPARED, TYPED
from bench.peers.sides import Side

_SQL: Final = NamedStatements("bench.peers")
_LISTS: Final = ("categories", "coins")
Counts = dict[str, tuple[int, int]]
"""For each kind of event the rows of the reference, and the rows that differ."""


class Reference:
    """The history that the exports imply: for each event, runs of exports with equal content."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def add(self, export: Path, known_at: datetime) -> None:
        """Add an export."""
        typed = TYPED.replace("incoming.csv", str(export))
        is_new = not self.file.exists()
        with duckdb.connect(self.file) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            if is_new:
                connection.execute(_SQL["create_seen"])
                connection.execute(_SQL["create_contents"].replace("{typed}", typed))
            text = _SQL["read_export"].replace("{typed}", typed)
            connection.execute(text.replace("{columns}", ", ".join(COMPARED)))
            connection.execute(_SQL["add_seen"], {"known_at": known_at})
            connection.execute(_SQL["add_contents"])

    def make_history(self, *, left_out: datetime | None) -> None:
        """Make the tables `history` and `groups`, without the export of one time."""
        with duckdb.connect(self.file) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(_SQL["make_history"], {"left_out": left_out})
            connection.execute(_SQL["make_groups"])


def open_beside(file: Path, reference: Path) -> duckdb.DuckDBPyConnection:
    """Open the file of a side with the reference attached, both to read."""
    connection = duckdb.connect(file, read_only=True)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"ATTACH '{reference}' AS reference (READ_ONLY)")
    return connection


def find_rows(side: Side) -> str:
    """Return the SQL of a side's history, for a FROM clause."""
    return f"({_SQL[side.rows].rstrip(';')})" if side.rows in _SQL.texts else side.rows


def compare_history(side: Side, file: Path, reference: Path) -> Counts:
    """Compare id, from, to and values of a side's history by `EXCEPT ALL`, in both directions."""
    with open_beside(file, reference) as connection:
        connection.execute(_SQL["make_list_macro"])
        columns = ", ".join(
            f"as_list({name}) AS {name}" if name in _LISTS else name
            for name in (*COMPARED, "known_from", "known_to")
        )
        text = _SQL["make_differing"].replace("{columns}", columns)
        connection.execute(text.replace("{rows}", find_rows(side)))
        rows = connection.execute(_SQL["count_differing"]).fetchall()
    return {kind: (int(total or 0), int(differing or 0)) for kind, total, differing in rows}
