"""Named SQL statements in `.sql` files, and the check that a user's statement only reads.

    -- name: next_event
    -- Grain: one row per row of the frame …
    SELECT …

A file is one step, with its statements in execution order. Values are bound by name. The check
is needed since `EXPLAIN ANALYZE` runs its statement, DuckDB types a PIVOT inside a COPY as PIVOT,
and a SELECT may have a COPY or an INSERT in its WITH.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, Final

import duckdb

from almanac.errors import QueryRefused
from almanac.reading.connections import DUCKDB_MAJOR

NO_VALUES: Final[Mapping[str, Any]] = MappingProxyType({})
_FOLDERS: Final = frozenset({"sql", "views"})
_SHARED: Final = re.compile(r"\{shared (\w+)\}")
_NAMED: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class NamedStatements:
    """The statements of a package by name. Files are read at the first access."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._ready: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        """Return the text of a statement."""
        if name not in self._ready:
            try:
                self._ready[name] = self._prepared(_read_statements(self._package)[name])
            except ValueError as error:
                raise ValueError(f"{self._package}, statement {name}: {error}") from None
        return self._ready[name]

    @property
    def texts(self) -> dict[str, str]:
        """All statements by name, in the order of their files."""
        return {name: self[name] for name in _read_statements(self._package)}

    def _prepared(self, text: str) -> str:
        return _SHARED.sub(lambda found: _shared_parts()[f"shared_{found[1]}"], text)


@cache
def _shared_parts() -> dict[str, str]:
    file = resources.files("almanac.reading") / "sql" / "shared.sql"
    return dict(statements_in(file.read_text("utf-8")))


@cache
def _read_statements(package: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in _files(resources.files(package)):
        for name, text in statements_in(file.read_text("utf-8")):
            if name in found:
                raise ValueError(f"{package} has two statements {name}")
            found[name] = text
    return found


def statements_in(text: str) -> list[tuple[str, str]]:
    _, *parts = _NAMED.split(text)
    return list(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def _files(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            yield entry
        elif entry.name in _FOLDERS:
            yield from _files(entry)


def quoted(name: str) -> str:
    """Return an identifier as SQL."""
    return '"' + name.replace('"', '""') + '"'


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return unique names: with a repeated name, a dict, a frame or JSON would lose a column."""
    found: list[str] = []
    for name in names:
        number, free = 0, name
        while free in found or (number and free in names):
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found


def quoted_text(text: str) -> str:
    """Return a text as SQL, where no value can be bound."""
    return "'" + text.replace("'", "''") + "'"


Literal = str | bool | int | Sequence[str]


def literal(value: Literal) -> str:
    """Return a value as SQL, where none can be bound."""
    if isinstance(value, str):
        return quoted_text(value)
    if isinstance(value, bool | int):
        return str(value).lower()
    return "[" + ", ".join(map(quoted_text, value)) + "]"


_EXPLAINING: Final = frozenset({"explain", "analyze", "verbose"})
_OPENING_WORDS: Final = frozenset(
    {
        *("select", "from", "with", "values", "table"),
        *("pivot", "pivot_wider", "pivot_longer", "unpivot"),
        *("describe", "desc", "show", "summarize"),
        # After a SELECT in brackets.
        *("union", "except", "intersect", "order", "limit", "offset"),
    }
)
_LISTING: Final = frozenset({"show", "describe", "desc"})
_WRITING: Final = frozenset({"copy", "insert", "update", "delete", "merge", "truncate"})
_BEFORE_A_BODY: Final = frozenset({"as", "materialized"})
_PAST_A_LOCK: Final = frozenset(
    {
        *("enable_logging", "disable_logging", "enable_profiling", "disable_profiling"),
        "json_execute_serialized_sql",  # It may run any statement.
    }
)
"""Functions through which DuckDB before 2.0 changes a locked configuration. Later it refuses."""
_LOCK_HOLDS: Final = DUCKDB_MAJOR >= 2
_ENDS_WORD: Final = re.compile(r"\s|/\*|--")
"""The end of a keyword. DuckDB before 2.0 returns a keyword with the comment that follows it."""
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")


def begins_as_reading(sql: str) -> bool:
    """Whether the first word, after EXPLAIN and outside brackets, belongs to a reading
    statement."""
    for word in _words(sql):
        if word not in _EXPLAINING:
            return word in _OPENING_WORDS
    # The whole statement is in brackets, which only a SELECT can be.
    return True


def lists_names(sql: str) -> bool:
    """Whether it shows the names of tables or columns; such an answer is small."""
    return next(_words(sql), "") in _LISTING


def writes_inside(sql: str) -> bool:
    """Whether the statement after a WITH clause begins with a keyword that writes."""
    before = ("", "")
    for word, _ in _words_and_depths(sql):
        if word in _WRITING and before[1] == "(" and before[0] in _BEFORE_A_BODY:
            return True
        before = (before[1], word)
    return False


def changes_what_is_locked(sql: str) -> bool:
    """Whether a function that changes a locked configuration is called; its name without a call is
    allowed."""
    if _LOCK_HOLDS:
        return False
    tokens = [*_tokens(sql), "", ""]
    for name, bracket, text, end in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        called = _first_word(name).strip('"') if bracket[:1] == "(" else ""
        if called in _PAST_A_LOCK:
            return True
        if called == "query":
            inner = _TEXT.fullmatch(text)
            # A concatenated text could contain anything.
            if end != ")" or inner is None or changes_what_is_locked(inner[1].replace("''", "'")):
                return True
    return False


def identifiers_in(sql: str) -> set[str]:
    """Return the words and names of a statement, in small letters and without quotes."""
    found = (_first_word(token) for token in _tokens(sql))
    return {word.strip('"') for word in found}


def _words(sql: str) -> Iterator[str]:
    """Yield the words outside brackets, in small letters."""
    return (word for word, depth in _words_and_depths(sql) if depth == 0 and word not in "()")


def _words_and_depths(sql: str) -> Iterator[tuple[str, int]]:
    """Yield words and brackets, in small letters, with their depth in brackets."""
    depth = 0
    for token in _tokens(sql):
        if token[:1] == ")":
            depth -= 1
        yield _first_word(token), depth
        if token[:1] == "(":
            depth += 1


def _first_word(token: str) -> str:
    return _ENDS_WORD.split(token, 1)[0].lower()


def _tokens(sql: str) -> Iterator[str]:
    text = sql.encode()
    tokens = duckdb.tokenize(sql)
    ends = [*(start for start, _ in tokens[1:]), len(text)][: len(tokens)]
    for (start, kind), end in zip(tokens, ends, strict=True):
        token = text[start:end].strip()
        if kind != duckdb.token_type.comment and token:
            yield token.decode("utf-8", "replace")


_READING: Final = frozenset({"SELECT", "EXPLAIN", "MULTI"})
"""DuckDB reports a PIVOT as MULTI, because it finds the columns in an extra step. A COPY may
contain a PIVOT, too."""
_SQL_CHARACTERS_MAX: Final = 1_000_000


def reading_relation(
    connection: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, Any]
) -> duckdb.DuckDBPyRelation:
    """Return the rows of one reading statement, which runs when they are fetched."""
    if len(sql) > _SQL_CHARACTERS_MAX:
        raise QueryRefused(f"it has {len(sql):,} characters; the limit is {_SQL_CHARACTERS_MAX:,}")
    check_text(sql)
    statements = connection.extract_statements(sql)
    if len(statements) == 2 and not any(statement.query for statement in statements):
        # DuckDB before 2.0 splits a PIVOT into two statements without a text.
        kind = "MULTI"
    elif len(statements) != 1:
        if not statements:
            raise QueryRefused("expected one statement, got none")
        raise QueryRefused(f"expected one statement, got {len(statements)}; run them one by one")
    else:
        kind = _kind(statements[0])
    reads = kind == "SELECT" or (kind in _READING and begins_as_reading(sql))
    if not reads or writes_inside(sql) or changes_what_is_locked(sql):
        raise QueryRefused(
            f"this statement does more than read ({kind}), and a warehouse is read-only: each "
            "publication replaces it. Copy it to a file of your own to write there."
        )
    _check_values(values, set().union(*(statement.named_parameters for statement in statements)))
    return connection.sql(_without_semicolon(sql), params=dict(values) or None)


def check_text(sql: str) -> None:
    """Refuse a statement with bytes that are not UTF-8, which are half surrogates in Python."""
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise QueryRefused(
            f"the statement is not UTF-8 text: character {error.start + 1} is "
            f"{sql[error.start]!a}. It was not run."
        ) from None


def _without_semicolon(sql: str) -> str:
    """Return one statement up to its semicolon: DuckDB puts its text into another statement."""
    text = sql.encode()
    ends = [start for start, _ in duckdb.tokenize(sql)]
    for start, end in zip(reversed(ends), reversed([*ends[1:], len(text)]), strict=True):
        if text[start:end].strip()[:1] == b";":
            text = text[:start]
        elif not text[start:end].startswith((b"--", b"/*")):
            break
    return text.decode()


def _check_values(values: Mapping[str, Any], parameters: set[str]) -> None:
    missing, unused = sorted(parameters - set(values)), sorted(set(values) - parameters)
    if missing:
        raise QueryRefused(
            f"the parameter ${missing[0]} has no value. On the command line --param "
            f"{missing[0]}=VALUE gives it one; else write it into the statement. It was not run."
        )
    if unused:
        raise QueryRefused(
            f"the statement has no parameter ${unused[0]}, but got a value for it. It was not run."
        )


def _kind(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:
        return "a statement that has no name in Python"
