"""`almanac ui` and `almanac daemon`: Dagster on the home, on one machine.

Exit codes: 130 after a signal (Ctrl-C, SIGTERM, SIGHUP), 1 if a program could not be started or
exited; with `--check`, 0 if the daemon reported within two minutes, 1 if not.
"""

import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

import typer

from almanac.command_line import stop_by_signals
from almanac.console import EXIT_INTERRUPTED, EXIT_USAGE, fail, people, warnings
from pipeline.console import print_json
from pipeline.home_location import locate_home
from pipeline.runs.place import place_of
from pipeline.runs.store import daemon_heartbeats
from pipeline.settings import read_settings
from pipeline.ui.programs import WebAddress, serve_dagster
from warehouse.clock import utc_now
from warehouse.home import Home

DEFAULT_PORT: Final = 3000
OLD_AFTER: Final = timedelta(seconds=120)
"""Dagster's daemons report every 30 s, a busy one later."""
JsonOutput = Annotated[
    bool, typer.Option("--json", help="Print JSON as the first line of standard output.")
]
LogFormat = Annotated[
    Literal["text", "json"] | None,
    typer.Option(
        help="The form of the logs on standard error: text, or one JSON object a line.",
        show_default="text on a terminal, else json",
    ),
]


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the UI.")] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(help="The address to listen on. The UI has no password.")
    ] = "127.0.0.1",
    known_as: Annotated[
        list[str] | None,
        typer.Option(help="Another host name of the UI, e.g. behind a proxy; repeatable."),
    ] = None,
    path_prefix: Annotated[
        str, typer.Option(help="The path of the UI behind a proxy, such as /almanac.")
    ] = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Disable all changes in the UI.")
    ] = False,
    log_format: LogFormat = None,
    as_json: JsonOutput = False,
) -> None:
    """Start Dagster on the home: UI, schedules and sensors."""
    address = WebAddress(
        host=host.strip("[]"),
        port=port,
        path_prefix=_check_prefix(path_prefix),
        known_as=known_as or [],
        read_only=read_only,
    )
    if not address.is_local and not read_only:
        warnings.print(
            f"almanac: warning: the UI needs no password, and other machines reach it on "
            f"{address.host}: anyone there can start and delete runs. Put a proxy with a password "
            "in front of it, or use --read-only.",
            soft_wrap=True,
        )
    _serve(address, log_format, as_json=as_json)


def daemon(
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Start nothing; exit with 0 if the daemon of the home reported within two "
            "minutes, 1 if not. For container probes; sends no request.",
        ),
    ] = False,
    log_format: LogFormat = None,
    as_json: JsonOutput = False,
) -> None:
    """Start Dagster's schedules and sensors on the home, without the UI. `--check` is a probe."""
    if check:
        _check(as_json=as_json)
    else:
        _serve(None, log_format, as_json=as_json)


def _serve(
    address: WebAddress | None, log_format: Literal["text", "json"] | None, *, as_json: bool
) -> None:
    settings = read_settings()
    home = locate_home(settings)
    home.check(settings.source)
    stop = threading.Event()
    is_text = log_format == "text" or (log_format is None and sys.stderr.isatty())

    def announce() -> None:
        if as_json:
            print_json({"home": str(home.root)} if address is None else {"address": address.url})
        elif address is None:
            people.print(f"Dagster's daemon on {home.root}. Ctrl-C stops it.", soft_wrap=True)
        else:
            people.print(f"Dagster on {address.url}. Ctrl-C stops it.", soft_wrap=True)
            people.print(f"Assets: {address.url}/asset-groups", soft_wrap=True)

    # Two daemons on one home would each launch the same runs.
    with home.ui_lock():
        stop_by_signals(stop.set)
        serve_dagster(home, address, "colored" if is_text else "json", stop.wait, announce)
    if not as_json:
        people.print("Stopped.")
    raise typer.Exit(EXIT_INTERRUPTED)


def _check_prefix(text: str) -> str:
    """Return the path of the UI, without a slash at its end; "" for the root."""
    prefix = text.rstrip("/")
    if prefix and not (prefix.startswith("/") and prefix.isprintable() and " " not in prefix):
        fail(f"--path-prefix {text!r}: expected a path such as /almanac", code=EXIT_USAGE)
    return prefix


def _check(*, as_json: bool) -> None:
    home = locate_home(read_settings())
    beats = read_heartbeats(home)
    fault = find_fault(beats, utc_now())
    if as_json:
        last = max(beats.values(), default=None)
        print_json({"well": not fault, "fault": fault, "reported_at": last})
        raise typer.Exit(int(bool(fault)))
    if fault:
        fail(fault)
    people.print("The daemon is well.")


def read_heartbeats(home: Home) -> Mapping[str, datetime]:
    """Return when each part of Dagster's daemon last reported, by its type.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    if place_of(home).databases is not None:
        return daemon_heartbeats(home)  # Without Dagster, which takes seconds to import.
    from pipeline.instance import instance_of

    with instance_of(home) as instance:
        return {
            kind: datetime.fromtimestamp(beat.timestamp, UTC)
            for kind, beat in instance.get_daemon_heartbeats().items()
        }


def find_fault(beats: Mapping[str, datetime], now: datetime) -> str:
    """Return what is wrong with a daemon of these heartbeats, an empty text if it is well."""
    if not beats:
        return "No daemon has reported on this home. Start dagster-daemon, or almanac daemon."
    last = max(beats.values())
    # Of a daemon of a machine with another clock the age may be negative.
    age = abs(now - last)
    if age <= OLD_AFTER:
        return ""
    return (
        f"The daemon last reported at {last:%Y-%m-%d %H:%M:%S} UTC, {age.total_seconds():.0f} s "
        "ago; it should every 30 s."
    )
