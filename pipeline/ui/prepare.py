"""Makes the databases of the home's Dagster instance, and fails the runs of killed programs.

    python -m pipeline.ui.prepare

It says why the databases can't be used. It is a process of its own, so that the process that
watches the programs never imports Dagster, which takes as much memory as all else that it has.
"""

import sys

from pipeline.home_location import locate_home
from pipeline.instance import instance_of
from pipeline.runs.dead_runs import fail_dead_runs
from pipeline.secrecy import begin_private
from pipeline.settings import read_settings
from warehouse.clock import utc_now
from warehouse.errors import WarehouseError


def main() -> None:
    begin_private()
    try:
        settings = read_settings()
        home = locate_home(settings)
        with instance_of(home) as instance:
            local = settings.executor == "in_process"
            fail_dead_runs(home, instance, utc_now() if local else None)
    except WarehouseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
