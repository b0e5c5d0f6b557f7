"""`almanac run` on the second day of a home, with the time of the service subtracted.

    python -m bench.second_day [--events 50000] [--rounds 3] [--json FILE]

The sandbox serves a catalog of about that many events in another process, on loopback. The first
run makes a home; each round copies that home, runs the next day and verifies the result. `seconds`
is the wall clock from the start of the process to its end, less `waiting`: the time that the main
thread spent in `recv` of its sockets. `waiting elsewhere` is the sum of the other threads; it is
not subtracted, since the main thread may work meanwhile. `wall` is the whole, `cpu` the processor
time of the process. The phases are those of the summary of `almanac run`, with waiting.
"""

import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import httpx

from bench.children import Measured, environment_without_settings
from bench.report import parse_arguments, show

_KEY: Final = "sandbox-elite"
_FIRST, _LAST = date(2018, 1, 1), date(2030, 1, 1)
BAR: Final = 4.0
GOAL: Final = 2.5


@contextmanager
def serve_catalog(folder: Path) -> Iterator[httpx.Client]:
    """Yield a client of a sandbox in another process, whose clock stands."""
    words = ("sandbox", "--port", "0", "--now", _FIRST.isoformat() + "T06:00:00Z", "--json")
    process = subprocess.Popen(
        [sys.executable, "-m", "application", *words, "--dir", str(folder)],
        env=environment_without_settings(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = json.loads(process.stdout.readline())["base_url"]
        headers = {"x-api-key": _KEY}
        with httpx.Client(base_url=address, headers=headers, timeout=120) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def set_clock(client: httpx.Client, day: date) -> None:
    """Let the service stand at 06:00 of a day."""
    at = datetime.combine(day, time(6), UTC)
    client.put("/sandbox/clock", json={"now": at.isoformat()}).raise_for_status()


def find_day(client: httpx.Client, events: int) -> date:
    """Return the first day on which the catalog has at least so many events."""
    low, high = _FIRST, _LAST
    while low < high:
        middle = low + (high - low) // 2
        set_clock(client, middle)
        if count_events(client) < events:
            low = middle + timedelta(days=1)
        else:
            high = middle
    return low


def count_events(client: httpx.Client) -> int:
    """Return the number of rows of the export."""
    text = client.get("/v2/events/export").raise_for_status().text
    return sum(1 for _ in csv.reader(text.splitlines(keepends=True))) - 1


def run_day(home: Path, address: str) -> Measured:
    """Run `almanac run` in a process of its own, and measure it."""
    given = {
        "ALMANAC_HOME": str(home),
        "ALMANAC_STATE": str(home.parent / "state"),
        "ALMANAC_BASE_URL": address,
        "ALMANAC_API_KEY": _KEY,
        "ALMANAC_MAX_CLOCK_SKEW_DAYS": "36500",
        "ALMANAC_EXPORT_INTERVAL_S": "0",
    }
    began = perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.second_day", "--inside"],
        env={**environment_without_settings(), **given},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"almanac run ended with {process.returncode}: {output}")
    summary, waits = map(json.loads, output.splitlines()[-2:])
    waiting, elsewhere = waits
    cpu = usage.ru_utime + usage.ru_stime
    phases = {f"phase {name}": value for name, value in summary["seconds"].items()}
    counts = {"rows": summary["rows"], "requests": summary["requests"]}
    figures = {"seconds": wall - waiting, "wall": wall, "waiting": waiting, "cpu": cpu}
    figures["waiting elsewhere"] = elsewhere
    return Measured({**figures, **counts, **phases}, usage.ru_maxrss * 1024 / 1e6)


def passes_verify(place: Path) -> bool:
    """Return whether the home of a round passes `almanac verify`."""
    given = {"ALMANAC_HOME": str(place / "data"), "ALMANAC_STATE": str(place / "state")}
    verified = subprocess.run(
        [sys.executable, "-m", "application", "verify"],
        env={**environment_without_settings(), **given},
        capture_output=True,
    )
    return verified.returncode == 0


def run_inside() -> None:
    """Run `almanac run --json`, then print the seconds in `recv`: main thread, other threads."""
    waiting = [0.0, 0.0]
    receive = socket.socket.recv

    def timed(self: socket.socket, *given: Any) -> bytes:
        began = perf_counter()
        try:
            return receive(self, *given)
        finally:
            is_main = threading.current_thread() is threading.main_thread()
            waiting[0 if is_main else 1] += perf_counter() - began

    socket.socket.recv = timed  # type: ignore[assignment,method-assign]
    from almanac.command_line import exit_without_teardown, interrupt_by_signals
    from almanac.command_line import main as almanac

    interrupt_by_signals()
    code = almanac(["run", "--json"])
    sys.stdout.write(json.dumps(waiting) + "\n")
    exit_without_teardown(code)


def main() -> None:
    arguments = parse_arguments(__doc__ or "", events=50_000, rounds=3)
    with TemporaryDirectory(dir=arguments.folder) as folder:
        place = Path(folder)
        with serve_catalog(place / "service") as client:
            address = str(client.base_url)
            day = find_day(client, arguments.events)
            set_clock(client, day)
            first = run_day(place / "first" / "data", address)
            set_clock(client, day + timedelta(days=1))
            rounds, is_verified = [], True
            for number in range(arguments.rounds):
                copy = place / f"round{number}"
                shutil.copytree(place / "first", copy, symlinks=True)
                rounds.append(run_day(copy / "data", address))
                is_verified = passes_verify(copy) and is_verified
                shutil.rmtree(copy)
            best = min(rounds, key=lambda found: found.seconds)
    bars = {
        f"second day at most {BAR} s, goal {GOAL} s": f"{best.seconds:.2f} s",
        "the output of each round passes verify": "yes" if is_verified else "NO",
    }
    measured = {"second day": best, "first day": first}
    title = f"almanac run, {arguments.events:,} events, best of {arguments.rounds}"
    show(title, measured, "second day", bars, arguments.json)


if __name__ == "__main__":
    run_inside() if sys.argv[1:] == ["--inside"] else main()
