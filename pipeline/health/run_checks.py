"""The checks of `doctor` and `status` on Dagster's records of runs, and their repair.

Belongs here: the two checks, setting damaged databases aside, failing dead runs. Does not: how it
is shown (cli/maintenance), what is damaged (runs/store) or dead (runs/dead_runs).
"""

import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pipeline.health.records import Warned
from pipeline.runs.dead_runs import dead_runs, fail_dead_runs, names_of
from pipeline.runs.generated import is_changed
from pipeline.runs.history import RunHistory
from pipeline.runs.history_store import history_of
from pipeline.runs.place import CONFIG, InstancePlace, place_of
from pipeline.runs.presence import presence
from pipeline.runs.store import Damage, RunInProgress, damages, set_aside
from warehouse.clock import utc_now
from warehouse.errors import LockHeld, WarehouseError
from warehouse.home import Home

_FIX: Final = "`almanac doctor --fix` marks it failed; so does the next `almanac run`"

_WAIT_S: Final = 1.0
"""Enough for a command that is just ending."""


@dataclass(frozen=True, slots=True)
class RunsChecked:
    """The result of one check: its subject, whether it holds, and what was found."""

    what: str
    holds: bool
    found: str


def checked_runs(home: Home, *, fix: bool) -> Iterator[RunsChecked]:
    """Check that Dagster's databases are sound, and that each run in progress has a process."""
    mended: list[str] = []
    try:
        place = place_of(home)
        if fix and place.folder.exists():
            mended = _mend(home, place)
        found = damages(home, thorough=True)
    except (WarehouseError, OSError) as error:
        yield RunsChecked("run records", False, f"not repaired: {error}" if fix else str(error))
        return
    problems = "; ".join(str(damage.error(home)) for damage in found) or _sound(place)
    yield RunsChecked("run records", not found, "; ".join([*mended, problems]))
    if not found:
        yield _dead(home)


def run_troubles(home: Home) -> Iterator[Warned]:
    """Yield the warnings of `status`: `records` for a damaged database, `runs` for dead runs."""
    try:
        found = damages(home)
        if found:
            yield Warned("records", str(found[0].error(home)))
            return
        dead = _dead_runs(home)
    except WarehouseError as error:
        yield Warned("records", str(error))
        return
    if dead:
        yield Warned("runs", f"{names_of(dead)}: {_FIX}", min(run.changed_at for run in dead))


def run_history(home: Home, roles: Mapping[str, str], now: datetime) -> RunHistory:
    """Return what failed or hangs by the records of the home; unknown if they can't be read."""
    try:
        return history_of(home, roles, now)
    except (sqlite3.Error, OSError, WarehouseError) as error:
        return RunHistory(unknown=f"the run records can't be read ({type(error).__name__})")


def _dead(home: Home) -> RunsChecked:
    what = "runs in progress"
    try:
        dead = _dead_runs(home)
    except WarehouseError as error:
        return RunsChecked(what, False, str(error))
    if not dead:
        return RunsChecked(what, True, "each has a process")
    return RunsChecked(what, False, f"{names_of(dead)}: {_FIX}")


def _sound(place: InstancePlace) -> str:
    """Return what is known of sound records: where they are, if not in the home as generated."""
    config = place.folder / CONFIG
    if place.is_own:
        return (
            f"sound; {config} was changed by hand, and is kept" if is_changed(config) else "sound"
        )
    if place.databases is None:
        return f"in {place.storage}, as {config} names it; that database is not checked here"
    return f"sound, in {place.databases}"


def _dead_runs(home: Home) -> list[RunInProgress]:
    """Return the dead runs; Dagster is opened only if the records are in no SQLite database.

    Raises:
        RunRecordsUnusable: the records can't be read.
    """
    if place_of(home).databases is not None:
        return dead_runs(home)
    seen = presence(home)
    if not seen.dead - seen.alive:
        return []
    from pipeline.instance import instance_of

    with instance_of(home) as instance:
        return dead_runs(home, instance=instance)


def _mend(home: Home, place: InstancePlace) -> list[str]:
    """Replace damaged databases and fail dead runs; return what was done.

    Databases outside the home belong to others: they are not replaced.

    Raises:
        LockHeld: another command uses the home.
        OSError: the folder can't be written to.
        RunRecordsUnusable: the records can't be read.
    """
    done: list[str] = []
    if not damages(home, thorough=True) and not _dead_runs(home):
        return done
    with _alone(home):
        for damage in damages(home, thorough=True) if place.is_own else ():
            if damage.kind == "damaged" or damage.is_unreadable:
                done.append(_mended(damage))
        # Imported here, since importing Dagster takes longer than all the rest.
        from pipeline.instance import instance_of

        with instance_of(home) as instance:
            for run in fail_dead_runs(home, instance):
                done.append(f"run {run.run_id[:8]} of `{run.job}` is marked failed")
    return done


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Lock out `almanac run` and `almanac ui`, which have the databases open."""
    with ExitStack() as held:
        try:
            held.enter_context(home.ui_lock())
            held.enter_context(Home(home.root, wait_s=_WAIT_S).run_lock())
        except LockHeld as error:
            raise LockHeld(f"{error} Stop it first.") from error
        yield


def _mended(damage: Damage) -> str:
    """Give the user access to a database if only that is missing, else set it aside."""
    with suppress(OSError):
        if damage.path.is_file() and damage.is_unreadable:
            damage.path.chmod(damage.path.stat().st_mode | stat.S_IRUSR | stat.S_IWUSR)
            return f"{damage.path} is now readable and writable"
    aside = set_aside(damage, utc_now())
    return f"{damage.path.name} ({damage.what}) was renamed to {aside.name}, and a new one was made"
