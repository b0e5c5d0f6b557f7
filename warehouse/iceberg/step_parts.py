"""The parts of `event_steps`: a file per UTC month, so that a commit writes the last month alone.

The steps of a past month depend on what was known before its end, and on nothing later. A coin that
became known in a month has its steps before that month in a part of its own. Each coin has a step
at the first pull and at the start of each month up to the last pull, so that a reader may leave out
earlier months.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from almanac.event_steps import LAST_US, RULES, STATEMENTS, list_steps
from almanac.reading.named_sql import NamedStatements
from warehouse.sql import Statements

_SQL: Final = Statements(__package__)
_NO_FRAMES: Final[Mapping[str, Any]] = {}
_NO_VALUES: Final[Mapping[str, Any]] = {}


class _Queries:
    """Runs the statements of `attach_known` on the published file."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def query(
        self,
        sql: str,
        values: Mapping[str, Any] = _NO_VALUES,
        *,
        frames: Mapping[str, Any] = _NO_FRAMES,
    ) -> pa.Table:
        for name, frame in frames.items():
            self._connection.register(name, frame)
        try:
            return self._connection.sql(sql, params=dict(values) or None).to_arrow_table()
        finally:
            for name in frames:
                self._connection.unregister(name)


@dataclass(frozen=True, slots=True)
class StepPart:
    """Steps of some coins: one at each mark, and those after the first one up to `last_us`.

    `known` is a hash of all that they depend on, except the coins.
    """

    name: str
    known: str
    coins: tuple[str, ...]
    marks_us: tuple[int, ...]
    last_us: int

    def list(self, connection: duckdb.DuckDBPyConnection) -> pa.Table:
        """Return the steps, sorted by coin and time."""
        return list_steps(_Queries(connection), self.coins, self.marks_us, self.last_us)

    def write(self, connection: duckdb.DuckDBPyConnection, file: Path) -> Path:
        pq.write_table(self.list(connection), file, compression="zstd", row_group_size=100_000)
        return file


def find_step_parts(connection: duckdb.DuckDBPyConnection) -> Iterator[StepPart]:
    """Yield the parts of the published file, which is attached and in use."""
    months = connection.execute(_SQL["list_step_months"]).fetchall()
    if not months:
        return
    names, starts = [row[0] for row in months], [int(row[1]) for row in months]
    first_us = int(months[0][2])
    starts[0] = first_us
    ends = [*(start - 1 for start in starts[1:]), LAST_US]
    new: dict[str, list[str]] = {name: [] for name in names}
    for coin, month in connection.execute(_SQL["list_step_coins"]).fetchall():
        new[names[-1] if month is None else min(max(month, names[0]), names[-1])].append(coin)
    coins: tuple[str, ...] = ()
    for number, (name, _, _, known) in enumerate(months):
        added = tuple(new[name])
        if number == 0:
            coins, added = added, ()
        if coins:
            yield StepPart(name, known, coins, (starts[number],), ends[number])
        if added:
            yield StepPart(f"{name}_new", known, added, tuple(starts[: number + 1]), ends[number])
        coins = tuple(sorted((*coins, *added)))


def list_step_rules() -> list[str]:
    """Return the rules of the steps: other rules make other parts."""
    statements = NamedStatements("almanac")
    return [str(RULES), *(statements[name] for name in STATEMENTS)]


def sum_steps(connection: duckdb.DuckDBPyConnection) -> tuple[int, str]:
    """Return the number of steps that the table should have, and the sum of their hashes."""
    count = total = 0
    for part in find_step_parts(connection):
        connection.register("steps", part.list(connection))
        ((rows, hashes),) = connection.execute(_SQL["sum_steps"]).fetchall()
        connection.unregister("steps")
        count, total = count + rows, total + int(hashes)
    return count, str(total)
