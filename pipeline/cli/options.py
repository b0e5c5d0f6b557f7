"""Options that several commands share, parsing of dates, and handling of signals.

Ctrl-C, SIGTERM (a supervisor, `kill`) and SIGHUP (a closed terminal) all raise KeyboardInterrupt
at the current place of the program, so that locks are released and the interrupt is reported.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer

from almanac.errors import InvalidArgument
from almanac.instants import instant
from almanac.reading.query_limits import held_signals
from almanac.user_files import local_path
from pipeline.console import EXIT_USAGE, fail

YEARS: Final = range(1970, 2201)
"""A year outside is a typing error, and arithmetic on it may overflow."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def local_file(given: Path | None) -> Path | None:
    """Return a path of a command line.

    Raises:
        typer.BadParameter: it is an address such as `https://`.
    """
    try:
        return None if given is None else local_path(given, "the path")
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from error


def instant_option(name: str, text: str) -> datetime:
    """Parse an instant; without a zone it is UTC. An abbreviated zone is refused."""
    try:
        parsed = instant(text, name)
    except InvalidArgument as error:
        fail(
            f"{name} {text!r}: expected a form such as 2026-03-01 or 2026-03-01T06:00:00Z, and a "
            f"year from {YEARS[0]} to {YEARS[-1]}. {error}",
            code=EXIT_USAGE,
        )
    _check_year(name, text, parsed.year)
    return parsed


def dates_option(begin: str, end: str | None) -> tuple[date, date | None]:
    """Parse the event dates of `--from` and `--to`; without `--to` the last is None."""
    lower = date_option("--from", begin)
    upper = None if end is None else date_option("--to", end)
    if upper is not None and upper < lower:
        fail(f"--to {upper} is before --from {lower}. No request was sent.", code=EXIT_USAGE)
    return lower, upper


def date_option(name: str, text: str) -> date:
    """Parse a date."""
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
_WAKES_EVERY_S: Final = 1.0
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_by_signals() -> None:
    """Make ending signals raise KeyboardInterrupt. Call it once, from the main thread."""
    _on_ending(_interrupt)
    # While a step runs, Dagster sets its own handlers for the other two signals.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _as_ctrl_c)
    sys.unraisablehook = _interrupt_later
    if logging.lastResort is not None:
        # SQLAlchemy logs an interrupt with a traceback before it raises it again.
        logging.lastResort.addFilter(_is_no_interrupt)


def stop_by_signals(stop: Callable[[], None]) -> None:
    """Make ending signals call a function, for a command that runs until it is stopped."""
    _on_ending(lambda number, frame: stop())


def wait_until(stop: threading.Event) -> None:
    """Wait for an event that a signal's handler sets. For the main thread.

    A signal that arrives while the thread is about to wait interrupts nothing, and its handler runs
    when Python code does: so it wakes every second. With busy threads that happens.
    """
    while not stop.wait(_WAKES_EVERY_S):
        pass


@contextmanager
def signals_held() -> Iterator[Callable[[], bool]]:
    """Hold back ending signals, for code during which no Python handler runs.

    Yields a function that returns in any thread whether a signal has arrived. If one has,
    KeyboardInterrupt is raised at the end, after the handlers are restored. For the main thread.
    """
    with held_signals(ENDING) as has_arrived:
        yield has_arrived


def _on_ending(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in ENDING:
        # Under `nohup` SIGHUP stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    """Call the current handler of SIGINT."""
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(number, frame)


def _interrupt_later(unraisable: Any) -> None:
    """Interrupt once more if the interrupt was lost in the destructor of an object."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        # A little later: raised here, it would be lost again.
        timer = threading.Timer(_REPEATED_AFTER_S, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
    else:
        sys.__unraisablehook__(unraisable)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, KeyboardInterrupt)
