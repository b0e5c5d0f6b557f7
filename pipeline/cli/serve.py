"""`almanac serve`: the service's interface over the user's own warehouse, until Ctrl-C."""

import threading
from pathlib import Path
from typing import Annotated

import typer

from almanac.command_line import stop_by_signals, wait_until
from almanac.console import EXIT_INTERRUPTED, fail, people
from almanac.errors import WarehouseError
from pipeline.console import print_json
from pipeline.home_location import locate_existing_home
from pipeline.settings import read_settings

DEFAULT_PORT = 8651


def serve(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")
    ] = DEFAULT_PORT,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on. All but loopback need a key."),
    ] = "127.0.0.1",
    plan: Annotated[
        str, typer.Option(help="The plan of requests without a key, on loopback.")
    ] = "enterprise",
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="The mirror's folder; by default under ALMANAC_HOME."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON as the first line of standard output.")
    ] = False,
) -> None:
    """Serve the service's interface over the warehouse, without a quota, now or as of a time."""
    # Imported here, so that the help and wrong options need no server.
    from catalog.contract.plans import PLANS
    from catalog.server.accounts import JsonFileError
    from catalog.server.hosting import HostingError
    from catalog.server.state_dir import ServiceDirError
    from pipeline.mirror.mirror import Mirror

    if plan not in PLANS:
        fail(f"there is no plan {plan!r}; the plans are {', '.join(PLANS)}", code=2)
    home = locate_existing_home()
    mirror = Mirror(
        home.warehouse,
        state_dir=folder or read_settings().mirror_dir,
        host=host,
        port=port,
        plan=PLANS[plan],
    )
    stop = threading.Event()
    stop_by_signals(stop.set)
    try:
        mirror.start()
    except (WarehouseError, HostingError, ServiceDirError, JsonFileError) as error:
        fail(str(error))
    try:
        if as_json:
            print_json({"base_url": mirror.base_url})
        else:
            people.print(f"Mirror of {home.warehouse} on {mirror.base_url}", soft_wrap=True)
            people.print(f"Try: curl '{mirror.base_url}/v2/events?limit=2'", soft_wrap=True)
            people.print("Press Ctrl-C to stop.")
        wait_until(stop)
    finally:
        mirror.stop()
    raise typer.Exit(EXIT_INTERRUPTED)
