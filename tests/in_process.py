"""Running a command in the process of the tests."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from almanac import console
from tests.hangs import HANGS_AFTER_S


@contextmanager
def own_process() -> Iterator[None]:
    """Undo at the end what a command sets for its own process: file modes, memory and signals.

    `almanac sql` bounds the memory of its process; left in that of the tests, the bound fails tests
    that come long after it. The command reports no step for being slow.
    """
    mask = os.umask(0o077)
    memory = resource.getrlimit(resource.RLIMIT_DATA)
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    }
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(console, "_FIRST_LINE_S", HANGS_AFTER_S)
            yield
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_DATA, memory)
        for number, handler in handlers.items():
            signal.signal(number, handler)
