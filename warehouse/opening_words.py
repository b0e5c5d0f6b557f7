"""The opening words of a statement, where DuckDB's kind of it does not say whether it reads.

`EXPLAIN ANALYZE` runs what it explains, and a PIVOT inside a COPY is a PIVOT to DuckDB.
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


def begins_as_reading(sql: str) -> bool:
    """Whether the first word, after EXPLAIN and outside brackets, is one that reads."""
    for word in _words(sql):
        if word not in _EXPLAINING:
            return word in _READING
    # All of it is in brackets, where nothing but a SELECT may stand.
    return True


def _words(sql: str) -> Iterator[str]:
    """Yield the words outside brackets, in small letters."""
    text = sql.encode()
    tokens = duckdb.tokenize(sql)
    ends = [start for start, _ in tokens[1:]] + [len(text)]
    depth = 0
    for (start, kind), end in zip(tokens, ends, strict=True):
        token = text[start:end].strip()
        if kind == duckdb.token_type.comment:
            continue
        if token[:1] == b"(":
            depth += 1
        elif token[:1] == b")":
            depth -= 1
        elif depth == 0:
            yield token.split()[0].decode("utf-8", "replace").lower()
