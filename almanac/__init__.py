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
    from almanac.audit.report import Audit as Audit
    from almanac.coins import Coin as Coin
    from almanac.core.errors import AlmanacError as AlmanacError
    from almanac.core.errors import AmbiguousCoin as AmbiguousCoin
    from almanac.core.errors import InvalidArgument as InvalidArgument
    from almanac.core.errors import LookAhead as LookAhead
    from almanac.core.errors import QueryRefused as QueryRefused
    from almanac.core.errors import UnknownName as UnknownName
    from almanac.core.errors import WarehouseError as WarehouseError
    from almanac.database import Database as Database
    from almanac.database import open_database as open
    from almanac.events import Coverage as Coverage
    from almanac.history_replay import Change as Change
    from almanac.history_replay import Replay as Replay
    from almanac.results import Result as Result
    from almanac.study.options import StudyOptions as StudyOptions
    from almanac.study.report import Study as Study

_MODULES = {
    "AlmanacError": "core.errors",
    "AmbiguousCoin": "core.errors",
    "Audit": "audit.report",
    "Change": "history_replay",
    "Coin": "coins",
    "Coverage": "events",
    "Database": "database",
    "InvalidArgument": "core.errors",
    "LookAhead": "core.errors",
    "QueryRefused": "core.errors",
    "Replay": "history_replay",
    "Result": "results",
    "Study": "study.report",
    "StudyOptions": "study.options",
    "UnknownName": "core.errors",
    "WarehouseError": "core.errors",
}
__all__ = ["open", *_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that importing the package is fast."""
    if name == "open":
        return import_module("almanac.database").open_database
    if name in _MODULES:
        return getattr(import_module(f"almanac.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'almanac' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
