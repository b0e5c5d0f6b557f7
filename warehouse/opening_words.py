"""The words of a statement, where DuckDB's kind of it does not say whether it reads.

`EXPLAIN ANALYZE` runs what it explains, a PIVOT inside a COPY is a PIVOT to DuckDB, and a SELECT
may have a COPY or an INSERT in its WITH.
"""

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


def _words(sql: str) -> Iterator[str]:
    """Yield the words outside brackets, in small letters."""
    return (word for word, depth in _words_and_depths(sql) if depth == 0 and word not in "()")


def _words_and_depths(sql: str) -> Iterator[tuple[str, int]]:
    """Yield words and brackets, in small letters, with how many brackets they stand in."""
    text = sql.encode()
    tokens = duckdb.tokenize(sql)
    ends = [start for start, _ in tokens[1:]] + [len(text)]
    depth = 0
    for (start, kind), end in zip(tokens, ends, strict=True):
        token = text[start:end].strip()
        if kind == duckdb.token_type.comment or not token:
            continue
        if token[:1] == b")":
            depth -= 1
        yield token.split()[0].decode("utf-8", "replace").lower(), depth
        if token[:1] == b"(":
            depth += 1
