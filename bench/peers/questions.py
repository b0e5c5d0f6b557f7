"""Questions to the histories, by DuckDB's SQL or the `almanac` package, with checked answers."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb

import almanac
from almanac.reading.named_sql import NamedStatements
from bench.children import ChildFailed
from bench.peers.histories import find_rows, open_beside
from bench.peers.sides import ALMANAC, Side

AS_OF: Final = "events as of a past time, ms"
HISTORY: Final = "history of one event, ms"
CHANGES: Final = "changes of a week, ms"
_NAMES: Final = {AS_OF: "as_of", HISTORY: "history", CHANGES: "changes"}
_SQL: Final = NamedStatements("bench.peers")
_REPEATS: Final = 7


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

    def text(name: str) -> str:
        found = _SQL[name].replace("{columns}", columns).replace("{rows}", find_rows(side))
        return found.rstrip(";")

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
