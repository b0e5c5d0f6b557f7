"""`almanac ui`: Dagster's pages and its daemon on the home, until Ctrl-C."""

import shutil
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Annotated, Final

import httpx
import typer
import yaml

from pipeline.console import fail, people, print_json
from pipeline.settings import read_settings
from warehouse.home import Home
from warehouse.storage import Storage

DEFAULT_PORT: Final = 3000
_START_S: Final = 90.0
_STOP_S: Final = 30.0
_WORKSPACE: Final = {
    "load_from": [
        {"python_module": {"module_name": "pipeline.definitions", "location_name": "almanac"}}
    ]
}


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the pages.")] = (
        DEFAULT_PORT
    ),
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    as_json: Annotated[
        bool, typer.Option("--json", help="The first line on standard output is JSON.")
    ] = False,
) -> None:
    """Start Dagster on the home: its pages, its schedules and sensors."""
    settings = read_settings()
    home = Home(settings.home)
    home.check(settings.source)
    from pipeline.dagster_home import make_stores

    # Both programs would make them at once, and one of them fail.
    make_stores(home)
    Storage(home.dagster).put("workspace.yaml", yaml.safe_dump(_WORKSPACE).encode())
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    address = f"http://{host}:{port}"
    with ExitStack() as stack:
        processes = [
            _Tool("dagster-webserver", home, "-h", host, "-p", str(port)),
            _Tool("dagster-daemon", home, "run"),
        ]
        for process in processes:
            stack.callback(process.wait)
            process.start()
        for process in processes:
            stack.callback(process.interrupt)
        _wait_until_answering(address, processes, stop)
        if not stop.is_set():
            _announce(address, as_json=as_json)
        while not stop.wait(0.5):
            _fail_if_ended(processes)
    if not as_json:
        people.print("Stopped.")


class _Tool:
    """One of Dagster's programs, its output in a file of the home."""

    def __init__(self, name: str, home: Home, *words: str) -> None:
        self.name = name
        self.log = home.dagster / f"{name}.log"
        self._home = home
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder = self._home.dagster.resolve()
        # `env` adds to the environment without this program having to read it.
        command = [
            *("env", f"DAGSTER_HOME={folder}", f"ALMANAC_HOME={self._home.root.resolve()}"),
            *(str(_program(self.name)), *self._words, "-w", str(folder / "workspace.yaml")),
        ]
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C reaches it once, from here.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def interrupt(self) -> None:
        if self._process is not None and not self.ended:
            self._process.send_signal(signal.SIGINT)

    def wait(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _program(name: str) -> Path:
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.exists() else shutil.which(name)
    if found is None:
        fail(f"{name} is not installed; run `make run` or install crypto-almanac anew")
    return Path(found)


def _wait_until_answering(address: str, processes: list[_Tool], stop: threading.Event) -> None:
    give_up_at = monotonic() + _START_S
    while not stop.wait(0.2):
        _fail_if_ended(processes)
        try:
            httpx.get(f"{address}/server_info", timeout=5, trust_env=False).raise_for_status()
        except httpx.HTTPError:
            if monotonic() > give_up_at:
                fail(f"Dagster did not answer on {address} within {_START_S:g} s")
        else:
            return


def _fail_if_ended(processes: list[_Tool]) -> None:
    for process in processes:
        if process.ended:
            lines = process.log.read_text("utf-8", "replace").strip().splitlines()
            said = lines[-1].strip() if lines else "it said nothing"
            fail(f"{process.name} ended: {said} (all of it in {process.log})")


def _announce(address: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"address": address})
        return
    people.print(f"Dagster on {address}", soft_wrap=True)
    people.print(f"Assets: {address}/asset-groups", soft_wrap=True)
    people.print("Ctrl-C stops it.")
