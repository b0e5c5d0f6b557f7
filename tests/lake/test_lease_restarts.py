"""PostgreSQL restarts, or stays away, while a merge runs."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from almanac.lake import open_lake
from tests.hangs import HANGS_AFTER_S
from tests.lake.conftest import skip_without_postgres
from tests.lake.servers import PostgresServer, running_postgres, wait_until
from tests.lake.writer import ADDRESS, merge_landed, open_home
from tests.warehouse.iceberg.tables_equal import count_differences, equal
from warehouse.errors import DatabaseUnavailable, StaleWriter
from warehouse.shared.database import SharedDatabase

pytestmark = pytest.mark.lake


class RestartedServer:
    """A PostgreSQL server of one test, which the test stops and starts."""

    def __init__(self, server: PostgresServer) -> None:
        self.address = server.address
        self.process = server.process

    def stop(self) -> None:
        """Stop it; all connections break."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(HANGS_AFTER_S)

    def start(self) -> None:
        data = Path(str(self.process.args[2]))  # type: ignore[index]
        self.process = subprocess.Popen(
            self.process.args,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user="postgres" if os.getuid() == 0 else None,
            cwd=data.parent,
        )
        wait_until(self.answers, self.process)

    def answers(self) -> bool:
        try:
            SharedDatabase(self.address).connect().close()
        except DatabaseUnavailable:
            return False
        return True


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestartedServer]:
    skip_without_postgres()
    with running_postgres(tmp_path / "postgres" / "server") as running:
        restarted = RestartedServer(running)
        yield restarted
        restarted.stop()


@pytest.mark.parametrize("point", ["merge:locked", "publish:renamed", "iceberg:events"])
def test_a_merge_survives_a_restart(point: str, server: RestartedServer, tmp_path: Path) -> None:
    (tmp_path / ADDRESS).write_text(server.address)
    home = open_home(tmp_path, "a", 60)
    merge_landed(home, 2, lambda _: None)

    def step(name: str) -> None:
        if name == point:
            server.stop()
            server.start()

    report = merge_landed(home, 5, step)
    assert report.iceberg is not None and not report.iceberg.why_failed
    assert count_differences(home.root, open_lake(server.address)) == equal()


def test_a_merge_stops_if_the_lease_can_not_be_renewed(
    server: RestartedServer, tmp_path: Path
) -> None:
    (tmp_path / ADDRESS).write_text(server.address)
    home = open_home(tmp_path, "a", 1.0)
    merge_landed(home, 2, lambda _: None)
    before = sorted((home.root / "lake").rglob("*.parquet"))

    def step(name: str) -> None:
        if name == "merge:loaded":
            server.stop()
            time.sleep(1.5)

    with pytest.raises(StaleWriter, match=r"could not be renewed for 1 s: the database 127"):
        merge_landed(home, 9, step)
    assert sorted((home.root / "lake").rglob("*.parquet")) == before
    server.start()
    report = merge_landed(home, 9, lambda _: None)
    assert report.iceberg is not None and not report.iceberg.why_failed
    assert count_differences(home.root, open_lake(server.address)) == equal()
