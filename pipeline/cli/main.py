"""The command `almanac`: its commands, the errors that none of them answers, and its exit.

Exit codes: 2 for settings that can't be used, 1 for files that can't, and for data at rest that
is not as it should be; 130 for what Ctrl-C, SIGTERM or SIGHUP interrupted. The process ends at
once: an interpreter that ends frees all it holds one by one, which takes seconds for a world and
Dagster's modules.
"""

import atexit
import os
import sys
import threading
from typing import Any

import typer
from typer.core import TyperGroup

from pipeline.cli.accounts import endpoints_app, keys_app
from pipeline.cli.backfill import backfill
from pipeline.cli.budget import budget
from pipeline.cli.maintenance import doctor, prune, verify
from pipeline.cli.merge import batches_app, import_file, merge, replay
from pipeline.cli.options import interrupt_by_signals
from pipeline.cli.run import run
from pipeline.cli.sandbox import sandbox
from pipeline.cli.sql import sql
from pipeline.cli.status import status
from pipeline.cli.ui import ui
from pipeline.console import (
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    INTERRUPTED,
    fail,
    interruptible,
    warnings,
)
from pipeline.secrecy import begin_private, cautions_of
from pipeline.settings import SettingsError, read_settings
from warehouse.errors import WarehouseError


class PlainGroup(TyperGroup):
    """A group whose commands end with a line and an exit code, never with a traceback of these."""

    # The class of a context has no public name in Typer.
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            fail(INTERRUPTED, code=EXIT_INTERRUPTED)

    def invoke(self, ctx: Any) -> Any:
        try:
            warn_of_secrets()
            with interruptible():
                return super().invoke(ctx)
        except SettingsError as error:
            fail(str(error), code=EXIT_USAGE)
        except WarehouseError as error:
            fail(str(error))
        except BrokenPipeError:
            # Nobody reads any more, which Typer ends quietly.
            raise
        except OSError as error:
            fail(file_trouble(error))
        except KeyboardInterrupt:
            fail(INTERRUPTED, code=EXIT_INTERRUPTED)


def warn_of_secrets() -> None:
    """Say on standard error how a secret may get out, once a command."""
    try:
        cautions = cautions_of(read_settings())
    except SettingsError:
        return  # The command says so itself, where it needs them.
    for caution in cautions:
        warnings.print(f"almanac: warning: {caution}", soft_wrap=True)


def file_trouble(error: OSError) -> str:
    """Return which file can't be used, why, and what to do."""
    where = "" if error.filename is None else f"{error.filename}: "
    reason = error.strerror or str(error)
    return (
        f"{where}{reason}. Finished work is kept. Make the path readable and writable, or choose "
        "another one; ALMANAC_HOME names the home."
    )


def exit_without_teardown(code: str | int | None) -> None:
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


app = typer.Typer(
    name="almanac",
    cls=PlainGroup,
    help="A warehouse of dated crypto-market events, and a server of the same interface.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold a key
)
app.command()(run)
app.command()(budget)
app.command()(backfill)
app.command()(sql)
app.command()(status)
app.command()(merge)
app.command()(replay)
app.command(name="import")(import_file)
app.add_typer(batches_app, name="batches")
app.command()(verify)
app.command()(doctor)
app.command()(prune)
app.command()(ui)
app.command()(sandbox)
app.add_typer(keys_app, name="keys")
app.add_typer(endpoints_app, name="endpoints")


def main() -> None:
    begin_private()
    try:
        interrupt_by_signals()
        app()
    except SystemExit as ended:
        exit_without_teardown(ended.code)
        raise
    except KeyboardInterrupt:
        # Where no command runs: before it, while Typer makes it out of its function, or after it.
        warnings.print(f"almanac: {INTERRUPTED}", soft_wrap=True)
        exit_without_teardown(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
