"""Compares each side's history, and its answers, with the history that the exports imply."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb

import almanac
from almanac.core.statements import Statements
from bench.children import ChildFailed
from bench.peers.child import COMPARED, TYPED
from bench.peers.sides import ALMANAC, Side

_SQL: Final = Statements("bench.peers")
_LISTS: Final = ("categories", "coins")
AS_OF: Final = "events as of a past time, ms"
HISTORY: Final = "history of one event, ms"
CHANGES: Final = "changes of a week, ms"
_NAMES: Final = {AS_OF: "as_of", HISTORY: "history", CHANGES: "changes"}
_REPEATS: Final = 7
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
                connection.execute(_SQL.fill("create_contents", typed=typed))
            text = _SQL.fill("read_export", typed=typed, columns=", ".join(COMPARED))
            connection.execute(text)
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
    return f"({_SQL[side.rows].rstrip(';')})" if side.rows.startswith("rows_of_") else side.rows


def compare_history(side: Side, file: Path, reference: Path) -> Counts:
    """Compare id, from, to and values of a side's history by `EXCEPT ALL`, in both directions."""
    with open_beside(file, reference) as connection:
        connection.execute(_SQL["make_list_macro"])
        columns = ", ".join(
            f"as_list({name}) AS {name}" if name in _LISTS else name
            for name in (*COMPARED, "known_from", "known_to")
        )
        connection.execute(_SQL.fill("make_differing", columns=columns, rows=find_rows(side)))
        rows = connection.execute(_SQL["count_differing"]).fetchall()
    return {kind: (int(total or 0), int(differing or 0)) for kind, total, differing in rows}


def ask_questions(
    side: Side, file: Path, reference: Path, *, at: datetime, since: datetime, until: datetime
) -> dict[str, float]:
    """Return the milliseconds of each question, read into Arrow, the least of some repeats.

    Raises:
        ChildFailed: an answer differs from the reference.
    """
    with open_beside(file, reference) as connection:
        ((event_id,),) = connection.execute(_SQL["choose_event"]).fetchall()
        columns = ", ".join(connection.table("reference.history").columns[:-2])

    questions = Statements("bench.peers", columns=columns, rows=find_rows(side))

    def text(name: str) -> str:
        return questions[name].rstrip(";")

    values: dict[str, dict[str, Any]] = {
        AS_OF: {"at": at},
        HISTORY: {"event_id": event_id},
        CHANGES: {"since": since, "until": until},
    }
    ask: dict[str, Callable[[], Any]]
    with ExitStack() as stack:
        if side.name == ALMANAC:
            db = stack.enter_context(almanac.open(file.parent, follow=False))
            ask = {
                AS_OF: lambda: db.sql(text("as_of_almanac"), at=at).arrow(),
                HISTORY: lambda: db.history(event_id).arrow(),
                CHANGES: lambda: db.changes(since, until).arrow(),
            }
        else:
            plain = stack.enter_context(open_beside(file, reference))
            ask = {
                question: partial(_read, plain, text(name), values[question])
                for question, name in _NAMES.items()
            }
        measured = {question: _measure(run) for question, run in ask.items()}
    for question, (_, answer) in measured.items():
        _check_answer(side, file, reference, question, answer, values[question])
    return {question: milliseconds for question, (milliseconds, _) in measured.items()}


def _read(connection: duckdb.DuckDBPyConnection, text: str, values: dict[str, Any]) -> Any:
    return connection.sql(text, params=values).to_arrow_table()


def _measure(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least milliseconds of a question that was asked before, and its answer."""
    answer = run()
    taken = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        run()
        taken.append(1000 * (time.perf_counter() - began))
    return min(taken), answer


def _check_answer(
    side: Side, file: Path, reference: Path, question: str, answer: Any, values: dict[str, Any]
) -> None:
    name = _NAMES[question]
    with open_beside(file, reference) as connection:
        connection.register("given", answer)
        for table in ("shown", "expected"):
            text = _SQL[f"{table}_{name}"].rstrip(";")
            bound = values if "$" in text else None
            connection.execute(f"CREATE TEMP TABLE {table} AS {text}", bound)
        ((wrong,),) = connection.execute(_SQL["count_unexpected"]).fetchall()
    if wrong:
        raise ChildFailed(f"{side.name}, {question}: {wrong} rows differ from the reference")
