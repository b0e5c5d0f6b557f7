"""What `doctor` and `status` say of Dagster's records of runs, and how `doctor --fix` mends them.

Belongs here: the two checks, setting aside what is damaged, failing the dead. Does not: how it is
shown (doctor_cli), what counts as damaged (run_store) or dead (dead_runs).
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
"""For a command that is just ending."""


@dataclass(frozen=True, slots=True)
class RunsChecked:
    """One thing that was looked at: what, whether it holds, and what was found."""

    what: str
    holds: bool
    found: str


def checked_runs(home: Home, *, fix: bool) -> Iterator[RunsChecked]:
    """Check that Dagster's databases are sound, and that each run under way has a process."""
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
    """Yield what `status` warns of: `records` for a damaged database, `runs` for dead runs."""
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
    """Set aside what is damaged and make it anew, and fail dead runs; returns what was done.

    Raises:
        LockHeld: a command is at work on the home.
        OSError: the folder can't be written to.
    """
    done: list[str] = []
    if not damages(home, thorough=True) and not dead_runs(home):
        return done
    with _alone(home):
        for damage in damages(home, thorough=True):
            if damage.kind == "damaged" or damage.is_unreadable:
                done.append(_mended(damage))
        # Here, since importing Dagster takes longer than all the rest.
        from pipeline.instance import instance_of

        with instance_of(home) as instance:
            for run in fail_dead_runs(home, instance):
                done.append(f"run {run.run_id[:8]} of `{run.job}` is marked failed")
    return done


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Keep `almanac run` and `almanac ui` away: they have the databases open."""
    with ExitStack() as held:
        try:
            held.enter_context(home.ui_lock())
            held.enter_context(Home(home.root, wait_s=_WAIT_S).run_lock())
        except LockHeld as error:
            raise LockHeld(f"{error} Stop it first.") from error
        yield


def _mended(damage: Damage) -> str:
    """Let the user have what only lacked that; set aside what can't be kept."""
    with suppress(OSError):
        if damage.path.is_file() and damage.is_unreadable:
            damage.path.chmod(damage.path.stat().st_mode | stat.S_IRUSR | stat.S_IWUSR)
            return f"{damage.path} is now readable and writable"
    aside = set_aside(damage, utc_now())
    return f"{damage.path.name} ({damage.what}) was renamed to {aside.name}, and a new one was made"
