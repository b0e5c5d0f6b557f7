"""Runs one of Dagster's programs while the process that started it lives.

    python -m pipeline.ui.attached PROGRAM ARGUMENTS...

`PROGRAM` is a console script of an installed package, such as `dagster-daemon`, or a module.
Standard input is a pipe of the starter: it closes when the starter ends, however that happens. The
program and all processes of its group, such as runs, then get SIGTERM, and SIGKILL a little later.
"""

import os
import runpy
import signal
import sys
import threading
import traceback
from importlib.metadata import entry_points
from time import sleep
from typing import Final

_END_WITHIN_S: Final = 7.0


def main() -> None:
    """Run the program, and exit without freeing every object: DuckDB would report each one."""
    threading.Thread(target=_end_with_starter, name="almanac-attached", daemon=True).start()
    code: object = 0
    try:
        _run(sys.argv[1], sys.argv[2:])
    except SystemExit as ended:
        code = ended.code or 0
        if isinstance(code, str):
            # Imported here: rich takes memory, and the programs print nothing else.
            from almanac.console import warnings

            warnings.print(code, soft_wrap=True, markup=False)
    except BaseException:  # noqa: BLE001 - printed as the interpreter does
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def _run(program: str, arguments: list[str]) -> None:
    sys.argv = [program, *arguments]
    for script in entry_points(group="console_scripts", name=program):
        sys.exit(script.load()())
    runpy.run_module(program, run_name="__main__", alter_sys=True)


def _end_with_starter() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    sleep(_END_WITHIN_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
