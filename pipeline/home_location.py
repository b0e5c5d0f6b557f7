"""The home that the settings name, with their limits for locks and for DuckDB."""

from functools import cache
from typing import TYPE_CHECKING

from pipeline.settings import Settings, SettingsError, read_settings
from warehouse.errors import BucketUnusable, HomeRefused
from warehouse.home import Home
from warehouse.iceberg_place import IcebergPlace

if TYPE_CHECKING:
    from warehouse.shared.database import SharedDatabase
    from warehouse.shared.file_index import FileIndex


def locate_home(settings: Settings, *, wait_s: float | None = None) -> Home:
    """Return the home of the settings.

    `wait_s` is a shorter wait for locks, for work that is tried again anyway.
    """
    return Home(
        settings.home,
        wait_s=settings.wait_s if wait_s is None else min(wait_s, settings.wait_s),
        wait_setting="ALMANAC_WAIT_S" if wait_s is None else "",
        limits=settings.making_limits,
        list_separator=settings.list_separator,
        dagster_home=settings.dagster_home,
        iceberg=_place_iceberg(settings) if settings.iceberg else None,
        database=shared_database(settings),
        lease_s=settings.lease_s,
        index=None if settings.bucket is None else _open_index(settings),
    )


def _place_iceberg(settings: Settings) -> IcebergPlace:
    """Return where the Iceberg tables are.

    Raises:
        SettingsError: the database address or the home path can't be used.
    """
    # Imported here, since it imports DuckDB.
    from almanac.lake import CATALOG_FILE, FOLDER

    folder, address = settings.home.resolve() / FOLDER, settings.postgres_address()
    if settings.bucket is None and "#" in str(folder):
        raise SettingsError(
            f"ALMANAC_ICEBERG is set, and the path {settings.home.resolve()} contains '#', which "
            "an address of a file can't have. Nothing was changed; set ALMANAC_HOME to another "
            "path, or leave ALMANAC_ICEBERG out."
        )
    catalog = f"sqlite:///{folder / CATALOG_FILE}"
    return IcebergPlace(
        catalog=catalog if address is None else address.get_secret_value(),
        location=f"file://{folder}"
        if settings.bucket is None
        else f"{settings.bucket.rstrip('/')}/{FOLDER}",
    )


def shared_database(settings: Settings) -> "SharedDatabase | None":
    """Return the PostgreSQL database of the settings, None if none is set.

    Raises:
        SettingsError: its address can't be read.
    """
    address = settings.postgres_address()
    if address is None:
        return None
    # Imported here: most homes have no database.
    from warehouse.shared.database import SharedDatabase

    return SharedDatabase(address.get_secret_value())


def _open_index(settings: Settings) -> "FileIndex":
    """Return the index of the files in the bucket. Nothing is connected yet.

    Raises:
        SettingsError: there is no database, or an address can't be read.
    """
    address = settings.postgres_address()
    if address is None or settings.bucket is None:
        raise SettingsError(
            "ALMANAC_BUCKET is set, but ALMANAC_POSTGRES is not. The database says which object of "
            "the bucket each file is. Nothing was changed; set both, or neither."
        )
    try:
        return _index_at(address.get_secret_value(), settings.bucket)
    except BucketUnusable as error:
        raise SettingsError(str(error)) from None


@cache
def _index_at(address: str, bucket: str) -> "FileIndex":
    """Return the index that all homes of this process share: it has one connection."""
    from warehouse.shared.bucket import Bucket
    from warehouse.shared.database import SharedDatabase
    from warehouse.shared.file_index import FileIndex

    return FileIndex(SharedDatabase(address), Bucket(bucket))


def locate_existing_home() -> Home:
    """Return the home of the settings.

    Raises:
        SettingsError: the settings can't be used.
        HomeRefused: there is no home; a mistyped path must not look like an empty home.
    """
    home = locate_home(read_settings())
    if home.stamp() is None:
        home.catch_up()
    home.refuse_lost_stamp()
    if home.stamp() is None:
        raise HomeRefused(
            f"there is no home at {home.root} (it has no home.json). Nothing was changed. "
            "`almanac run` creates one; if yours is elsewhere, set ALMANAC_HOME to it."
        )
    return home
