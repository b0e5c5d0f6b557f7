"""Hostile statements of an assistant: nothing is written, read or reached, and each ends."""

import hashlib
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from almanac.errors import AlmanacError, QueryRefused
from almanac.mcp.toolbox import Toolbox
from almanac.reading.query_limits import QueryLimits
from tests.almanac.mcp.conftest import NOW
from tests.almanac.mcp.hostile_statements import ALL, FEW
from tests.hangs import wait_for

LIMITS = QueryLimits(memory_bytes=200_000_000, threads=1, timeout_s=2.0, grace_s=1.0)
SECRET = "canary-secret-4711"


class Listener:
    """A server on loopback that counts the connections that it gets."""

    def __init__(self) -> None:
        self.reached = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.reached += 1
            connection.close()

    def close(self) -> None:
        self._socket.close()


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@contextmanager
def nothing_happens(folder: Path, listener: Listener) -> Iterator[None]:
    before, entries = hashes(folder), sorted(folder.rglob("*"))
    yield
    assert hashes(folder) == before
    assert sorted(folder.rglob("*")) == entries
    assert listener.reached == 0


def run_statements(
    published: Path, statements: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run each statement, and check its answer."""
    folder = published.parent
    canary = folder / "canary.csv"
    canary.write_text(f"secret\n{SECRET}\n")
    (folder / "empty").mkdir()
    monkeypatch.setenv("ALMANAC_API_KEY", SECRET)
    listener = Listener()
    toolbox = Toolbox(published, clock=lambda: NOW, limits=LIMITS)
    private = {SECRET, str(Path.home() / ".duckdb"), "almanac-process-", ".reading-"}
    try:
        with nothing_happens(folder, listener):
            for text in statements:
                statement = text
                for mark, place in (
                    ("{canary}", str(canary)),
                    ("{folder}", str(folder / "empty")),
                    ("{address}", listener.address),
                ):
                    statement = statement.replace(mark, place)
                try:
                    shown = json.dumps(toolbox.call("query", {"sql": statement}))
                except AlmanacError as error:
                    shown = str(error)
                    assert "Traceback" not in shown, text
                for each in private:
                    assert each not in shown, text[:200]
                # A statement may repeat its own text in an error, but learns no folder from it.
                if str(folder) not in statement:
                    assert str(folder) not in shown, text[:200]
            wait_for(lambda: is_answered(toolbox))
    finally:
        toolbox.close()
        listener.close()
    assert not list(Path(tempfile.gettempdir()).glob("almanac-process-*/spill-*/*"))


def is_answered(toolbox: Toolbox) -> bool:
    """Return whether a plain query is answered; a busy machine may exceed the short time limit."""
    try:
        return bool(toolbox.call("query", {"sql": "SELECT count(*) AS n FROM events"})["rows"])
    except QueryRefused:
        return False


def test_few_hostile_statements_do_nothing_and_end(
    own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_statements(own_file, FEW, monkeypatch)


@pytest.mark.long
def test_all_hostile_statements_do_nothing_and_end(
    own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(set(ALL)) >= 180
    run_statements(own_file, ALL, monkeypatch)
