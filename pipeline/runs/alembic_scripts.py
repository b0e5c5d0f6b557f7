"""Dagster's migration scripts, read once by a process that opens its instance often.

A code server opens the instance for each tick. Dagster then compares the revision of each store
with the newest of some sixty scripts, and Alembic registers an exit callback for their folder,
which is never freed. This is the only patch of Dagster, as of 1.13; without it a code server grows
by some kilobytes a tick.
"""

from functools import cache
from pathlib import Path

import dagster as dg
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage import sql


def read_scripts_once() -> None:
    """Make Dagster read its migration scripts once, from a path instead of a package resource."""
    if vars(sql)["ScriptDirectory"] is _Scripts:
        return
    scripts = Path(dg.__file__).parent / "_core" / "storage" / "alembic"
    # A `%` begins a reference in the configuration of Alembic.
    sql.ALEMBIC_SCRIPTS_LOCATION = str(scripts).replace("%", "%%")
    sql.get_alembic_config.cache_clear()
    sql.ScriptDirectory = _Scripts  # type: ignore[assignment,attr-defined]


class _Scripts:
    """Stands for Alembic's `ScriptDirectory`, of which Dagster only asks the newest revision."""

    @staticmethod
    @cache
    def from_config(config: Config) -> ScriptDirectory:
        return ScriptDirectory.from_config(config)
