"""`almanac receive` as a program on a home: started, killed, and started again on its port."""

import json
import signal
import subprocess
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from resources.service_clock import ServiceClock
from tests.free_ports import free_port
from tests.hangs import HANGS_AFTER_S
from tests.test_cli import ALMANAC, environment
from warehouse.files.storage import Storage
from warehouse.home import Home

SECRET = "whsec_of-the-tests-0123456789"
ADDRESS = "http://127.0.0.1:9"
"""A service that is never asked: only the stamp of the home has it."""


class ReceiveProgram:
    """The command with its home, which `start` runs until it is killed or ended."""

    def __init__(
        self, home: Path, *words: str, base_url: str = ADDRESS, secret: str = SECRET, **given: str
    ) -> None:
        self.home = Home(home)
        self.port = free_port()
        self._words = words
        self._env = {
            **environment(home),
            "ALMANAC_BASE_URL": base_url,
            "ALMANAC_API_KEY": "a-key-that-is-not-used",
            "ALMANAC_WEBHOOK_SECRETS": secret,
            **{f"ALMANAC_{name.upper()}": value for name, value in given.items()},
        }
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/webhooks"

    def start(self) -> None:
        """Return when it answers."""
        process = self._process = self.spawn()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(f"almanac receive did not start: {process.communicate()}")
        assert json.loads(line)["url"] == self.url

    def spawn(self) -> subprocess.Popen[str]:
        """Start it, and return its process without waiting."""
        return subprocess.Popen(
            [*ALMANAC, "receive", "--port", str(self.port), "--json", *self._words],
            cwd=self.home.root.parent,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "it was not started"
        return self._process

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.process.kill()
        self.process.communicate()

    def wait(self) -> None:
        """Wait until it has ended."""
        self.process.communicate(timeout=HANGS_AFTER_S)

    def end(self) -> tuple[int, str, str]:
        """End it (SIGTERM); return its exit code and what it printed."""
        self.process.send_signal(signal.SIGTERM)
        output, errors = self.process.communicate(timeout=HANGS_AFTER_S)
        return self.process.returncode, output, errors

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def set_service_clock(home: Home, service_now: datetime, machine: datetime | None = None) -> None:
    """Store in a home how far the service's clock is ahead, as an answer with its `Date` does."""
    now = machine or datetime.now(UTC)
    clock = ServiceClock(lambda: now, state=Storage(home.state), max_skew=None)
    clock.record_response_date([format_datetime(service_now.astimezone(UTC), usegmt=True)])
    clock.keep()
