"""Starts the programs of `almanac ui` and `almanac daemon`, keeps them running, and ends them.

Programs that end by themselves are started again; those that do so too often end the command,
whose own supervisor (systemd, a container) then decides. Belongs here: when a program is started
and ended. Does not: how (programs), what it does (daemon, code_server).
"""

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from datetime import date, datetime, timedelta
from time import monotonic
from typing import Final

import httpx

from pipeline.console import fail, warnings
from pipeline.runs.presence import presence
from pipeline.runs.store import check
from pipeline.ui.alive import last_report
from pipeline.ui.names import PagesAddress
from pipeline.ui.programs import Program, fail_if_ended
from resources.http.retries import utc_now
from resources.service_clock import service_time
from warehouse.errors import RunRecordsUnusable
from warehouse.home import Home

_PREPARE: Final = "pipeline.ui.prepare"
_START_S: Final = 120.0
_STOP_DAEMON_S: Final = 3.0
_STOP_S: Final = 8.5
_KILLED_S: Final = 1.0
_ENDS_MAX: Final = 5
_ENDS_WITHIN_S: Final = 600.0
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 30.0
_LOOK_EVERY_S: Final = 60.0

Stopped = Callable[[float], bool]
"""Waits so many seconds, or until a signal; returns whether one came."""


class RestartWaits:
    """The waits until a program that ended by itself is started again; they double."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._ends: deque[float] = deque()

    def next_s(self) -> float | None:
        """Note an end; return the seconds to wait, None if it ended too often."""
        now = self._clock()
        self._ends.append(now)
        while now - self._ends[0] > _ENDS_WITHIN_S:
            self._ends.popleft()
        if len(self._ends) > _ENDS_MAX:
            return None
        wait: float = _FIRST_WAIT_S * 2 ** (len(self._ends) - 1)
        return min(wait, _LONGEST_WAIT_S)


class LandedDays:
    """Whether other past days are landed than when the definitions were loaded.

    Partitions by observed day are made when the code server starts. They go wrong when an older day
    is imported, or when a day ends without a pull.
    """

    def __init__(
        self,
        home: Home,
        now: Callable[[], datetime],
        monotonic_s: Callable[[], float] = monotonic,
    ) -> None:
        self._home, self._now, self._monotonic_s = home, now, monotonic_s
        self.note()

    def note(self) -> None:
        """Note the days as they are, at a start of the code server."""
        self._noted, self._looked_at = self._past_days(), self._monotonic_s()

    def differ(self) -> bool:
        """Return whether they differ from the noted ones; reads the folder once a minute."""
        if self._monotonic_s() - self._looked_at < _LOOK_EVERY_S:
            return False
        self._looked_at = self._monotonic_s()
        return self._past_days() != self._noted

    def _past_days(self) -> tuple[date | None, frozenset[date]]:
        """Return the first landed day, and the days after it that ended without a batch."""
        landed = self._home.landing.days()
        if not landed:
            return None, frozenset()
        past = (self._now().date() - landed[0]).days
        all_days = {landed[0] + timedelta(days=number) for number in range(past)}
        return landed[0], frozenset(all_days.difference(landed))


class Supervisor:
    """The programs of one home, from their start to their end."""

    def __init__(self, home: Home, daemon: Program, code_server: Program, stopped: Stopped) -> None:
        self._home = home
        self._daemon = daemon
        self._code_server = code_server
        self._programs = [code_server, daemon]
        self._days = LandedDays(home, service_time(home.state, utc_now))
        self._stopped = stopped
        self._ends = {program.name: RestartWaits() for program in self._programs}

    def start(self, pages: PagesAddress | None) -> bool:
        """Start all; return whether they answer, or a signal came before.

        Raises:
            Exit: a program ended or did not answer; the reason is printed.
        """
        for program in self._programs:
            program.start()
        give_up_at = monotonic() + _START_S
        while not self._stopped(0.2):
            fail_if_ended(self._programs)
            if self._daemon_reports() and (pages is None or _answer(pages)):
                return True
            if monotonic() > give_up_at:
                where = "" if pages is None else f" on {pages.url}"
                fail(f"Dagster did not respond{where} within {_START_S:g} s")
        return False

    def watch(self) -> None:
        """Start programs again that end by themselves, until a signal comes.

        The code server is also started again when other days are landed, between two runs.

        Raises:
            Exit: a program ended too often; the reason is printed.
        """
        while not self._stopped(0.5):
            for program in self._programs:
                if program.ended:
                    self._start_again(program)
            if self._days.differ() and not presence(self._home).alive:
                self._reload()

    def stop(self) -> None:
        """End all programs and what they started: in at most ten seconds."""
        began = monotonic()
        # First what starts runs, then the runs themselves, which journal what they pulled.
        self._daemon.signal(signal.SIGTERM)
        self._daemon.wait(began + _STOP_DAEMON_S)
        for program in self._programs:
            program.signal(signal.SIGTERM)
        for program in self._programs:
            if not program.wait(began + _STOP_S):
                program.log.say(f"{program.name} did not end in time: killed", level="warning")
                program.signal(signal.SIGKILL)
                program.wait(began + _STOP_S + _KILLED_S)

    def _start_again(self, program: Program) -> None:
        how = program.how_it_ended()
        wait_s = self._ends[program.name].next_s()
        if wait_s is None:
            fail(f"{how}. It ended {_ENDS_MAX + 1} times within {_ENDS_WITHIN_S / 60:g} minutes.")
        message = f"{how}. Starting it again in {wait_s:g} s."
        program.log.say(message, level="warning")
        if not program.log.is_printed:
            warnings.print(f"almanac: {message}", soft_wrap=True)
        if not self._stopped(wait_s):
            program.start()

    def _reload(self) -> None:
        self._code_server.log.say("other days are landed: loading the definitions again")
        self._code_server.signal(signal.SIGTERM)
        if not self._code_server.wait(monotonic() + _STOP_S):
            self._code_server.signal(signal.SIGKILL)
            self._code_server.wait(monotonic() + _KILLED_S)
        self._days.note()
        self._code_server.start()

    def _daemon_reports(self) -> bool:
        report = last_report(self._home)
        return report is not None and report.pid == self._daemon.pid


def prepare(home: Home) -> None:
    """Make the databases of the instance; damaged ones are named before a process is started.

    Raises:
        Exit: they can't be used; the reason is printed.
    """
    try:
        check(home)
    except RunRecordsUnusable as error:
        fail(str(error))
    command = ["env", f"ALMANAC_HOME={home.root}", sys.executable, "-P", "-m", _PREPARE]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        fail(lines[-1] if lines else f"{_PREPARE} ended with code {done.returncode}")


def _answer(pages: PagesAddress) -> bool:
    try:
        httpx.get(f"{pages.url}/server_info", timeout=5, trust_env=False).raise_for_status()
    except httpx.HTTPError:
        return False
    return True
