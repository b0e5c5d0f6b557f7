"""Runs one of Dagster's programs while the process that started it lives.

    python -m pipeline.ui.attached LOCK PROGRAM WORDS

Standard input is a pipe of the starter: it closes when the starter ends, however that happens, on
any system. The program and all processes of its group, such as runs, are then ended as by SIGTERM,
and killed a little later. The lock is held until this process ends, and has its id.
"""

import os
import signal
import sys
import threading
import traceback
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from time import sleep
from typing import Final, NoReturn

from pipeline.ui.names import CODE_SERVER, DAEMON, ProgramWords
from warehouse.errors import LockHeld
from warehouse.files.locks import hold_lock

ATTACHED: Final = "pipeline.ui.attached"
_MODULES: Final = {DAEMON: "pipeline.ui.daemon", CODE_SERVER: "pipeline.ui.code_server"}
_END_WITHIN_S: Final = 7.0
_LOCK_WITHIN_S: Final = 1.0


def main() -> None:
    _, lock, name, words = sys.argv
    with ExitStack() as held:
        try:
            held.enter_context(hold_lock(Path(lock), f"to be {name}", wait_s=_LOCK_WITHIN_S))
        except LockHeld as error:
            sys.exit(str(error))
        threading.Thread(target=_end_with_starter, name="almanac-attached", daemon=True).start()
        try:
            import_module(_MODULES[name]).main(ProgramWords.of_text(words))
        except SystemExit as ended:
            _exit(ended.code)
        except BaseException:  # noqa: BLE001 - printed as the interpreter does
            traceback.print_exc()
            _exit(1)
        _exit(0)


def _exit(code: str | int | None) -> NoReturn:
    """Exit without freeing every object, of which some modules print a page."""
    if isinstance(code, str):
        # Imported here, since the programs print nothing else and rich takes memory.
        from pipeline.console import warnings

        warnings.print(code, soft_wrap=True)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _end_with_starter() -> None:
    while os.read(0, 4096):
        pass
    _signal_all(signal.SIGTERM)
    sleep(_END_WITHIN_S)
    _signal_all(signal.SIGKILL)


def _signal_all(number: signal.Signals) -> None:
    """Signal this process, and all of its group if the group is its own."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), number)
    else:
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()
