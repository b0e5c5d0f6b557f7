"""A sandbox in a process of its own, which does not hold the interpreter of its user.

It ends at the end of its standard input. Only its parent holds the other end of this pipe, so it
ends with its parent, also after SIGKILL. Each line of the input is a time at which the clock then
stands; a line of the output confirms it. The first line of the output is the address with the keys.
"""

import os
import subprocess
import sys
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import msgspec

from catalog import ServerError
from catalog.sandbox.clock import SandboxClock


class SandboxProcess:
    """A sandbox whose process starts now; its clock stands still. A context manager ends it.

    `state_dir` has its keys and usage.
    """

    def __init__(self, seed: int, now: datetime, state_dir: Path) -> None:
        self.clock = SandboxClock(now)
        self._lock = Lock()
        self._process = subprocess.Popen(
            # With -P, no file of the current folder replaces a module.
            [sys.executable, "-P", "-m", __name__, str(seed), now.isoformat(), str(state_dir)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent alone.
        )

    @property
    def base_url(self) -> str:
        """The address. Waits until the sandbox listens; raises ServerError if its process ends."""
        return str(self._address[0])

    @property
    def keys(self) -> dict[str, str]:
        return dict(self._address[1])

    @cached_property
    def _address(self) -> Any:
        return msgspec.json.decode(self._read_line())

    def set_clock(self, instant: datetime) -> None:
        """Stop the clock at a time. Raises ServerError: the process has ended."""
        with self._lock:
            self.clock.set(instant)
            assert self.base_url and self._process.stdin is not None
            with suppress(BrokenPipeError):  # Then there is no answer either.
                self._process.stdin.write(f"{instant.isoformat()}\n".encode())
            self._read_line()

    def _read_line(self) -> bytes:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return line
        raise ServerError(
            f"the process of the embedded sandbox ended with code {self._process.wait()}. Landed "
            "data is kept; run the command again."
        )

    def __enter__(self) -> "SandboxProcess":
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.__exit__(None, None, None)


def main(seed: str, now: str, folder: str) -> None:
    """Serve until the input ends."""
    from catalog.sandbox.sandbox import Sandbox

    sandbox = Sandbox(seed=int(seed), now=datetime.fromisoformat(now), state_dir=Path(folder))

    def obey() -> None:
        with open(0, "rb", buffering=0) as orders:
            for line in orders:
                sandbox.set_clock(datetime.fromisoformat(line.decode().strip()))
                os.write(1, line)
        os._exit(0)  # A normal end would free the world object by object.

    # The world takes seconds; the parent may end before.
    Thread(target=obey, daemon=True).start()
    sandbox.start()
    os.write(1, msgspec.json.encode((sandbox.base_url, dict(sandbox.keys))) + b"\n")
    Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
