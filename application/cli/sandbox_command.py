"""`almanac sandbox`: serve the synthetic catalog until Ctrl-C; manage its keys and endpoints."""

import threading
from typing import TYPE_CHECKING, Annotated

import typer

from almanac.command_line import stop_by_signals, wait_until
from almanac.console import EXIT_INTERRUPTED, Table, fail, people
from application.cli.account_commands import make_server_app
from application.cli.options import (
    CorsOption,
    DirOption,
    FirstLineOption,
    HostOption,
    PortOption,
    instant_option,
)
from application.console import print_json
from catalog.sandbox.faults import FAULTS
from pipeline.settings import read_settings

if TYPE_CHECKING:
    from catalog.sandbox.sandbox import Sandbox

DEFAULT_PORT = 8650


sandbox_app = make_server_app()


@sandbox_app.callback()
def sandbox(
    context: typer.Context,
    port: PortOption = DEFAULT_PORT,
    now: Annotated[
        str | None,
        typer.Option(help="Stop the clock at this time (UTC); by default it runs in real time."),
    ] = None,
    tick: Annotated[bool, typer.Option("--tick", help="Let the clock run from --now.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            help="The seed of the catalog, 1 by default; the same seed gives the same catalog."
        ),
    ] = None,
    pace: Annotated[
        float, typer.Option(min=0, max=100, help="How often events change; 1 is normal.")
    ] = 1.0,
    faults: Annotated[
        str, typer.Option(help=f"name[=value][*times]\\[@chance], of: {', '.join(FAULTS)}.")
    ] = "",
    export_interval: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            help="The minimum seconds between two exports with one key. Default: 0 for the "
            "sandbox's own keys, 60 for keys from `almanac sandbox keys`.",
        ),
    ] = None,
    host: HostOption = "127.0.0.1",
    cors: CorsOption = None,
    folder: DirOption = None,
    as_json: FirstLineOption = False,
) -> None:
    """Serve the service's interface locally, over a synthetic catalog that keeps changing."""
    folder = folder or read_settings().service_dir
    if context.invoked_subcommand is not None:
        context.obj = folder
        return
    from catalog.sandbox.clock import SandboxClock
    from catalog.sandbox.sandbox import DEFAULT_SEED, Sandbox
    from catalog.server.app import ServerOptions

    try:
        clock = SandboxClock(None if now is None else instant_option("--now", now))
        if tick:
            clock.run()
        box = Sandbox(
            seed=DEFAULT_SEED if seed is None else seed,
            pace=pace,
            clock=clock,
            faults=faults,
            export_interval_s=export_interval,
            host=host,
            port=port,
            state_dir=folder,
            push_tls=read_settings().network().trust(),
            options=ServerOptions(cors_origins=tuple(cors or ())),
        )
    except ValueError as error:
        fail(str(error), code=2)
    stop = threading.Event()
    stop_by_signals(stop.set)
    box.start()
    try:
        _announce(box, as_json=as_json)
        wait_until(stop)
    finally:
        box.stop()
    if not as_json:
        people.print("Stopped.")
    raise typer.Exit(EXIT_INTERRUPTED)


def _announce(box: "Sandbox", *, as_json: bool) -> None:
    if as_json:
        print_json({"base_url": box.base_url, "keys": dict(box.keys)})
        return
    stopped = "is stopped; advance it with PUT /sandbox/clock"
    how = "runs in real time" if box.clock.running else stopped
    people.print(f"Sandbox on {box.base_url}   (seed {box.seed}, pace {box.pace:g})")
    people.print(
        f"Its clock shows {box.clock.now():%Y-%m-%d %H:%M:%S} UTC and {how}.", soft_wrap=True
    )
    table = Table("Plan", "Key")
    for plan, key in box.keys.items():
        table.add_row(plan, key)
    people.print(table)
    people.print(f"Reference: {box.base_url}/docs", soft_wrap=True)
    example = f"curl -H 'x-api-key: {box.keys['elite']}' '{box.base_url}/v2/events?limit=2'"
    people.print(f"Try: {example}", soft_wrap=True)
    people.print("Press Ctrl-C to stop.")
