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
    from almanac.core.errors import (
        AlmanacError,
        AmbiguousCoin,
        InvalidArgument,
        LookAhead,
        QueryRefused,
        UnknownName,
        WarehouseError,
    )
    from almanac.database import Database
    from almanac.database import open_database as open
    from almanac.events import Coverage
    from almanac.history_replay import Change, Replay, replay
    from almanac.results import Result
    from almanac.study.report import Study

_NAMES = {
    "audit.report": ("Audit",),
    "coins": ("Coin",),
    "database": ("Database",),
    "core.errors": (
        *("AlmanacError", "AmbiguousCoin", "InvalidArgument", "LookAhead"),
        *("QueryRefused", "UnknownName", "WarehouseError"),
    ),
    "events": ("Coverage",),
    "history_replay": ("Change", "Replay", "replay"),
    "results": ("Result",),
    "study.report": ("Study",),
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
    """Import a public name at its first use, so that importing the package is fast."""
    if name == "open":
        return import_module("almanac.database").open_database
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"almanac.{module}"), name)
    raise AttributeError(f"module 'almanac' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
