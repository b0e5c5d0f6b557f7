"""The application's part of the program `almanac`: its commands, settings and errors.

`almanac.command_line` loads `APPLICATION` by the entry point of the distribution
`crypto-almanac-application` (application/pyproject.toml). This module imports no settings, so that
the list of commands is shown fast.
"""

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from almanac.command_line import PACKAGE_COMMANDS, Extension, LazyCommand, hold_signals
from almanac.console import EXIT_ERROR, EXIT_USAGE, warnings

if TYPE_CHECKING:
    from almanac.reading.query_limits import QueryLimits

_COLLECTED_AFTER: Final = (50_000, 20, 50)
"""Thresholds of the garbage collector: objects, then collections. With the defaults it scans
Dagster's modules many times while they are imported."""


# fmt: off
COMMANDS: Final = {
    command: LazyCommand(f"application.cli.{module}", name, summary)
    for command, module, name, summary in (
    ("run", "run_command", "run",
     "Pull today's catalog, merge it into history, publish, and print a summary."),
    ("budget", "budget", "budget",
     "Show how often Almanac polls, the cost until the quota resets, and the reset."),
    ("backfill", "backfill_command", "backfill",
     "Pull all events in a range of event dates, month by month, and merge them."),
    ("status", "status", "status",
     "Show freshness by feed, waiting and missing work, disk and quota. Sends no request."),
    ("report", "report_command", "report",
     "Write coming events, changes and data quality to one HTML file."),
    ("merge", "merge_commands", "merge",
     "Merge landed batches and publish the warehouse. Sends no request."),
    ("rebuild", "merge_commands", "rebuild",
     "Rebuild the warehouse from landing. Sends no request."),
    ("import", "merge_commands", "import_file",
     "Add an archived export to the history, at its own time. Run `almanac merge` afterwards."),
    ("verify", "maintenance", "verify",
     "Check that landing, warehouse and Parquet files agree. Exits with 1 if they do not."),
    ("doctor", "maintenance", "doctor",
     "Check settings, home, disk, versions, connection, key and plan. Sends one or two "
     "requests."),
    ("ui", "ui", "ui", "Start Dagster on the home: UI, schedules and sensors."),
    ("daemon", "ui", "daemon",
     "Start Dagster's schedules and sensors on the home, without the UI. `--check` is a probe."),
    ("sandbox", "sandbox_command", "sandbox_app",
     "Serve the service's interface locally, over a synthetic catalog that keeps changing."),
    ("serve", "serve", "serve_app",
     "Serve pages, calendar and the service's interface: now, as of a time, or in a replay."),
    ("receive", "push", "receive",
     "Receive webhooks: verify, store durably, then acknowledge."),
    ("inbox", "push", "inbox_app",
     "List webhooks that are not landed; retry or dismiss rejected ones."),
    ("batches", "merge_commands", "batches_app",
     "List, release and dismiss landed batches."),
    )
}
"""The application's commands."""
# fmt: on
_PANELS: Final = {
    "Daily": ("run", "status", "report", "budget", "doctor"),
    "Questions": tuple(PACKAGE_COMMANDS),
    "Serve": ("ui", "daemon", "serve", "sandbox"),
    "Push": ("receive", "inbox"),
    "Maintenance": ("merge", "rebuild", "backfill", "import", "verify", "batches"),
}


def _begin(command: str) -> None:
    """Prepare the process for a command, and warn once if a secret could leak."""
    gc.set_threshold(*_COLLECTED_AFTER)
    with hold_signals():
        # Imported here, since the list of commands needs no settings.
        from application.console import show_waits
        from pipeline.secrecy import find_cautions, restrict_new_files
        from pipeline.settings import SettingsError, read_settings

    if command not in PACKAGE_COMMANDS:  # They write only files that a person names.
        restrict_new_files()
    show_waits()
    try:
        cautions = find_cautions(read_settings())
    except SettingsError:
        return  # A command that needs the settings reports this itself.
    for caution in cautions:
        warnings.print(f"almanac: warning: {caution}", soft_wrap=True)


def _find_warehouse() -> Path:
    from pipeline.home_location import locate_existing_home

    return locate_existing_home().warehouse


def _query_limits() -> "QueryLimits":
    from almanac.reading.query_limits import QueryLimits
    from pipeline.settings import read_settings

    settings = read_settings()
    return QueryLimits(
        timeout_s=settings.sql_timeout_s,
        memory_name="--memory",
        timeout_name="ALMANAC_SQL_TIMEOUT_S",
    )


_PATH_ADVICE: Final = (
    "Finished work is kept. Make the path readable and writable, or choose another one; "
    "ALMANAC_HOME names the home."
)


def _explain(error: Exception) -> tuple[str, int] | None:
    """Return message and exit code for a wrong setting, an unusable server, file or full disk."""
    from catalog import ServerError
    from pipeline.settings import SettingsError

    if isinstance(error, ServerError):
        return str(error), EXIT_ERROR
    if isinstance(error, SettingsError):
        return str(error), EXIT_USAGE
    from warehouse.errors import DISK_ADVICE, is_of_the_disk

    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        advice = DISK_ADVICE if is_of_the_disk(error) else _PATH_ADVICE
        return f"{where}{error.strerror or error}. {advice}", EXIT_ERROR
    # Not imported: the code that raised it has done so.
    duckdb = sys.modules.get("duckdb")
    if duckdb is not None and isinstance(error, duckdb.IOException):
        first = (str(error).splitlines() or ["the disk failed"])[0]
        return f"{first}. {DISK_ADVICE}", EXIT_ERROR
    return None


APPLICATION: Final = Extension(
    COMMANDS,
    _begin,
    _find_warehouse,
    _query_limits,
    _explain,
    "application.cli.changes_command",
    _PANELS,
)
