"""The home that a command works on, where it must be there already."""

from pipeline.settings import read_settings
from warehouse.errors import HomeRefused
from warehouse.home import Home


def home_there() -> Home:
    """Return the home of the settings.

    Raises:
        SettingsError: the settings can't be used.
        HomeRefused: there is no home; a mistyped address must not look like an empty one.
    """
    home = Home(read_settings().home)
    if home.stamp() is None:
        raise HomeRefused(
            f"there is no home at {home.root} (it has no home.json). Nothing was changed. "
            "`almanac run` makes one; if yours is elsewhere, name it with ALMANAC_HOME."
        )
    return home
