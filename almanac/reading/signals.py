"""Signals that arrive while code of a library runs, when no Python handler does.

Belongs here: holding them back, and telling another thread that one arrived. Does not: what ends
then (query_limits), which signals end a program (its command line).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress


@contextmanager
def held_signals(numbers: Sequence[int]) -> Iterator[Callable[[], bool]]:
    """Hold back signals, for code during which no Python handler runs.

    Yields a function that returns in any thread whether a signal has arrived. If one has,
    KeyboardInterrupt is raised at the end, after the handlers are restored. For the main thread.
    """
    arrived = threading.Event()
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)

    def has_arrived() -> bool:
        with suppress(BlockingIOError):
            if not arrived.is_set() and set(numbers).intersection(os.read(reader, 4096)):
                arrived.set()
        return arrived.is_set()

    # Python writes the number of an arriving signal there, whatever code runs.
    wakeup_fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {
        number: signal.signal(number, lambda *_: arrived.set())
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield has_arrived
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup_fd_before)
        is_interrupted = has_arrived()
        for end in (reader, writer):
            os.close(end)
        if is_interrupted:
            raise KeyboardInterrupt
