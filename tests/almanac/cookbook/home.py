"""The home of the cookbook and of the notebook: 24 days of the embedded sandbox.

    python -m tests.almanac.cookbook.home FOLDER

Belongs here: its pulls, merged and published without Dagster. The clock of the sandbox is set to
each instant, so the home has the same rows wherever and whenever it is made.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pipeline.service_session import OpenedSession, open_service
from pipeline.settings import Settings
from resources.session import pull
from warehouse.history.merge import merge
from warehouse.home import Home

FIRST: Final = datetime(2021, 3, 1, 6, tzinfo=UTC)
DAYS: Final = 24
COINS_EVERY: Final = 7
"""Days between two pulls of the coins, which are 16 requests."""
YESTERDAY: Final = timedelta(days=1)


def make_home(folder: Path) -> Home:
    """Make the home in a folder that does not exist or is empty."""
    settings = Settings(home=folder, state=folder / "machine", sandbox_seed=1)
    with open_service(settings, now=FIRST) as service:
        for number in range(DAYS):
            _pull_day(service, number)
        home = Home(folder)
        merge(home)
    return home


def _pull_day(service: OpenedSession, number: int) -> None:
    at = FIRST + timedelta(days=number)
    assert service.sandbox is not None
    service.sandbox.set_clock(at)
    # From yesterday on: what is over for longer is no part of the questions, and takes seconds.
    service.puller().export((at - YESTERDAY).date(), None)
    pull("cancellations", service)
    if number % COINS_EVERY == 0:
        pull("coins", service)
    if number == 0:
        pull("categories", service)


def main() -> None:
    folder = Path(sys.argv[1])
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty; name a new folder, or remove it. Nothing was changed.")
    # A key, a watchlist or a plan of yours would make another home, from your service.
    for name in [name for name in os.environ if name.startswith("ALMANAC_")]:
        del os.environ[name]
    sys.stdout.write(f"{make_home(folder).warehouse}\n")


if __name__ == "__main__":
    main()
