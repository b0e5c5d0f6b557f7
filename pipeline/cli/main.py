"""The program `almanac`: its commands, the errors that no command handles, and its exit.

Exit codes: 2 for unusable settings, 1 for unusable files and damaged data, 130 after Ctrl-C,
SIGTERM or SIGHUP. A command is imported when it is called, and imports what takes long only where
it uses it, so that help and quick commands start at once. The process exits without teardown: the
interpreter would free every object, which takes seconds for a synthetic catalog and Dagster's
modules.
"""

import atexit
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from almanac.errors import AlmanacError
from almanac.forms import accept_any_text
from pipeline.cli.options import interrupt_by_signals, signals_held
from pipeline.console import (
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    INTERRUPTED,
    fail,
    interruptible,
    show_waits,
    warnings,
)
from warehouse.errors import WarehouseError

_COLLECTED_AFTER: Final = (50_000, 20, 50)
"""Objects, then collections of the younger generation, before the garbage collector runs. By
default it walks the modules of Dagster again and again while they are imported."""


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Where the function of a command is, or the Typer of its group, and its line in the help."""

    module: str
    name: str
    summary: str

    def load(self, command: str) -> Any:
        """Import it and return Typer's command. A signal is held back until it is imported."""
        with signals_held():
            found = getattr(import_module(f"pipeline.cli.{self.module}"), self.name)
        if isinstance(found, typer.Typer):
            app = found
        else:
            app = typer.Typer(add_completion=False)
            app.command()(found)
        made: Any = typer.main.get_command(app)
        made.name = command
        return made


COMMANDS: Final = {
    "run": CommandPlace(
        "run", "run", "Pull today's catalog, merge it into history, publish, and print a summary."
    ),
    "budget": CommandPlace(
        *("budget", "budget"),
        "Show the poll plan, its cost until the quota resets, and the price of a backfill.",
    ),
    "backfill": CommandPlace(
        *("backfill", "backfill"),
        "Pull all events in a range of event dates, month by month, and merge them.",
    ),
    "sql": CommandPlace(
        *("questions.sql", "sql_app"),
        "Query the warehouse. Instants are UTC; `events_as_of(ts)` shows what was known at `ts`.",
    ),
    "audit": CommandPlace(
        *("questions.sql", "audit"),
        "Show every row of a back-test that used something that nobody knew yet.",
    ),
    "changes": CommandPlace(
        *("questions.changes", "changes"),
        "Show what became known in a period: cancelled, moved, rescored, new events.",
    ),
    "status": CommandPlace(
        *("questions.status", "status"),
        "Show freshness by feed, waiting and missing work, disk and quota. Sends no request.",
    ),
    "merge": CommandPlace(
        *("merge", "merge"),
        "Merge landed batches into the lake and publish the warehouse. Sends no request.",
    ),
    "replay": CommandPlace(
        "merge", "replay", "Rebuild lake and warehouse from landing. Sends no request."
    ),
    "import": CommandPlace(
        "merge",
        "import_file",
        "Land an archived export at its place in history; `almanac merge` then merges it.",
    ),
    "verify": CommandPlace(
        *("maintenance", "verify"),
        "Check that landing, lake and tables agree. Exits with 1 if they do not.",
    ),
    "doctor": CommandPlace(
        *("maintenance", "doctor"),
        "Check settings, home, disk, versions, connection, key and plan. Sends one or two "
        "requests.",
    ),
    "prune": CommandPlace(
        *("maintenance", "prune"),
        "Delete old runs, logs and files that were set aside, and files left by killed processes.",
    ),
    "ui": CommandPlace("ui", "ui", "Start Dagster on the home: pages, schedules and sensors."),
    "daemon": CommandPlace(
        *("ui", "daemon"),
        "Start Dagster's schedules and sensors on the home, without pages. `--check` says if it is "
        "well.",
    ),
    "dagster": CommandPlace(
        *("dagster", "dagster_app"),
        "Record in a Dagster instance that is new what the home holds already.",
    ),
    "sandbox": CommandPlace(
        *("sandbox", "sandbox"),
        "Start the sandbox: the same interface over a synthetic catalog that keeps changing.",
    ),
    "receive": CommandPlace(
        *("push.receive", "receive"),
        "Receive webhooks: verify, store durably, then acknowledge.",
    ),
    "inbox": CommandPlace(
        *("push.inbox", "inbox_app"),
        "List and show received webhooks; replay or dismiss dead letters.",
    ),
    "batches": CommandPlace("merge", "batches_app", "List, show and release landed batches."),
    "keys": CommandPlace(
        "accounts", "keys_app", "Create, list, revoke and rotate API keys of the server."
    ),
    "endpoints": CommandPlace(
        "accounts", "endpoints_app", "Webhook endpoints and their deliveries."
    ),
}
"""Every command, in the order of the help. Only the one that is called is imported."""


@contextmanager
def interrupted_in_one_line() -> Iterator[None]:
    """Turn an interrupt into its message and exit code; Typer has others."""
    try:
        with interruptible():
            yield
    except KeyboardInterrupt:
        fail(INTERRUPTED, code=EXIT_INTERRUPTED)


class PlainGroup(TyperGroup):
    """A group whose commands print one line for these errors, and no traceback.

    A command is imported when it is called; until then its name and its line of help stand for it.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, place in COMMANDS.items():
            self.add_command(TyperCommand(name, help=place.summary))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        place = COMMANDS.get(args[0])
        if place is not None:
            self.add_command(place.load(args[0]))
        return super().resolve_command(ctx, args)

    # The class of a context has no public name in Typer.
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with interrupted_in_one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with interrupted_in_one_line(), signals_held():
            # Imported here, since the list of commands needs no settings.
            from pipeline.secrecy import begin_private
            from pipeline.settings import SettingsError

        try:
            with interrupted_in_one_line():
                begin_private()
                show_waits()
                warn_of_secrets()
                return super().invoke(ctx)
        except SettingsError as error:
            fail(str(error), code=EXIT_USAGE)
        except WarehouseError as error:
            fail(str(error))
        except AlmanacError as error:  # An argument of a question is wrong.
            fail(str(error), code=EXIT_USAGE)
        except BrokenPipeError:
            # The reader closed the pipe; Typer ends quietly.
            raise
        except OSError as error:
            fail(file_trouble(error))
        except MemoryError:
            fail(
                "the memory is used up. Finished work is kept. Print fewer rows (--limit), or let "
                "`almanac sql` write them to a file (--output)."
            )
        except Exception as error:
            if (message := disk_trouble(error)) is None:
                raise
            fail(message)


def warn_of_secrets() -> None:
    """Print on standard error how a secret could leak, once for each command."""
    from pipeline.secrecy import cautions_of
    from pipeline.settings import SettingsError, read_settings

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


def disk_trouble(error: Exception) -> str | None:
    """Return a message for what DuckDB raises about a file or the disk, None of other errors."""
    # Not imported: whoever raised it has.
    duckdb = sys.modules.get("duckdb")
    if duckdb is None or not isinstance(error, duckdb.IOException):
        return None
    return (
        f"{(str(error).splitlines() or ['the disk failed'])[0]}. Finished work is kept, and the "
        "warehouse is as last published. Check the free space of the disk, its permissions and the "
        "limit of file sizes (`ulimit -f`), then run the command again."
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


@app.callback()
def almanac() -> None:
    """Give Typer a group although no command is registered."""


def main() -> None:
    gc.set_threshold(*_COLLECTED_AFTER)
    accept_any_text()
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
