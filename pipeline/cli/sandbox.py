"""`almanac sandbox`: start the synthetic catalog's server and keep it until Ctrl-C."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.sandbox.faults import FAULTS, FaultError
from pipeline.cli.options import stop_by_signals
from pipeline.console import Table, fail, people, print_json
from pipeline.settings import read_settings

if TYPE_CHECKING:
    from catalog.sandbox.sandbox import Sandbox

DEFAULT_PORT = 8650


def sandbox(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")
    ] = DEFAULT_PORT,
    now: Annotated[
        str | None,
        typer.Option(help="Stop the clock at this instant (UTC); by default it runs in real time."),
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
        str, typer.Option(help=f"name[=value][*times][@chance], of: {', '.join(FAULTS)}.")
    ] = "",
    export_interval: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86_400,
            help="The least seconds between two exports of any key; by default none for the keys "
            "below, and 60 for keys of `almanac keys`.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    cors: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may send requests; repeatable.")
    ] = None,
    deprecation: Annotated[
        str | None, typer.Option(help="The value of the header Deprecation in every response.")
    ] = None,
    sunset: Annotated[
        str | None, typer.Option(help="The value of the header Sunset in every response.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="The server's folder; by default under ALMANAC_HOME."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON as the first line of standard output.")
    ] = False,
) -> None:
    """Start the sandbox: the same interface over a synthetic catalog that keeps changing."""
    # Imported here, so that the help and wrong options need no server.
    from catalog.sandbox.clock import SandboxClock
    from catalog.sandbox.sandbox import DEFAULT_SEED, Sandbox
    from catalog.server.accounts.json_file import JsonFileError
    from catalog.server.app import ServerOptions
    from catalog.server.hosting import HostingError
    from catalog.server.state_dir import ServiceDirError
    from catalog.server.webhooks.outbox import OutboxUnreadable

    try:
        clock = SandboxClock(None if now is None else _instant(now))
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
            state_dir=folder or read_settings().service_dir,
            options=ServerOptions(
                cors_origins=tuple(cors or ()), deprecation=deprecation, sunset=sunset
            ),
        )
    except (ValueError, FaultError) as error:
        fail(str(error), code=2)
    stop = threading.Event()
    stop_by_signals(stop.set)
    try:
        box.start()
    except (HostingError, ServiceDirError, JsonFileError, OutboxUnreadable) as error:
        fail(str(error))
    try:
        _announce(box, as_json=as_json)
        stop.wait()
    finally:
        box.stop()
    if not as_json:
        people.print("Stopped.")


def _instant(text: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            f"--now {text!r}: expected a form such as 2026-03-01 or 2026-03-01T06:00:00Z"
        ) from error
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def _announce(box: "Sandbox", *, as_json: bool) -> None:
    if as_json:
        print_json({"base_url": box.base_url, "keys": dict(box.keys)})
        return
    how = (
        "runs in real time"
        if box.clock.running
        else "is stopped; advance it with PUT /sandbox/clock"
    )
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
