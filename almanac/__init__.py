"""Almanac for analysts: crypto-market events as they were known at any time.

    import almanac

    with almanac.open("data") as db:
        print(db.upcoming(coins="slug:bitcoin", within="7d").df())

The package reads a published `warehouse.duckdb` and nothing else. All timestamps are UTC unless
`open` names another zone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from almanac.audit.report import Audit
    from almanac.coins import Coin
    from almanac.database import Database
    from almanac.database import open_database as open
    from almanac.errors import (
        AlmanacError,
        AmbiguousCoin,
        InvalidArgument,
        LookAhead,
        QueryRefused,
        UnknownName,
        WarehouseError,
    )
    from almanac.events import Coverage
    from almanac.history_replay import Change, Replay, replay
    from almanac.results import Result
    from almanac.study.report import Study

_HOMES = {
    "AlmanacError": "errors",
    "AmbiguousCoin": "errors",
    "Audit": "audit.report",
    "Change": "history_replay",
    "Coin": "coins",
    "Coverage": "events",
    "Database": "database",
    "InvalidArgument": "errors",
    "LookAhead": "errors",
    "QueryRefused": "errors",
    "Replay": "history_replay",
    "Result": "results",
    "Study": "study.report",
    "UnknownName": "errors",
    "WarehouseError": "errors",
    "replay": "history_replay",
}

__all__ = [
    "AlmanacError",
    "AmbiguousCoin",
    "Audit",
    "Change",
    "Coin",
    "Coverage",
    "Database",
    "InvalidArgument",
    "LookAhead",
    "QueryRefused",
    "Replay",
    "Result",
    "Study",
    "UnknownName",
    "WarehouseError",
    "open",
    "replay",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: the import of the package takes no time."""
    if name == "open":
        return import_module("almanac.database").open_database
    if name not in _HOMES:
        raise AttributeError(f"module 'almanac' has no attribute {name!r}")
    return getattr(import_module(f"almanac.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
