"""`almanac ui` and `almanac daemon`: Dagster on the home, with or without its pages.

Exit codes: 130 after a signal (Ctrl-C, SIGTERM, SIGHUP), 1 if a program could not be started or
exited; with `--check`, 0 if the daemon is well, 1 if it is not.
"""

import sys
import threading
from typing import Annotated, Final

import typer

from almanac.command_line import stop_by_signals
from almanac.console import EXIT_INTERRUPTED, EXIT_USAGE, fail, people, warnings
from pipeline.console import print_json
from pipeline.home_location import locate_home
from pipeline.settings import read_settings
from pipeline.ui.alive import faults_of, heartbeats, last_heartbeat
from pipeline.ui.logs import LogFormat, ProgramLog
from pipeline.ui.names import CODE_SERVER, DAEMON, WEBSERVER, PagesAddress, socket_path
from pipeline.ui.programs import (
    DagsterPrograms,
    Program,
    code_server_arguments,
    end_orphans,
    prepare,
    write_workspace,
)
from warehouse.clock import utc_now
from warehouse.home import Home

DEFAULT_PORT: Final = 3000
JsonOutput = Annotated[
    bool, typer.Option("--json", help="Print JSON as the first line of standard output.")
]
LogFormatOption = Annotated[
    LogFormat,
    typer.Option(help="The form of the log files: text, or one JSON object a line."),
]
PrintLogs = Annotated[
    bool,
    typer.Option("--print-logs", help="Also print the logs on standard error, for containers."),
]


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the pages.")] = (
        DEFAULT_PORT
    ),
    host: Annotated[
        str,
        typer.Option(help="The address to listen on. The pages have no password."),
    ] = "127.0.0.1",
    known_as: Annotated[
        list[str] | None,
        typer.Option(help="Another host name of the pages, e.g. behind a proxy; repeatable."),
    ] = None,
    path_prefix: Annotated[
        str, typer.Option(help="The path of the pages behind a proxy, such as /almanac.")
    ] = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="The pages can show everything and change nothing.")
    ] = False,
    log_format: LogFormatOption = "text",
    print_logs: PrintLogs = False,
    as_json: JsonOutput = False,
) -> None:
    """Start Dagster on the home: UI, schedules and sensors."""
    pages = PagesAddress(
        host=host.strip("[]"),
        port=port,
        path_prefix=_checked_prefix(path_prefix),
        known_as=known_as or [],
        read_only=read_only,
    )
    if not pages.is_local and not read_only:
        warnings.print(
            f"almanac: warning: the pages need no password, and on {pages.host} others reach them: "
            "whoever does can start and delete runs. Put a proxy with a password in front of "
            "them, or use --read-only.",
            soft_wrap=True,
        )
    _serve(pages, log_format, print_logs=print_logs, as_json=as_json)


def daemon(
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Start nothing; exit with 0 if the daemon of the home is well, 1 if not. For the "
            "probes of containers; it sends no request.",
        ),
    ] = False,
    log_format: LogFormatOption = "text",
    print_logs: PrintLogs = False,
    as_json: JsonOutput = False,
) -> None:
    """Start Dagster's schedules and sensors on the home, without the UI. `--check` is a probe."""
    if check:
        _check(as_json=as_json)
    else:
        _serve(None, log_format, print_logs=print_logs, as_json=as_json)


def _serve(
    pages: PagesAddress | None, log_format: LogFormat, *, print_logs: bool, as_json: bool
) -> None:
    settings = read_settings()
    home = locate_home(settings)
    home.check(settings.source)
    stop = threading.Event()
    # Two daemons on one home would each launch the same runs.
    with home.ui_lock(), socket_path(home) as socket:
        end_orphans(home)
        prepare(home)
        stop_by_signals(stop.set)
        home.dagster.mkdir(parents=True, exist_ok=True)

        logged = "json" if log_format == "json" else "colored"
        files = [word for file in write_workspace(home, socket) for word in ("--workspace", file)]

        def program(name: str, arguments: list[str]) -> Program:
            log = ProgramLog(
                home.dagster / f"{name}.log",
                log_format=log_format,
                now=utc_now,
                also=_print_log if print_logs else None,
            )
            return Program(name, home, arguments, log)

        clients = [program(DAEMON, [DAEMON, "run", *files, "--log-format", logged])]
        if pages is not None:
            clients.append(program(WEBSERVER, [*_webserver_arguments(pages), *files]))
        code_server = program(CODE_SERVER, code_server_arguments(socket, logged))
        programs = DagsterPrograms(home, code_server, clients, stop.wait)
        # What reads the lines of the logs as JSON can't read others between them.
        quiet = print_logs and log_format == "json"
        try:
            if programs.start(socket, pages):
                if as_json or not quiet:
                    _announce(home, pages, as_json=as_json)
                programs.watch()
        finally:
            programs.stop()
    if not as_json and not quiet:
        people.print("Stopped.")
    raise typer.Exit(EXIT_INTERRUPTED)


def _webserver_arguments(pages: PagesAddress) -> list[str]:
    return [
        *("pipeline.ui.webserver", f"--host={pages.host}", f"--port={pages.port}"),
        f"--path-prefix={pages.path_prefix}",
        *(f"--known-as={name}" for name in pages.known_as),
        *(["--read-only"] if pages.read_only else []),
    ]


def _print_log(line: bytes) -> None:
    """Print a line of a log at once: a container that is killed loses what is still in a buffer."""
    sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()


def _check(*, as_json: bool) -> None:
    home = locate_home(read_settings())
    now = utc_now()
    faults = faults_of(home, now)
    if as_json:
        print_json(
            {
                "well": not faults,
                "faults": faults,
                "reported_at": last_heartbeat(heartbeats(home)),
            }
        )
        if faults:
            raise typer.Exit(1)
    elif faults:
        fail(" ".join(faults))
    else:
        people.print("The daemon is well.")


def _announce(home: Home, pages: PagesAddress | None, *, as_json: bool) -> None:
    if as_json:
        print_json({"home": str(home.root)} if pages is None else {"address": pages.url})
        return
    if pages is None:
        people.print(f"Dagster's daemon on {home.root}", soft_wrap=True)
    else:
        people.print(f"Dagster on {pages.url}", soft_wrap=True)
        people.print(f"Assets: {pages.url}/asset-groups", soft_wrap=True)
    people.print("Press Ctrl-C to stop.")


def _checked_prefix(text: str) -> str:
    """Return the path of the pages, without a slash at its end; "" for the root."""
    prefix = text.rstrip("/")
    if prefix and not (prefix.startswith("/") and prefix.isprintable() and " " not in prefix):
        fail(f"--path-prefix {text!r}: expected a path such as /almanac", code=EXIT_USAGE)
    return prefix
