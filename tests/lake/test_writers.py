"""Four machines write at the same time; the one with the lease is killed or stopped."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import duckdb
import pytest

from almanac.lake import open_lake
from tests.crashes.conftest import ROOT
from tests.hangs import HANGS_AFTER_S
from tests.lake.writer import ADDRESS, END, LANDED, land_number, merge_landed, open_home
from tests.warehouse.iceberg.tables_equal import count_differences, equal
from warehouse.history.merge import merge
from warehouse.home import Home
from warehouse.shared.database import SharedDatabase
from warehouse.shared.lease import LeaseState, read_lease

pytestmark = pytest.mark.lake
LEASE_S = 2.0
WITHIN_S = HANGS_AFTER_S
NAMES = ("a", "b", "c", "d")
Fault = Literal["kill", "stop", "stop before commit"]
FAULTS: tuple[Fault, ...] = ("kill", "stop", "stop before commit")
AUDIT = """
CREATE TABLE audit (number serial, session text, lease bigint);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (session, lease)
    SELECT current_setting('almanac.epoch'), epoch FROM almanac.writer_lease;
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE ON iceberg_tables
FOR EACH STATEMENT EXECUTE FUNCTION audit()
"""


class Machines:
    """Four processes that write, each with a home of its own."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.database = SharedDatabase(address)
        (folder / ADDRESS).write_text(address)
        self.landed = 0
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def land(self, count: int = 1) -> None:
        self.landed += count
        staged = self.folder / "landed-next"
        staged.write_text(str(self.landed))
        staged.rename(self.folder / LANDED)

    def start(self, name: str) -> None:
        logs = (self.folder / f"{name}.log", self.folder / f"{name}.warnings")
        with logs[0].open("ab") as log, logs[1].open("ab") as warnings:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.lake.writer", self.folder, name, str(LEASE_S)],
                cwd=ROOT,
                stdout=log,
                stderr=warnings,
            )

    def find_holder(self) -> tuple[str, LeaseState] | None:
        """Return the name of the machine that has the lease."""
        state = read_lease(self.database)
        found = None if state is None else re.search(r"pid (\d+)", state.holder)
        if state is None or found is None or not state.is_held:
            return None
        pids = {process.pid: name for name, process in self.processes.items()}
        name = pids.get(int(found[1]))
        return None if name is None else (name, state)

    def fault(self, fault: Fault, source: random.Random) -> tuple[str, int]:
        """End or stop the writer with the lease; return its name and epoch."""
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            self.land()
            time.sleep(source.random() * 2)
            wait_until(lambda: self.find_holder() is not None)
            time.sleep(source.random() * 0.4)
            holder = self.find_holder()
            if holder is None:
                continue
            name, state = holder
            process, flag = self.processes[name], self.folder / f"{name}.stop"
            if fault == "kill":
                process.kill()
                process.wait()
            elif fault == "stop":
                process.send_signal(signal.SIGSTOP)
            else:
                flag.touch()
                while not is_stopped(process.pid) and self.has_lease(state.epoch):
                    time.sleep(0.02)
                flag.unlink(missing_ok=True)
                if not is_stopped(process.pid):
                    continue
            if self.has_lease(state.epoch):
                return name, state.epoch
            self.resume(name)  # Its merge had just ended.
        raise TimeoutError(fault)

    def has_lease(self, epoch: int) -> bool:
        """Whether the lease has this epoch and was not returned; it may have ended."""
        state = read_lease(self.database)
        return state is not None and state.epoch == epoch and not state.is_released

    def wait_for_takeover(self, name: str, epoch: int) -> None:
        def is_taken_over() -> bool:
            holder = self.find_holder()
            return holder is not None and holder[0] != name and holder[1].epoch > epoch

        wait_until(is_taken_over)

    def wait_for_merge(self) -> None:
        merged = self.count_reports()["merged"]
        self.land()
        wait_until(lambda: self.count_reports()["merged"] > merged)

    def resume(self, name: str) -> None:
        if self.processes[name].poll() is None:
            self.processes[name].send_signal(signal.SIGCONT)
        else:
            self.start(name)

    def end(self) -> None:
        (self.folder / END).touch()
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            assert process.wait(WITHIN_S) == 0

    def stop_all(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def count_reports(self) -> Counter[str]:
        """Return how often a merge succeeded, and how often each error ended it."""
        lines = (
            line for name in NAMES for line in (self.folder / f"{name}.log").read_text().split("\n")
        )
        return Counter(line.partition(":")[0] for line in lines if line)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def versions_that_differ(home: Home, other: Home) -> list[int]:
    """Return how many versions only one of two homes has, in each direction."""
    with duckdb.connect() as connection:
        for name, attached in (("own", home), ("other", other)):
            connection.execute(f"ATTACH '{attached.warehouse}' AS {name} (READ_ONLY)")
        query = "SELECT count(*) FROM (FROM {}.event_versions EXCEPT ALL FROM {}.event_versions)"
        return [
            connection.execute(query.format(*sides)).fetchall()[0][0]
            for sides in (("own", "other"), ("other", "own"))
        ]


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("takeovers", [6, pytest.param(50, marks=pytest.mark.long)])
def test_no_stale_writer_commits_and_no_row_is_lost(
    takeovers: int, postgres: str, tmp_path: Path
) -> None:
    machines, source = Machines(tmp_path, postgres), random.Random(takeovers)
    machines.land(3)
    merge_landed(open_home(tmp_path, NAMES[0]), machines.landed, lambda _: None)
    with machines.database.connect() as connection:
        connection.execute(AUDIT.encode())
    done: Counter[str] = Counter()
    try:
        for name in NAMES:
            machines.start(name)
        for number in range(takeovers):
            fault = FAULTS[number % len(FAULTS)]
            name, epoch = machines.fault(fault, source)
            machines.land()
            machines.wait_for_takeover(name, epoch)
            time.sleep(source.random() * 0.5)
            machines.resume(name)
            done[fault] += 1
            if number % 2:  # Else no merge would come to its end.
                machines.wait_for_merge()
        machines.end()
    finally:
        machines.stop_all()
    with machines.database.connect() as connection:
        audit = connection.execute("SELECT session, lease FROM audit ORDER BY number").fetchall()
    epochs = [lease for _, lease in audit]
    assert all(session == str(lease) for session, lease in audit)
    assert epochs == sorted(epochs)
    reports = machines.count_reports()
    sys.stdout.write(f"{done} {reports} {len(epochs)} commits, {machines.landed} batches\n")
    assert reports["StaleWriter"] >= done["stop before commit"]
    assert reports.keys() <= {"merged", "StaleWriter"}
    home, single = open_home(tmp_path, NAMES[0]), Home(tmp_path / "single")
    report = merge_landed(home, machines.landed, lambda _: None)
    assert report.iceberg is not None and not report.iceberg.why_failed
    for number in range(machines.landed):
        land_number(single, number)
    merge(single)
    assert versions_that_differ(home, single) == [0, 0]
    assert count_differences(home.root, open_lake(postgres)) == equal()


def test_a_writer_that_is_killed_continues_without_a_wait_for_its_lease(
    postgres: str, tmp_path: Path
) -> None:
    (tmp_path / ADDRESS).write_text(postgres)
    script = (
        "import sys; from pathlib import Path; from tests.lake.writer import open_home\n"
        "open_home(Path(sys.argv[1]), 'a', 600).merge_lock().__enter__(); print(1, flush=True)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    home, began = open_home(tmp_path, "a", 600), time.monotonic()
    with home.merge_lock():
        assert home.lease is not None and home.lease.epoch == 2
    assert time.monotonic() - began < 300
