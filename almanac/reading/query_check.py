"""The check that a statement of a user only reads.

It is needed since `EXPLAIN ANALYZE` runs its statement, DuckDB types a PIVOT inside a COPY as
PIVOT, and a SELECT may have a COPY or an INSERT in its WITH.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import duckdb

from almanac.core.connections import DUCKDB_MAJOR
from almanac.core.errors import QueryRefused

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
