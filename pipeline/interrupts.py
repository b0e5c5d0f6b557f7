"""How signals end a command: as Ctrl-C does, whichever of them it is.

Ctrl-C, SIGTERM (a supervisor, `kill`) and SIGHUP (a closed terminal) all raise KeyboardInterrupt
where the program is, so that what is held is let go and what was interrupted is said.
"""

import signal
from collections.abc import Callable
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_by_signals() -> None:
    """Have the signals that end a program interrupt it. To be called by the main thread, once."""
    _on_ending(_interrupt)
    # Dagster puts handlers of its own for the other two in place while a step runs.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _as_ctrl_c)


def stop_by_signals(stop: Callable[[], None]) -> None:
    """Have them call a function, for a command that serves until it is asked to stop."""
    _on_ending(lambda number, frame: stop())


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
