"""A killed writer continues on an empty machine, with the bucket and PostgreSQL alone."""

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from catalog.contract.constants import KEY_HEADER
from resources.limits.allowance import Pace
from resources.limits.ledger import Ledger, ledger_name
from tests.crashes.killed_commands import Service, end
from tests.hangs import HANGS_AFTER_S
from tests.test_cli import ALMANAC
from warehouse.home import Home
from warehouse.queries import connected

pytestmark = [pytest.mark.lake, pytest.mark.timeout(1800)]
RUN = ("run", "--json")
BACKFILL = ("backfill", "--from", "2026-01-01", "--to", "2026-03-31", "--yes", "--json")
BETWEEN = timedelta(hours=5)
PULL_KILLS = (5, 14)
"""After how many requests a run is killed while it pulls."""
MERGE_KILLS_S = (0.5, 3.0)
"""How many seconds after its pulls a run is killed."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    found = Service(datetime.now(UTC).replace(microsecond=0) - BETWEEN)
    yield found
    found.box.stop()


class Fleet:
    """Machines that follow each other: each has a folder of its own, and no file of the last."""

    def __init__(
        self, folder: Path, service: Service, shared: dict[str, str], *, moves: bool = True
    ) -> None:
        self._moves = moves
        self._folder = folder
        self._service = service
        self._shared = shared
        self.number = 0

    @property
    def home(self) -> Path:
        return self._folder / f"machine{self.number}" / "home"

    def move(self) -> None:
        """Lose the machine with all its files; the next one is empty."""
        if self._moves:
            shutil.rmtree(self.home.parent)
            self.number += 1

    def start(self, *words: str) -> "subprocess.Popen[str]":
        self.home.parent.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [*ALMANAC, *words],
            cwd=self.home.parent,
            env={**self._service.environment(self.home), **self._shared},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> str:
        process = self.start(*words)
        try:
            output, errors = process.communicate(timeout=HANGS_AFTER_S)
        finally:
            end(process)
        assert process.returncode == 0, (words, output, errors)
        return output

    def kill(self, *words: str, after_requests: int = 0, delay_s: float = 0.0) -> None:
        """Start a command; kill it with its group once the service got so many requests."""
        box, before = self._service.box, len(self._service.box.requests)
        process = self.start(*words)
        while process.poll() is None and len(box.requests) - before < after_requests:
            time.sleep(0.005)
        time.sleep(delay_s)
        with suppress(ProcessLookupError):  # A fast machine has ended it.
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.move()


def read_history(home: Path) -> list[list[str]]:
    """Return versions and events, without the ids of the batches that they are from."""
    with connected(Home(home).warehouse) as connection:
        return [
            [str(row) for row in connection.execute(query).fetchall()]
            for query in (
                "SELECT * EXCLUDE (batch_id) FROM event_versions ORDER BY ALL",
                "SELECT * FROM events ORDER BY ALL",
            )
        ]


def count_used(service: Service) -> int:
    """Return the requests of the month as the service counts them, before this one."""
    answer = httpx.get(f"{service.box.base_url}/v2/usage", headers={KEY_HEADER: service.key})
    return int(answer.json()["used"])


def test_a_killed_writer_continues_on_an_empty_machine(
    service: Service, tmp_path: Path, bucket: str, postgres: str
) -> None:
    """It sends the requests that it would have sent on its own machine, and no others."""
    box, start = service.box, service.box.clock.now()
    shared = {"ALMANAC_BUCKET": bucket, "ALMANAC_POSTGRES": postgres, "ALMANAC_LEASE_S": "3"}
    stayed = Fleet(tmp_path / "stayed", service, {}, moves=False)
    moved = Fleet(tmp_path / "moved", service, shared)
    sent: dict[Fleet, Counter[tuple[str, str]]] = {}
    for fleet in (stayed, moved):
        box.set_clock(start)
        box.forget_requests()
        for after_requests in PULL_KILLS:
            fleet.kill(*RUN, after_requests=after_requests)
        fleet.run(*RUN)
        sent[fleet] = Counter((seen.path, seen.query) for seen in box.requests)
        box.set_clock(start + BETWEEN)
        for delay_s in MERGE_KILLS_S:
            fleet.kill(*RUN, after_requests=20, delay_s=delay_s)
        fleet.kill(*BACKFILL, after_requests=2)
        fleet.run(*BACKFILL)
    assert read_history(moved.home) == read_history(stayed.home)
    assert len(read_history(moved.home)[0]) > 1000
    # A request that was on its way at a kill is sent again.
    more = sent[moved] - sent[stayed]
    assert more.total() <= len(PULL_KILLS), more
    name = ledger_name(box.base_url, SecretStr(service.key))
    ledger = Ledger(Path(f"{moved.home}-machine") / "limits" / name, Pace(1, 1))
    assert ledger.peek().used == count_used(service) - 1
