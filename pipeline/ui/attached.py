"""Runs one of Dagster's programs while the process that started it lives.

    python -m pipeline.ui.attached LOCK PROGRAM ARGUMENTS...

`PROGRAM` is a console script of an installed package, such as `dagster-daemon`, or a module of
Almanac. Standard input is a pipe of the starter: it closes when the starter ends, however that
happens. The program and all processes of its group, such as runs, then get SIGTERM, and SIGKILL a
little later. The lock is held until this process ends, and records its id.
"""

import os
import runpy
import signal
import sys
import threading
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from time import sleep
from typing import Final, NoReturn

from warehouse.errors import LockHeld
from warehouse.files.locks import hold_lock

ATTACHED: Final = "pipeline.ui.attached"
_END_WITHIN_S: Final = 7.0
_LOCK_WITHIN_S: Final = 1.0


def main() -> None:
    lock, program = Path(sys.argv[1]), sys.argv[2]
    try:
        with hold_lock(lock, f"to be {program}", wait_s=_LOCK_WITHIN_S):
            threading.Thread(target=_end_with_starter, name="almanac-attached", daemon=True).start()
            _exit(_run(program, sys.argv[3:]))
    except LockHeld as error:
        sys.exit(str(error))


def _run(program: str, arguments: list[str]) -> int:
    """Run a program to its end; return its exit code."""
    sys.argv = [program, *arguments]
    try:
        for script in entry_points(group="console_scripts", name=program):
            return script.load()() or 0
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if not isinstance(ended.code, str):
            return ended.code or 0
        # Imported here: rich takes memory, and the programs print nothing else.
        from almanac.console import warnings

        warnings.print(ended.code, soft_wrap=True)
        return 1
    except BaseException:  # noqa: BLE001 - printed as the interpreter does
        traceback.print_exc()
        return 1
    return 0


def _exit(code: int) -> NoReturn:
    """Exit without freeing every object: DuckDB would print a page of what is left."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
