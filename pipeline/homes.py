"""The home that a command works on."""

from pipeline.settings import Settings, read_settings
from warehouse.errors import HomeRefused
from warehouse.home import Home


def home_of(settings: Settings) -> Home:
    """Return the home of the settings, which waits for its turns as long as they say."""
    return Home(settings.home, wait_s=settings.wait_s, wait_setting="ALMANAC_WAIT_S")


def home_there() -> Home:
    """Return the home of the settings.

    Raises:
        SettingsError: the settings can't be used.
        HomeRefused: there is no home; a mistyped address must not look like an empty one.
    """
    home = home_of(read_settings())
    home.refuse_lost_stamp()
    if home.stamp() is None:
        raise HomeRefused(
            f"there is no home at {home.root} (it has no home.json). Nothing was changed. "
            "`almanac run` makes one; if yours is elsewhere, name it with ALMANAC_HOME."
        )
    return home
