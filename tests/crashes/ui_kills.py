"""`almanac ui` killed: it, its webserver, its daemon or the process of a run, and started again."""

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import Final

import httpx

from pipeline.attached import WEBSERVER
from pipeline.ui_programs import DAEMON, lock_of
from tests.crashes.commands import ENDS_WITHIN_S, SIGNALS, Killer, end
from tests.pipeline.daemon import Pages, programs_on, wait_for
from warehouse.home import Home
from warehouse.turns import holder

VICTIMS: Final = ("almanac ui", "run", DAEMON, WEBSERVER)
ASSET: Final = "landed_export"
_COMES_UP_S: Final = 120.0


def kill_ui(killer: Killer, number: int) -> None:
    """Kill one of its processes while a run is under way; the next one must run all the same."""
    port = free_port()
    day = max(Home(killer.home).landing.days()).isoformat()
    process = killer.start("ui", "--json", "--port", str(port))
    try:
        pages = come_up(process)
        run_id = pages.materialise(ASSET, day)
        worker = wait_for(lambda: pages.worker_of(run_id), seconds=60)
        time.sleep(killer.chance.uniform(0, 1.5))
        victim = VICTIMS[number % len(VICTIMS)]
        signalled = killer.chance.choice(SIGNALS)
        killer.kills += 1
        if victim == "almanac ui":
            killer.strike(process, signal.SIGKILL, with_group=False)
        else:
            with suppress(ProcessLookupError):
                os.kill(worker if victim == "run" else pid_of(killer, victim), signalled)
        if victim == "run":
            wait_for(lambda: ended(pages, run_id), seconds=60)
            process.send_signal(signalled)
        process.wait(ENDS_WITHIN_S)
    finally:
        if process.poll() is None:
            end(process)
    again = killer.start("ui", "--json", "--port", str(port))
    try:
        pages = come_up(again)
        wait_for(lambda: ended(pages, run_id), seconds=60)
        run_id = pages.materialise(ASSET, day)
        assert wait_for(lambda: ended(pages, run_id), seconds=60) == "SUCCESS"
        again.send_signal(signal.SIGHUP)
        assert again.wait(ENDS_WITHIN_S) == 0
    finally:
        if again.poll() is None:
            end(again)
    # Dagster's code servers end by themselves when nobody has asked for twenty seconds.
    for pid, _ in programs_on(killer.home):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def come_up(process: subprocess.Popen[str]) -> Pages:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        said = process.communicate(timeout=_COMES_UP_S)
        raise AssertionError(f"almanac ui did not come up: {said}")
    return Pages(json.loads(line)["address"])


def ended(pages: Pages, run_id: str) -> str | None:
    """Return how a run ended, None while it has not."""
    with suppress(httpx.HTTPError):
        status = pages.run_status(run_id)
        return status if status in ("SUCCESS", "FAILURE", "CANCELED") else None
    return None


def pid_of(killer: Killer, program: str) -> int:
    found = holder(lock_of(Home(killer.home), program))
    assert found is not None
    return found.pid


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
