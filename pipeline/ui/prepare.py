"""Makes the databases of the home's Dagster instance, or says why they can't be used.

    python -m pipeline.ui.prepare

A process of its own, so that the one that watches the programs never imports Dagster, which takes
as much memory as all else that it has.
"""

import sys

from pipeline.instance import instance_of
from pipeline.secrecy import begin_private
from pipeline.session import home_of
from pipeline.settings import read_settings
from warehouse.errors import WarehouseError


def main() -> None:
    begin_private()
    try:
        with instance_of(home_of(read_settings())):
            pass
    except WarehouseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
