"""`almanac ui`: Dagster's pages and its daemon on the home, until Ctrl-C.

Exit codes: 0 after a signal (Ctrl-C, SIGTERM, SIGHUP), 1 if one of the programs ended by itself.
"""

import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Annotated, Final

import typer
import yaml

from pipeline.cli.options import stop_by_signals
from pipeline.console import people, print_json, warnings
from pipeline.runs.generated import generate
from pipeline.runs.place import LOCATION
from pipeline.session import home_of
from pipeline.settings import read_settings
from pipeline.ui.attached import WEBSERVER
from pipeline.ui.programs import (
    DAEMON,
    Program,
    address_of,
    end_orphans,
    fail_if_ended,
    wait_until_answering,
)
from warehouse.errors import RunRecordsBusy
from warehouse.home import Home

DEFAULT_PORT: Final = 3000
_DEAD_RUNS_EVERY_S: Final = 5.0
_WORKSPACE_FILE: Final = "workspace.yaml"
_WORKSPACE: Final = {
    "load_from": [
        {"python_module": {"module_name": "pipeline.definitions", "location_name": LOCATION}}
    ]
}


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the pages.")] = (
        DEFAULT_PORT
    ),
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    known_as: Annotated[
        list[str] | None,
        typer.Option(help="Another host name of the pages, e.g. behind a proxy; repeatable."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON as the first line of standard output.")
    ] = False,
) -> None:
    """Start Dagster on the home: pages, schedules and sensors."""
    host = host.strip("[]")
    settings = read_settings()
    home = home_of(settings)
    home.check(settings.source)
    stop = threading.Event()
    # Two daemons on one home would each launch the same runs.
    with home.ui_lock(), ExitStack() as stack:
        from pipeline.instance import instance_of, plain_faults
        from pipeline.runs.dead_runs import StartWatch, fail_dead_runs

        end_orphans(home)
        # Otherwise both programs would create the databases at once, and one would fail.
        instance = stack.enter_context(instance_of(home))
        watch = StartWatch()
        fail_dead_runs(home, instance, watch)
        workspace = write_workspace(home)
        stop_by_signals(stop.set)
        address = address_of(host, port)
        names = [word for name in known_as or () for word in ("--known-as", name)]
        programs = [
            Program(WEBSERVER, home, workspace, "-h", host, "-p", str(port), *names),
            Program(DAEMON, home, workspace, "run"),
        ]
        for program in programs:
            stack.callback(program.wait)
            program.start()
        for program in programs:
            stack.callback(program.interrupt)
        wait_until_answering(address, programs, stop.wait)
        if not stop.is_set():
            _announce(address, as_json=as_json)
        checked_at = monotonic()
        while not stop.wait(0.5):
            fail_if_ended(programs)
            if monotonic() - checked_at > _DEAD_RUNS_EVERY_S:
                # The daemon may be in a long write; the next check is soon.
                with suppress(RunRecordsBusy), plain_faults(home):
                    fail_dead_runs(home, instance, watch)
                checked_at = monotonic()
    if not as_json:
        people.print("Stopped.")


def write_workspace(home: Home) -> Path:
    """Return the `workspace.yaml` to load: a person's, else the generated one of the home.

    Raises:
        OSError: it can't be written.
    """
    given = home.instance_folder / _WORKSPACE_FILE
    path = home.dagster / _WORKSPACE_FILE
    if given != path and given.exists():
        warnings.print(f"Code locations of {given}", soft_wrap=True)
        return given
    text = yaml.safe_dump(_WORKSPACE)
    if generate(path, text, older=[text]) == "kept":
        warnings.print(f"Code locations of {path}, which was changed by hand", soft_wrap=True)
    return path


def _announce(address: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"address": address})
        return
    people.print(f"Dagster on {address}", soft_wrap=True)
    people.print(f"Assets: {address}/asset-groups", soft_wrap=True)
    people.print("Press Ctrl-C to stop.")
