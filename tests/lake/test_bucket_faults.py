"""Kills at every step, uploads that are cut, and servers that are down: nothing is lost."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.lake.machines import Machines
from tests.warehouse.landed_days import history, land
from warehouse.errors import BucketUnusable, DatabaseUnavailable
from warehouse.history.merge import merge
from warehouse.shared.bucket import Bucket

pytestmark = pytest.mark.lake
ROOT = Path(__file__).parent.parent.parent
KILLS = 8
LONG_KILLS = 120
CUTS = (1, 70_000, 9_000_000)
"""The bytes of an upload of 12 MB that arrive: of the headers, the first part, and a later one."""


def start(machines: Machines, name: str, days: int, at: int) -> "subprocess.CompletedProcess[str]":
    """Land and merge on a machine, in a process of its own that is killed at a step."""
    words = (str(machines.folder), machines.bucket, machines.postgres, name, str(days), str(at))
    return subprocess.run(
        [sys.executable, "-m", "tests.lake.killed_machine", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def kill_at_steps(machines: Machines, kills: int) -> None:
    """Kill writers at steps from the first to the last; every second one loses its machine."""
    whole = start(machines, "whole", 2, 0)
    steps = json.loads(whole.stdout)["steps"]
    assert steps > 50
    for number in range(kills):
        name, days = f"machine{number // 2}", 3 + number // 4
        at = 1 + number * steps // kills
        ended = start(machines, name, days, at)
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        copy = machines.home(name).copy
        assert copy is not None and copy.problems() == []
        here = {
            path.relative_to(copy.root).as_posix()
            for folder in ("landing/batches", "landing/bodies")
            for path in (copy.root / folder).rglob("*.*")
        }
        assert here <= copy.index.files("landing/").keys()
        if number % 2:
            shutil.rmtree(copy.root)
    days = 3 + kills // 4
    alone = machines.alone()
    alone.claim("s")
    for day in range(days):
        land(alone, day)
    merge(alone)
    for name in ("last", "whole"):
        assert start(machines, name, days, 0).returncode == 0
        assert history(machines.home(name)) == history(alone)


def test_kills_at_every_step_lose_nothing(tmp_path: Path, postgres: str) -> None:
    kill_at_steps(Machines(tmp_path, f"file://{tmp_path}/bucket", postgres), KILLS)


@pytest.mark.long
def test_a_hundred_kills_lose_nothing(tmp_path: Path, bucket: str, postgres: str) -> None:
    kill_at_steps(Machines(tmp_path, bucket, postgres), LONG_KILLS)


@contextmanager
def cutting_proxy(address: str) -> Iterator[tuple[str, list[int]]]:
    """Forward connections to a server, and close each after so many bytes of requests."""
    target, limits = urlsplit(address), [0]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def forward(source: socket.socket, sink: socket.socket, limit: int | None) -> None:
            sent = 0
            try:
                while data := source.recv(65_536):
                    if limit is not None and sent + len(data) > limit:
                        sink.sendall(data[: limit - sent])
                        break
                    sink.sendall(data)
                    sent += len(data)
            except OSError:
                pass
            for each in (source, sink):
                each.close()

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                upstream = socket.create_connection((str(target.hostname), target.port or 80))
                for given in ((client, upstream, limits[0]), (upstream, client, None)):
                    threading.Thread(target=forward, args=given, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", limits


@pytest.mark.parametrize("cut", CUTS)
def test_an_upload_that_is_cut_leaves_no_object(
    bucket: str, s3_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    data = bytes(range(251)) * 48_000
    file, name = tmp_path / "file", sha256(data).hexdigest()
    file.write_bytes(data)
    direct = Bucket(bucket)
    assert direct.size(name) is None
    with cutting_proxy(s3_server) as (address, limits):
        limits[0] = cut
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(BucketUnusable, match="can't be written"):
            Bucket(bucket).put(file, name)
    assert direct.size(name) is None
    direct.put(file, name)
    assert direct.size(name) == len(data)
    direct.fetch(name, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == data


def test_machines_that_land_at_the_same_time_lose_no_batch(
    tmp_path: Path, bucket: str, postgres: str
) -> None:
    machines = Machines(tmp_path, bucket, postgres)
    homes = [machines.home(f"machine{number}") for number in range(3)]
    homes[0].claim("s")

    def land_days(number: int) -> None:
        homes[number].claim("s")
        for day in range(4):
            land(homes[number], 4 * number + day)
            homes[number].catch_up()

    with ThreadPoolExecutor(3) as pool:
        for landed in [pool.submit(land_days, number) for number in range(3)]:
            landed.result()
    last = machines.home("last")
    assert len(merge(last).outcomes) == 12
    for home in homes:
        merge(home)
        assert history(home) == history(last)


def test_a_database_that_restarts_is_connected_again(
    tmp_path: Path, bucket: str, postgres: str
) -> None:
    home = Machines(tmp_path, bucket, postgres).home("machine")
    home.claim("s")
    land(home, 0)
    assert home.database is not None
    with home.database.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    land(home, 1)
    assert len(merge(home).outcomes) == 2


def test_a_database_that_is_down_stops_a_landing_before_it_counts(
    tmp_path: Path, bucket: str, postgres: str
) -> None:
    home = Machines(tmp_path, bucket, postgres).home("machine")
    home.claim("s")
    land(home, 0)
    host, _, name = postgres.rpartition("/")
    down = Machines(tmp_path, bucket, f"{host.rpartition(':')[0]}:9/{name}").home("machine")
    with pytest.raises(DatabaseUnavailable) as raised:
        land(down, 1)
    assert "canary-password" not in str(raised.value)
    assert len(down.landing.batch_ids()) == 1
    land(home, 1)
    assert len(merge(home).outcomes) == 2
