"""The words of a statement, where DuckDB's kind of it does not say whether it reads.

`EXPLAIN ANALYZE` runs what it explains, a PIVOT inside a COPY is a PIVOT to DuckDB, and a SELECT
may have a COPY or an INSERT in its WITH. Nor does it before 2.0 keep every function from changing
a configuration that is locked.
"""

import re
from collections.abc import Iterator
from typing import Final

import duckdb

_EXPLAINING: Final = frozenset({"explain", "analyze", "verbose"})
_READING: Final = frozenset(
    {
        *("select", "from", "with", "values", "table"),
        *("pivot", "pivot_wider", "pivot_longer", "unpivot"),
        *("describe", "desc", "show", "summarize"),
        # After a SELECT in brackets.
        *("union", "except", "intersect", "order", "limit", "offset"),
    }
)
_WRITING: Final = frozenset({"copy", "insert", "update", "delete", "merge", "truncate"})
_BEFORE_A_BODY: Final = frozenset({"as", "materialized"})
_PAST_A_LOCK: Final = frozenset(
    {
        *("enable_logging", "disable_logging", "enable_profiling", "disable_profiling"),
        "json_execute_serialized_sql",  # Whatever its text says.
    }
)
"""Functions through which DuckDB before 2.0 changes a locked configuration. Later it refuses."""
_LOCK_HOLDS: Final = int(duckdb.__version__.partition(".")[0]) >= 2
_ENDS_WORD: Final = re.compile(r"\s|/\*|--")
"""To DuckDB before 2.0, a comment belongs to the word before it."""
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")


def begins_as_reading(sql: str) -> bool:
    """Whether the first word, after EXPLAIN and outside brackets, is one that reads."""
    for word in _words(sql):
        if word not in _EXPLAINING:
            return word in _READING
    # All of it is in brackets, where nothing but a SELECT may stand.
    return True


def writes_inside(sql: str) -> bool:
    """Whether the body of a WITH begins with a word that writes."""
    before = ("", "")
    for word, _ in _words_and_depths(sql):
        if word in _WRITING and before[1] == "(" and before[0] in _BEFORE_A_BODY:
            return True
        before = (before[1], word)
    return False


def changes_what_is_locked(sql: str) -> bool:
    """Whether a function is called that changes a locked configuration; a name alone is none."""
    if _LOCK_HOLDS:
        return False
    tokens = [*_tokens(sql), "", ""]
    for name, bracket, text, end in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        called = _first_word(name).strip('"') if bracket[:1] == "(" else ""
        if called in _PAST_A_LOCK:
            return True
        if called == "query":
            asked = _TEXT.fullmatch(text)
            # A text that is put together could hold anything.
            if end != ")" or asked is None or changes_what_is_locked(asked[1].replace("''", "'")):
                return True
    return False


def _words(sql: str) -> Iterator[str]:
    """Yield the words outside brackets, in small letters."""
    return (word for word, depth in _words_and_depths(sql) if depth == 0 and word not in "()")


def _words_and_depths(sql: str) -> Iterator[tuple[str, int]]:
    """Yield words and brackets, in small letters, with how many brackets they stand in."""
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
    ends = [start for start, _ in tokens[1:]] + [len(text)]
    for (start, kind), end in zip(tokens, ends, strict=True):
        token = text[start:end].strip()
        if kind != duckdb.token_type.comment and token:
            yield token.decode("utf-8", "replace")
