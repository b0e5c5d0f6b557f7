"""`almanac serve`: serve the user's own warehouse until Ctrl-C; manage the mirror's keys and
endpoints."""

import threading
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from almanac.command_line import stop_by_signals, wait_until
from almanac.console import EXIT_INTERRUPTED, HomeOption, fail, people
from almanac.core.text import count_noun
from almanac.core.timestamps import utc_now
from application.cli.account_commands import make_server_app
from application.cli.options import (
    BasePathOption,
    CorsOption,
    DirOption,
    FirstLineOption,
    PlanName,
    PortOption,
    instant_option,
    settings_of,
)
from application.console import print_json
from application.web.mirror.mirror import CONTROL_PATH, Mirror
from application.web.mirror.replay import SPEED_MAX, Replay, ReplayState
from application.web.site import WebSite
from catalog.contract.plans import PLANS
from catalog.server.app import ServerOptions
from catalog.server.request_guard import is_loopback
from pipeline.health.warnings import read_health
from pipeline.home_location import locate_existing_home

DEFAULT_PORT = 8651


serve_app = make_server_app()


@serve_app.callback()
def serve(
    context: typer.Context,
    port: PortOption = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(help="The address to listen on. All but loopback need a key.")
    ] = "127.0.0.1",
    plan: Annotated[
        PlanName, typer.Option(help="The plan of requests without a key, on loopback.")
    ] = "enterprise",
    replay: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Replay history from this time (UTC), on a virtual clock."
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The end of the replay; by default the last pull."),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(help="Speed of the replay: its seconds per real second; by default 1."),
    ] = None,
    paused: Annotated[
        bool, typer.Option("--paused", help="Start the replay with a stopped clock.")
    ] = False,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prices for the pages of coins: a CSV or Parquet file with ts, coin and close.",
        ),
    ] = None,
    home: HomeOption = None,
    folder: DirOption = None,
    base_path: BasePathOption = "",
    cors: CorsOption = None,
    as_json: FirstLineOption = False,
) -> None:
    """Serve pages, calendar and the service's interface: now, as of a time, or in a replay."""
    settings = settings_of(home)
    folder = folder or settings.mirror_dir
    if context.invoked_subcommand is not None:
        context.obj = folder
        return
    if replay is None and (until is not None or speed is not None or paused):
        fail("--until, --speed and --paused are for --replay TIME, which is missing", code=2)
    if speed is not None and not 0 < speed <= SPEED_MAX:
        form = f"a number above 0, such as 3600, and at most {SPEED_MAX:g}"
        fail(f"--speed {speed:g}: expected {form}", code=2)
    try:
        options = ServerOptions(cors_origins=tuple(cors or ()), base_path=base_path)
    except ValueError as error:
        fail(f"--cors: {error}", code=2)
    start = None if replay is None else instant_option("--replay", replay)
    end = None if until is None else instant_option("--until", until)
    found = locate_existing_home(settings)
    site = partial(WebSite, prices=prices)
    if replay is None:
        site = partial(site, read_health=lambda: read_health(settings, found, utc_now()))
    stop = threading.Event()
    stop_by_signals(stop.set)
    replayed = None
    if start is not None:
        replayed = Replay(
            found.warehouse,
            start,
            end,
            speed=speed or 1.0,
            on_end=lambda state: _report_end(state, as_json=as_json),
        )
    server = Mirror(
        found.warehouse,
        state_dir=folder,
        replay=replayed,
        host=host,
        port=port,
        plan=PLANS[plan],
        options=options,
        site=site,
    ).start()
    try:
        address = server.base_url + base_path
        if as_json:
            print_json({"base_url": address})
        else:
            _announce(address, replayed, found.warehouse, host)
        if replayed is not None and not paused:
            replayed.clock.change(running=True)
        wait_until(stop)
    finally:
        server.stop()
    raise typer.Exit(EXIT_INTERRUPTED)


def _announce(address: str, replay: Replay | None, warehouse: Path, host: str) -> None:
    if replay is not None:
        clock = replay.clock
        what = f"Replay of {warehouse} from {clock.start:%FT%TZ} to {clock.until:%FT%TZ}"
        people.print(f"{what} on {address}", soft_wrap=True)
        people.print(f"The clock: curl {address}{CONTROL_PATH}", soft_wrap=True)
    else:
        people.print(f"Mirror of {warehouse} on {address}", soft_wrap=True)
    key = ""
    if not is_loopback(host):
        # Every address of the machine is not one that a client can use.
        address, key = address.replace("//0.0.0.0:", "//THIS-MACHINE:"), "-H 'x-api-key: KEY' "
        people.print("Each request needs a key: almanac serve keys create NAME --plan PLAN")
    people.print(f"Pages: {address}/", soft_wrap=True)
    people.print(f"Assistants: {address}/mcp", soft_wrap=True)
    people.print(f"Try: curl {key}'{address}/v2/events?limit=2'", soft_wrap=True)
    people.print("Press Ctrl-C to stop.")


def _report_end(state: ReplayState, *, as_json: bool) -> None:
    """Print the end of a replay; called on a thread of the server."""
    if as_json:
        print_json(msgspec.to_builtins(state))
        return
    people.print(
        f"The replay ended at {state.until:%FT%TZ}: {count_noun(state.changes.known, 'change')}, "
        f"SHA-256 {state.changes.sha256}",
        soft_wrap=True,
    )
