"""Runs one of Dagster's programs while the process that started it lives.

    python -m pipeline.ui.attached LOCK PROGRAM WORDS...

Standard input is a pipe of the starter: it closes when the starter ends, however that happens, on
any system. The program is then interrupted as by Ctrl-C, and killed a little later. The lock is
held until this process ends, and has its id.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from time import sleep
from typing import Any, Final

from warehouse.errors import LockHeld
from warehouse.files.locks import hold_lock

ATTACHED: Final = "pipeline.ui.attached"
WEBSERVER: Final = "dagster-webserver"
_END_WITHIN_S: Final = 5.0
_LOCK_WITHIN_S: Final = 1.0


def main() -> None:
    _, lock, name, *words = sys.argv
    with ExitStack() as held:
        try:
            held.enter_context(hold_lock(Path(lock), f"to be {name}", wait_s=_LOCK_WITHIN_S))
        except LockHeld as error:
            sys.exit(str(error))
        threading.Thread(target=_end_with_starter, name="almanac-attached", daemon=True).start()
        sys.argv = [name, *words]
        sys.exit(_program(name)())


def _program(name: str) -> Callable[[], Any]:
    """Return the main function of a program; for Dagster's pages it is ours, with a guard."""
    if name == WEBSERVER:
        main: Callable[[], Any] = import_module("pipeline.ui.webserver").main
        return main
    (program,) = entry_points(group="console_scripts", name=name)
    loaded: Callable[[], Any] = program.load()
    return loaded


def _end_with_starter() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    sleep(_END_WITHIN_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
