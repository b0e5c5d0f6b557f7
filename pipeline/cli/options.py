"""What several commands share: options, how they read what is typed, and how signals end them.

Ctrl-C, SIGTERM (a supervisor, `kill`) and SIGHUP (a closed terminal) all raise KeyboardInterrupt
where the program is, so that what is held is released and what was interrupted is reported.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from types import FrameType
from typing import Annotated, Any, Final

import typer

from pipeline.console import EXIT_USAGE, fail

YEARS: Final = range(1970, 2201)
"""Further off it is a slip of the hand, and arithmetic on it may overflow."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def instant_option(name: str, text: str) -> datetime:
    """Return an instant as typed; without a zone it is UTC."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        fail(
            f"{name} {text!r}: expected a form such as 2026-03-01 or 2026-03-01T06:00:00Z",
            code=EXIT_USAGE,
        )
    _check_year(name, text, parsed.year)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def dates_option(begin: str, end: str | None) -> tuple[date, date | None]:
    """Return the event dates of `--from` and `--to` as typed; without `--to` the last is None."""
    lower = date_option("--from", begin)
    upper = None if end is None else date_option("--to", end)
    if upper is not None and upper < lower:
        fail(f"--to {upper} is before --from {lower}. No request was sent.", code=EXIT_USAGE)
    return lower, upper


def date_option(name: str, text: str) -> date:
    """Return a date as typed."""
    try:
        parsed = date.fromisoformat(text)
    except ValueError:
        fail(f"{name} {text!r}: expected a form such as 2026-03-01", code=EXIT_USAGE)
    _check_year(name, text, parsed.year)
    return parsed


def _check_year(name: str, text: str, year: int) -> None:
    if year not in YEARS:
        fail(
            f"{name} {text!r}: expected a year from {YEARS[0]} to {YEARS[-1]}. Nothing was done.",
            code=EXIT_USAGE,
        )


_REPEATED_AFTER_S: Final = 0.05
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_by_signals() -> None:
    """Have the signals that end a program interrupt it. To be called by the main thread, once."""
    _on_ending(_interrupt)
    # Dagster puts handlers of its own for the other two in place while a step runs.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _as_ctrl_c)
    sys.unraisablehook = _interrupt_later
    if logging.lastResort is not None:
        # SQLAlchemy logs what interrupts it, with a traceback, before it passes it on.
        logging.lastResort.addFilter(_is_no_interrupt)


def stop_by_signals(stop: Callable[[], None]) -> None:
    """Have them call a function, for a command that serves until it is asked to stop."""
    _on_ending(lambda number, frame: stop())


@contextmanager
def signals_held() -> Iterator[Callable[[], bool]]:
    """Hold back the signals that end a program, for code in which no handler of Python runs.

    Lends what says at once, to any thread, whether one came. For one that did KeyboardInterrupt
    is raised at the end, where all handlers are what they were. To be used by the main thread.
    """
    arrived = threading.Event()
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)

    def has_arrived() -> bool:
        with suppress(BlockingIOError):
            if not arrived.is_set() and set(ENDING).intersection(os.read(reader, 4096)):
                arrived.set()
        return arrived.is_set()

    # The number of a signal is written there when it comes, whatever runs.
    wakeup_fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {
        number: signal.signal(number, lambda *_: arrived.set())
        for number in ENDING
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


def _on_ending(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in ENDING:
        # `nohup` has SIGHUP ignored: who asked for that gets it.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does at this moment."""
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(number, frame)


def _interrupt_later(unraisable: Any) -> None:
    """Interrupt once more where it came while an object was taken apart, which loses it."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        # A little later: from within here it would be lost again.
        timer = threading.Timer(_REPEATED_AFTER_S, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
    else:
        sys.__unraisablehook__(unraisable)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, KeyboardInterrupt)
