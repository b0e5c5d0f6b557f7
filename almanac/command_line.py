"""The program `almanac`: its list of commands, errors without a traceback, signals and exit.

The package has the commands that read a published file. A distribution adds its own through the
entry-point group `almanac.commands`, whose one entry names an `Extension`; the application is one.
A command is imported when it is called, so that help and quick commands start fast.

Exit codes: 0 for success, and if the reader of the output leaves early; 1 for an error in data,
files or a statement; 2 for a wrong argument or setting; 130 after Ctrl-C,
SIGTERM or SIGHUP, which all raise KeyboardInterrupt where the program is. The process exits without
teardown: the interpreter would free every object, which takes seconds for Dagster's modules.
"""

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points, version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from almanac.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    INTERRUPTED,
    fail,
    interruptible,
    warnings,
)
from almanac.core.errors import AlmanacError
from almanac.core.text import accept_any_text, open_missing_streams

if TYPE_CHECKING:
    from almanac.reading.query_limits import QueryLimits

ENTRY_POINTS: Final = "almanac.commands"


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """The module and name of a command's function, or of its group's Typer, and its help line."""

    module: str
    name: str
    summary: str

    def load(self, command: str) -> Any:
        """Import it and return Typer's command. A signal is delayed until the import has ended."""
        with hold_signals():
            found = getattr(import_module(self.module), self.name)
        if isinstance(found, typer.Typer):
            app = found
        else:
            app = typer.Typer(add_completion=False)
            app.command()(found)
        made: Any = typer.main.get_command(app)
        made.name = command
        run = made.invoke

        def begin_and_run(context: Any) -> Any:
            load_extension().begin(command)
            return run(context)

        # Not in a callback of the program, which also precedes help and wrong options.
        made.invoke = begin_and_run
        return made


# fmt: off
PACKAGE_COMMANDS: Final = {
    command: LazyCommand(f"almanac.{module}", name, summary)
    for command, module, name, summary in (
    ("sql", "commands", "sql_app",
     "Query the warehouse. Times are UTC; `events_as_of(ts)` shows what was known at `ts`."),
    ("audit", "audit.command", "audit", "Find back-test rows that used future information."),
    ("changes", "commands", "changes",
     "Show what became known in a period: cancelled, moved, rescored, new events."),
    ("mcp", "mcp.command", "mcp",
     "Answer an assistant over the Model Context Protocol, on standard input and output."),
    ("export", "commands", "export",
     "Write events as an iCalendar file, for Google Calendar, Outlook, Apple and others."),
    )
}
# fmt: on
"""The commands of the package, which read a published file and change nothing."""


def _package_limits() -> "QueryLimits":
    from almanac.reading.query_limits import QueryLimits

    return QueryLimits(memory_name="--memory", timeout_name="--timeout")


def _package_warehouse() -> Path:
    from almanac.reader import find_file

    return find_file("data")


@dataclass(frozen=True, slots=True)
class Extension:
    """The part of the program that another distribution adds. The defaults are the package's."""

    commands: Mapping[str, LazyCommand] = field(default_factory=dict)
    begin: Callable[[str], None] = lambda command: None
    """Called before a command runs, with its name."""
    find_warehouse: Callable[[], Path] = _package_warehouse
    """Returns the published file to read without `--home`."""
    query_limits: Callable[[], "QueryLimits"] = _package_limits
    explain: Callable[[Exception], tuple[str, int] | None] = lambda error: None
    """Returns message and exit code of an error of its own, None for other errors."""
    changes: str = ""
    """The module with `follow_changes`, for `almanac changes --follow`."""
    panels: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """The names of all commands by panel of the help, in its order."""


@cache
def load_extension() -> Extension:
    """Return the installed extension, or an empty extension."""
    for point in entry_points(group=ENTRY_POINTS):
        found: Extension = point.load()
        return found
    return Extension()


def list_commands() -> dict[str, LazyCommand]:
    """Return every command by its name."""
    return {**PACKAGE_COMMANDS, **load_extension().commands}


@contextmanager
def _interrupted_in_one_line() -> Iterator[None]:
    """Turn an interrupt into a message and exit code; those of Typer differ."""
    try:
        with interruptible():
            yield
    except KeyboardInterrupt:
        fail(INTERRUPTED, code=EXIT_INTERRUPTED)


class PlainGroup(TyperGroup):
    """A group whose commands print one line for an expected error, and no traceback.

    A command is imported when it is called; until then its name and help line stand for it.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        commands = list_commands()
        for panel, names in (load_extension().panels or {"Commands": commands}).items():
            for name in names:
                summary = commands[name].summary
                self.add_command(TyperCommand(name, help=summary, rich_help_panel=panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        place = list_commands().get(args[0])
        if place is not None:
            self.add_command(place.load(args[0]))
        return super().resolve_command(ctx, args)

    # The class of a context has no public name in Typer.
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _interrupted_in_one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        try:
            with _interrupted_in_one_line():
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # The reader closed the pipe; `main` ends quietly.
        except MemoryError:
            fail(
                "the memory is used up. Finished work is kept. Print fewer rows (--limit), or let "
                "`almanac sql` write them to a file (--output)."
            )
        except Exception as error:
            if (found := load_extension().explain(error)) is not None:
                fail(found[0], code=found[1])
            if isinstance(error, AlmanacError):
                is_usage = isinstance(error, ValueError | LookupError)
                fail(str(error), code=EXIT_USAGE if is_usage else EXIT_ERROR)
            if isinstance(error, OSError):
                where = "" if error.filename is None else f"{error.filename}: "
                fail(f"{where}{error.strerror or error}")
            raise


app = typer.Typer(
    name="almanac",
    cls=PlainGroup,
    help="A warehouse of dated crypto-market events. Times are UTC.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold a key
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"almanac {version('crypto-almanac')}")
        raise typer.Exit


@app.callback()
def make_group(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and exit."
        ),
    ] = False,
) -> None:
    """Make Typer build a command group although no command is registered."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code.

    Without `arguments` it reads the process arguments and ends the process.
    """
    open_missing_streams()
    accept_any_text()
    is_process = arguments is None
    try:
        with interruptible():
            if is_process:
                interrupt_by_signals()
            app(arguments)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            ended.code = 0  # The reader of the output has seen enough.
        if is_process:
            exit_without_teardown(ended.code)
            raise
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        # While no command runs: before it, while Typer builds it from its function, or after it.
        warnings.print(f"almanac: {INTERRUPTED}", soft_wrap=True)
        if is_process:
            exit_without_teardown(EXIT_INTERRUPTED)
        return EXIT_INTERRUPTED
    return 0


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
    except BrokenPipeError:
        pass  # Nobody reads the rest.
    except (OSError, ValueError):
        return
    except KeyboardInterrupt:
        # Everything is printed already; a second Ctrl-C means not to wait.
        os._exit(code or EXIT_INTERRUPTED)
    os._exit(code or 0)


_REPEATED_AFTER_S: Final = 0.05
_WAKES_EVERY_S: Final = 1.0
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_by_signals() -> None:
    """Make ending signals raise KeyboardInterrupt. Call it once, from the main thread."""
    _on_ending(signal.default_int_handler)
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
    """Wait for an event that a signal handler sets. For the main thread.

    A signal can arrive just before the thread begins to wait. It then does not interrupt the wait,
    and its handler runs only with the next Python code. So the thread wakes every second.
    """
    while not stop.wait(_WAKES_EVERY_S):
        pass


@contextmanager
def hold_signals() -> Iterator[Callable[[], bool]]:
    """Delay signals that end the process while code runs that blocks Python's signal handlers.

    Yields a function that returns in any thread whether a signal has arrived. If one has,
    KeyboardInterrupt is raised at the end, after the handlers are restored. For the main thread.
    """
    arrived = threading.Event()
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)

    def has_arrived() -> bool:
        with suppress(BlockingIOError):
            if not arrived.is_set() and set(ENDING).intersection(os.read(reader, 4096)):
                arrived.set()
        return arrived.is_set()

    # Python writes the number of an arriving signal there, whatever code runs.
    wakeup_fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {
        number: signal.signal(number, lambda *_: arrived.set())
        for number in ENDING
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield has_arrived
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup_fd_before)
        is_interrupted = has_arrived()
        for end in (reader, writer):
            os.close(end)
        if is_interrupted:
            raise KeyboardInterrupt


def _on_ending(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in ENDING:
        # Under `nohup` SIGHUP stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


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


if __name__ == "__main__":
    sys.exit(main())
