"""The real programs on a home: `almanac receive`, `almanac daemon`, and merges beside them.

Belongs here: starting and stopping them. Does not: what is sent, and what is measured.
"""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.children import environment_without_settings
from bench.push.deliveries import SECRET
from resources.inbox.inbox_file import inbox_path
from warehouse.home import Home

SOURCE = "http://127.0.0.1:9"
"""No service listens there: what is measured pulls nothing."""
_ALMANAC = str(Path(sys.executable).with_name("almanac"))
_STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver that listens."""

    pid: int
    port: int
    path: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"


@contextmanager
def receiver(home: Home, *words: str) -> Iterator[Receiver]:
    """Run `almanac receive` on a home, on a free port."""
    with _program(home, "receive", "--port", "0", "--json", *words) as (pid, said):
        address = urlsplit(said["url"])
        assert address.port is not None
        yield Receiver(pid, address.port, address.path)


@contextmanager
def daemon(home: Home) -> Iterator[None]:
    """Run `almanac daemon` on a home."""
    with _program(home, "daemon", "--json"):
        yield


@contextmanager
def merges(home: Home) -> Iterator[subprocess.Popen[str]]:
    """Land and merge in another process, again and again, from here to the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.push.merging", str(home.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # the first merge has ended: the program is warm
        yield process
    finally:
        process.communicate(timeout=_STOP_TIMEOUT_S)


def group_sizes(home: Home, *, newest: int) -> tuple[int, float]:
    """Return how many deliveries the inbox has, and how many of the newest are in a commit.

    Those of one commit have the same instant of receipt.
    """
    with closing(sqlite3.connect(inbox_path(home))) as connection:
        deliveries, commits = connection.execute(
            "SELECT (SELECT count(*) FROM deliveries), count(DISTINCT received_at)"
            " FROM (SELECT received_at FROM deliveries ORDER BY seq DESC LIMIT $newest)",
            {"newest": newest},
        ).fetchone()
    return deliveries, newest / max(1, commits)


@contextmanager
def _program(home: Home, *words: str) -> Iterator[tuple[int, dict[str, Any]]]:
    environment = {
        **environment_without_settings(),
        **{"ALMANAC_HOME": str(home.root), "ALMANAC_STATE": str(home.root.with_name("state"))},
        **{"ALMANAC_BASE_URL": SOURCE, "ALMANAC_API_KEY": "bench-key-0123456789abcdef"},
        **{"ALMANAC_WEBHOOK_SECRETS": SECRET},
    }
    process = subprocess.Popen(
        [_ALMANAC, *words], env=environment, stdout=subprocess.PIPE, cwd=home.root.parent, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"almanac {' '.join(words)} ended with {process.wait()}")
        yield process.pid, json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=_STOP_TIMEOUT_S)
