"""Queries of a published file: answers written to files, activity, rejected deliveries.

`connect`, `connected` and `run_sql` are those of almanac.reading.published. Timestamps are UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final

import duckdb

from almanac.errors import QueryRefused
from almanac.forms import FileForm, names_a_stream
from almanac.reading.answers import copied, write_own_file
from almanac.reading.published import QueryAnswer, connect, connected, run_sql
from almanac.reading.query_limits import QueryHooks, QueryLimits
from catalog.contract import constants
from warehouse.errors import WarehouseError
from warehouse.files.storage import Storage
from warehouse.sql import Statements

__all__ = [
    "FileForm",
    "NoFolder",
    "QueryAnswer",
    "QueryRefused",
    "connect",
    "connected",
    "run_sql",
    "write_answer",
]

_LIMITS: Final = QueryLimits()
_PROGRAM: Final = QueryHooks()
_NO_VALUES: Final[Mapping[str, str]] = MappingProxyType({})


class NoFolder(QueryRefused):
    """The folder for an answer does not exist. Nothing was written."""


def write_answer(
    warehouse: Path,
    sql: str,
    target: Path | BinaryIO,
    form: FileForm,
    *,
    values: Mapping[str, str] = _NO_VALUES,
    formulas: bool = True,
    limits: QueryLimits = _LIMITS,
    program: QueryHooks = _PROGRAM,
) -> int:
    """Write the rows of one reading statement to a file or an open stream; return how many.

    A file appears complete or not at all; a link is kept, and its target is replaced. A stream, a
    device or a pipe gets the bytes after the statement has ended. JSON is an array of objects, and
    strict: NaN and infinities are null, instants are ISO 8601. CSV and TSV have a header. Without
    `formulas`, text of a CSV that a spreadsheet would run gets a mark in front. TSV is escaped as
    `with_escaped_fields` does. The statement runs on its own connection, which can write only this
    answer.

    Raises:
        WarehouseError: as `connect`.
        NoFolder: there is no folder for the file.
        QueryRefused: as `run_sql`, or the disk has no room for it.
        OSError: the file can't be written, or nobody reads the stream any more.
    """
    write = partial(
        write_own_file,
        *(warehouse, sql),
        values=values,
        form=form,
        formulas=formulas,
        limits=limits,
        program=program,
    )
    if not isinstance(target, Path):
        return copied(write, target, form)
    if names_a_stream(target):
        # Not by a rename: other writers to the same stream would lose it. Appended, since a file
        # that a shell redirected to may have content already.
        with target.open("ab") as stream:
            return copied(write, stream, form)
    file = target.resolve()
    if not file.parent.is_dir():
        raise NoFolder(
            f"{target} can't be written: there is no folder {file.parent}. Nothing was written; "
            "create the folder, or name a file in an existing one."
        )
    with Storage(file.parent).writing(file.name) as staged:
        return write(staged)


_SQL = Statements(__package__)

CHANGES_COUNTED_FOR: Final = timedelta(days=28)
"""How far back changes are counted: long enough for many changes, short enough to be current."""
_PAST: Final = timedelta(days=31)
_LISTED: Final = timedelta(days=constants.CANCELLATIONS_SINCE_DAYS)


@dataclass(frozen=True, slots=True)
class Activity:
    """The known dates and changes of a catalog.

    `spans` has first date, last date and the number of events with both. `changes` has the kind
    (announced, edited, cancelled), the distance in days and the number, counted since
    `watched_since`; it is None if nothing was observed.
    """

    spans: tuple[tuple[date, date | None, int], ...] = ()
    changes: tuple[tuple[str, int, int], ...] = ()
    missing: tuple[str, ...] = ()
    coins: int = 0
    cancellations: int = 0
    watched_since: datetime | None = None


NO_ACTIVITY: Final = Activity()


def activity_of(warehouse: Path, now: datetime) -> Activity:
    """Return the activity in a warehouse; NO_ACTIVITY if there is no warehouse yet.

    Raises:
        WarehouseError: it can't be read.
    """
    if not warehouse.exists():
        return NO_ACTIVITY
    try:
        return _read(warehouse, now)
    except duckdb.Error as error:
        raise WarehouseError(
            f"{warehouse} can't be read: {str(error).splitlines()[0]} If it is damaged, `almanac "
            "replay` rebuilds it."
        ) from error


def _read(warehouse: Path, now: datetime) -> Activity:
    with connected(warehouse) as connection:
        counts = connection.execute(_SQL["count_feeds"], {"since": now - _LISTED})
        ((coins, cancellations, first_observed),) = counts.fetchall()
        if first_observed is None:
            return Activity(coins=coins, cancellations=cancellations)
        since = max(first_observed, now - CHANGES_COUNTED_FOR)
        spans = connection.execute(_SQL["count_spans"], {"since": (now - _PAST).date()})
        found = spans.fetchall()
        changes = connection.execute(_SQL["count_changes"], {"since": since}).fetchall()
        missing = connection.execute(_SQL["list_missing"], {"now": now}).fetchall()
    return Activity(
        spans=tuple(found),
        changes=tuple(changes),
        missing=tuple(event_id for (event_id,) in missing),
        coins=coins,
        cancellations=cancellations,
        watched_since=since,
    )


Reasons = Mapping[int | None, str]
"""Why the delivery at a position of its batch was rejected; at None, why all of the batch is left
out."""


def rejected_deliveries(warehouse: Path) -> dict[str, Reasons]:
    """Return the reasons by batch id; nothing if no warehouse is published yet.

    Raises:
        WarehouseError: it can't be read.
    """
    found: dict[str, dict[int | None, str]] = {}
    if not warehouse.exists():
        return {}
    try:
        with connected(warehouse) as connection:
            rows = connection.execute(_SQL["list_rejected_deliveries"]).fetchall()
    except duckdb.Error as error:
        raise WarehouseError(f"{warehouse} can't be read: {str(error).splitlines()[0]}") from error
    for batch_id, position, reason in rows:
        found.setdefault(batch_id, {})[position] = reason
    return dict(found)
