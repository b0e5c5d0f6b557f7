"""Errors of the package, grouped by the caller's next step.

AlmanacError
├── WarehouseError    the file can't be opened or read
│   └── QueryRefused  the query is not one reading statement, or it failed
├── InvalidArgument   an argument is wrong; the message says what was expected
│   └── FutureTime    a time of knowledge is still to come
├── UnknownName       no event or coin has this name
├── AmbiguousCoin     several coins have this ticker; the message lists their slugs
└── LookAhead         an audit found values that nobody could have known
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

QUERY_INTERRUPTED: Final = "Query interrupted"
"""Text of the RuntimeError that DuckDB raises if a signal interrupts a query."""


class AlmanacError(Exception):
    """Base of all errors of the package. Nothing was changed: the package only reads."""


class WarehouseError(AlmanacError):
    """Data at rest is wrong. The message gives the state that is left."""


class QueryRefused(WarehouseError):
    """The query is not one reading statement, or it failed. Nothing was changed."""


class InvalidArgument(AlmanacError, ValueError):
    """An argument can't be used; the message says what was given and what was expected."""


class FutureTime(InvalidArgument):
    """A time of knowledge is still to come; the message gives the newest."""


class UnknownName(AlmanacError, LookupError):
    """No event has this id, or no coin this slug, symbol or name.

    Attributes:
        similar: for a coin, the coins with a similar name, each a `Coin`.
        text: for a coin, the text.
    """

    def __init__(self, message: str, similar: Sequence[Any] = (), text: str = "") -> None:
        super().__init__(message)
        self.similar, self.text = tuple(similar), text


class AmbiguousCoin(AlmanacError, LookupError):
    """Several coins have this ticker or name. Use the slug of one of them.

    Attributes:
        candidates: by text, all of them, each a `Coin`; by rank, those without a rank last.
        coins: those of all texts.
    """

    def __init__(self, message: str, candidates: Mapping[str, Sequence[Any]]) -> None:
        super().__init__(message)
        self.candidates = dict(candidates)
        self.coins = tuple(coin for coins in candidates.values() for coin in coins)


class LookAhead(AlmanacError, AssertionError):
    """An audit found values that could not have been known at the time of a decision."""
