"""The sandbox in a process of its own: its clock, and its end."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from catalog import ServerError
from catalog.sandbox.process import SandboxProcess
from tests.hangs import HANGS_AFTER_S

EARLY = datetime(2017, 3, 1, tzinfo=UTC)


def test_its_clock_stands_where_it_is_set(tmp_path: Path) -> None:
    def ask_date() -> str:
        answer = httpx.get(f"{sandbox.base_url}/v2/usage", headers=key)
        assert answer.status_code == 200
        return str(answer.headers["date"])

    with SandboxProcess(1, EARLY, tmp_path) as sandbox:
        key = {"x-api-key": sandbox.keys["elite"]}
        assert ask_date() == "Wed, 01 Mar 2017 00:00:00 GMT"
        sandbox.set_clock(EARLY + timedelta(days=1))
        assert ask_date() == "Thu, 02 Mar 2017 00:00:00 GMT"
        assert sandbox.clock.now() == EARLY + timedelta(days=1)
    with pytest.raises(httpx.ConnectError):
        ask_date()


def test_a_process_that_ends_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with (
        SandboxProcess(1, EARLY, tmp_path / "file") as sandbox,
        pytest.raises(ServerError, match="ended with code 1"),
    ):
        sandbox.set_clock(EARLY)
    assert "Error" in capfd.readouterr().err


PARENT = """
import sys
from datetime import datetime
from pathlib import Path
from catalog.sandbox.process import SandboxProcess

now, folder = sys.argv[1:]
sandbox = SandboxProcess(1, datetime.fromisoformat(now), Path(folder))
print(sandbox.base_url, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_parent_that_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PARENT, EARLY.isoformat(), str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith(b"http://127.0.0.1:")
        parent.kill()
        # Both processes hold this pipe; it ends with the last of them.
        assert parent.communicate(timeout=HANGS_AFTER_S)[1] == b""
