"""The home that the settings name, with their limits for locks and for DuckDB."""

import logging

from almanac.core.errors import WarehouseError
from pipeline.settings import Settings, read_settings
from warehouse.home import Home

log = logging.getLogger(__name__)


def locate_home(settings: Settings, *, wait_s: float | None = None) -> Home:
    """Return the home of the settings.

    `wait_s` is a shorter wait for locks, for work that is tried again anyway.
    """
    return Home(
        settings.home,
        wait_s=settings.wait_s if wait_s is None else min(wait_s, settings.wait_s),
        wait_setting="ALMANAC_WAIT_S" if wait_s is None else "",
        limits=settings.duckdb_limits,
        list_separator=settings.list_separator,
        dagster_home=settings.dagster_home,
        bucket=settings.bucket,
    )


def restore_home(home: Home) -> None:
    """Rebuild an empty home from its bucket, if it has one.

    Raises:
        WarehouseError: the next call continues.
    """
    if home.fetch_landing():
        from warehouse.history.merge import merge

        assert home.bucket is not None
        log.warning("Rebuilding %s from %s: this home was empty.", home.root, home.bucket.address)
        merge(home)


def locate_existing_home(settings: Settings | None = None) -> Home:
    """Return the home of the settings, by default of the environment.

    Raises:
        SettingsError: the settings can't be used.
        WarehouseError: there is no home; a mistyped path must not look like an empty home.
    """
    home = locate_home(settings or read_settings())
    restore_home(home)
    home.refuse_lost_stamp()
    if home.stamp() is None:
        raise WarehouseError(
            f"there is no home at {home.root} (it has no home.json). Nothing was changed. "
            "`almanac run` creates one; if yours is elsewhere, set ALMANAC_HOME to it."
        )
    return home
