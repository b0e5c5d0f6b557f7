"""Ending the process at once.

An interpreter that ends walks through all it holds and frees it; for a world and Dagster's modules
that is seconds, and of no use to anyone.
"""

import atexit
import os
import sys
import threading

from pipeline.console import EXIT_INTERRUPTED


def leave(code: str | int | None) -> None:
    """End the process as an interpreter does, but leave its memory to the operating system.

    Threads are waited for, exit handlers run, streams are flushed. Returns only where the
    interpreter has something to say itself: a code that is a text, a stream that is closed.
    """
    if isinstance(code, str):
        return
    # What is called has no public name; both are the interpreter's own first steps at its end.
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    except KeyboardInterrupt:
        # All is said already; who asks once more does not want to wait.
        os._exit(code or EXIT_INTERRUPTED)
    os._exit(code or 0)
