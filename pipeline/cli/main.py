"""The program `almanac`: its commands, the errors that no command handles, and its exit.

Exit codes: 2 for unusable settings, 1 for unusable files and damaged data, 130 after Ctrl-C,
SIGTERM or SIGHUP. The process exits without teardown: the interpreter would free every object,
which takes seconds for a synthetic catalog and Dagster's modules.
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
    """A group whose commands print one line for these errors, and no traceback."""

    # The class of a context has no public name in Typer.
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with interruptible():
                return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            fail(INTERRUPTED, code=EXIT_INTERRUPTED)

    def invoke(self, ctx: Any) -> Any:
        try:
            with interruptible():
                warn_of_secrets()
                return super().invoke(ctx)
        except SettingsError as error:
            fail(str(error), code=EXIT_USAGE)
        except WarehouseError as error:
            fail(str(error))
        except BrokenPipeError:
            # The reader closed the pipe; Typer ends quietly.
            raise
        except OSError as error:
            fail(file_trouble(error))
        except KeyboardInterrupt:
            fail(INTERRUPTED, code=EXIT_INTERRUPTED)


def warn_of_secrets() -> None:
    """Print on standard error how a secret could leak, once for each command."""
    try:
        cautions = cautions_of(read_settings())
    except SettingsError:
        return  # A command that needs the settings reports this itself.
    for caution in cautions:
        warnings.print(f"almanac: warning: {caution}", soft_wrap=True)


def file_trouble(error: OSError) -> str:
    """Return a message with the unusable file, the reason, and what to do."""
    where = "" if error.filename is None else f"{error.filename}: "
    reason = error.strerror or str(error)
    return (
        f"{where}{reason}. Finished work is kept. Make the path readable and writable, or choose "
        "another one; ALMANAC_HOME names the home."
    )


def exit_without_teardown(code: str | int | None) -> None:
    """Exit as the interpreter does, but without freeing objects.

    It waits for threads, runs exit handlers and flushes streams. It returns only if the interpreter
    has to print something itself: for a code that is a text, or a closed stream.
    """
    if isinstance(code, str):
        return
    # Both calls have no public name; they are the interpreter's own first steps at exit.
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    except KeyboardInterrupt:
        # Everything is printed already; a second Ctrl-C means not to wait.
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
        with interruptible():
            interrupt_by_signals()
            app()
    except SystemExit as ended:
        exit_without_teardown(ended.code)
        raise
    except KeyboardInterrupt:
        # While no command runs: before it, while Typer builds it from its function, or after it.
        warnings.print(f"almanac: {INTERRUPTED}", soft_wrap=True)
        exit_without_teardown(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
