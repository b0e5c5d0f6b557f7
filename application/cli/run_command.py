"""`almanac run`: run the daily job now, with the sandbox for the last days, and publish.

After that, it deletes old logs and files that killed processes left.

Exit codes: 0 also when the quota is used up or the service asks to wait (received rows are landed,
and the reason is printed), but 1 with `--strict`; 1 for an error; 2 for unusable settings; 130
after Ctrl-C.
"""

import gc
import shlex
import shutil
import sys
from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from almanac.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    Table,
    fail,
    interruptible,
    people,
    show_rows,
    show_steps,
    warnings,
)
from almanac.core.errors import AlmanacError, WarehouseError
from almanac.core.files import own_folder
from almanac.core.timestamps import utc_now
from application.console import print_json, show_problems
from pipeline.home_location import locate_home, restore_home
from pipeline.settings import Settings, read_settings
from resources.errors import Defer
from warehouse.home import describe_source

if TYPE_CHECKING:
    from application.daily_run import RunTime

DAYS: Final = 7
_MOVED: Final = (
    "SELECT title, old_displayed_date_full AS was, new_displayed_date_full AS moved_to "
    "FROM reschedules ORDER BY known_from DESC LIMIT 5"
)
_UPCOMING: Final = (
    "SELECT title, displayed_date_full AS date, coins FROM upcoming_events "
    "WHERE earliest > now() ORDER BY earliest LIMIT 5"
)


def run(
    days: Annotated[
        int, typer.Option(min=1, max=400, help="With the sandbox: the number of days to simulate.")
    ] = DAYS,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 1 if a pull is deferred or a batch not whole."),
    ] = False,
) -> None:
    """Pull today's catalog, merge it into history, publish, and print a summary."""
    began = monotonic()
    settings = read_settings()
    settings.service_address()
    try:
        with interruptible():
            summary = _summary(settings, days, began)
    except Defer as error:
        summary = {"deferred": str(error), "resume_at": error.resume_at.isoformat()}
    except AlmanacError as error:
        fail(str(error))
    except KeyboardInterrupt:
        warnings.print("Interrupted. Landed data is kept; run `almanac run` again to resume.")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if as_json:
        print_json(summary)
    else:
        _show(summary)
    is_deferred = "deferred" in summary or summary["deferred_pulls"]
    if strict and (is_deferred or any(problem.is_of_data for problem in summary["problems"])):
        raise typer.Exit(EXIT_ERROR)


def _summary(settings: Settings, days: int, began: float) -> dict[str, Any]:
    now = utc_now().replace(microsecond=0)
    simulated = settings.service_address() is None
    home = locate_home(settings)
    # Before what takes seconds.
    restore_home(home)
    home.check(settings.source)
    from catalog.sandbox.process import SandboxProcess
    from catalog.sandbox.world.lifecycle import pause_garbage_collector

    with ExitStack() as held:
        sandbox = None
        if simulated:
            # It makes its catalog while Dagster is imported.
            folder = TemporaryDirectory(prefix="sandbox-", dir=own_folder())
            process = SandboxProcess(settings.sandbox_seed, now, Path(held.enter_context(folder)))
            sandbox = held.enter_context(process)
        # Modules and catalog live until the end; the garbage collector would scan them for seconds.
        show = held.enter_context(show_steps("Opening the home and the service"))
        with pause_garbage_collector():
            from application.daily_run import (
                RunFailed,
                find_last_day,
                find_missed_polls,
                plan_run_times,
                run_days,
            )
            from assets.layout import Layout
            from pipeline.automation.health import fail_dead_runs, write_run_note
            from pipeline.automation.jobs import prune_files
            from pipeline.instance import is_own, open_instance
            from pipeline.service_session import open_service

            if held.enter_context(home.run_lock()):
                now = utc_now().replace(microsecond=0)
            last_day = find_last_day(home)
            missed = find_missed_polls(home, last_day) if simulated and last_day else ()
            instants = plan_run_times(
                days if simulated else 1, now=now, last_day=last_day, missed=missed
            )

            # The days of the sandbox can be run again after a power failure.
            syncs = not simulated or not is_own(home)
            instance = held.enter_context(open_instance(home, syncs=syncs))
            held.callback(lambda: write_run_note(home, Layout(), instance, utc_now()))
            for run_id in fail_dead_runs(instance):
                warnings.print(f"Run {run_id} was killed; it is marked failed.", markup=False)
            opening = open_service(settings, now=instants[0].at, sandbox=sandbox)
            service = held.enter_context(opening)
            gc.freeze()
            held.callback(gc.unfreeze)

        def show_time(number: int, at: "RunTime") -> None:
            show(f"{at.at:%Y-%m-%d %H:%M}, {number + 1} of {len(instants)}")

        try:
            run_summary = run_days(settings, service, instance, instants, on_instant=show_time)
        except RunFailed as error:
            show_problems(error.problems, on=warnings)
            raise
        try:
            prune_files(home, utc_now() - timedelta(days=settings.keep_days))
        except (OSError, WarehouseError) as error:
            warnings.print(f"Old files could not be deleted: {error}", markup=False)
    return {
        "source": service.source,
        "plan": service.plan.name,
        **asdict(run_summary),
        "problems": run_summary.problems,
        "days": [day.isoformat() for day in run_summary.days],
        "changes": dict(sorted(run_summary.changes.items(), key=lambda item: -item[1])),
        "seconds": round(monotonic() - began, 1),
        "warehouse": str(home.warehouse),
        "warehouse_bytes": home.warehouse.stat().st_size if home.warehouse.exists() else 0,
    }


def _show(summary: dict[str, Any]) -> None:
    if "deferred" in summary:
        people.print(f"Deferred: {summary['deferred']}", soft_wrap=True)
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _lines(summary):
        table.add_row(name, value)
    people.print(table)
    show_problems(summary["problems"])
    for note in summary["notes"]:
        people.print(f"Note: {note}", soft_wrap=True)
    program = name_program(sys.argv[0])
    if summary["warehouse_bytes"]:
        # On the first day nothing moved yet.
        moved = "rescheduled" in summary["changes"]
        _answer(program, Path(summary["warehouse"]), _MOVED if moved else _UPCOMING)
    people.print(f"\nNext: {program} serve   pages, calendar and API", soft_wrap=True)
    people.print(f"      {program} ui      schedules and runs in Dagster", soft_wrap=True)
    people.print(f'      {program} sql "DESCRIBE events"', soft_wrap=True)


def name_program(called: str) -> str:
    """Return the command that starts this program in the same shell: `almanac`, or as called."""
    is_lost = Path(called).name == "almanac" and shutil.which("almanac") is None
    return shlex.quote(called) if is_lost else "almanac"


def _answer(program: str, warehouse: Path, query: str) -> None:
    """Print a query, and its rows as `almanac sql` does."""
    from almanac.reading.attached_file import connected, run_sql

    with connected(warehouse) as connection:
        answer = run_sql(connection, query)
    people.print(f'\n{program} sql "{query}"', soft_wrap=True)
    show_rows(answer.columns, answer.rows, vertical=None)


def _lines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    days = summary["days"]
    changes = ", ".join(f"{count:,} {kind}" for kind, count in summary["changes"].items())
    quota, pulls = summary["quota_left"], summary["instants"]
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    size = f"{Path(summary['warehouse'])}  ({summary['warehouse_bytes'] / 1e6:.1f} MB)"
    return [
        ("source", f"{describe_source(summary['source'])}, plan {summary['plan']}"),
        ("observed", f"{span}, {pulls} pull{'' if pulls == 1 else 's'}"),
        ("rows", f"{summary['rows']:,} in {summary['batches']} batches"),
        ("changes", changes or "none"),
        ("rejected", f"{summary['rejected']:,} rows, {summary['quarantined']} batches quarantined"),
        ("requests", f"{summary['requests']:,}"),
        ("quota left", "no known limit" if quota is None else f"{quota:,}"),
        ("seconds", f"{summary['seconds']:.1f}"),
        ("warehouse", size),
    ]
