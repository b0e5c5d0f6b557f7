"""The group of all commands: where errors that no command of it answers become one plain line.

Exit codes: 2 for settings that can't be used, 1 for files that can't, and for data at rest that
is not as it should be; 130 for what Ctrl-C, SIGTERM or SIGHUP cut short.
"""

from typing import Any

from typer.core import TyperGroup

from pipeline.console import (
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    INTERRUPTED,
    fail,
    interruptible,
    warnings,
)
from pipeline.secrecy import cautions_of
from pipeline.settings import SettingsError, read_settings
from warehouse.errors import WarehouseError


class PlainGroup(TyperGroup):
    """A group whose commands end with a line and an exit code, never with a traceback of these."""

    # The class of a context has no public name in Typer.
    def invoke(self, ctx: Any) -> Any:
        warn_of_secrets()
        try:
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
        f"{where}{reason}. What was finished before stands. Make it possible to read and write "
        "there, or name another place; the home is named with ALMANAC_HOME."
    )
