"""The checks of `doctor` and `status` on Dagster's records of runs, and their repair.

Belongs here: the two checks, setting damaged databases aside, failing dead runs. Does not: how it
is shown (cli/maintenance), what is damaged (runs/store) or dead (runs/dead_runs).
"""

import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from pipeline.health.records import Warned
from pipeline.runs.dead_runs import dead_runs, fail_dead_runs, names_of
from pipeline.runs.store import Damage, damages, set_aside
from resources.http.retries import utc_now
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
        if fix and home.dagster.exists():
            mended = _mend(home)
    except (WarehouseError, OSError) as error:
        mended = [f"not repaired: {error}"]
    found = damages(home, thorough=True)
    problems = "; ".join(str(damage.error(home)) for damage in found) or "sound"
    yield RunsChecked("run records", not found, "; ".join([*mended, problems]))
    if not found:
        yield _dead(home)


def run_troubles(home: Home) -> Iterator[Warned]:
    """Yield the warnings of `status`: `records` for a damaged database, `runs` for dead runs."""
    found = damages(home)
    if found:
        yield Warned("records", str(found[0].error(home)))
        return
    try:
        dead = dead_runs(home)
    except WarehouseError as error:
        yield Warned("records", str(error))
        return
    if dead:
        yield Warned("runs", f"{names_of(dead)}: {_FIX}", min(run.changed_at for run in dead))


def _dead(home: Home) -> RunsChecked:
    what = "runs in progress"
    try:
        dead = dead_runs(home)
    except WarehouseError as error:
        return RunsChecked(what, False, str(error))
    if not dead:
        return RunsChecked(what, True, "each has a process")
    return RunsChecked(what, False, f"{names_of(dead)}: {_FIX}")


def _mend(home: Home) -> list[str]:
    """Replace damaged databases and fail dead runs; return what was done.

    Raises:
        LockHeld: another command uses the home.
        OSError: the folder can't be written to.
    """
    done: list[str] = []
    if not damages(home, thorough=True) and not dead_runs(home):
        return done
    with _alone(home):
        for damage in damages(home, thorough=True):
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
