"""`almanac ui` and `almanac daemon`: Dagster's own programs on the home.

Exit codes: 130 after a signal (Ctrl-C, SIGTERM, SIGHUP), 1 if Dagster could not be started or
exited; with `--check`, 0 if the daemon reported within two minutes, 1 if not.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Final

import typer

from almanac.command_line import stop_by_signals
from almanac.console import EXIT_INTERRUPTED, JsonOption, fail, people, warnings
from almanac.core.files import try_lock
from almanac.core.timestamps import utc_now
from application.cli.options import BasePathOption
from application.console import print_json
from pipeline.home_location import locate_home, restore_home
from pipeline.settings import read_settings
from warehouse.files.storage import Storage
from warehouse.home import Home

APPLICATION: Final = Path(__file__).parents[2]
DEFAULT_PORT: Final = 3000
OLD_AFTER_S: Final = 120.0
"""Dagster's daemons report every 30 s, or later when busy."""
_STOP_S: Final = 10.0
_DAEMON: Final = [str(Path(sys.executable).with_name("dagster-daemon")), "run"]


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the UI.")] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(help="The address to listen on. The UI has no password.")
    ] = "127.0.0.1",
    base_path: BasePathOption = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Disable all changes in the UI.")
    ] = False,
    known_as: Annotated[
        list[str] | None,
        typer.Option(help="A host name under which a proxy serves the UI. Repeatable."),
    ] = None,
) -> None:
    """Start Dagster on the home: UI, schedules and sensors."""
    if not read_only and host not in ("localhost", "::1") and not host.startswith("127."):
        warnings.print(
            f"almanac: warning: the UI needs no password, and other machines reach it on {host}: "
            "anyone there can start and delete runs. Put a proxy with a password in front of it, "
            "or use --read-only.",
            soft_wrap=True,
        )
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        fail(f"{url} can't be served: {error.strerror or error}")
    web = [sys.executable, "-m", "application.dagster_ui", f"--host={host}", f"--port={port}"]
    web += [f"--path-prefix={base_path}", *(f"--known-as={name}" for name in known_as or ())]
    web += ["--read-only"] if read_only else []
    _serve(f"Dagster on {url}{base_path}", _DAEMON, web)


def daemon(
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Start nothing; exit with 0 if the daemon of the home reported within two "
            "minutes, 1 if not. For container probes; sends no request.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start Dagster's schedules and sensors on the home, without the UI. `--check` is a probe."""
    if check:
        _check(as_json=as_json)
    else:
        _serve("Dagster's daemon", _DAEMON)


def _serve(what: str, *commands: list[str]) -> None:
    """Run Dagster's programs, with all processes that they start, until a signal."""
    settings = read_settings()
    home = locate_home(settings)
    home.check(settings.source)
    restore_home(home)
    home.dagster.mkdir(parents=True, exist_ok=True)
    # Two daemons on one home would each launch the same runs. Dagster inherits the second lock, so
    # that it is held if this process is killed.
    with home.ui_lock(), (home.dagster / "programs.lock").open("a+b") as lock:
        if not try_lock(lock):
            lock.seek(0)
            fail(f"Dagster of a killed command still runs: process {lock.read().decode()}. End it.")
        variables = {
            "DAGSTER_HOME": str(home.instance_folder.resolve()),
            "ALMANAC_HOME": str(home.root.resolve()),
            "PYTHONSAFEPATH": "1",
        }
        common = [f"--workspace={path}" for path in _prepare(home)]
        common += [f"--log-format={'colored' if sys.stderr.isatty() else 'json'}"]
        programs: list[subprocess.Popen[bytes]] = []
        for command in commands:
            program = subprocess.Popen(
                ["env", *(f"{k}={v}" for k, v in variables.items()), *command, *common],
                # A group of its own: a signal reaches the runs, too, and each process once.
                process_group=programs[0].pid if programs else 0,
                pass_fds=[lock.fileno()],
            )
            programs.append(program)
        group = programs[0].pid
        lock.truncate(0)
        lock.write(str(group).encode())
        lock.flush()
        stopped: list[bool] = []
        stop_by_signals(lambda: stopped.append(_signal(group, signal.SIGTERM)))
        people.print(f"{what}, home {home.root}. Ctrl-C stops it.", soft_wrap=True)
        while all(program.poll() is None for program in programs):
            sleep(0.1)
        ended = next(program for program in programs if program.returncode is not None)
        # What is left of the group, such as runs, which journal the pulled pages.
        _signal(group, signal.SIGTERM)
        give_up_at = monotonic() + _STOP_S
        while monotonic() < give_up_at and _signal(group, 0):
            for program in programs:
                program.poll()
            sleep(0.1)
        _signal(group, signal.SIGKILL)
    if not stopped:
        fail(f"a program ended with code {ended.returncode}: its reason is above")
    raise typer.Exit(EXIT_INTERRUPTED)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a group of processes; return whether there was one."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _prepare(home: Home) -> list[Path]:
    """Make the instance, then the workspace file of the home; return all workspace files.

    A `workspace.yaml` in the folder of the Dagster instance adds code locations. Of two locations
    with one name Dagster takes the last one.
    """
    from pipeline.instance import open_instance

    # Programs that make a database at the same time would leave it unusable.
    with open_instance(home) as instance:
        instance.all_instigator_state()
        instance.get_asset_keys()
    place = {
        "module_name": "pipeline.definitions",
        "location_name": "almanac",
        # Otherwise the caller's folder has a say in what is imported.
        "working_directory": str(APPLICATION),
    }
    text = json.dumps({"load_from": [{"python_module": place}]})
    Storage(home.dagster).put("almanac-workspace.yaml", text.encode())
    found = (home.instance_folder / "workspace.yaml", home.dagster / "almanac-workspace.yaml")
    return [path.resolve() for path in found if path.exists()]


def _check(*, as_json: bool) -> None:
    home, now, last = locate_home(read_settings()), utc_now(), None
    if home.instance_folder.exists():
        from pipeline.instance import open_instance

        with open_instance(home) as instance:
            beats = [beat.timestamp for beat in instance.get_daemon_heartbeats().values()]
            last = datetime.fromtimestamp(max(beats), UTC) if beats else None
    fault = ""
    if last is None:
        fault = "No daemon has reported on this home. Start `almanac ui` or `almanac daemon`."
    # Of a daemon of a machine with another clock the age may be negative.
    elif (age := abs(now - last).total_seconds()) > OLD_AFTER_S:
        fault = f"The daemon last reported {age:.0f} s ago; it should every 30 s."
    if as_json:
        print_json({"well": not fault, "fault": fault, "reported_at": last})
        raise typer.Exit(int(bool(fault)))
    if fault:
        fail(fault)
    people.print("The daemon is well.")
