"""`almanac receive` as a program: alone on its home, on a full disk, ended while it receives."""

import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.application.receiver.programs import ReceiveProgram
from tests.application.receiver.served import Served, request
from tests.hangs import HANGS_AFTER_S
from tests.resources.inbox.deliveries import Clock, delivery

SENDERS = 6


@pytest.fixture
def program(tmp_path: Path) -> Iterator[ReceiveProgram]:
    program = ReceiveProgram(tmp_path / "home")
    yield program
    program.close()


@pytest.fixture
def client(program: ReceiveProgram) -> Served:
    """A client of the program, which is started."""
    program.start()
    client = Served(program.home, Clock())
    client.port = program.port
    return client


def refused(program: ReceiveProgram) -> str:
    """Start a program that refuses to run; return what it says."""
    process = program.spawn()
    output, errors = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, output) == (1, "")
    assert "Traceback" not in errors
    return " ".join(errors.split())


def test_a_second_receiver_and_another_source_are_refused_and_the_first_goes_on(
    program: ReceiveProgram, client: Served
) -> None:
    assert client.post(delivery(1)).status == 204
    stamp = (program.home.root / "home.json").read_bytes()
    message = refused(ReceiveProgram(program.home.root))
    assert f"pid {program.process.pid}" in message
    assert "is using this home" in message
    # Nothing is landed yet, so no batch says whose deliveries these are.
    message = refused(ReceiveProgram(program.home.root, base_url="http://127.0.0.1:8"))
    assert "holds data of http://127.0.0.1:9, not of http://127.0.0.1:8" in message
    assert (program.home.root / "home.json").read_bytes() == stamp
    assert client.post(delivery(2)).status == 204
    assert client.count() == 2


def test_nothing_is_acknowledged_while_the_disk_is_full_and_all_of_it_afterwards(
    program: ReceiveProgram, client: Served
) -> None:
    """A limit of the size of files is met like a full disk, without the rights of an operator."""
    assert client.post(delivery(0)).status == 204
    limit_files(program.process, 0)
    for number in range(1, 4):
        answer = client.post(delivery(number))
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert client.count() == 1
    assert health(client) == 503
    limit_files(program.process, resource.RLIM_INFINITY)
    for number in range(1, 4):
        assert client.post(delivery(number)).status == 204
    assert client.count() == 4
    assert health(client) == 200
    code, _, errors = program.end()
    assert code == 130
    assert "could not be stored, and is refused" in errors


def limit_files(process: "subprocess.Popen[str]", size: int) -> None:
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def health(client: Served) -> int:
    return client.send(request(b"", method="GET", path="/healthz")).status


@pytest.mark.long
def test_a_client_that_never_ends_its_headers_does_not_prevent_an_end(
    program: ReceiveProgram, client: Served
) -> None:
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.sendall(b"POST /webhooks HTTP/1.1\r\nHost:")
        assert program.end() == (130, "", "")
