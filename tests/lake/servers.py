"""Real servers on loopback, as children of the tests: PostgreSQL, an S3 server, a Spark cluster."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S

_DEBIAN: Final = Path("/usr/lib/postgresql")


def find_postgres() -> Path | None:
    """Return the folder of PostgreSQL's programs, None if they are not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(_DEBIAN.glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


@dataclass
class PostgresServer:
    """A running server with the database `almanac`; its superuser is `postgres`."""

    port: int
    launch: Callable[[], "subprocess.Popen[bytes]"]
    process: "subprocess.Popen[bytes]"

    @property
    def address(self) -> str:
        return self.address_of("almanac")

    def address_of(self, database: str) -> str:
        return f"postgresql://postgres:canary-password@127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        """Stop it, and end all connections."""
        self.process.send_signal(signal.SIGINT)  # A fast shutdown.
        self.process.wait(HANGS_AFTER_S)

    def start(self) -> None:
        """Start it again on the same data and port."""
        self.process = self.launch()


@contextmanager
def running_postgres(folder: Path) -> Iterator[PostgresServer]:
    """Run a server with its data in a new folder, without waits for the disk."""
    programs = find_postgres()
    assert programs is not None
    folder.mkdir(parents=True)
    port, user = free_port(), None
    if os.getuid() == 0:  # PostgreSQL refuses to run as root.
        user = pwd.getpwnam("postgres").pw_name
        shutil.chown(folder, user)
        for parent in folder.parents:
            if parent.stat().st_uid == 0 and parent != Path("/") and parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o011)
    secret = folder.parent / "postgres-password"
    secret.write_text("canary-password")
    secret.chmod(0o644)
    data = folder / "data"
    made = ("--username=postgres", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync")
    subprocess.run(
        [programs / "initdb", "-D", data, *made, "-E", "UTF8", "--locale=C"],
        check=True,
        stdout=subprocess.DEVNULL,
        user=user,
        cwd=folder,
    )
    options = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": folder,
        "fsync": "off",
        "max_connections": 200,
    }
    ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]

    def launch() -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [programs / "postgres", "-D", data, *(f"--{k}={v}" for k, v in options.items())],
            stdout=subprocess.DEVNULL,
            stderr=(folder.parent / "postgres.log").open("ab"),
            user=user,
            cwd=folder,
        )
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, process)
        return process

    server = PostgresServer(port, launch, launch())
    try:
        create_database(server, "almanac")
        yield server
    finally:
        server.stop()


def create_database(server: PostgresServer, name: str) -> str:
    """Create an empty database; return its address."""
    import psycopg

    with psycopg.connect(server.address_of("postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.address_of(name)


@contextmanager
def running_s3(log: Path) -> Iterator[str]:
    """Run moto's S3 server with a bucket `almanac`; yield its address."""
    import boto3

    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(lambda: _answers(address), process)
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1", **keys)
        client.create_bucket(Bucket="almanac")
        yield address
    finally:
        process.terminate()
        process.wait(HANGS_AFTER_S)


def s3_environment(address: str) -> dict[str, str]:
    """Return the variables with which S3 programs use the server."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
    }


@contextmanager
def running_spark(folder: Path, workers: int = 2) -> Iterator[str]:
    """Run a standalone master and workers of one core and 1 GB; yield the master's address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    folder.mkdir(parents=True)
    port, page = free_port(), free_port()
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }
    master = f"spark://127.0.0.1:{port}"

    def worker(number: int) -> list[str]:
        ports = ["--host", "127.0.0.1", "--webui-port", str(free_port())]
        size = ["-c", "1", "-m", "2g", "-d", str(folder / f"worker-{number}")]
        return ["worker.Worker", *ports, *size, master]

    starts = [
        ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)],
        *map(worker, range(workers)),
    ]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, (name, *arguments) in enumerate(starts):
            with (folder / f"{number}.log").open("wb") as output:
                process = subprocess.Popen(
                    [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                    stdout=output,
                    stderr=output,
                    env=environment,
                    start_new_session=True,
                )
            processes.append(process)
            if number == 0:
                wait_until(lambda: _answers(f"http://127.0.0.1:{page}"), process)
        wait_until(lambda: _registered(page) == workers, processes[0])
        yield master
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(HANGS_AFTER_S)


@contextmanager
def spark_session(master: str, **options: str) -> Iterator[Any]:
    """Yield a session whose executors run this Python."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder.master(master)
    usual = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    for name, value in {**usual, **options}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _registered(page: int) -> int:
    with urlopen(f"http://127.0.0.1:{page}/json/", timeout=HANGS_AFTER_S) as answer:
        return int(json.load(answer)["aliveworkers"])


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=HANGS_AFTER_S):
            return True
    except OSError:
        return False


def wait_until(is_so: Callable[[], bool], process: "subprocess.Popen[bytes]") -> None:
    """Wait until a server is ready. Raises RuntimeError: it ended, or is not ready in time."""
    until = time.monotonic() + HANGS_AFTER_S
    while not is_so():
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        if time.monotonic() > until:
            raise RuntimeError(f"{process.args!r} is not ready after {HANGS_AFTER_S:g} s")
        time.sleep(0.1)
